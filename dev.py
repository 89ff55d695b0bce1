#!/usr/bin/env python3
"""Everything a developer runs, with nothing but Python 3.11+ and git on the machine.

    python3 dev.py try      a real model on this machine answers one prompt; no key needed
    python3 dev.py test     the quick tests, on all cores
    python3 dev.py check    all gates, as CI runs them: format, lint, types, all tests with coverage

and, piece by piece: setup, lint, types, suite (all tests, no coverage), cover (with it), matrix
(tests on the other Pythons of this machine), package (build wheel and sdist, and try them), docs
(the site of the documentation), bench, clean. Words that follow go to the tool: `python3 dev.py
test tests/wire -k abort` runs just that. Set-up happens by itself, in .venv.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
BIN = VENV / "bin"
CACHES = ("site", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis")
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
# Half of what tests do is to wait for processes: three of them keep two cores busy.
ON_ALL_CORES = ("-n", str(3 * (os.cpu_count() or 1) // 2), "--dist", "worksteal")
INTERRUPTED = 130
TESTS_FAILED = 1
LAST_FAILED = ROOT / ".pytest_cache" / "v" / "cache" / "lastfailed"
UNSTABLE_LOG = ROOT / ".cache" / "unstable.log"
UNSTABLE_LIMIT = 3
"""Tests of one run that may fail among others and pass alone."""
# What depends on the version of Python: types and annotations, files, threads, the doors, how JSON
# and words of a command are read, what is loaded at the start.
MATRIX = ("cli", "core", "runtime", "sdk", "settings", "tools", "wire")
MATRIX += ("serve/test_lines.py", "testing", "test_startup.py", "test_text.py")


def run(*command: object, **variables: str) -> None:
    """Run a program in the project's directory; its failure is ours."""
    if code := exit_code(*command, **variables):
        sys.exit(code)


def exit_code(*command: object, **variables: str) -> int:
    words = [str(word) for word in command]
    environ = {**os.environ, **variables}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)  # else each process prepares all tests anew
    with subprocess.Popen(words, cwd=ROOT, env=environ) as child:
        try:
            code = child.wait()
        except KeyboardInterrupt:  # the terminal told the child as well, and it may need a moment
            child.wait()
            code = INTERRUPTED
    return code if code >= 0 else 128 - code


# --- environments ----------------------------------------------------------------------------


