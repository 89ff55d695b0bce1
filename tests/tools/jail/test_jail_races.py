"""What one jailed command can do to the walls of another, and what is left when zot is killed."""

import os
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.bwrap import needs_bwrap
from support.tools import eventually

from zot.cancel import Cancel
from zot.errors import ToolError
from zot.files import read_own
from zot.tools.jail import covers, record
from zot.tools.jail import jail as jail_module
from zot.tools.jail.disk import Beneath
from zot.tools.jail.jail import Jail
from zot.tools.jail.obeyed import Survey
from zot.tools.jail.record import Record, record_path
from zot.tools.place import Job
from zot.tools.process.supervisor import ProcessResult, Supervisor

ROOT = Path(__file__).parents[3]
needs_user = pytest.mark.skipif(os.geteuid() == 0, reason="root can list every directory")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "home"
    (path / "zot").mkdir(parents=True)
    (path / "zot" / "auth.json").write_text("sk-canary")
    monkeypatch.setenv("HOME", str(path))
    monkeypatch.setattr(jail_module, "CLOSED", ())  # else all of it would be absent
    return path


@pytest.fixture
def root(home: Path) -> Path:
    path = home / "project"
    path.mkdir()
    return path


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    path = tmp_path / "outside"
    path.mkdir()
    (path / "f").write_text("untouched")
    return path


@pytest.fixture
def jail(root: Path, home: Path) -> Jail:
    return Jail(str(root), os.environ, str(home / "zot"))


@pytest.fixture
def supervisor() -> Iterator[Supervisor]:
    supervisor = Supervisor()
    yield supervisor
    supervisor.close()


def ran(
    jail: Jail, supervisor: Supervisor, command: str, cancel: Cancel | None = None
) -> tuple[str, ProcessResult]:
    output = bytearray()
    env = {"PATH": os.environ["PATH"]}
    result = jail.run(supervisor, Job(command, env, output.extend, cancel or Cancel(), 30.0))
    return output.decode() + "\n".join(result.notes), result


@contextmanager
def running(jail: Jail, supervisor: Supervisor, command: str, until: Path) -> Iterator[Cancel]:
    """A command beside others, from the moment a file appears."""
    cancel = Cancel()
    thread = threading.Thread(target=ran, args=(jail, supervisor, command, cancel))
    thread.start()
    try:
        assert eventually(until.exists, 20)
        yield cancel
    finally:
        cancel.set()
        thread.join()


# --- secrets ---------------------------------------------------------------------------------


@needs_bwrap
def test_a_cover_that_became_a_link_does_not_uncover_the_keys(
    jail: Jail, supervisor: Supervisor, root: Path, home: Path, outside: Path
) -> None:
    (root / "modules" / "evil").mkdir(parents=True)
    (root / "modules" / "evil" / "auth.json").hardlink_to(outside / "f")
    read = f"cat {home}/zot/auth.json; echo evil > modules/evil/auth.json"
    assert "sk-canary" not in ran(jail, supervisor, read)[0]
    ran(jail, supervisor, "mv modules m2; mkdir modules; ln -s ../../zot modules/evil")
    said, _ = ran(jail, supervisor, f"cat {home}/zot/auth.json; echo evil > m2/evil/auth.json")
    assert "sk-canary" not in said
    # It was moved, and is found again.
    assert "Read-only" in said and (outside / "f").read_text() == "untouched"


@needs_bwrap
def test_a_secret_that_lies_in_the_project_is_hidden_where_it_is_moved_to(
    supervisor: Supervisor, root: Path, home: Path
) -> None:
    (root / "dot" / "ssh").mkdir(parents=True)
    (root / "dot" / "ssh" / "id").write_text("sk-canary")
    (root / "netrc").write_text("sk-canary")
    (home / ".ssh").symlink_to(root / "dot" / "ssh")
    (home / ".netrc").symlink_to(root / "netrc")
    jail = Jail(str(root), os.environ, str(home / "zot"))
    said, _ = ran(jail, supervisor, "cat dot/ssh/id netrc ~/.ssh/id; mv netrc n; cat n; ls -A dot")
    assert "sk-canary" not in said and "ssh" in said


# --- what is obeyed --------------------------------------------------------------------------


@needs_bwrap
def test_a_thing_whose_folder_a_running_command_moved_is_covered_where_it_is(
    jail: Jail, supervisor: Supervisor, root: Path
) -> None:
    (root / "sub" / ".git").mkdir(parents=True)
    (root / "sub" / ".git" / "config").write_text("mine")
    with running(jail, supervisor, "mv sub alt; touch on; sleep 60", root / "on"):
        said, _ = ran(jail, supervisor, "echo evil > alt/.git/config; rm -r alt/.git")
    assert "Read-only" in said
    assert (root / "alt" / ".git" / "config").read_text() == "mine"


