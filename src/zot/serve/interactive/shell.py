"""Programs of the person. Shell commands (`!command`) show their output live, and a key stops them;
full-screen programs and the person's editor get the terminal until they end.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from zot.cancel import Cancel
from zot.errors import ZotError
from zot.settings.known import visible_environment
from zot.text import whole_characters
from zot.tui.blocks import ToolBlock

if TYPE_CHECKING:
    from zot.serve.interactive.app import App

FULL_SCREEN = frozenset(
    (
        *("vi", "vim", "nvim", "view", "vimdiff", "nano", "pico", "emacs", "micro", "hx", "helix"),
        *("less", "more", "most", "man", "top", "htop", "btop", "atop", "watch", "fzf", "mc"),
        *("ranger", "nnn", "lf", "tig", "lazygit", "gitui", "tmux", "screen", "ssh", "mosh"),
        *("visudo", "crontab", "sftp", "ftp", "telnet", "psql", "mysql", "sqlite3", "gdb"),
    )
)
"""Programs that draw on the screen or interact with the person at the terminal."""
_BEFORE = re.compile(r"^(?:\w+=\S*\s+|(?:sudo|env|exec|command|time)\s+)+")
"""Matches words before a program's name."""
_OF_GIT = re.compile(
    r"^git\s+(?:-\S+\s+)*(?:rebase\s+(?:-i|--interactive)|(?:add|checkout|restore|stash|reset)\s+"
    r"(?:-p|-i|--patch|--interactive)|commit(?!.*\s(?:-\w*m|--message|-F|--no-edit|--dry-run)))"
)


class RunningShell(Struct, frozen=True):
    command: str
    since: float
    cancel: Cancel


def needs_terminal(command: str) -> bool:
    """Return whether the command, or the last one of a pipe, is a full-screen program."""
    last = re.split(r"\|\|?|&&|;", command)[-1].strip()
    bare = _BEFORE.sub("", last)
    name = bare.split(maxsplit=1)[0].rsplit("/", 1)[-1] if bare else ""
    return name in FULL_SCREEN or _OF_GIT.match(bare) is not None


def run_shell(app: App, text: str) -> None:
    """Run `!command`, or `!!command`, which the model does not see."""
    hidden = text.startswith("!!")
    command = text.lstrip("!").strip()
    if needs_terminal(command):
        _run_as_guest(app, command)
    else:
        _run_shown(app, command, hidden=hidden)


def _run_shown(app: App, command: str, *, hidden: bool) -> None:
    runtime = app.runtime
    running = RunningShell(command, time.monotonic(), Cancel())
    block = ToolBlock("!" if not hidden else "!!")
    block.set_args({"command": command})
    block.running = True
    app.show(block)
    app.shells.append(running)

    def show(piece: str) -> None:
        app.loop.post(lambda: block.add_output(piece))

    def run() -> None:
        try:
            ran = runtime.shell.run(command, hidden=hidden, show=show, cancel=running.cancel)
        except BaseException:
            app.loop.post(block.give_up)
            raise
        finally:
            app.loop.post(lambda: app.shells.remove(running))
        block.exit_code = ran.exit_code
        output = f"{ran.output.rstrip()}\n[stopped]".lstrip() if ran.aborted else ran.output
        failed = ran.aborted or ran.exit_code != 0
        seconds = time.monotonic() - running.since
        app.loop.post(lambda: block.finish(output, failed=failed, seconds=seconds))

    app.work(run)


def _run_as_guest(app: App, command: str) -> None:
    """Give the terminal to the person's program until it ends.

    Raises:
        ZotError: it cannot be started, or the tools are in a jail.
    """
    if app.runtime.shell.jailed:
        raise ZotError(f"{command!r} needs the terminal, and in a jail nothing gets it: /jail off")
    environ = visible_environment(app.around)
    app.loop.release()
    try:
        done = subprocess.run(["/bin/sh", "-c", command], cwd=app.cwd, env=environ, check=False)
    except OSError as error:
        raise ZotError(f"{command!r} cannot be started: {error}") from error
    finally:
        app.loop.regain(from_guest=True)
    end = "" if done.returncode == 0 else f", exit {done.returncode}"
    app.note(f"! {command}: had the terminal{end}; the model has not seen it")


def edited_outside(app: App, text: str) -> str | None:
    """Let the person edit the text in their own editor; None if that exited with an error."""
    app.loop.release()
    try:
        return _edited(text, visible_environment(app.around))
    finally:
        app.loop.regain(from_guest=True)


def edit_file(app: App, path: str) -> None:
    """Open a file in the person's own editor. Raises ZotError: that cannot be started."""
    environ = visible_environment(app.around)
    command = environ.get("VISUAL") or environ.get("EDITOR") or "vi"
    app.loop.release()
    try:
        subprocess.run([*shlex.split(command), path], cwd=app.cwd, env=environ, check=False)
    except (OSError, ValueError) as error:
        raise ZotError(f"the editor {command!r} cannot be started: {error}") from error
    finally:
        app.loop.regain(from_guest=True)


def _edited(text: str, environ: Mapping[str, str]) -> str | None:
    """Return the edited text; None if the editor exited with an error.

    Raises:
        ZotError: the editor cannot be started.
    """
    command = environ.get("VISUAL") or environ.get("EDITOR") or "vi"
    with tempfile.TemporaryDirectory(prefix="zot-") as folder:
        path = Path(folder) / "prompt.md"
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            file.write(whole_characters(text))
        try:
            done = subprocess.run([*shlex.split(command), str(path)], env=environ, check=False)
        except (OSError, ValueError) as error:
            raise ZotError(f"the editor {command!r} cannot be started: {error}") from error
        if done.returncode != 0:
            return None
        return path.read_text(encoding="utf-8", errors="replace").removesuffix("\n")