def setup(folder: Path = VENV, python: str = "") -> None:
    """A virtual environment with zot and what its tests need.

    It is made anew when pyproject.toml or the Python changed, or when making it was cut short: one
    made by two Pythons cannot be repaired.
    """
    # Not sys.executable: that may lie in the environment that is about to be removed.
    python = python or getattr(sys, "_base_executable", sys.executable)
    identity = "import sys; print(sys.version, sys.base_prefix)"
    version = subprocess.run([python, "-c", identity], capture_output=True, text=True, check=True)
    wanted = version.stdout + (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    stamp = folder / ".ready"
    if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return
    print(f"setting up {folder.name} (about a minute)", file=sys.stderr)
    shutil.rmtree(folder, ignore_errors=True)
    run(python, "-m", "venv", folder)
    install = (folder / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check", "-e")
    code = exit_code(*install, ".[dev,local]")
    if code == INTERRUPTED:
        sys.exit(code)
    if code:  # there is no model runtime for every machine
        print("without the extra `local`: its tests will be skipped", file=sys.stderr)
        run(*install, ".[dev]")
    stamp.write_text(wanted, encoding="utf-8")


def find_python(version: str) -> str | None:
    """A Python of this version: on the path, pyenv's, the system's or Homebrew's."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    try:
        of_pyenv = sorted(map(str, pyenv.glob(f"versions/{version}.*/bin")))
    except PermissionError:  # another user's
        of_pyenv = []
    places = [
        *os.get_exec_path(),
        *of_pyenv,
        *("/usr/bin", "/usr/local/bin", "/opt/homebrew/bin"),
    ]
    for place in places:
        program = Path(place) / f"python{version}"
        if not os.access(program, os.X_OK):
            continue
        # pyenv puts a program of every version on the path, and most of them only say what is
        # missing; Debian's cannot make environments without another package.
        tried = subprocess.run([program, "-c", "import ensurepip, venv"], capture_output=True)
        if tried.returncode == 0:
            return str(program)
    return None


# --- words -----------------------------------------------------------------------------------


def lint() -> None:
    run(BIN / "ruff", "format", "--check", ".")
    run(BIN / "ruff", "check", ".")


def types(*words: str) -> None:
    run(BIN / "mypy", *words)


def test(*words: str) -> None:
    """Without words a quick loop: nothing slow, and a few examples of each property."""
    if words:
        run(BIN / "pytest", *words)
    else:
        chosen = ("-q", "-m", "not slow and not long", *ON_ALL_CORES)
        run(BIN / "pytest", *chosen, ZOT_TEST_PROFILE="quick")


def run_tests(pytest: Sequence[object], words: Sequence[str], **variables: str) -> list[str]:
    """Run tests, and those that fail once more by themselves; what fails alone too has failed.

    Returns the tests that failed among the others and passed alone.
    """
    LAST_FAILED.unlink(missing_ok=True)
    code = exit_code(*pytest, *words, **variables)
    failed = failed_tests()
    if code == TESTS_FAILED and failed:
        print("once more, by themselves: the tests that failed", file=sys.stderr)
        code = exit_code(*pytest, "-q", "--last-failed", **variables)
    unstable = sorted(failed - failed_tests())
    if code:
        report_unstable(unstable)
        sys.exit(code)
    return unstable


def failed_tests() -> set[str]:
    """The tests that failed when they ran last."""
    return set(json.loads(LAST_FAILED.read_text())) if LAST_FAILED.exists() else set()


def report_unstable(names: Sequence[str]) -> None:
    """Write down and print the tests that failed only once; many of them fail the run."""
    if not names:
        return
    UNSTABLE_LOG.parent.mkdir(exist_ok=True)
    now = time.strftime("%Y-%m-%d %H:%M")
    with UNSTABLE_LOG.open("a", encoding="utf-8") as log:
        log.writelines(f"{now}  {name}\n" for name in names)
    print(f"failed once and passed alone ({UNSTABLE_LOG.relative_to(ROOT)}):", file=sys.stderr)
    for name in names:
        print(f"    {name}", file=sys.stderr)
    if len(names) > UNSTABLE_LIMIT:
        sys.exit(f"{len(names)} unstable tests; at most {UNSTABLE_LIMIT} are allowed in one run")


def suite(*words: str) -> None:
    """All tests, without coverage."""
    report_unstable(run_tests((BIN / "pytest",), words or ("-q", *ON_ALL_CORES)))


def cover(*words: str) -> None:
    """The tests with branch coverage, also of the processes they spawn (tests/conftest.py says
    which ones do not count)."""
    run(BIN / "coverage", "erase")
    try:
        pytest = (BIN / "coverage", "run", "-m", "pytest")
        unstable = run_tests(pytest, words or ("-q", *ON_ALL_CORES))
        run(BIN / "coverage", "combine", "--quiet")
        run(BIN / "coverage", "report")
    finally:  # a run that failed leaves a file of each process
        for path in ROOT.glob(".coverage.*"):
            path.unlink()
    report_unstable(unstable)


def matrix(*words: str) -> None:
    """The tests that depend on Python, on each other version that is installed."""
    running = f"{sys.version_info.major}.{sys.version_info.minor}"
    unstable: list[str] = []
    for version in VERSIONS:
        if version == running:
            continue
        if (python := find_python(version)) is None:
            print(f"Python {version} is not installed: not tested", file=sys.stderr)
            continue
        print(f"Python {version}", file=sys.stderr)
        folder = ROOT / f".venv-{version}"
        setup(folder, python)
        chosen = words or ("-q", "-m", "not slow", *ON_ALL_CORES, *(f"tests/{at}" for at in MATRIX))
        pytest = (folder / "bin" / "pytest",)
        unstable += run_tests(pytest, chosen, ZOT_TEST_PROFILE="quick")
    report_unstable(unstable)


def check() -> None:
    lint()
    types()
    cover()


def bench(*words: str) -> None:
    """Writes bench/RESULTS.md."""
    run(BIN / "python", "bench/run.py", *words)


def package(*words: str) -> None:
    """Fill dist/, with environments of its own."""
    run(BIN / "python", "scripts/package.py", *words)


def docs(*words: str) -> None:
    """Build the documentation as a site, into site/."""
    if not (BIN / "mkdocs").exists():
        run(BIN / "pip", "install", "--quiet", "--disable-pip-version-check", "-e", ".[docs]")
    run(BIN / "mkdocs", "build", "--strict", "--quiet", *words)
    print(f"{ROOT / 'site' / 'index.html'}")


def clean() -> None:
    for path in (*ROOT.glob(".venv*"), *(ROOT / name for name in CACHES)):
        shutil.rmtree(path, ignore_errors=True)
    for path in ROOT.glob(".coverage*"):
        path.unlink()


def main() -> None:
    if sys.version_info < (3, 11):  # noqa: UP036  the one file that older versions may run
        version = ".".join(map(str, sys.version_info[:3]))
        sys.exit(f"zot needs Python 3.11 or newer; this is {version}: run dev.py with another one")
    words = (lint, types, test, suite, cover, matrix, check, package, docs, bench)
    tasks = {task.__name__: task for task in words}
    word, rest = (sys.argv[1], sys.argv[2:]) if len(sys.argv) > 1 else ("help", [])
    if word == "try":
        run("sh", "scripts/try.sh", PYTHON=sys.executable)
    elif word == "clean":
        clean()
    elif word == "setup" or word in tasks:
        setup()
        if word in tasks:
            tasks[word](*rest)
    else:
        unknown = "" if word in ("help", "-h", "--help") else f"\n\ndev.py: unknown word {word!r}"
        sys.exit((__doc__ or "").strip() + unknown)


if __name__ == "__main__":
    main()
