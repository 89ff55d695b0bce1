"""Approval rules of a project: which calls a rule covers, and which rule to offer.

A rule for commands is an exact text, or words followed by ` *` for any further words. The latter
covers only commands in which bash sees nothing but plain words: `git log *` does not cover
`git log; rm -r .`. Words are split as bash splits them; shell syntax is never covered, nor is a
word that bash could expand to an option, such as `*`.
"""

from __future__ import annotations

import os

from zot.core.hook import Rule
from zot.provider.types import ToolCall
from zot.text import compiled

ANY = "*"
SHELL_SIGNS = r"[;&|<>$`\\(){}]"
"""Characters that make a command more than one program with arguments. Unprintable characters (line
ends, controls, blanks other than space and tab) count as such, too. As they are refused within
quotes as well, there is no escape, brace expansion or extended glob such as `@(a|b)`."""
PIECES = r"'[^']*'|\"[^\"]*\"|[^ \t'\"]"
"""Parts of a word: quoted texts and single characters. Space and tab separate words in bash, in
every locale."""
EMPTY = ("''", '""')
"""Quotes around nothing."""
GLOB_SIGNS = frozenset("*?[")
"""Characters that, unquoted, make bash replace a word by names of files."""
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
    return None if text == ANY or _is_pattern(text) else command


def _offered_words(words: list[str]) -> str:
    """Return the first words of a pattern for this command; empty: it gets no pattern."""
    two = " ".join(words[:2])
    if words and words[0] in READERS | MAKERS:
        begin = words[0]
    elif two in SUBCOMMANDS:
        begin = two
    else:
        return ""
    return begin if _covers_command(f"{begin} {ANY}", " ".join(words)) else ""


def _covers_command(pattern: str, command: str) -> bool:
    if pattern == ANY:
        return True
    if not _is_pattern(pattern):
        return pattern == command
    wanted, words = _pattern_words(pattern), _plain_words(command)
    if wanted is None or words is None or words[: len(wanted)] != wanted:
        return False
    return not (wanted[0] == "git" and any(_names_output(word) for word in words))


def _is_pattern(text: str) -> bool:
    """Whether this is words and a star; otherwise it is an exact text.

    A pattern does not cover the command of the same text, in which the star means names of files.
    """
    if not text.endswith(f" {ANY}"):
        return False
    words = _plain_words(text[: -len(ANY)]) or [""]
    return all(compiled(PLAIN_WORD).fullmatch(word) for word in words)


def _pattern_words(pattern: str) -> list[str] | None:
    """Return the words before the star; None: with further words they could run anything."""
    words = _plain_words(pattern[: -len(ANY)])
    return None if words is None or _runs_others(words) else words


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
    """Return the words of a command as bash sees them; None: it is empty, or more than words.

    Quotes stay in the words. A word that may become an option is more than a word.
    """
    if not command.replace("\t", " ").isprintable() or compiled(SHELL_SIGNS).search(command):
        return None
    if not compiled(rf"(?:[ \t]|{PIECES})*").fullmatch(command):
        return None  # a quote without its end
    words = compiled(rf"(?:{PIECES})+").findall(command)
    return None if not words or any(_may_become_option(word) for word in words) else words


def _may_become_option(word: str) -> bool:
    """Whether names of files that bash puts in place of this word could begin with `-`.

    They begin as the word does: `src/*.py` becomes no option, `*.py` and `--[o]*` might.
    """
    pieces: list[str] = [piece for piece in compiled(PIECES).findall(word) if piece not in EMPTY]
    if GLOB_SIGNS.isdisjoint(pieces):
        return False
    first = pieces[0]
    return first in GLOB_SIGNS or first.lstrip("'\"").startswith("-")


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
# The rule `cat *` is offered because `cat` only reads, whatever its options. A program gets a rule
# for the exact command only if an option names a program, settings, a plug-in or a file to write,
# or if it is in none of these lists: whether it runs or removes something is unknown.


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _pairs(program: str, words: str) -> frozenset[str]:
    return frozenset(f"{program} {word}" for word in _words(words))


READERS = _words(
    "b2sum basename cal cat cd cksum cmp column comm cut df diff dirname du echo egrep expr "
    "factor false fgrep fold free grep groups head hexdump id jq ls lscpu md5sum nl nproc numfmt "
    "od paste pgrep ps pwd readlink realpath rev seq sha1sum sha256sum sha512sum sleep stat "
    "strings sum tac tail tr true type uname uptime wc which whoami"
)
"""Programs that only print: none of their options runs a program, loads a plug-in or writes a
file."""

