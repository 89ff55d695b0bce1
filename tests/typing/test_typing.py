import re
import subprocess
import sys
from pathlib import Path

import pytest

import zot

HERE = Path(__file__).parent
ROOT = HERE.parent.parent


def check(name):
    """What mypy says about a file that uses the package as its users do."""
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", str(HERE / name)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=110)
    return done.stdout


def test_the_package_says_that_it_is_typed():
    assert (Path(zot.__file__).parent / "py.typed").exists()


@pytest.mark.slow
def test_a_users_program_checks_strictly():
    assert "Success" in check("embedder.py"), check("embedder.py")


@pytest.mark.slow
def test_a_users_mistakes_are_found():
    lines = (HERE / "mistakes.py").read_text().splitlines()
    expected = {
        (number, line.rpartition("# ")[2]) for number, line in enumerate(lines, 1) if "  # " in line
    }
    found = re.findall(r"mistakes\.py:(\d+): error: .*\[([\w-]+)\]", check("mistakes.py"))
    assert {(int(number), code) for number, code in found} == expected
