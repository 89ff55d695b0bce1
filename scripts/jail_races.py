"""Races against the jail: a jailed command swaps directories while other jailed commands begin.

    python scripts/jail_races.py RACE TRIES SECONDS FOLDER

Prints how many tries got through; anything but 0 is a hole. FOLDER must not lie in /tmp, which is
empty in the jail. RACE is one of:

    secret        a cover is turned aside to uncover zot's own keys
    config        a directory with a nested .git is exchanged for another before it is covered
    jails         the same, and each of the commands that begin has a jail of its own
    root          the directory of the jail itself becomes a symlink
    instructions  AGENTS.md is read through a directory that becomes a symlink
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from zot.cancel import Cancel
from zot.errors import ConfigError, ToolError
from zot.files import read_own
from zot.tools.jail.jail import Jail
from zot.tools.place import Job
from zot.tools.process.supervisor import Supervisor

SWAP = """
import ctypes, sys, time
call = ctypes.CDLL(None).renameat2
first, second = (name.encode() for name in sys.argv[1:3])
print("swapping", flush=True)
while True:
    call(-100, first, -100, second, 2)
    time.sleep(float(sys.argv[3]))
"""
SECRET = "sk-canary"

Try = Callable[[], str]
"""One try: "held", "refused" or "through"."""
Race = tuple[Try, Path, Path, Jail | None]
"""With the two that are exchanged, and the jail of the command that does it."""


def said(jail: Jail, supervisor: Supervisor, command: str) -> str:
    output = bytearray()
    job = Job(command, dict(os.environ), output.extend, Cancel(), 20.0)
    jail.run(supervisor, job)
    return output.decode("utf-8", "replace")


@contextmanager
def swapping(jail: Jail | None, first: Path, second: Path, pause: float) -> Iterator[None]:
    """A command that exchanges the two, over and over; without a jail, one that nothing keeps."""
    began, cancel = threading.Event(), Cancel()
    words = [sys.executable, "-c", SWAP, str(first), str(second), str(pause)]
    if jail is None:
        with subprocess.Popen(words, stdout=subprocess.DEVNULL) as swapper:
            try:
                yield
            finally:
                swapper.kill()
        return

    def swap() -> None:
        env = dict(os.environ)
        own = Supervisor()
        jail.run(own, Job(shlex.join(words), env, lambda _: began.set(), cancel, None))
        own.close()

    thread = threading.Thread(target=swap)
    thread.start()
    assert began.wait(20)
    try:
        yield
    finally:
        cancel.set()
        thread.join()


def layout(base: Path) -> tuple[Path, Path]:
    """A project and zot's home."""
    home, project = base / "home", base / "home" / "project"
    project.mkdir(parents=True)
    (home / "zot").mkdir()
    (home / "zot" / "auth.json").write_text(SECRET)
    os.environ["HOME"] = str(home)
    return project, home / "zot"


def secret(base: Path, supervisor: Supervisor) -> Race:
    project, home = layout(base)
    (project / "d" / "zot").mkdir(parents=True)
    for name in ("HEAD", "commondir"):
        (project / "d" / "zot" / name).write_text("x")
    (project / "l").symlink_to("..")
    jail = Jail(str(project), os.environ, str(home))

    def once() -> str:
        leaked = SECRET in said(jail, supervisor, f"cat {home}/auth.json")
        return "through" if leaked else "held"

    return once, project / "d", project / "l", jail


def config(base: Path, supervisor: Supervisor) -> Race:
    return nested(base, supervisor, one_jail=True)


def jails(base: Path, supervisor: Supervisor) -> Race:
    return nested(base, supervisor, one_jail=False)


def nested(base: Path, supervisor: Supervisor, *, one_jail: bool) -> Race:
    project, home = layout(base)
    (project / "sub" / ".git").mkdir(parents=True)
    (project / "sub" / ".git" / "config").write_text("")
    (project / "alt").mkdir()
    for number in range(0 if one_jail else 30):  # more to cover: more time to exchange them in
        (project / str(number) / ".git").mkdir(parents=True)
    jail = Jail(str(project), os.environ, str(home))
    folder = os.open(project / "sub" / ".git", os.O_RDONLY | os.O_DIRECTORY)

    def once() -> str:
        command = "for i in 1 2 3; do for d in sub alt; do echo evil >> $d/.git/config; done; done"
        own = jail if one_jail else Jail(str(project), os.environ, str(home))
        said(own, supervisor, command)
        file = os.open("config", os.O_RDWR, dir_fd=folder)
        written = os.fstat(file).st_size
        os.ftruncate(file, 0)
        os.close(file)
        return "through" if written else "held"

    return once, project / "sub", project / "alt", jail


def root(base: Path, supervisor: Supervisor) -> Race:
    project, home = layout(base)
    outside = base / "outside"
    outside.mkdir()
    (project / "sub").mkdir()
    (project / "other").symlink_to(outside)

    def once() -> str:
        while (there := os.path.realpath(project / "sub")) != str(project / "sub"):
            pass
        jail = Jail(there, os.environ, str(home))
        if jail.root != there:
            return "refused"  # as mcpserver/job.py does
        said(jail, supervisor, f"echo evil > planted; echo evil > {outside}/planted")
        if (outside / "planted").exists():
            (outside / "planted").unlink()
            return "through"
        return "held"

    return once, project / "sub", project / "other", None


def instructions(base: Path, supervisor: Supervisor) -> Race:
    project, home = layout(base)
    (project / "d").mkdir()
    (project / "d" / "auth.json").write_text("harmless")
    (project / "l").symlink_to(home)
    (project / "AGENTS.md").symlink_to("d/auth.json")

    def once() -> str:
        data = read_own(project / "AGENTS.md", project, 1000)
        return "through" if SECRET.encode() in data else "held"

    return once, project / "d", project / "l", Jail(str(project), os.environ, str(home))


RACES = {
    "secret": secret,
    "config": config,
    "jails": jails,
    "root": root,
    "instructions": instructions,
}
PAUSES = {"secret": 0.001, "config": 0.0, "jails": 0.001, "root": 0.01, "instructions": 0.0}


def main(race: str, tries: int, seconds: float, folder: str) -> int:
    counts = {"held": 0, "refused": 0, "through": 0}
    supervisor = Supervisor()
    with tempfile.TemporaryDirectory(dir=folder, ignore_cleanup_errors=True) as base:
        once, first, second, jail = RACES[race](Path(base).resolve(), supervisor)
        started = time.monotonic()
        with swapping(jail, first, second, PAUSES[race]):
            while sum(counts.values()) < tries and time.monotonic() - started < seconds:
                try:
                    counts[once()] += 1
                except (ToolError, ConfigError, OSError):
                    counts["refused"] += 1
        supervisor.close()
    took = time.monotonic() - started
    print(f"{race}: {sum(counts.values())} tries in {took:.0f} s, uid {os.getuid()}: {counts}")
    return 1 if counts["through"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4]))
