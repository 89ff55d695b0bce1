"""Runs git on untrusted trees without running any program that they name.

Every git that zot starts is started by `_start` below; a test finds any other place. A repository
may name programs in its configuration, contain hooks, and hold further repositories (submodules,
clones, traps) with their own configuration. Callers use plumbing that reads the files of one
repository only: never `status`, `add`, `commit` or `merge`, which run git inside nested ones.

A remote names programs, too, and git asks it by itself for objects that a partial clone lacks. So
no git reaches another repository, unless its caller allows that with `allow`; such a caller gives
an address of its own, and works in a repository that zot made.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from zot.errors import ZotError
from zot.text import printable

GIT_SECONDS = 300.0
"""Timeout in seconds: a checkout of a very large repository takes minutes."""
MAX_DIFF = 16 * 1024 * 1024
_SETTINGS = {
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "core.quotePath": "false",
    "core.editor": "true",
    "core.pager": "cat",
    "commit.gpgSign": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "merge.verifySignatures": "false",
    "init.templateDir": "",
    "protocol.ext.allow": "never",
    "diff.ignoreSubmodules": "all",
    "diff.submodule": "short",
    "status.submoduleSummary": "false",
    "submodule.recurse": "false",
    "fetch.recurseSubmodules": "false",
}
# Settings by which the repository's own configuration may name programs, and their replacements.
# Programs in the user's configuration do run: large files and encrypted ones need them.
_PROGRAMS = (
    (r"filter\..*\.(clean|smudge|process)", ""),
    (r"filter\..*\.required", "false"),
    (r"merge\..*\.driver", "git merge-file -q --marker-size=%L %A %O %B"),
    (r"core\.sshcommand", "ssh"),
    (r"gpg\.(.*\.)?(program|defaultkeycommand)", "false"),
    (r"core\.(askpass|alternaterefscommand)|credential\.(.*\.)?helper", ""),
)
_VARIABLES = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "",
    "GIT_EDITOR": "true",
    "GIT_PAGER": "cat",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_LAZY_FETCH": "1",  # older versions do not know it: see _no_protocol
    "LC_ALL": "C",
}
_WALL = (
    *("--unshare-user", "--unshare-net", "--unshare-ipc", "--unshare-pid", "--die-with-parent"),
    *("--cap-drop", "ALL", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"),
)
_AS_ZOT = {
    "GIT_AUTHOR_NAME": "zot",
    "GIT_AUTHOR_EMAIL": "zot@localhost",
    "GIT_COMMITTER_NAME": "zot",
    "GIT_COMMITTER_EMAIL": "zot@localhost",
}


class GitError(ZotError):
    """A git command failed; the message contains its output."""

    code = "git"


class Setting(NamedTuple):
    scope: str
    origin: str
    """`file:` and the path, which may be relative to the directory that git worked in."""
    name: str
    value: str


class Git:
    """A repository and its working directory."""

    def __init__(
        self,
        directory: str,
        environment: Mapping[str, str],
        git_dir: str = "",
        held: tuple[int, ...] = (),
        wall: Sequence[str] = (),
    ) -> None:
        """`held`: descriptors of locks, inherited by git so that they also last until it ends.
        `wall`: a program with its arguments that runs git confined; see `wall_around`."""
        self.directory = directory
        self._environment = environment
        self._held = held
        self._wall = wall
        self._place = (f"--git-dir={git_dir}", f"--work-tree={directory}") if git_dir else ()

    def run(self, *words: str, env: Mapping[str, str] | None = None, stdin: bytes = b"") -> str:
        """Run git and return its output. Raises GitError."""
        done = self.attempt(*words, env=env, stdin=stdin)
        if done.returncode:
            raise GitError(f"git {words[0]} failed in {self.directory!r}: {_reason(done)}")
        return done.stdout.decode(errors="surrogateescape")

    def succeeds(self, *words: str) -> bool:
        return self.attempt(*words).returncode == 0

    def line(self, *words: str) -> str:
        return self.run(*words).strip()

    def attempt(
        self, *words: str, env: Mapping[str, str] | None = None, stdin: bytes = b""
    ) -> subprocess.CompletedProcess[bytes]:
        """Run git without any program that the repository names; return the completed process."""
        return self._run(words, {**self._tamed(), **(env or {})}, stdin)

    def _tamed(self) -> dict[str, str]:
        """Return variables that replace the repository's programs. Read for each command: an agent
        may change the configuration, and parts of it may apply to one branch only."""
        settings = [
            (setting.name, instead)
            for setting in self.settings()
            if setting.scope in ("local", "worktree")
            for pattern, instead in _PROGRAMS
            if re.fullmatch(pattern, setting.name, re.DOTALL)
        ]
        variables = {"GIT_CONFIG_COUNT": str(len(settings))}
        for number, (name, instead) in enumerate(settings):
            variables[f"GIT_CONFIG_KEY_{number}"] = name
            variables[f"GIT_CONFIG_VALUE_{number}"] = instead
        return variables

    def settings(self) -> list[Setting]:
        """Return all settings that git uses here, in order; none where git cannot read them."""
        words = ("config", "--list", "--show-scope", "--show-origin", "-z")
        fields = self._run(words, {}, b"").stdout.decode(errors="surrogateescape").split("\0")
        return [
            Setting(scope, origin, name, value)
            for scope, origin, pair in zip(fields[::3], fields[1::3], fields[2::3], strict=False)
            for name, _, value in (pair.partition("\n"),)
        ]

    def has_submodules(self) -> bool:
        """Return whether the index holds other repositories."""
        return any(row.startswith("160000") for row in self.names("ls-files", "--stage", "-z"))

    def _run(
        self, words: tuple[str, ...], env: Mapping[str, str], stdin: bytes
    ) -> subprocess.CompletedProcess[bytes]:
        command = ("-C", self.directory, *self._place, *words)
        try:
            return _start(command, self._environment, env, stdin, self._held, self._wall)
        except subprocess.TimeoutExpired as error:
            text = f"git {words[0]} in {self.directory!r} took more than {GIT_SECONDS:.0f} s"
            raise GitError(text) from error
        except OSError as error:
            raise GitError(f"cannot run git in {self.directory!r}: {error.strerror}") from error

    def at(self, directory: Path) -> Git:
        """Return git for another checkout, with the same locks."""
        return Git(str(directory), self._environment, held=self._held)

    def names(self, *words: str, env: Mapping[str, str] | None = None) -> list[str]:
        """Return the paths that git prints with -z."""
        return self.run(*words, env=env).split("\0")[:-1]

    def commit_tree(self, tree: str, parents: Sequence[str], message: str) -> str:
        """Make a commit that is on no branch yet; return its id."""
        words = [word for parent in parents for word in ("-p", parent)]
        text = message.encode(errors="replace")
        made = self.run("commit-tree", tree, *words, "-F", "-", env=self.identity(), stdin=text)
        return made.strip()

    @property
    def git_dir(self) -> Path:
        """Folder with HEAD and the index of this checkout."""
        return Path(self.run("rev-parse", "--absolute-git-dir").removesuffix("\n"))

    @property
    def common_dir(self) -> Path:
        """Folder that all checkouts of the repository share."""
        output = self.run("rev-parse", "--git-common-dir").removesuffix("\n")
        return Path(self.directory, output).resolve()

    def identity(self) -> dict[str, str]:
        """Return variables that make zot the committer if no user is configured; else none."""
        return {} if self.succeeds("var", "GIT_COMMITTER_IDENT") else _AS_ZOT


def allow(*protocols: str) -> dict[str, str]:
    """Return the variable that lets one git command reach other repositories by these protocols."""
    return {"GIT_ALLOW_PROTOCOL": ":".join(protocols)}


def _no_protocol() -> dict[str, str]:
    """Allow only a protocol that nobody can guess: git has no value for none at all, and an alias
    of the repository can be the helper of any name, also of "none" and of the empty one."""
    return allow(os.urandom(16).hex())


def _start(
    words: Sequence[str],
    environment: Mapping[str, str],
    extra: Mapping[str, str],
    stdin: bytes,
    held: tuple[int, ...],
    wall: Sequence[str],
) -> subprocess.CompletedProcess[bytes]:
    path = _absolute_path(environment)
    program = shutil.which("git", path=path)
    if program is None:
        raise GitError("git is not installed: no absolute directory of PATH has it")
    settings = [word for name, value in _SETTINGS.items() for word in ("-c", f"{name}={value}")]
    own = {name: value for name, value in environment.items() if _is_for_git(name, value)}
    return subprocess.run(
        [*wall, program, *settings, *words],
        env={**own, "PATH": path, **_VARIABLES, **_no_protocol(), **extra},
        input=stdin,
        capture_output=True,
        timeout=GIT_SECONDS,
        pass_fds=held,
        check=False,
    )


def wall_around(
    environment: Mapping[str, str], writable: Sequence[str], protected: Sequence[str]
) -> list[str]:
    """Return the words that run git in bubblewrap: without network, and with these directories as
    the only writable ones. Empty where bubblewrap does not work: then only the settings above keep
    a repository's programs from running."""
    program = shutil.which("bwrap", path=_absolute_path(environment))
    if program is None or not _works(program):
        return []
    words = [program, *_WALL]
    for path in writable:
        words += ["--bind", path, path]
    for path in protected:
        words += ["--ro-bind-try", path, path]
    return [*words, "--"]


