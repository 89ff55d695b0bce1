import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.npm import cache as cache
from support.npm import installed, node

import zot

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
EXAMPLES = sorted(ROOT.glob("examples/**/*.py"))
USERS = [HERE / "embedder.py", HERE / "extension.py"]
PYRIGHT = "pyright@1.1.405"


def check(*files):
    """What mypy says about files that use the package as its users do."""
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", *map(str, files)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=110)
    return done.stdout


def test_the_package_says_that_it_is_typed():
    for package in (Path(zot.__file__).parent, Path(zot.__file__).parent.parent / "zot_ext"):
        assert (package / "py.typed").exists()


@pytest.mark.slow
def test_programs_of_users_and_examples_check_strictly():
    found = check("--scripts-are-modules", *USERS, *EXAMPLES)
    assert "Success" in found, found


@pytest.mark.slow
def test_pyright_agrees(cache, tmp_path):
    node()
    pyright = installed(cache, PYRIGHT) / "node_modules" / "pyright" / "index.js"
    config = {
        "include": ["."],
        "typeCheckingMode": "strict",
        "pythonPlatform": "Linux",
        "extraPaths": [str(ROOT / "src")],
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(config))
    for number, file in enumerate((*USERS, *EXAMPLES)):
        (tmp_path / f"{number}_{file.name}").write_text(file.read_text(encoding="utf-8"))
    command = ["node", str(pyright), "-p", str(tmp_path), "--pythonpath", sys.executable]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110)
    assert "0 errors" in done.stdout, done.stdout + done.stderr


@pytest.mark.slow
def test_a_users_mistakes_are_found():
    lines = (HERE / "mistakes.py").read_text().splitlines()
    expected = {
        (number, line.rpartition("# ")[2]) for number, line in enumerate(lines, 1) if "  # " in line
    }
    found = re.findall(r"mistakes\.py:(\d+): error: .*\[([\w-]+)\]", check(HERE / "mistakes.py"))
    assert {(int(number), code) for number, code in found} == expected
