"""dev.py in a project of its own: small, and built without a network."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.environment import uncovered
from support.own_home import MADE, USER_HOME
from support.patience import patience

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


SHAKY = """
import os
import pytest

@pytest.mark.parametrize("number", range({count}))
def test_shaky(number):
    name = f"seen-{{number}}"
    if not os.path.exists(name):
        open(name, "w").close()
        raise AssertionError
"""


def run_word(project, word):
    """A word of dev.py with the tools of this environment."""
    code = f"import dev, pathlib, sys; dev.BIN = pathlib.Path(sys.executable).parent; dev.{word}"
    variables = {"PYTHONPATH": str(project), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=project,
        capture_output=True,
        text=True,
        timeout=patience(60),
        env={**uncovered(), **variables},
    )


def test_a_test_that_fails_once_is_written_down_and_named_at_the_end(project):
    (project / "test_x.py").write_text(SHAKY.format(count=3))
    done = run_word(project, "suite('-q')")
    assert done.returncode == 0, done.stdout + done.stderr
    names = [f"test_x.py::test_shaky[{number}]" for number in range(3)]
    assert done.stderr.split()[-3:] == names
    log = (project / ".cache" / "unstable.log").read_text().splitlines()
    assert [line.split()[-1] for line in log] == names
    again = run_word(project, "suite('-q')")
    assert (again.returncode, again.stderr) == (0, "")


def test_more_than_three_that_fail_once_fail_the_run(project):
    (project / "test_x.py").write_text(SHAKY.format(count=4))
    done = run_word(project, "suite('-q')")
    assert done.returncode == 1
    assert "4 unstable tests; at most 3" in done.stderr


def test_a_run_that_fails_leaves_no_coverage_files(project):
    (project / "test_x.py").write_text("def test_fails():\n    assert False\n")
    with (project / "pyproject.toml").open("a") as file:
        file.write("[tool.coverage.run]\nparallel = true\n")
    done = run_word(project, "cover('-q')")
    assert done.returncode == 1
    assert "test_fails" in done.stdout
    assert list(project.glob(".coverage*")) == []


def run_pytest(project, *words, **variables):
    """The tests of this project, as somebody who has only just got it runs them."""
    mine = (MADE, USER_HOME, "PYTEST_DEBUG_TEMPROOT", "ZOT_TEST_SLOWNESS", "PYTEST_TIMEOUT")
    environ = {name: value for name, value in uncovered().items() if name not in mine}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words],
        cwd=project,
        capture_output=True,
        text=True,
        timeout=patience(60),
        env={**environ, **variables},
    )


@pytest.fixture
def small_suite(project):
    """The settings of all tests here, with other tests."""
    tests = project / "tests"
    tests.mkdir()
    shutil.copy(ROOT / "pyproject.toml", project)
    shutil.copy(ROOT / "tests" / "conftest.py", tests)
    shutil.copytree(ROOT / "tests" / "support", tests / "support")
    return tests


def test_tests_have_a_home_of_their_own(small_suite, tmp_path):
    user = tmp_path / "user"
    user.mkdir()
    (small_suite / "test_home.py").write_text(
        "import os, tempfile\n"
        "from zot.home import of_process\n"
        "def test_home():\n"
        "    around = of_process()\n"
        f"    assert not around.home.startswith({str(user)!r})\n"
        f"    assert not around.user.startswith({str(user)!r})\n"
        "    os.makedirs(around.home)\n"
        "    print('made', around.home, tempfile.gettempdir())\n"
    )
    variables = {"HOME": str(user), "XDG_STATE_HOME": str(user), "ZOT_HOME": str(user / "z")}
    done = run_pytest(small_suite.parent, "-s", **variables)
    assert done.returncode == 0, done.stdout + done.stderr
    made = next(line for line in done.stdout.splitlines() if "made" in line).split()
    assert not any(Path(path).exists() for path in made[-2:])
    assert list(user.rglob("*")) == []


def test_a_change_in_the_users_folder_fails_the_run(small_suite, tmp_path):
    state = tmp_path / ".local" / "state" / "zot"
    state.mkdir(parents=True)
    (state / "config.json").write_text("{}")
    (small_suite / "test_home.py").write_text(
        f"def test_home():\n    open({str(state / 'config.json')!r}, 'a').write(' ')\n"
    )
    done = run_pytest(small_suite.parent, HOME=str(tmp_path))
    assert done.returncode == 9, done.stdout + done.stderr
    assert str(state / "config.json") in done.stdout


def test_what_is_skipped_is_counted_by_its_reason(small_suite):
    (small_suite / "test_skips.py").write_text(
        "import pytest\n"
        "@pytest.mark.parametrize('number', range(3))\n"
        "def test_skips(number):\n"
        "    pytest.skip('no chromium is installed' if number else f'{number} has no word for x')\n"
    )
    done = run_pytest(small_suite.parent, "-n", "2")
    assert "not tested here" in done.stdout
    assert "    2  no chromium is installed\n    1  the door has no word for it" in done.stdout


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
