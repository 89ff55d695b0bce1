"""The clients that one can copy: clients/typescript and clients/go, each with its own tools."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.docs import ROOT
from support.npm import cache as cache
from support.npm import installed, node

from zot.testing.fakeserver import FakeServer

CLIENTS = ROOT / "clients"
ZOT = str(Path(sys.executable).parent / "zot")
TYPESCRIPT = ("typescript@5.9.2", "@types/node@20")
pytestmark = pytest.mark.slow


@pytest.fixture
def command(tmp_path):
    with FakeServer() as server:
        flags = ["--provider", "anthropic", "--base-url", server.url, "--api-key", "k", "--no-ext"]
        yield [ZOT, "rpc", *flags, "--approve", "bash", "--cwd", str(tmp_path)]


@pytest.fixture
def environment(tmp_path):
    return {**os.environ, "ZOT_HOME": str(tmp_path / "home")}


def run(command, cwd, environment=None):
    done = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=115, env=environment
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_types_of_the_package_are_those_of_the_wire():
    made = run([ZOT, "schema", "rpc", "--typescript"], ROOT)
    assert (CLIENTS / "typescript" / "src" / "wire.ts").read_text(encoding="utf-8") == made


def test_no_type_hides_a_global_one():
    text = (CLIENTS / "typescript" / "src" / "wire.ts").read_text(encoding="utf-8")
    names = [line.split()[2] for line in text.splitlines() if line.startswith("export")]
    assert names and all(name.startswith("Zot") for name in names)
    assert len(names) == len(set(names))


def test_the_typescript_client_compiles_strictly_and_drives_zot(
    command, environment, cache, tmp_path
):
    node()
    modules = installed(cache, *TYPESCRIPT) / "node_modules"
    package = shutil.copytree(CLIENTS / "typescript", tmp_path / "package")
    (package / "node_modules").symlink_to(modules)
    config = json.loads((package / "tsconfig.json").read_text())
    config["compilerOptions"]["rootDir"] = "."
    config["include"] = ["src", "test"]
    (package / "tsconfig.json").write_text(json.dumps(config))
    run(["node", str(modules / "typescript" / "bin" / "tsc"), "-p", "."], package)
    said = run(["node", "dist/test/scenario.js", *command], package, environment)
    assert said.split() == ["prompts", "approvals", "aborts", "errors", "agents"]


def test_the_go_client_is_vetted_and_drives_zot(command, environment, tmp_path):
    go = shutil.which("go")
    if go is None:
        pytest.skip("go is not installed")
    module = shutil.copytree(CLIENTS / "go", tmp_path / "module")
    caches = {"GOFLAGS": "-mod=mod", "GOPATH": str(tmp_path / "gopath"), "HOME": os.environ["HOME"]}
    environment |= {**caches, "ZOT_COMMAND": " ".join(command)}
    assert run(["gofmt", "-l", "."], module, environment) == ""
    run([go, "vet", "./..."], module, environment)
    assert "SKIP" not in run([go, "test", "-v", "-count=1", "./..."], module, environment)
