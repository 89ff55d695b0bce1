"""Build the wheel and the sdist into dist/, check them, try the wheel in an empty environment, and
the sdist with each Python that is here.

    python3 dev.py package            with this Python
    python3 dev.py package --oldest   with the oldest dependencies that pyproject.toml allows

dist/ gets a list of all parts, too (an SBOM in the CycloneDX format): zot-agent.cdx.json.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from dev import VERSIONS, find_python  # noqa: E402  it knows the Pythons of this machine

DIST = ROOT / "dist"
TOOLS = ("build>=1.2", "twine>=6", "hatchling", "cyclonedx-bom>=5")
LOWER_BOUND = re.compile(r"([A-Za-z0-9_.-]+)>=([0-9.]+)")


def run(*command: object, cwd: Path = ROOT) -> None:
    subprocess.run([str(word) for word in command], cwd=cwd, check=True)


def make_environment(folder: Path, *packages: object, python: str = sys.executable) -> Path:
    """Make a virtual environment with these packages; return its bin folder."""
    run(python, "-m", "venv", folder)
    pip = folder / "bin" / "pip"
    run(pip, "install", "--quiet", "--disable-pip-version-check", *packages)
    return folder / "bin"


def build(tools: Path) -> Path:
    """Build wheel and sdist from the files that git knows; return the wheel."""
    shutil.rmtree(DIST, ignore_errors=True)
    run(tools / "python", "-m", "build", "--no-isolation", "--outdir", DIST)
    run(tools / "twine", "check", "--strict", *DIST.iterdir())
    (wheel,) = DIST.glob("*.whl")
    return wheel


def try_wheel(folder: Path, wheel: Path, *constraints: str) -> Path:
    """Install the wheel into an empty environment and run it away from the clone."""
    bin = make_environment(folder, wheel, *constraints)
    run(bin / "pip", "check")
    for command in ("zot", "zot-agent", "zot-pi"):
        run(bin / command, "--version", cwd=folder)
    run(bin / "zot", "docs", "--path", "rpc", cwd=folder)
    run(bin / "python", "-c", "import zot_ext; zot_ext.Extension('x')", cwd=folder)
    run(bin / "zot", "conformance", "--", bin / "zot", "rpc", cwd=folder)
    return bin


def try_sdist(folder: Path) -> None:
    """Install the sdist with each Python that is here, and run it."""
    (sdist,) = DIST.glob("*.tar.gz")
    pythons = {version: find_python(version) for version in VERSIONS}
    for version, python in pythons.items():
        if python is None:
            print(f"Python {version} is not installed: the sdist was not tried with it")
            continue
        bin = make_environment(folder / version, sdist, python=python)
        run(bin / "zot", "--version", cwd=folder)
        run(bin / "zot", "docs", "--path", cwd=folder)


def oldest_dependencies() -> list[str]:
    """Return the lower bound of each dependency as an exact version."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    bounds = map(LOWER_BOUND.fullmatch, project["dependencies"])
    return [f"{bound[1]}=={bound[2]}" for bound in bounds if bound]


def write_parts_list(tools: Path, installed: Path) -> None:
    file = DIST / "zot-agent.cdx.json"
    run(tools / "cyclonedx-py", "environment", installed / "python", "--output-file", file)
    names = sorted(part["name"] for part in json.loads(file.read_text())["components"])
    print(f"{file.relative_to(ROOT)}: {', '.join(names)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--oldest", action="store_true", help="use the oldest dependencies")
    oldest = parser.parse_args().oldest
    with tempfile.TemporaryDirectory() as folder:
        tools = make_environment(Path(folder) / "tools", *TOOLS)
        wheel = build(tools)
        constraints = oldest_dependencies() if oldest else []
        bin = try_wheel(Path(folder) / "empty", wheel, *constraints)
        write_parts_list(tools, bin)
        if not oldest:
            try_sdist(Path(folder))


if __name__ == "__main__":
    main()