@needs_bwrap
def test_what_a_killed_command_made_is_no_older_for_the_next_one(
    jail: Jail, supervisor: Supervisor, root: Path
) -> None:
    made = root / "x" / ".git"
    back = "touch b; until mv x/.git.jailed* x/.git; do sleep 0.05; done; touch moved; sleep 0.2"
    thread = threading.Thread(target=ran, args=(jail, supervisor, back))
    with running(jail, supervisor, "mkdir -p x/.git; touch a; sleep 60", root / "a") as first:
        thread.start()
        assert eventually((root / "b").exists, 20)
        first.set()
        assert eventually((root / "moved").exists, 20)
    thread.join()
    assert not made.exists()
    assert [path.name[:12] for path in (root / "x").iterdir()] == [".git.jailed-"]


@needs_bwrap
@pytest.mark.parametrize("name", [".cursor", "deep/.claude", "deep/.envrc"])
def test_a_link_that_is_obeyed_cannot_be_written_through_nor_replaced(
    jail: Jail, supervisor: Supervisor, root: Path, name: str
) -> None:
    (root / "deep").mkdir()
    (root / "real").mkdir()
    (root / "real" / "f").write_text("mine")
    link = root / name
    link.symlink_to(root / "real" if name != "deep/.envrc" else "../real/f")
    command = "echo evil > real/f; rm {0}; mv {0} gone; mkdir {0}; echo evil > {0}/f"
    ran(jail, supervisor, command.format(name))
    assert link.is_symlink() and (root / "real" / "f").read_text() == "mine"
    assert not list(root.rglob("*.jailed-*"))


@needs_bwrap
def test_a_link_that_cannot_be_protected_is_refused(
    jail: Jail, supervisor: Supervisor, root: Path, outside: Path
) -> None:
    (root / ".cursor").symlink_to("missing")
    ran(jail, supervisor, "mkdir missing")
    assert not (root / "missing").exists()
    (root / ".cursor").unlink()
    (root / ".cursor").symlink_to("..")
    assert ran(jail, supervisor, "true")[1].exit_code == 0  # where nothing can be written anyway
    (root / ".cursor").unlink()
    (root / ".cursor").symlink_to(".")
    with pytest.raises(ToolError, match=r"\.cursor' is a symlink .* nothing runs or is written"):
        ran(jail, supervisor, "true")


@needs_bwrap
@pytest.mark.parametrize(
    "name",
    [
        *(".gemini", ".zed", ".kiro", ".githooks", ".pi", ".opencode", "opencode.json"),
        *(".devcontainer", ".windsurf", ".aider.conf.yml", ".nvim.lua", ".exrc"),
        *("lefthook.yml", "mise.toml"),
    ],
)
def test_names_of_more_programs_are_protected(
    jail: Jail, supervisor: Supervisor, root: Path, name: str
) -> None:
    assert f"'new/{name}' was renamed" in ran(jail, supervisor, f"mkdir -p new/{name}")[0]


@needs_bwrap
def test_a_repository_within_a_renamed_one_is_renamed_too(
    jail: Jail, supervisor: Supervisor, root: Path
) -> None:
    ran(jail, supervisor, "mkdir -p x/.git/y/.git/z/.vscode")
    assert not [path for path in root.rglob("*") if path.name in (".git", ".vscode")]


@needs_bwrap
def test_a_path_too_long_to_be_said_at_once_hides_nothing(
    jail: Jail, supervisor: Supervisor, root: Path
) -> None:
    name = "d" * 200
    deep = f"for i in $(seq 25); do mkdir {name}; cd {name}; done; mkdir .git; touch .envrc"
    assert "was renamed" in ran(jail, supervisor, deep)[0]
    found = subprocess.run(["find", ".", "-name", ".git"], cwd=root, capture_output=True).stdout
    assert found == b""
    subprocess.run(["rm", "-r", name], cwd=root, check=True)


@needs_bwrap
@needs_user
def test_a_directory_that_cannot_be_listed_hides_nothing(
    jail: Jail, supervisor: Supervisor, root: Path
) -> None:
    said, _ = ran(jail, supervisor, "mkdir -p d/.git e/f/.git; chmod 311 d e/f; chmod 600 e")
    assert "'d' could not be listed" in said
    assert not (root / "d" / ".git").exists() and not (root / "e" / "f" / ".git").exists()


