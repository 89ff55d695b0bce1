"""Run git, with nothing of a stranger's repository running along."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

from zot.errors import ZotError
from zot.text import printable

GIT_SECONDS = 300.0
"""A checkout of a very large repository takes minutes; what takes longer hangs."""
MAX_DIFF = 16 * 1024 * 1024
# A cloned repository may bring hooks, a monitor, an editor: none is run by looking at its state.
_SAFE = (
    *("-c", "core.hooksPath=/dev/null"),
    *("-c", "core.fsmonitor=false"),
    *("-c", "core.quotePath=false"),
    *("-c", "core.editor=true"),
    *("-c", "commit.gpgSign=false"),
    *("-c", "gc.auto=0"),
    *("-c", "merge.verifySignatures=false"),
    *("-c", "protocol.ext.allow=never"),
)
# Programs that the repository's own configuration may name, and what stands in their place. Those
# in the user's configuration run: large files and encrypted ones need them.
_PROGRAMS = (
    (r"filter\..*\.(clean|smudge|process)", ""),
    (r"filter\..*\.required", "false"),
    (r"merge\..*\.driver", "git merge-file -q --marker-size=%L %A %O %B"),
    (r"core\.sshcommand", "ssh"),
    (r"core\.gitproxy", "none"),
    (r"remote\..*\.uploadpack", "git-upload-pack"),
    (r"core\.(askpass|alternaterefscommand)|credential\.(.*\.)?helper", ""),
)
_AS_ZOT = {
    "GIT_AUTHOR_NAME": "zot",
    "GIT_AUTHOR_EMAIL": "zot@localhost",
    "GIT_COMMITTER_NAME": "zot",
    "GIT_COMMITTER_EMAIL": "zot@localhost",
}


class GitError(ZotError):
    """git said no; the message has its words."""

    code = "git"


class Git:
    """One repository and the directory it looks at."""

    def __init__(self, directory: str, environment: Mapping[str, str], git_dir: str = "") -> None:
        self.directory = directory
        self._environment = {
            **{name: value for name, value in environment.items() if _is_for_git(name)},
            "GIT_TERMINAL_PROMPT": "0",
            "LC_ALL": "C",
        }
        self._place = (f"--git-dir={git_dir}", f"--work-tree={directory}") if git_dir else ()

    def run(self, *words: str, env: Mapping[str, str] | None = None, given: bytes = b"") -> str:
        """What git printed. Raises GitError."""
        done = self.attempt(*words, env=env, given=given)
        if done.returncode:
            raise GitError(f"git {words[0]} failed in {self.directory!r}: {_reason(done)}")
        return done.stdout.decode(errors="surrogateescape")

    def succeeds(self, *words: str) -> bool:
        return self.attempt(*words).returncode == 0

    def line(self, *words: str) -> str:
        return self.run(*words).strip()

    def attempt(
        self, *words: str, env: Mapping[str, str] | None = None, given: bytes = b""
    ) -> subprocess.CompletedProcess[bytes]:
        """What git says, with none of the programs that the repository names."""
        return self._run(words, {**self._tamed, **(env or {})}, given)

    @cached_property
    def _tamed(self) -> dict[str, str]:
        words = ("config", "--list", "--show-scope", "--name-only", "-z")
        said = self._run(words, {}, b"").stdout.decode(errors="surrogateescape").split("\0")
        settings = [
            (name, instead)
            for scope, name in zip(said[::2], said[1::2], strict=False)
            if scope in ("local", "worktree")
            for pattern, instead in _PROGRAMS
            if re.fullmatch(pattern, name, re.DOTALL)
        ]
        variables = {"GIT_CONFIG_COUNT": str(len(settings))}
        for number, (name, instead) in enumerate(settings):
            variables[f"GIT_CONFIG_KEY_{number}"] = name
            variables[f"GIT_CONFIG_VALUE_{number}"] = instead
        return variables

    def _run(
        self, words: tuple[str, ...], env: Mapping[str, str], input: bytes
    ) -> subprocess.CompletedProcess[bytes]:
        command = ["git", *_SAFE, "-C", self.directory, *self._place, *words]
        try:
            return subprocess.run(
                command,
                env={**self._environment, **env},
                input=input,
                capture_output=True,
                timeout=GIT_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            text = f"git {words[0]} in {self.directory!r} took more than {GIT_SECONDS:.0f} s"
            raise GitError(text) from error
        except OSError as error:
            raise GitError(f"cannot run git in {self.directory!r}: {error.strerror}") from error

    def commit(self, message: str, *words: str) -> None:
        given = message.encode(errors="replace")
        self.run("commit", "-q", "-F", "-", *words, env=self.identity(), given=given)

    def identity(self) -> dict[str, str]:
        """Who commits: the user, or zot where none is configured."""
        return {} if self.succeeds("var", "GIT_COMMITTER_IDENT") else _AS_ZOT


def _is_for_git(name: str) -> bool:
    """Not a key: filters that the user has configured would see it. GIT_DIR and the like would make
    git look at another repository than the one it is told."""
    if name.startswith("GIT_"):
        return name in ("GIT_SSL_CAINFO", "GIT_EXEC_PATH")
    return not any(word in name.upper() for word in ("KEY", "TOKEN", "SECRET", "PASSW"))


def _reason(done: subprocess.CompletedProcess[bytes]) -> str:
    said = (done.stderr or done.stdout).decode(errors="replace").strip()
    return printable(said[:2000]) or f"exit code {done.returncode}"


def top_level(directory: str, environment: Mapping[str, str]) -> str:
    """The checkout that the directory lies in; empty: it lies in none."""
    if not Path(directory).is_dir():
        raise GitError(f"{directory!r} is not a directory")
    git = Git(directory, environment)
    done = git.attempt("rev-parse", "--show-toplevel")
    return os.fsdecode(done.stdout.rstrip(b"\n")) if done.returncode == 0 else ""
