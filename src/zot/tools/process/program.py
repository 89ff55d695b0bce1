"""Commands that need no shell, such as `git status`: a program and its arguments. A shell would
only look up the program and exec it; bash takes a millisecond for that, mostly for its own start.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from zot.text import Frozen, compiled
from zot.tools.paths import is_program

PLAIN = r"(?a)[ \t]*[\w./:@%+,=-]+(?:[ \t]+[\w./:@%+,=-]+)*[ \t]*"
"""Commands made only of characters that have no meaning to a shell in any position."""
_WORDS = """
    . : alias bg bind break builtin caller cd command compgen complete compopt continue declare dirs
    disown echo enable eval exec exit export fc fg getopts hash help history jobs kill let local
    logout mapfile popd printf pushd pwd read readarray readonly return set shift shopt source
    suspend test times trap type typeset ulimit umask unalias unset wait
    if then else elif fi case esac for select while until do done in function time coproc
"""
BUILT_IN = frozenset(_WORDS.split())
"""Builtins and keywords of bash, except `true` and `false`, whose programs do the same."""


class PlainProgram(Frozen):
    """The program that the shell would start."""

    path: str
    argv: list[str]
    env: dict[str, str]
    """Environment with the variables that a shell adds."""


def program_of(command: str, cwd: str, env: Mapping[str, str]) -> PlainProgram | None:
    """Return the program that the command starts; None if it needs a shell."""
    if not compiled(PLAIN).fullmatch(command):
        return None
    words = command.split()
    name = words[0]
    if name in BUILT_IN or "=" in name or "PATH" not in env or _is_changed(env):
        return None
    folders = env["PATH"].split(os.pathsep)
    for path in [name] if "/" in name else [f"{folder or '.'}/{name}" for folder in folders]:
        full = path if path.startswith("/") else f"{cwd}/{path}"
        if is_program(full):
            return PlainProgram(path, words, {"SHLVL": "0", **env, "PWD": cwd, "_": path})
    return None


def _is_changed(env: Mapping[str, str]) -> bool:
    """Return whether bash would read a file first, or has functions named like programs."""
    return "BASH_ENV" in env or "\0BASH_FUNC_" in "\0".join(("", *env))