@needs_bwrap
@needs_user
def test_a_directory_that_could_not_be_listed_before_is_read_only(
    jail: Jail, supervisor: Supervisor, root: Path
) -> None:
    (root / "d" / ".git").mkdir(parents=True)
    (root / "d" / ".git" / "config").write_text("mine")
    (root / "d").chmod(0o311)
    command = "chmod 755 d; echo evil > d/.git/config; mkdir d/.vscode; mv d e; true"
    said, _ = ran(jail, supervisor, command)
    assert "Read-only" in said
    (root / "d").chmod(0o755)
    assert [path.name for path in (root / "d").iterdir()] == [".git"]
    assert (root / "d" / ".git" / "config").read_text() == "mine"


@needs_bwrap
@needs_user
def test_the_users_own_is_not_renamed_when_its_directory_can_be_listed_again(
    jail: Jail, supervisor: Supervisor, root: Path
) -> None:
    (root / "d" / ".git").mkdir(parents=True)
    (root / "d").chmod(0o311)
    with running(jail, supervisor, "touch on; sleep 60", root / "on"):
        (root / "d").chmod(0o755)
    assert (root / "d" / ".git").exists()


# --- the root --------------------------------------------------------------------------------


@needs_bwrap
def test_a_root_that_became_a_link_is_not_followed(
    jail: Jail, supervisor: Supervisor, root: Path, outside: Path
) -> None:
    root.rename(root.with_name("moved"))
    root.symlink_to(outside)
    with pytest.raises(ToolError, match="moved or replaced"):
        ran(jail, supervisor, "echo evil > f; echo evil > planted")
    with pytest.raises(FileNotFoundError):
        jail.disk.open(str(root / "f"))
    with pytest.raises(OSError):
        Beneath(str(root), (), str(root))  # as the searching process does
    assert [path.read_text() for path in outside.iterdir()] == ["untouched"]


# --- instructions ----------------------------------------------------------------------------


def test_a_file_of_the_project_is_not_read_through_a_link_that_appeared(
    root: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "d").mkdir()
    (root / "d" / "f").write_text("mine")
    (root / "AGENTS.md").symlink_to("d/f")
    assert read_own(root / "AGENTS.md", root, 100) == b"mine"
    resolve = os.path.realpath

    def resolve_then_swap(path: str, *, strict: bool = False) -> str:
        real = resolve(path, strict=strict)
        if str(path).endswith("AGENTS.md"):
            (root / "d").rename(root / "e")
            (root / "d").symlink_to(outside)
        return real

    monkeypatch.setattr(os.path, "realpath", resolve_then_swap)
    with pytest.raises(NotADirectoryError):
        read_own(root / "AGENTS.md", root, 100)


# --- after a kill ----------------------------------------------------------------------------


def crashed(root: Path, home: Path) -> str:
    """The record of a zot that was killed with all its helpers."""
    path = record_path(str(home / "zot"), str(root))
    opened = Record.open(path, create=True)
    assert opened is not None
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    opened.write(str(root), Survey(str(root), folder).look())
    opened.close()
    os.close(folder)
    return path


@needs_bwrap
def test_the_next_start_renames_what_a_killed_zot_left_and_says_so(
    root: Path, home: Path, supervisor: Supervisor
) -> None:
    (root / "mine" / ".git").mkdir(parents=True)
    crashed(root, home)
    (root / "x" / ".git").mkdir(parents=True)
    jail = Jail(str(root), os.environ, str(home / "zot"))
    assert not (root / "x" / ".git").exists() and (root / "mine" / ".git").exists()
    assert "'x/.git' was renamed" in ran(jail, supervisor, "true")[0]


