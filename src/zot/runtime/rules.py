"""Approval rules of a project: which calls a rule covers, and which rule to offer.

A rule for commands is an exact text, or words followed by ` *` for any further words. The latter
covers only commands in which bash sees nothing but plain words: `git log *` does not cover
`git log; rm -r .`. Words are split as bash splits them; shell syntax is never covered.
"""

from __future__ import annotations

import os
import re

from zot.core.hook import Rule
from zot.provider.types import ToolCall
from zot.text import compiled

ANY = "*"
SHELL_SIGNS = r"[;&|<>$`\\(){}]"
"""Characters that make a command more than one program with arguments. Unprintable characters (line
ends, controls, blanks other than space and tab) count as such, too."""
BLANKS = r"[ \t]+"
"""Separators of words in bash, in every locale."""
PLAIN_WORD = r"[A-Za-z0-9_./:@+,=-]+"
"""A word of a pattern; bash does not expand it."""


def offered(call: ToolCall, cwd: str) -> Rule | None:
    """Return the rule most likely meant by "always here"; None: no rule would cover only this."""
    args = call.args or {}
    match call.name, args:
        case "bash", {"command": str(command)}:
            pattern = _command_pattern(command)
            return None if pattern is None else Rule("bash", pattern)
        case "write" | "edit", {"path": str(path)}:
            pattern = _path_pattern(path, cwd)
            return None if pattern == ANY else Rule("write", pattern)
        case _:
            return Rule(call.name, ANY)


def covers(rule: Rule, call: ToolCall, cwd: str) -> bool:
    args = call.args or {}
    match call.name, args:
        case "bash", {"command": str(command)}:
            return rule.tool == "bash" and _covers_command(rule.pattern, command)
        case "write" | "edit", {"path": str(path)}:
            return rule.tool == "write" and _covers_path(rule.pattern, path, cwd)
        case _:
            return rule == Rule(call.name, ANY)


def _command_pattern(command: str) -> str | None:
    """Return words and a star if any further words are as harmless, else the exact command."""
    begin = _offered_words(_plain_words(command) or [])
    if begin:
        return f"{begin} {ANY}"
    text = command.strip()
    return None if text == ANY or _pattern_words(text) is not None else command


def _offered_words(words: list[str]) -> str:
    """Return the first words of a pattern for this command; empty: it gets no pattern."""
    two, rest = " ".join(words[:2]), words[2:]
    if words and words[0] in READERS | MAKERS:
        begin = words[0]
    elif two in SUBCOMMANDS or (words[1:] and _names_task(words[0], words[1])):
        begin = two
    elif two in TASKS and rest and _is_name(rest[0]):
        begin = f"{two} {rest[0]}"
    else:
        return ""
    return begin if _covers_command(f"{begin} {ANY}", " ".join(words)) else ""


def _names_task(program: str, word: str) -> bool:
    if program in SCRIPTS:
        return _is_name(word) and "." in word
    return program in TASKS and _is_name(word) and "=" not in word


def _is_name(word: str) -> bool:
    return bool(compiled(PLAIN_WORD).fullmatch(word)) and not word.startswith("-")


def _covers_command(pattern: str, command: str) -> bool:
    if pattern in (command, ANY):
        return True
    wanted, words = _pattern_words(pattern), _plain_words(command)
    if wanted is None or words is None or words[: len(wanted)] != wanted:
        return False
    return not (wanted[0] == "git" and any(_names_output(word) for word in words))


def _pattern_words(pattern: str) -> list[str] | None:
    """Return the words before the star; None: this is an exact text, not a pattern.

    Programs that run others get no pattern: it would allow everything.
    """
    if not pattern.endswith(f" {ANY}"):
        return None
    words = _plain_words(pattern[: -len(ANY)])
    if words is None or not all(compiled(PLAIN_WORD).fullmatch(word) for word in words):
        return None
    return None if _runs_others(words) else words


