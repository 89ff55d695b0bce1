#!/usr/bin/env python3
"""Everything a developer runs, with nothing but Python 3.11+ and git on the machine.

    python3 dev.py try      a real model on this machine answers one prompt; no key needed
    python3 dev.py check    all gates, as CI runs them: format, lint, types, tests with coverage

and, piece by piece: setup, lint, types, test, cover, bench, clean. What follows the word goes to
the tool: `python3 dev.py test tests/wire -k abort`. Set-up happens by itself, in .venv.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
BIN = VENV / "bin"
STAMP = VENV / ".ready"
CACHES = (".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis")


def run(*command: object, **variables: str) -> None:
    """Run a program in the project's directory; its failure is ours."""
    words = [str(word) for word in command]
    with subprocess.Popen(words, cwd=ROOT, env={**os.environ, **variables}) as child:
        try:
            code = child.wait()
        except KeyboardInterrupt:  # the terminal told the child as well, and it may need a moment
            child.wait()
            code = 130
    if code:
        sys.exit(code if code > 0 else 128 - code)


def setup() -> None:
    """A virtual environment with zot and what its tests need; again when pyproject.toml changed."""
    wanted = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    if STAMP.exists() and STAMP.read_text(encoding="utf-8") == wanted:
        return
    print("setting up .venv (about a minute)", file=sys.stderr)
    run(sys.executable, "-m", "venv", VENV)
    run(BIN / "pip", "install", "--quiet", "--disable-pip-version-check", "-e", ".[dev,local]")
    STAMP.write_text(wanted, encoding="utf-8")


def lint() -> None:
    run(BIN / "ruff", "format", "--check", ".")
    run(BIN / "ruff", "check", ".")


def types(*words: str) -> None:
    run(BIN / "mypy", *words)


def test(*words: str) -> None:
    run(BIN / "pytest", *words)


def cover(*words: str) -> None:
    """The tests with branch coverage, also of the processes they spawn."""
    run(BIN / "coverage", "erase")
    run(BIN / "coverage", "run", "-m", "pytest", *words)
    run(BIN / "coverage", "combine", "--quiet")
    run(BIN / "coverage", "report")


def check() -> None:
    lint()
    types()
    cover()


def bench(*words: str) -> None:
    """Writes bench/RESULTS.md."""
    run(BIN / "python", "bench/run.py", *words)


def clean() -> None:
    for name in (VENV, *CACHES):
        shutil.rmtree(ROOT / name, ignore_errors=True)
    for path in ROOT.glob(".coverage*"):
        path.unlink()


def main() -> None:
    if sys.version_info < (3, 11):  # noqa: UP036  the one file that older versions may run
        found = ".".join(map(str, sys.version_info[:3]))
        sys.exit(f"zot needs Python 3.11 or newer; this is {found}: run dev.py with another one")
    tasks = {each.__name__: each for each in (lint, types, test, cover, check, bench)}
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