def test_what_the_user_made_after_the_kill_stays(
    root: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = crashed(root, home)
    os.utime(path, (1, 1))  # long ago
    (root / "x" / ".git").mkdir(parents=True)
    Jail(str(root), os.environ, str(home / "zot"))
    assert (root / "x" / ".git").exists()


@needs_bwrap
def test_what_a_command_made_long_after_a_look_is_not_taken_for_the_users(
    jail: Jail, supervisor: Supervisor, root: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "LATER", 1_000_000_000)
    monkeypatch.setattr(covers, "TOUCH_EVERY", 0.1)
    path = record_path(str(home / "zot"), str(root))
    command = "sleep 3; mkdir -p x/.git; sleep 0.3; touch on; sleep 60"
    with running(jail, supervisor, command, root / "on"):
        shutil.copy2(path, home / "killed")  # nobody has a lock on it: as after a kill
        record.recover(str(home / "killed"), str(root))
        assert [path.name[:12] for path in (root / "x").iterdir()] == [".git.jailed-"]


def test_a_record_in_use_or_of_another_place_changes_nothing(root: Path, home: Path) -> None:
    path = crashed(root, home)
    (root / "x" / ".git").mkdir(parents=True)
    user = Record.open(path, create=False)
    assert record.recover(path, str(root)) is None
    assert user is not None
    user.close()
    assert record.recover(path, str(home)) is None
    assert (root / "x" / ".git").exists()


@needs_bwrap
def test_a_second_jail_trusts_nothing_that_a_command_of_the_first_made(
    jail: Jail, supervisor: Supervisor, root: Path, home: Path
) -> None:
    other = Jail(str(root), os.environ, str(home / "zot"))
    back = "touch b; until mv x/.git.jailed* x/.git; do sleep 0.05; done; touch moved; sleep 0.2"
    thread = threading.Thread(target=ran, args=(other, supervisor, back))
    with running(jail, supervisor, "mkdir -p x/.git; touch on; sleep 60", root / "on") as first:
        thread.start()
        assert eventually((root / "b").exists, 20)
        first.set()
        assert eventually((root / "moved").exists, 20)
    thread.join()
    assert [path.name[:12] for path in (root / "x").iterdir()] == [".git.jailed-"]


@needs_bwrap
def test_a_second_jail_covers_what_a_command_of_the_first_moved(
    supervisor: Supervisor, root: Path, home: Path
) -> None:
    (root / "dot" / "ssh").mkdir(parents=True)
    (root / "dot" / "ssh" / "id").write_text("sk-canary")
    (home / ".ssh").symlink_to(root / "dot" / "ssh")
    (root / "real" / "d").mkdir(parents=True)
    (root / ".cursor").symlink_to("real/d")
    first, second = (Jail(str(root), os.environ, str(home / "zot")) for _ in range(2))
    command = "mv dot d2; mkdir -p dot/ssh; mv real r2; mkdir -p real/d; touch on; sleep 60"
    with running(first, supervisor, command, root / "on"):
        said, _ = ran(second, supervisor, "cat d2/ssh/id; echo evil > r2/d/f")
    assert "sk-canary" not in said and "Read-only" in said
    assert not list((root / "r2" / "d").iterdir())


@needs_bwrap
def test_no_command_runs_beside_another_if_something_to_cover_is_not_found(
    jail: Jail, supervisor: Supervisor, root: Path, home: Path
) -> None:
    (root / "sub" / ".git").mkdir(parents=True)
    other = Jail(str(root), os.environ, str(home / "zot"))
    with running(jail, supervisor, "touch on; sleep 60", root / "on"):
        (root / "sub").rename(home / "away")  # by a process outside
        with pytest.raises(ToolError, match=r"'sub/\.git' was moved or removed"):
            ran(other, supervisor, "touch ran")
        (home / "away").rename(root / "back")
        assert ran(other, supervisor, "touch back/.git/f")[1].exit_code == 1
    assert not (root / "ran").exists()


@needs_bwrap
def test_jails_of_overlapping_directories_do_not_run_commands_at_once(
    jail: Jail, supervisor: Supervisor, root: Path, home: Path
) -> None:
    """One could move a directory past the walls of the other."""
    (root / "sub").mkdir()
    (root / "sub2").mkdir()
    below, beside = (Jail(str(root / n), os.environ, str(home / "zot")) for n in ("sub", "sub2"))
    with (
        running(jail, supervisor, "touch on; sleep 60", root / "on"),
        pytest.raises(ToolError, match="overlaps"),
    ):
        ran(below, supervisor, "touch ran")
    with running(below, supervisor, "touch on; sleep 60", root / "sub" / "on"):
        with pytest.raises(ToolError, match="overlaps"):
            ran(jail, supervisor, "touch ran")
        assert ran(beside, supervisor, "touch ran")[1].exit_code == 0
    assert [path.parent.name for path in root.rglob("ran")] == ["sub2"]


# --- races -----------------------------------------------------------------------------------


@needs_bwrap
@pytest.mark.parametrize("race", ["secret", "config", "jails", "root", "instructions"])
def test_no_race_gets_through(race: str, tmp_path: Path) -> None:
    """A few tries; scripts/jail_races.py makes as many as there is time for."""
    tries = "2000" if race == "instructions" else "12"
    words = [sys.executable, "scripts/jail_races.py", race, tries, "10", str(tmp_path)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, shlex.join(words) + done.stdout + done.stderr