def _runs_others(words: list[str]) -> bool:
    """Whether further words could name another program to run."""
    program = os.path.basename(words[0])
    if "=" in words[0] or program in RUNNERS:
        return True
    named = words[1:2] and not words[1].startswith("-")
    if program in GROUPS and not named:
        return True
    return len(words) == 2 and f"{program} {words[1]}" in RUNNING_GROUPS


def _plain_words(command: str) -> list[str] | None:
    """Return the words of a command as bash sees them; None: it is empty, or more than words."""
    if not command.replace("\t", " ").isprintable() or compiled(SHELL_SIGNS).search(command):
        return None
    text = command.strip(" \t")
    return re.split(BLANKS, text) if text else None


def _names_output(word: str) -> bool:
    """Whether this is git's `--output` option, perhaps abbreviated, which writes a file."""
    return word.replace('"', "").replace("'", "").startswith("--ou")


def _path_pattern(path: str, cwd: str) -> str:
    inside = _inside(path, cwd)
    if inside is None:
        return _real(path, cwd)
    folder = os.path.dirname(inside)
    return f"{folder}/{ANY}" if folder else inside


def _covers_path(pattern: str, path: str, cwd: str) -> bool:
    inside = _inside(path, cwd)
    if inside is None:
        return pattern == _real(path, cwd)
    if pattern == ANY:
        return True
    if pattern.endswith(f"/{ANY}"):
        return inside.startswith(pattern[:-1])
    return inside == pattern


def _inside(path: str, cwd: str) -> str | None:
    """Return the path relative to the project, links resolved; None: it is outside."""
    root = os.path.realpath(cwd)
    real = _real(path, cwd)
    return os.path.relpath(real, root) if real.startswith(root.rstrip(os.sep) + os.sep) else None


def _real(path: str, cwd: str) -> str:
    return os.path.realpath(os.path.join(cwd, os.path.expanduser(path)))


# --- programs --------------------------------------------------------------------------------
# The rule `cat *` is offered because `cat` only reads. A program in none of these lists gets a rule
# for the exact command only: whether it runs or removes something is unknown.


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _pairs(program: str, words: str) -> frozenset[str]:
    return frozenset(f"{program} {word}" for word in _words(words))


_RUN = ("create", "dlx", "exec", "init", "run", "run-script", "x")

READERS = _words(
    "arch b2sum basename cal cat cd cksum cmp column comm cut df diff dirname du echo egrep "
    "expr factor false fgrep fold free grep groups head hexdump id jq ls lscpu md5sum nl "
    "nproc numfmt od paste pgrep printf ps pwd readlink realpath rev seq sha1sum sha256sum "
    "sha512sum sleep stat strings sum tac tail test tr true type uname uptime wc which whoami"
)
"""Programs that only print: none of their options runs a program or writes a file."""

MAKERS = _words(
    "black eslint flake8 isort jest mkdir mocha mypy prettier pylint pyright pytest touch tsc "
    "vitest"
)
"""Programs that create something empty, or check the project with its own code."""

SUBCOMMANDS = (
    _pairs("git", "add blame commit describe diff log ls-files rev-parse shortlog show status")
    | _pairs("npm", "ls outdated t test")
    | _pairs("pnpm", "list outdated test")
    | _pairs("yarn", "list outdated test")
    | _pairs("bun", "test")
    | _pairs("cargo", "bench build check clippy doc fmt metadata test tree")
    | _pairs("go", "build doc fmt list test vet")
    | _pairs("ruff", "check format")
    | _pairs("pip", "check freeze list show")
    | _pairs("pip3", "check freeze list show")
    | _pairs("uv", "tree")
    | _pairs("poetry", "check show")
    | _pairs("dotnet", "build test")
    | _pairs("mvn", "compile test")
    | _pairs("gradle", "build check test")
    | _pairs("mix", "compile format test")
    | _pairs("docker", "images logs ps")
    | _pairs("kubectl", "describe get logs")
    | _pairs("brew", "info list")
    | _pairs("apt", "list search show")
)
"""Like READERS and MAKERS, for programs whose second word names the action."""