@cache
def _works(program: str) -> bool:
    try:
        done = subprocess.run([program, *_WALL, "--", "true"], capture_output=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _absolute_path(environment: Mapping[str, str]) -> str:
    """Return PATH without `.`, empty and other relative parts: git works in untrusted trees."""
    parts = environment.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(part for part in parts if Path(part).is_absolute())


def _is_for_git(name: str, value: str) -> bool:
    """Return whether git may see a variable. Secrets would reach the user's filter programs;
    GIT_DIR and similar ones lead git to another repository than the named one."""
    if name.startswith("GIT_"):
        return name in ("GIT_SSL_CAINFO", "GIT_EXEC_PATH") and Path(value).is_absolute()
    return not any(word in name.upper() for word in ("KEY", "TOKEN", "SECRET", "PASSW"))


def _reason(done: subprocess.CompletedProcess[bytes]) -> str:
    output = (done.stderr or done.stdout).decode(errors="replace").strip()
    return printable(output[:2000]) or f"exit code {done.returncode}"


def top_level(directory: str, environment: Mapping[str, str]) -> str:
    """Return the root of the checkout that contains the directory; empty if there is none."""
    if not Path(directory).is_dir():
        raise GitError(f"{directory!r} is not a directory")
    git = Git(directory, environment)
    done = git.attempt("rev-parse", "--show-toplevel")
    return os.fsdecode(done.stdout.rstrip(b"\n")) if done.returncode == 0 else ""
