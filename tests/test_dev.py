"""dev.py in a project of its own: small, and built without a network."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dev import VERSIONS, find_python

ROOT = Path(__file__).parent.parent
PROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "empty"
version = "1"
"""
BACKEND = """
import zipfile

def build_editable(folder, config_settings=None, metadata_directory=None):
    name, info = "empty-1-py3-none-any.whl", "empty-1.dist-info"
    with zipfile.ZipFile(f"{folder}/{name}", "w") as wheel:
        for file, text in {
            "METADATA": "Metadata-Version: 2.1\\nName: empty\\nVersion: 1\\n"
            "Provides-Extra: dev\\nProvides-Extra: local\\n",
            "WHEEL": "Wheel-Version: 1.0\\nGenerator: test\\n"
            "Root-Is-Purelib: true\\nTag: py3-none-any\\n",
            "RECORD": "",
        }.items():
            wheel.writestr(f"{info}/{file}", text)
    return name
"""


@pytest.fixture
def project(tmp_path):
    shutil.copy(ROOT / "dev.py", tmp_path)
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    (tmp_path / "backend.py").write_text(BACKEND)
    return tmp_path


def set_up(project, python=sys.executable):
    """Whether the environment was made anew."""
    done = subprocess.run(
        [python, "dev.py", "setup"], cwd=project, capture_output=True, text=True, timeout=110
    )
    assert done.returncode == 0, done.stderr
    return "setting up .venv" in done.stderr


def version_of(project):
    return subprocess.check_output([project / ".venv/bin/python", "-VV"], text=True)


def other_pythons():
    found = [find_python(v) for v in VERSIONS if v != f"3.{sys.version_info.minor}"]
    return [python for python in found if python is not None]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_environment_is_made_once_and_anew_when_it_was_cut_short(project):
    """Or when another Python makes it, where one is installed."""
    assert set_up(project)
    assert not set_up(project)
    assert not set_up(project, project / ".venv/bin/python"), "from inside it is the same Python"
    first = version_of(project)
    for other in other_pythons()[:1]:
        assert set_up(project, other)
        assert version_of(project) != first
        libraries = [path.name for path in (project / ".venv/lib").iterdir()]
        assert len(libraries) == 1, libraries
        assert not set_up(project, other)
    (project / ".venv/.ready").unlink()
    (project / ".venv/half").touch()
    assert set_up(project, project / ".venv/bin/python")
    assert not (project / ".venv/half").exists()


def test_a_python_that_only_says_what_is_missing_is_passed_over(tmp_path, monkeypatch):
    shim = tmp_path / "shims" / "python3.77"
    real = tmp_path / "pyenv" / "versions" / "3.77.1" / "bin" / "python3.77"
    for path, code in ((shim, 127), (real, 0)):
        path.parent.mkdir(parents=True)
        path.write_text(f"#!/bin/sh\nexit {code}\n")
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{shim.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    assert find_python("3.77") == str(real)
    assert find_python("3.78") is None


def test_a_word_that_is_none_is_named():
    done = subprocess.run(
        [sys.executable, ROOT / "dev.py", "chekc"], capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "dev.py: unknown word 'chekc'" in done.stderr


def test_nothing_tells_a_user_to_install_somebody_elses_zot():
    listed = subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).split("\n")
    for name in filter(None, listed):
        path = ROOT / name
        if path.suffix in (".md", ".py", ".sh", ".toml", ".tmpl", ".yml") and path != Path(
            __file__
        ):
            text = path.read_text(encoding="utf-8")
            assert "pip install zot " not in text and "pip install zot`" not in text, name
            assert "'zot[" not in text, name