SCRIPTS = frozenset(("python", "python3", "node", "ruby"))
"""Programs that run the file named by their second word."""
TASKS = frozenset(("npm run", "pnpm run", "yarn run", "bun run", "make", "just"))
"""Programs after which the next word names a task of the project."""

SHELL_WORDS = _words(
    "if then else elif fi case esac for select while until do done in function time coproc . : "
    "alias bg bind break builtin caller command compgen complete compopt continue declare dirs "
    "disown enable eval exec exit export fc fg getopts hash help history jobs kill let local "
    "logout mapfile popd pushd read readarray readonly return set shift shopt source suspend "
    "times trap typeset ulimit umask unalias unset wait"
)
"""Bash keywords and built-ins, except those that only print or inspect."""

RUNNERS = SHELL_WORDS | _words(
    # shells, and programs that switch the user or machine
    "sh bash rbash zsh dash ash ksh mksh fish csh tcsh yash nu pwsh powershell xonsh busybox "
    "toybox sudo doas su runuser setpriv pkexec gosu su-exec chpst setuidgid ssh mosh sshpass "
    "rsync scp sftp telnet nc ncat socat machinectl "
    # programs that run some of their arguments
    "env xargs parallel nohup nice ionice renice chrt taskset timeout gtimeout stdbuf unbuffer "
    "setsid setarch linux32 linux64 numactl catchsegv watch entr flock script scriptreplay expect "
    "screen tmux at batch crontab systemd-run systemctl start-stop-daemon daemon daemonize "
    "dbus-launch dbus-run-session xvfb-run run-parts chroot fakeroot unshare nsenter bwrap "
    "firejail proot prlimit cgexec capsh ltrace strace perf gdb lldb valgrind ld.so ld-linux.so.2 "
    "ld-linux-x86-64.so.2 hyperfine direnv dotenv find fd fdfind rg xdg-open open less more man vi "
    "vim nvim view ex ed emacs nano pico rlwrap "
    # languages whose arguments may be a program
    "awk gawk mawk nawk sed gsed php lua luajit tclsh wish java jshell groovy scala kotlin ghc "
    "runghc erl elixir iex julia Rscript R osascript gcc g++ cc c++ clang clang++ tcc m4 bc dc "
    "sqlite3 psql mysql "
    # programs with an option to run another
    "tar gtar bsdtar zip 7z cpio sort split cmake ninja ant "
    # programs that fetch a program and run it
    "npx pnpx bunx uvx pipx nix-shell vagrant ansible ansible-playbook dpkg rpm xcrun"
)
"""Programs that may run another one, whatever their first words: patterns would allow anything."""

GROUPS = _words(
    "git npm pnpm yarn bun cargo go pip pip3 uv poetry pdm hatch rye make gmake just task rake "
    "docker podman nerdctl docker-compose kubectl helm gh brew apt apt-get dotnet mvn gradle "
    "bundle composer mix terraform python python2 python3 pypy pypy3 ipython node nodejs deno "
    "ruby irb perl conda mamba rustup nix guix yum dnf apk pacman snap flatpak"
)
"""Programs whose second word names the action: no pattern without it."""

RUNNING_GROUPS = (
    _pairs("git", "bisect clone config difftool fetch filter-branch grep ls-remote mergetool pull")
    | _pairs("git", "push rebase submodule")
    | frozenset(f"{tool} {word}" for tool in ("npm", "pnpm", "yarn", "bun") for word in _RUN)
    | _pairs("uv", "run tool x")
    | _pairs("docker", "compose container exec run")
    | _pairs("podman", "compose container exec run")
    | _pairs("kubectl", "debug exec run")
    | _pairs("go", "generate run tool")
    | _pairs("nix", "develop run shell")
    | frozenset(("poetry run", "pdm run", "hatch run", "rye run", "bundle exec", "conda run"))
    | frozenset(("mamba run", "cargo run", "deno run", "deno eval", "gh alias", "gh extension"))
)
"""Like RUNNERS, for two words: a pattern must name the third word, too."""
