"""The sandboxed Place: file tools see only the working directory, commands run in bubblewrap.

Programs that zot talks to (MCP servers) run in the same sandbox for as long as they live.

Invariants, each with the file that keeps it:
1. File tools reach nothing outside the working directory (disk.py).
2. A command writes the working directory and private, empty directories (CLOSED); all else is
   read-only or absent. It has no network, unless a program's entry asks for it (`_wrap`).
3. A command cannot read secrets: files (SECRETS, zot's own directory) are covered, variables are
   removed (`visible`), processes and kernel keys are out of reach (NAMESPACES, seccomp.py).
4. What other programs obey (`.git`, an editor's tasks) is read-only for a command if it was there
   before (covers.py); what appears is renamed before the result is reported (obeyed.py), also when
   zot is killed (record.py).
5. A mount inside the working directory lands on the very thing that zot saw, by device and inode,
   or the command does not run (walls.py).
6. Where one of these cannot be had, no command runs. Only three weaknesses are tolerated, and told
   with the first command (`_weaknesses`).
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from zot.beneath import is_below
from zot.cancel import Cancel
from zot.core.confinement import JailLevel, JailPolicy, JailReport
from zot.core.shell import Program, Tell
from zot.errors import ConfigError, NotStarted, ToolError
from zot.text import Frozen
from zot.tools import paths
from zot.tools.disk import Outside
from zot.tools.hidden import JailDisk
from zot.tools.jail import files, ground, landlock
from zot.tools.jail.aftermath import Residents, Watch, sentences
from zot.tools.jail.covers import Quiet, protected, remove_covers
from zot.tools.jail.disk import Beneath
from zot.tools.jail.fit import check, check_writable, homes, own_names
from zot.tools.jail.levels import INSTALL, NAMESPACES, NO_NETWORK, FoundLevel, find_level, hint
from zot.tools.jail.obeyed import (
    PROTECTED,
    Key,
    Look,
    Survey,
    Thing,
    put_right,
)
from zot.tools.jail.record import record_path, recover
from zot.tools.jail.seccomp import filter_for, filter_without_namespaces
from zot.tools.jail.targets import Targets
from zot.tools.jail.walls import ARGUMENTS, FILTER, MOVED, Cover, packed
from zot.tools.place import Job, Place

if TYPE_CHECKING:
    from zot.tools.process.supervisor import ProcessResult, Supervisor

SECRETS = (
    ".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".oci", ".password-store",
    ".vault-token",
    ".netrc", ".git-credentials", ".npmrc", ".pypirc", ".pgpass", ".my.cnf", ".m2/settings.xml",
    ".cargo/credentials", ".cargo/credentials.toml", ".gem/credentials", ".terraform.d",
    ".config/gh", ".config/glab-cli", ".config/gcloud", ".config/git/credentials", ".config/rclone",
    ".config/op", ".config/sops", ".local/share/keyrings", ".mozilla", ".config/google-chrome",
    ".config/chromium", ".claude", ".claude.json", ".codex", ".gemini", ".pi",
)  # fmt: skip
"""Paths below the home directory that a command in the jail cannot read."""
CLOSED = ("/tmp", "/var/tmp", "/run", "/dev/shm")
"""Directories that are empty and writable in the jail: they hold the sockets by which a command
could have a program outside do what the jail forbids."""
RESOLVER = "/etc/resolv.conf"
PROBE_SECONDS = 10.0
TRIES = 5
"""Attempts to start a command when another one moves a directory that must be covered."""
SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|_SOCK$|^DBUS_", re.IGNORECASE)
"""Names of environment variables that are removed in the jail."""
PASSWORD = re.compile(r"(://[^/\s:@]*:)[^/\s@]+@")
"""The password in an address such as postgres://user:password@host."""


NO_WALLS = "NOT jailed: this system has no walls for commands, which reach everything that you can"
ON = JailPolicy(on=True)