MAKERS = _words("mkdir touch")
"""Programs that create something empty."""

SUBCOMMANDS = _pairs(
    "git", "add blame commit describe diff log ls-files rev-parse shortlog show status"
) | _pairs("docker", "images logs ps")
"""Like READERS and MAKERS, for programs whose second word names the action."""

SHELL_WORDS = _words(
    "if then else elif fi case esac for select while until do done in function time coproc . : "
    "alias bg bind break builtin caller command compgen complete compopt continue declare dirs "
    "disown enable eval exec exit export fc fg getopts hash help history jobs kill let local "
    "logout mapfile popd printf pushd read readarray readonly return set shift shopt source "
    "suspend test times trap typeset ulimit umask unalias unset wait"
)
"""Bash keywords and built-ins, except those that only print or inspect. `printf -v` and `test -v`
evaluate a name, which may come from a file that is called `x[$(evil)]`."""

RUNNERS = SHELL_WORDS | _words(
    # shells, and programs that switch the user or machine
    "sh bash rbash zsh dash ash ksh mksh fish csh tcsh yash nu pwsh powershell xonsh busybox "
    "toybox sudo doas su runuser setpriv pkexec gosu su-exec chpst setuidgid ssh mosh sshpass "
    "rsync scp sftp telnet nc ncat socat machinectl "
    # programs that run some of their arguments
    "arch env xargs parallel nohup nice ionice renice chrt taskset timeout gtimeout stdbuf "
    "unbuffer setsid setarch linux32 linux64 numactl catchsegv watch entr flock script "
    "scriptreplay expect screen tmux at batch crontab systemd-run systemctl start-stop-daemon "
    "daemon daemonize dbus-launch dbus-run-session xvfb-run run-parts chroot fakeroot unshare "
    "nsenter bwrap firejail proot prlimit cgexec capsh ltrace strace perf gdb lldb valgrind ld.so "
    "ld-linux.so.2 ld-linux-x86-64.so.2 hyperfine direnv dotenv find fd fdfind rg xdg-open open "
    "less more man vi vim nvim view ex ed emacs nano pico rlwrap "
    # languages whose arguments may be a program
    "awk gawk mawk nawk sed gsed php lua luajit tclsh wish java jshell groovy scala kotlin ghc "
    "runghc erl elixir iex julia Rscript R osascript gcc g++ cc c++ clang clang++ tcc m4 bc dc "
    "sqlite3 psql mysql "
    # programs with an option to run another
    "tar gtar bsdtar zip 7z cpio sort split "
    # build tools, package managers and clients: variables, settings, plug-ins or another shell
    "make gmake bmake just task rake cmake ctest meson ninja ant mvn mvnw gradle gradlew sbt bazel "
    "npm pnpm yarn bun cargo go dotnet mix pip pip3 uv poetry pdm hatch rye conda mamba bundle "
    "composer brew apt apt-get apt-cache aptitude yum dnf nix guix kubectl oc helm "
    # checkers: settings and plug-ins with code, another interpreter, a file for the report
    "black eslint flake8 isort jest mocha mypy prettier pylint pyright pytest py.test ruff tsc "
    "vitest tox nox "
    # programs that fetch a program and run it
    "npx pnpx bunx uvx pipx nix-shell vagrant ansible ansible-playbook dpkg rpm xcrun"
)
"""Programs that may run another one, whatever their first words: patterns would allow anything."""

GROUPS = _words(
    "git docker podman nerdctl docker-compose gh terraform python python2 python3 pypy pypy3 "
    "ipython node nodejs deno ruby irb perl rustup apk pacman snap flatpak"
)
"""Programs whose second word names the action: no pattern without it."""

RUNNING_GROUPS = (
    _pairs("git", "bisect clone config difftool fetch filter-branch grep ls-remote mergetool pull")
    | _pairs("git", "push rebase submodule")
    | _pairs("docker", "compose container exec run")
    | _pairs("podman", "compose container exec run")
    | _pairs("deno", "eval run")
    | _pairs("gh", "alias extension")
)
"""Like RUNNERS, for two words: a pattern must name the third word, too."""
