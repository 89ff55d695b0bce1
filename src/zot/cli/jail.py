"""`zot jail`: run a command in the jail, and check what the jail holds on this system."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from zot.cancel import Cancel
from zot.conformance import jail as kit
from zot.core.confinement import JailPolicy
from zot.errors import ConfigError, UsageError
from zot.home import of_process, own_command
from zot.settings.options import parse
from zot.settings.policy import policy_of
from zot.settings.resolve import configured
from zot.tools.jail.jail import Jail
from zot.tools.jail.levels import find_level
from zot.tools.place import Job
from zot.tools.process.supervisor import Supervisor

HELP = """\
usage: zot jail check [FLAGS]
       zot jail run [FLAGS] -- COMMAND...

check: say which level the jail has here, and try to leave it in many ways. Exit code 0: every
escape was held.
run: run a command in the jail, in the current directory.

FLAGS: --jail=read-only, --jail=best, --jail-read project, --allow-write DIR, --deny-read GLOB; your
settings count, too.
"""


def main(argv: Sequence[str]) -> int:
    at = argv.index("--") if "--" in argv else len(argv)
    words, command = list(argv[1:at]), list(argv[at + 1 :])
    if not words or "-h" in words or "--help" in words:
        sys.stdout.write(HELP)
        return 0
    if words[0] == "check" and not command:
        return _check(words[1:])
    if words[0] == "run" and command:
        return _run(words[1:], command)
    raise UsageError(f"zot jail: wrong words\n{HELP}")


def _policy(words: Sequence[str]) -> JailPolicy:
    around = of_process()
    options = parse(["--jail", *words])
    if options.words:
        raise UsageError(f"zot jail takes flags only, not {options.words[0]!r}")
    complete, _ = configured(options, around.environ, around.cwd, around.home)
    return policy_of(complete, around)


def _jail(words: Sequence[str]) -> Jail:
    around = of_process()
    return Jail(around.cwd, around.environ, around.home, _policy(words))


def _run(words: Sequence[str], command: Sequence[str]) -> int:
    jail = _jail(words)
    supervisor = Supervisor()
    out = sys.stdout.buffer

    def show(data: bytes) -> None:
        out.write(data)
        out.flush()

    env = {name: value for name, value in os.environ.items() if not name.startswith("ZOT_")}
    try:
        result = jail.run(supervisor, Job(shlex.join(command), env, show, Cancel(), None))
    finally:
        supervisor.close()
    for note in result.notes:
        sys.stderr.write(f"zot: {note}\n")
    return 128 if result.exit_code is None else result.exit_code


def _check(words: Sequence[str]) -> int:
    policy = _policy(words)
    found = find_level("", of_process().environ)
    if found.level != "full" and not policy.best:
        raise ConfigError(f"no command can run in this jail: {found.problem}; see --jail=best")
    problem = f" ({found.problem})" if found.problem else ""
    sys.stdout.write(f"level {found.level}{problem}\n")
    return kit.check(own_command("jail", "run", *words, "--"), str(Path.home()))