class Jail(Place):
    keeps_links = False  # another name of the file may lie outside

    def __init__(
        self, cwd: str, environ: Mapping[str, str], zot_home: str, policy: JailPolicy = ON
    ) -> None:
        super().__init__(cwd, environ, policy.deny_read)
        self.policy = policy
        self.root = os.path.realpath(cwd)
        self.zot_home = os.path.realpath(zot_home)
        check(self.root, self.zot_home, environ)
        self._writable = [
            check_writable(path, self.root, self.zot_home, environ) for path in policy.allow_write
        ]
        self._protected = (*PROTECTED, *own_names(self.root, os.path.abspath(cwd)))
        try:
            self._beneath = Beneath(cwd, self._protected, self.root)
        except OSError as error:
            raise ConfigError(
                f"--jail needs a project's directory: {self.root!r} cannot be opened"
                f" ({paths.reason(error)})"
            ) from error
        self._disks = JailDisk([self._beneath, *map(Beneath, self._writable)])
        real = [self.root, *self._writable]
        self.use_disk(
            self._disks if self._writable else self._beneath, [(path, path) for path in real]
        )
        self._root_fd = self._beneath.folder
        """Descriptor of the root, valid even if its path later leads elsewhere."""
        self._ready = False
        self._modern = True
        """Whether bubblewrap is 0.8 or later: it can forbid namespaces inside, and limit /tmp."""
        self._filter = filter_for(os.uname().machine, root=os.geteuid() == 0)
        self._survey = Survey(
            self.root, self._root_fd, self.hidden.is_name if self.hidden else None
        )
        self._targets = Targets(self.root, environ)
        self._knows_targets = False
        self._looking = threading.Lock()
        """Guards the survey, the quiet state and its users."""
        self._quiet: Quiet | None = None
        """State of the directory before the first command or program that runs now."""
        self._users = 0
        """Number of commands and programs that run now."""
        self._commands: dict[int, Look] = {}
        """The look taken before each command that runs now, by the id of its Walls."""
        self._renamed: set[Key] = set()
        """Keys of things renamed since the jail was last unused."""
        self._is_right = True
        """Whether the last look renamed all that appeared."""
        self._top: dict[int, list[Key]] = {}
        """Covers of the protected names in the root, for each running command or program."""
        self._residents = Residents(lambda before: self._look_again(before, spare=True))
        remove_covers(self._root_fd)
        self._recovered = self._recover()
        """Notes on what a killed zot left; reported with the first command."""

    def _recover(self) -> list[str]:
        try:
            after = recover(record_path(self.zot_home, self.root), self.root)
        except OSError as error:
            return [f"jailed: cannot look for what a killed zot left: {paths.reason(error)}"]
        return [] if after is None else sentences(after, self.root)

    # --- level -------------------------------------------------------------------------------

    @cached_property
    def found(self) -> FoundLevel:
        """The strongest level on this system; found by running a program."""
        return find_level(self.root, self.environ)

    @property
    def level(self) -> JailLevel:
        """The level at which commands run, or are refused."""
        return self.found.level if self.policy.best else "full"

    def report(self) -> JailReport:
        policy, found = self.policy, self.found
        refuses = not policy.best and found.level != "full"
        return JailReport(
            level="none" if refuses else found.level,
            mode="read-only" if policy.read_only else "workspace",
            reads="project" if policy.project_only else "all",
            allow_write=policy.allow_write,
            deny_read=policy.deny_read,
            refuses=refuses,
            problem=found.problem,
        )

    # --- files -------------------------------------------------------------------------------

    def _folder(self, path: Path, create: bool) -> tuple[int, str]:
        if self.policy.read_only:
            raise Outside(f"jailed: {str(path)!r} cannot be written: the jail is read-only")
        with self._looking:
            if self._quiet is None and not self._knows_targets:
                self._targets.look(self._survey)
                self._knows_targets = True
        self._beneath.obeyed = self._survey.obeyed
        return self._disks.of(str(path)).place(str(path), create=create)

    def missing(self, path: Path) -> str:
        return f"no such file: {str(path)!r}"

    def offer(self, path: Path) -> None:
        self._beneath.offered.add(str(path))

    # --- commands ----------------------------------------------------------------------------

    def run(self, supervisor: Supervisor, job: Job) -> ProcessResult:
        job = msgspec.structs.replace(job, env=visible(job.env))
        notes: list[str] = []
        with self._walls(supervisor, job.env, job.cancel, notes.append) as walls:
            self._commands[id(walls)] = walls.before
            try:
                # No --die-with-parent: the supervisor ends all processes itself, and otherwise
                # could neither name background processes nor let `cmd > >(tee log)` finish.
                argv = walls.around(self.root, self.shell(job.command))
                job = msgspec.structs.replace(job, env={**job.env, **walls.variables})
                result = self._started(supervisor, argv, job, walls)
            finally:
                del self._commands[id(walls)]
        # bubblewrap's own first process runs on while any process outlives the shell.
        own = f"{walls.words[0]} " if walls.words else "\0"
        left = tuple(name for name in result.leftovers if not name.startswith(own))
        return msgspec.structs.replace(result, leftovers=left, notes=tuple(notes))

    def _started(
        self, supervisor: Supervisor, argv: list[str], job: Job, walls: Walls
    ) -> ProcessResult:
        """Run `argv`; retry if a concurrent command moved what is to be covered and nothing ran."""
        rest = job.env, job.on_output, job.cancel, job.timeout
        for tries_left in reversed(range(TRIES)):
            try:
                return supervisor.run(argv, Path(self.root), *rest, self._plan(walls))
            except NotStarted as error:
                if MOVED not in str(error) or not tries_left:
                    raise
        raise AssertionError

    @contextmanager
    def confined(
        self, supervisor: Supervisor, program: Program, cancel: Cancel, tell: Tell
    ) -> Iterator[Program]:
        """Yield the program as it is started in the jail; the walls last as long as the block. Its
        variables are not filtered: they were chosen for it.

        Raises:
            ToolError: there is no jail here, or the program would not be found in it.
        """
        path = os.path.realpath(program.argv[0])
        closed = any(is_below(path, folder) for folder in CLOSED)
        if closed and not is_below(path, self.root):
            raise ToolError(
                f"jailed: {path!r} lies in a directory that is empty in the jail; install it in"
                " another place"
            )
        env, network = program.env, program.network
        with self._walls(supervisor, env, cancel, tell, lasts=True, network=network) as walls:
            argv, plan = walls.around(program.folder, program.argv), self._plan(walls)
            env = {**env, **walls.variables}
            yield msgspec.structs.replace(program, argv=argv, env=env, plan=plan, jailed=True)

    @contextmanager
    def _walls(
        self,
        supervisor: Supervisor,
        env: dict[str, str],
        cancel: Cancel,
        tell: Tell,
        *,
        lasts: bool = False,
        network: bool = False,
    ) -> Iterator[Walls]:
        """Yield the walls for one command or program, for the duration of the block.

        `tell` gets notes on weaknesses of the jail and on things that appeared and were renamed.
        `lasts`: a long-running program, beside which commands come and go.
        """
        program = self._bubblewrap() if self.level == "full" else ""
        notes: set[str] = set()

        def tell_once(note: str) -> None:
            if note not in notes:
                notes.add(note)
                tell(note)

        secrets = self._secrets()
        quiet = self._enter(secrets)
        top: list[Key] = []
        self._top[id(top)] = top
        before = quiet.look
        try:
            for note in (*self._recovered, *quiet.notes):
                tell_once(note)
            self._recovered = []
            before = quiet.first_look() or self._look()
            with ExitStack() as made:
                if program:
                    names = () if self.policy.read_only else self._protected
                    covers = made.enter_context(protected(self._root_fd, self.root, names))
                    top[:] = [(device, inode) for _, device, inode, _ in covers]
                    if not self._ready:
                        words = [*self._wrap(program, secrets), *ARGUMENTS]
                        self._probe(supervisor, env, cancel, Walls(words, before, covers, quiet))
                    words = [*self._wrap(program, secrets, network=network), *ARGUMENTS]
                    walls = Walls(words, before, covers, quiet)
                else:
                    rules = self._rules(before, quiet, secrets, tell_once, network)
                    walls = made.enter_context(rules)
                for note in () if self._ready else self._weaknesses(quiet):
                    tell_once(note)
                self._ready = True
                stays = self._residents.one_more(before, tell_once)
                watch = Watch(lambda: self._look_again(before), tell_once)
                with stays if lasts else watch:
                    yield walls
        finally:  # also after an error: the command may have run nevertheless
            for note in self._leave(quiet, before, look=not lasts):
                tell_once(note)
            del self._top[id(top)]

    @contextmanager
    def _rules(
        self, before: Look, quiet: Quiet, hidden: list[str], tell: Tell, network: bool
    ) -> Iterator[Walls]:
        """Yield the walls of a level without namespaces: rules, or nothing at all."""
        if self.level == "none":
            yield Walls([], before, [], quiet)
            return
        obeyed = [thing.path for thing in quiet.look.things.values()]
        then = files.stamps(self.root, obeyed)
        with files.temporary_directory() as temporary:
            plan = self._packed_rules(hidden, temporary, network)
            yield Walls([], before, [], quiet, {"TMPDIR": temporary}, plan)
        for note in files.changed(then, files.stamps(self.root, obeyed), self.root):
            tell(note)

    def _enter(self, secrets: list[str]) -> Quiet:
        hidden = [path for path in secrets if is_below(path, self.root)]
        with self._looking:
            if self._quiet is None:
                record = record_path(self.zot_home, self.root)
                try:
                    self._quiet = Quiet(
                        self._survey, self._targets, self._root_fd, record, self._protected, hidden
                    )
                except OSError as error:
                    raise paths.failed(f"jailed: cannot use {record!r}", error) from error
            self._users += 1
            return self._quiet

    def _leave(self, quiet: Quiet, before: Look, *, look: bool) -> list[str]:
        """Rename what appeared, at the end of a command or of the last program in the jail; return
        notes."""
        with self._looking:
            try:
                alone = self._users == 1 and quiet.is_alone()
                return self._put_right(quiet, before, alone=alone) if look or alone else []
            finally:
                self._users -= 1
                if not self._users:
                    self._quiet = None
                    quiet.close(is_right=self._is_right)
                    self._renamed.clear()

    def _look_again(self, before: Look, *, spare: bool = False) -> list[str]:
        """Rename what appeared while something runs; return notes."""
        with self._looking:
            quiet = self._quiet
            return [] if quiet is None else self._put_right(quiet, before, spare=spare)

    def _look(self) -> Look:
        with self._looking:
            return self._survey.look()

    def _plan(self, walls: Walls) -> bytes:
        """Return the packed data from which the keeper makes the walls that bubblewrap cannot."""
        if not walls.words:
            return walls.rules
        covers = [*walls.covers, *walls.quiet.covers()]
        covers.sort(key=lambda cover: cover[3])  # secrets last, so nothing is mounted over them
        record = record_path(self.zot_home, self.root)
        status, read_only = os.fstat(self._root_fd), self.policy.read_only
        return packed(self._filter, self.root, status, covers, record, read_only=read_only)

    def _packed_rules(self, hidden: list[str], temporary: str, network: bool) -> bytes:
        for path in hidden:
            if is_below(path, self.root):
                raise ToolError(
                    f"jailed: {path!r} must not be read, and at the level files it cannot be hidden"
                    " inside the working directory; no command runs. Move it, or install"
                    " bubblewrap for the level full"
                )
        bases = self._shown() if self.policy.project_only else ["/"]
        found = files.rules(bases, {*hidden, *CLOSED}, [temporary, *self._writable])
        change = 0 if self.policy.read_only else landlock.CHANGE
        is_root = os.geteuid() == 0
        code = filter_without_namespaces(os.uname().machine, root=is_root, network=network)
        status, record = os.fstat(self._root_fd), record_path(self.zot_home, self.root)
        root = self.root, landlock.SEE | change
        return landlock.packed(code, found, root, status, network=network, record=record)

    def _shown(self) -> list[str]:
        return ground.shown(self.root, self.environ, CLOSED)

    def _weaknesses(self, quiet: Quiet) -> list[str]:
        """Return notes on protections that this system cannot provide."""
        if self.level != "full":
            rules = files.weaknesses(self.root, read_only=self.policy.read_only)
            return [f"{rules if self.level == 'files' else NO_WALLS} ({self.found.problem})"]
        notes = []
        if not self._modern:
            notes.append(
                "jailed, but this bubblewrap is older than 0.8: it cannot forbid namespaces inside"
                " the jail, nor limit the size of its /tmp"
            )
        if not self._filter:
            notes.append(f"jailed, but without a filter of system calls for {os.uname().machine}")
        if not quiet.look.finished:
            notes.append(
                f"jailed, but {self.root!r} is too large to be searched for files with another"
                " name outside of it: a command that writes to one changes it there too"
            )
        return notes

    def _put_right(
        self, quiet: Quiet, before: Look, *, spare: bool = False, alone: bool = False
    ) -> list[str]:
        """Rename what appeared; return notes. Things that were there before this command are left
        to the command that made them, unless nothing else runs here any more (`alone`). `spare`:
        also leave things that a still running command may have made; its result reports them."""
        running = list(self._commands.values())
        own = {key for keys in self._top.values() for key in keys}

        def is_old(thing: Thing) -> bool:
            if quiet.had(thing) or thing.key in own:
                return True
            if alone or thing.key in self._renamed:  # a command gave it its old name back
                return False
            if spare:
                return not all(thing.key in look.things for look in running)
            return thing.key in before.things

        after = put_right(self._survey, self._root_fd, is_old, quiet.look)
        self._renamed.update(thing.key for thing, _ in after.renamed)
        self._is_right = not after.too_deep
        if not quiet.look.finished:
            after = after._replace(finished=False)
        return sentences(after, self.root)

    def _bubblewrap(self) -> str:
        program = paths.executable("bwrap", Path(self.root), self.environ)
        if program is None:
            raise ToolError(
                f"jailed: commands run in bubblewrap, and {INSTALL}, {self._other_ways()}"
            )
        return program

    def _wrap(self, program: str, secrets: list[str], *, network: bool = False) -> list[str]:
        """Return bubblewrap with its arguments, in order: later mounts cover earlier ones."""
        words = [program, *NAMESPACES, "--cap-drop", "ALL", "--unsetenv", "TMPDIR"]
        if not network:
            words.append(NO_NETWORK)
        if self._modern:
            words.append("--disable-userns")
        if self._filter:
            words += ["--seccomp", str(FILTER)]
        words += self._ground() if self.policy.project_only else ["--ro-bind", "/", "/"]
        words += ["--dev", "/dev"]
        # Root without capabilities still owns /proc/sys, where it could change the whole machine.
        words += ["--proc", "/proc", "--remount-ro", "/proc"]
        for folder in CLOSED:
            if os.path.isdir(folder) and not os.path.islink(folder):
                words += ["--size", str(tmp_size())] if self._modern else []
                words += ["--tmpfs", folder]
        # NixOS finds every program through this path.
        words += ["--ro-bind-try", "/run/current-system", "/run/current-system"]
        if network:  # resolv.conf may be a link to a file below /run
            resolver = os.path.realpath(RESOLVER)
            words += ["--ro-bind-try", resolver, resolver]
        for path in self._writable:
            words += ["--bind", path, path]
        for path in secrets:
            if not is_below(path, self.root):
                is_folder = os.path.isdir(path)
                words += ["--tmpfs", path] if is_folder else ["--ro-bind", "/dev/null", path]
        return [*words, "--remount-ro", "/"] if self.policy.project_only else words

    def _ground(self) -> list[str]:
        """Return the mounts of a root that holds only the system, programs and the project."""
        words = [word for path in self._shown() for word in ("--ro-bind", path, path)]
        for link, target in ground.links():
            words += ["--symlink", target, link]
        return [*words, "--dir", self.root]

    def _secrets(self) -> list[str]:
        named = [os.path.join(user, name) for user in homes(self.environ) for name in SECRETS]
        named += [self.zot_home, self.environ.get("SSH_AUTH_SOCK", ""), *self._denied()]
        if self.policy.project_only:
            shown = self._shown()
            named += ground.PRIVATE
            named = [path for path in named if any(is_below(path, base) for base in shown)]
        real = {os.path.realpath(path) for path in named if path and os.path.exists(path)}
        # Skip paths above the working directory, which the user chose, and in the empty CLOSED.
        closed = [folder for folder in CLOSED if not is_below(self.root, folder)]
        return sorted(
            path
            for path in real
            if not is_below(self.root, path) and not any(is_below(path, shut) for shut in closed)
        )

    def _denied(self) -> Iterator[str]:
        """Yield the files and directories that `deny_read` names. Raises ToolError."""
        if self.hidden is None:
            return
        named = set(map(os.path.realpath, self.hidden.existing()))
        yield from named
        look = self._look()
        if not look.finished:
            raise ToolError(
                f"jailed: {self.root!r} is too large to be searched for what deny_read hides; no"
                " command runs. Use patterns with a slash only, or the other tools"
            )
        inside = {os.path.relpath(path, self.root) for path in named} | {*look.hidden}
        with self._looking:
            inside |= {*self._survey.twins(inside)}
        yield from (os.path.join(self.root, path) for path in inside)

    def _probe(
        self, supervisor: Supervisor, env: dict[str, str], cancel: Cancel, walls: Walls
    ) -> None:
        """Check that bubblewrap can make a jail here, so that its failure is not mistaken for the
        command's. Raises ToolError."""
        output = bytearray()
        argv = [*walls.words, "--", *self.shell("exit 0")]
        job = Job("exit 0", env, output.extend, cancel, PROBE_SECONDS)
        result = self._started(supervisor, argv, job, walls)
        cancel.check()
        if result.exit_code == 0:
            return
        words = output.decode("utf-8", "replace").strip() or f"it ended with {result.exit_code}"
        if self._modern and "nknown option" in words:
            self._modern = False  # before 0.8
            words_of_old = [*self._wrap(walls.words[0], self._secrets()), *ARGUMENTS]
            walls = msgspec.structs.replace(walls, words=words_of_old)
            self._probe(supervisor, env, cancel, walls)
            return
        raise ToolError(
            f"jailed: bubblewrap cannot make a jail on this system ({words[:300]}); {hint(words)};"
            f" {self._other_ways()}"
        )

    def _other_ways(self) -> str:
        best = "use --jail=best for a weaker jail, " if self.found.level == "files" else ""
        return f"{best}use the other tools, or run zot without --jail"


class Walls(Frozen):
    words: list[str]
    """bubblewrap with its arguments, without the directory and the program; empty: none."""
    before: Look
    """The look taken before the command: things that other programs obey."""
    covers: list[Cover]
    """Covers of the protected names in the working directory's root."""
    quiet: Quiet
    variables: dict[str, str] = {}
    """Variables that the walls add."""
    rules: bytes = b""
    """The plan at a level without namespaces."""

    def around(self, folder: str, argv: list[str]) -> list[str]:
        """Return the program as it is started, in a folder."""
        return [*self.words, "--chdir", folder, "--", *argv] if self.words else argv


def visible(env: dict[str, str]) -> dict[str, str]:
    """Return the environment without secret variables, and with passwords in addresses masked."""
    return {
        name: PASSWORD.sub(r"\1***@", value)
        for name, value in env.items()
        if not SECRET_NAME.search(name)
    }


def tmp_size() -> int:
    """Return the size limit of each tmpfs in bytes: together they must leave some memory."""
    return max(64 << 20, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 8)
