import os
import pwd
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.bwrap import needs_bwrap
from support.environment import uncovered
from support.tools import call, eventually, marked, none_left, text

from zot import beneath
from zot.cancel import Cancel
from zot.core.tool import Tool, ToolOutput
from zot.errors import Cancelled, ConfigError, ToolError
from zot.tools.jail import aftermath, covers, jail, obeyed
from zot.tools.jail.covers import held, protected
from zot.tools.jail.fit import check, own_names
from zot.tools.jail.jail import Jail
from zot.tools.jail.obeyed import PROTECTED
from zot.tools.jail.seccomp import filter_for
from zot.tools.registry import SharedPlace, SharedSupervisor, builtin_tools

Tools = dict[str, Tool]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "home"
    path.mkdir()
    monkeypatch.setenv("HOME", str(path))
    return path


@pytest.fixture
def zot_home(home: Path) -> Path:
    path = home / "zot"
    path.mkdir()
    (path / "auth.json").write_text("sk-canary")
    return path


@pytest.fixture
def root(home: Path) -> Path:
    path = home / "project"
    path.mkdir()
    (path / "f").write_text("inside\n")
    return path


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    path = tmp_path / "outside"
    path.mkdir()
    (path / "f").write_text("sk-canary\n")
    return path


@pytest.fixture(scope="module")
def supervisor() -> Iterator[SharedSupervisor]:
    shared = SharedSupervisor()
    yield shared
    shared.close()


def jail_of(root: Path, home: Path) -> SharedPlace:
    return SharedPlace(str(root), os.environ, jail=True, home=str(home))


def jailed(root: Path, zot_home: Path, supervisor: SharedSupervisor) -> Tools:
    tools = builtin_tools(jail_of(root, zot_home), supervisor=supervisor)
    return {tool.name: tool for tool in tools}


@pytest.fixture
def tools(root: Path, zot_home: Path, supervisor: SharedSupervisor) -> Tools:
    return jailed(root, zot_home, supervisor)


def bash(tools: Tools, command: str, **more: object) -> ToolOutput:
    return call(tools["bash"], command=command, **more)  # type: ignore[arg-type]


def said(tools: Tools, command: str) -> str:
    """What the command printed, without the command itself."""
    return text(bash(tools, command)).removeprefix(f"$ {command}")


@pytest.fixture
def seen_tmp(monkeypatch: pytest.MonkeyPatch) -> None:
    """The home directory of the tests is in /tmp; to be seen at all, that must not be covered."""
    monkeypatch.setattr(jail, "CLOSED", ("/run",))


# --- file tools ------------------------------------------------------------------------------


def test_file_tools_work_inside(tools: Tools, root: Path) -> None:
    assert "created sub/new" in text(call(tools["write"], path="sub/new", content="a\n"))
    edits = [{"oldText": "a", "newText": "b"}]
    assert "+b" in text(call(tools["edit"], path="sub/new", edits=edits))
    assert text(call(tools["read"], path="sub/new")) == "b\n"
    assert text(call(tools["read"], path=str(root / "sub/../f"))) == "inside\n"
    assert text(call(tools["glob"], pattern="**/*")) == "sub/new\nf"
    assert text(call(tools["grep"], pattern="ins|b")) == "f:1: inside\nsub/new:1: b"
    assert text(call(tools["grep"], pattern="b", path="sub/new")) == "sub/new:1: b"
    with pytest.raises(ToolError, match="no such file: .*gone'$"):
        call(tools["read"], path="gone")
    with pytest.raises(ToolError, match="no such file.*create it with write"):
        call(tools["edit"], path="no/f", edits=edits)
    with pytest.raises(ToolError, match="no such file or directory"):
        call(tools["grep"], pattern="x", path="gone")
    with pytest.raises(ToolError, match="it is a directory"):
        call(tools["write"], path="sub", content="x")


@pytest.mark.parametrize("way", ["absolute", "dots", "link", "relative_link", "file_link", "proc"])
def test_no_file_tool_leaves(tools: Tools, root: Path, outside: Path, way: str) -> None:
    (root / "link").symlink_to(outside)
    (root / "relative_link").symlink_to("../../outside")
    (root / "file_link").symlink_to(outside / "f")
    path = {
        "absolute": f"{outside}/f",
        "dots": "../../outside/f",
        "link": "link/f",
        "relative_link": "relative_link/f",
        "file_link": "file_link",
        "proc": f"/proc/self/root{outside}/f",
    }[way]
    edits = [{"oldText": "sk", "newText": "pk"}]
    for name, args in {
        "read": {"path": path},
        "write": {"path": path, "content": "x"},
        "edit": {"path": path, "edits": edits},
        "grep": {"path": path, "pattern": "sk"},
        "glob": {"path": path.removesuffix("/f"), "pattern": "*"},
    }.items():
        if name == "glob" and way == "file_link":
            continue  # a file is no place to search
        with pytest.raises(ToolError, match=r"^jailed: path '.*' is outside '.*project'; run zot"):
            call(tools[name], **args)
    assert (outside / "f").read_text() == "sk-canary\n"
    assert [each.name for each in outside.iterdir()] == ["f"]


def test_a_search_does_not_follow_links_and_patterns_do_not_lead_out(
    tools: Tools, root: Path, outside: Path
) -> None:
    (root / "link").symlink_to(outside)
    (root / ".gitignore").symlink_to(outside / "rules")
    (outside / "rules").write_text("f\n")
    assert text(call(tools["grep"], pattern="canary")) == "No matches found."
    assert text(call(tools["glob"], pattern="**/*")) == "f\nlink"
    for pattern in (f"{outside}/*", "../*", "../../outside/*", "link/*", "~/*", "/etc/pass*"):
        with pytest.raises(ToolError, match="^jailed: "):
            call(tools["glob"], pattern=pattern)


def test_ignore_rules_of_directories_above_do_not_count(tools: Tools, home: Path) -> None:
    (home / ".git").mkdir()
    (home / ".gitignore").write_text("f\n")
    assert text(call(tools["glob"], pattern="*")) == "f"


@pytest.mark.parametrize(
    "path", [".git/hooks/pre-commit", ".git/config", ".zot/config.json", ".zot", "sub/.git/config"]
)
def test_what_git_or_zot_would_run_is_not_written(tools: Tools, root: Path, path: str) -> None:
    (root / ".git/hooks").mkdir(parents=True)
    (root / ".git/config").write_text("[core]\n")
    with pytest.raises(ToolError, match=r"^jailed: path .* is protected.*without --jail"):
        call(tools["write"], path=path, content="x")
    with pytest.raises(ToolError, match=r"^jailed: |no such file"):
        call(tools["edit"], path=path, edits=[{"oldText": "core", "newText": "x"}])
    assert (root / ".git/config").read_text() == "[core]\n"
    assert sorted(each.name for each in root.iterdir()) == [".git", "f"]
    assert "core" in text(call(tools["read"], path=".git/config"))


def test_a_file_with_another_name_outside_gets_a_file_of_its_own(
    tools: Tools, root: Path, outside: Path
) -> None:
    (root / "shared").hardlink_to(outside / "f")
    call(tools["write"], path="shared", content="mine\n")
    assert (root / "shared").read_text() == "mine\n"
    assert (outside / "f").read_text() == "sk-canary\n"


@pytest.mark.slow
def test_a_path_of_many_parts_is_made(tools: Tools, root: Path) -> None:
    path = "a/" * 1500 + "f"
    try:
        call(tools["write"], path=path, content="deep")
        assert text(call(tools["read"], path=path)) == "deep\n"
        with pytest.raises(ToolError, match="file name too long"):
            call(tools["write"], path="a/" * 5000 + "f", content="x")
    finally:
        subprocess.run(["rm", "-rf", root / "a"], check=True)  # too deep for what cleans up


def test_a_write_that_races_with_a_symlink_stays_inside(
    tools: Tools, root: Path, outside: Path
) -> None:
    stop = threading.Event()
    (root / "d").mkdir()

    def swap() -> None:
        while not stop.is_set():
            (root / "d").rename(root / "kept")
            (root / "d").symlink_to(outside)
            (root / "d").unlink()
            (root / "kept").rename(root / "d")

    racer = threading.Thread(target=swap, name="racer")
    racer.start()
    written = 0
    try:
        for number in range(300):
            try:
                call(tools["edit"], path="d/f", edits=[{"oldText": "sk", "newText": f"{number}"}])
            except ToolError:
                pass
            written += 1
    finally:
        stop.set()
        racer.join()
    assert written == 300
    assert (outside / "f").read_text() == "sk-canary\n"


def test_places_that_cannot_be_a_jail(home: Path, zot_home: Path, root: Path) -> None:
    for wrong in (home, home.parent):
        with pytest.raises(ConfigError, match="holds your home directory"):
            builtin_tools(jail_of(wrong, zot_home))
    for wrong in (Path("/"), Path("/etc")):
        with pytest.raises(ConfigError, match="belongs to the system"):
            builtin_tools(jail_of(wrong, zot_home))
    for own in (root, root / "state"):
        with pytest.raises(ConfigError, match="must not lie in each other"):
            builtin_tools(jail_of(root, own))
    subprocess.run(["git", "init", "-q", "--bare", str(root / "bare")], check=True)
    with pytest.raises(ConfigError, match="is a bare repository"):
        builtin_tools(jail_of(root / "bare", zot_home))
    check(str(root), str(zot_home), {"HOME": str(home)})


@pytest.mark.parametrize("name", [".git/hooks", ".vscode", ".claude/deep/er", "bare/hooks", "link"])
def test_what_other_programs_obey_cannot_be_a_jail(root: Path, zot_home: Path, name: str) -> None:
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    subprocess.run(["git", "init", "-q", "--bare", str(root / "bare")], check=True)
    (root / "link").symlink_to(".git/info")
    (root / name).mkdir(parents=True, exist_ok=True)
    with pytest.raises(ConfigError, match="is protected: .* choose the project's directory"):
        builtin_tools(jail_of(root / name, zot_home))


@pytest.mark.parametrize("name", [".claude/worktrees/tree", "bare/tree"])
def test_a_work_tree_can_be_a_jail_wherever_the_user_has_it(
    root: Path, zot_home: Path, name: str
) -> None:
    subprocess.run(["git", "init", "-q", "--bare", str(root / "bare")], check=True)
    subprocess.run(["git", "init", "-q", str(root / name)], check=True)
    (root / name / "src").mkdir()
    for place in (root / name, root / name / "src"):
        builtin_tools(jail_of(place, zot_home))


def test_without_the_flag_nothing_of_the_jail_is_loaded(tmp_path: Path) -> None:
    code = (
        "import sys; from zot.tools.registry import SharedPlace, builtin_tools\n"
        "from zot.cancel import Cancel; from zot.core.tool import ToolContext\n"
        "read = builtin_tools(SharedPlace(sys.argv[1], {}))[0]\n"
        "read.run({'path': 'f'}, ToolContext(call_id='1', cancel=Cancel(), progress=print))\n"
        "print(*[name for name in ('jail', 'process.supervisor')"
        " if f'zot.tools.{name}' in sys.modules])"
    )
    (tmp_path / "f").touch()
    argv = [sys.executable, "-c", code, str(tmp_path)]
    searched = subprocess.run(argv, capture_output=True, text=True, check=True, env=uncovered())
    assert searched.stdout.strip() == ""


# --- commands --------------------------------------------------------------------------------


@needs_bwrap
def test_a_command_writes_only_the_working_directory(
    tools: Tools, root: Path, home: Path, outside: Path, seen_tmp: None
) -> None:
    output = said(
        tools,
        f"echo new > made; echo y > ~/.bashrc; echo z > {outside}/g; cat {outside}/f;"
        f" touch /etc/zot-was-here /usr/zot-was-here; pwd; rm -rf ~/zot; ln {outside}/f linked;"
        " echo end",
    )
    assert (root / "made").read_text() == "new\n"
    assert output.count("Read-only file system") >= 4
    assert "canary" in output and f"\n{root}\n" in output and "end" in output
    assert not (home / ".bashrc").exists() and not (outside / "g").exists()
    assert (home / "zot/auth.json").exists()
    assert not (root / "linked").exists()
    assert not Path("/etc/zot-was-here").exists()


@needs_bwrap
def test_a_command_has_a_tmp_of_its_own(tools: Tools) -> None:
    name = f"zot-test-{os.urandom(6).hex()}"
    assert "\nx\n" in said(tools, f"echo x > /tmp/{name} && cat ${{TMPDIR:-/tmp}}/{name}")
    assert not Path("/tmp", name).exists()
    assert "No such file" in said(tools, f"cat /tmp/{name}")


@needs_bwrap
def test_git_and_zot_directories_are_read_only(tools: Tools, root: Path) -> None:
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    (root / ".zot").mkdir()
    (root / ".zot/config.json").write_text("{}")
    output = said(
        tools,
        "rm -rf .git .zot; mv .git old; echo x > .git/hooks/pre-commit; echo x >> .git/config;"
        " echo x > .zot/config.json; git config core.fsmonitor ./evil; git status --short",
    )
    assert "?? f" in output
    assert (root / ".git/HEAD").exists() and (root / ".zot/config.json").read_text() == "{}"
    assert not (root / ".git/hooks/pre-commit").exists()
    assert "fsmonitor" not in (root / ".git/config").read_text()
    assert not (root / "old").exists()


@needs_bwrap
def test_they_cannot_be_made_either_and_no_trace_is_left(tools: Tools, root: Path) -> None:
    output = said(tools, "git init -q . ; mkdir .zot/extensions; echo x > .zot/config.json; ls -A")
    assert "Read-only file system" in output
    assert [each.name for each in root.iterdir()] == ["f"]


@needs_bwrap
def test_a_git_file_of_a_worktree_is_protected_and_a_symlink_refused(
    tools: Tools, root: Path
) -> None:
    (root / ".git").write_text("gitdir: /nowhere\n")
    assert "Read-only" in said(tools, "echo x > .git; rm -f .git")
    assert (root / ".git").read_text() == "gitdir: /nowhere\n"
    (root / ".git").unlink()
    (root / ".git").symlink_to("elsewhere")
    with pytest.raises(ToolError, match=r"\.git' is a symlink"):
        said(tools, "true")


@needs_bwrap
def test_secrets_are_out_of_sight(
    tools: Tools, home: Path, zot_home: Path, monkeypatch: pytest.MonkeyPatch, seen_tmp: None
) -> None:
    (home / ".ssh").mkdir()
    (home / ".ssh/id").write_text("sk-canary")
    (home / ".netrc").write_text("sk-canary")
    monkeypatch.setenv("MY_API_KEY", "sk-canary")
    monkeypatch.setenv("GITHUB_TOKEN", "sk-canary")
    monkeypatch.setenv("HARMLESS", "yes")
    output = said(
        tools,
        f"cat {zot_home}/auth.json ~/.ssh/id ~/.netrc; env; echo $HARMLESS;"
        f" cat /proc/$PPID/environ /proc/{os.getpid()}/environ /proc/*/environ | tr '\\0' '\\n'",
    )
    assert "sk-canary" not in output
    assert "\nyes\n" in output


@needs_bwrap
def test_there_is_no_network_and_no_socket_of_the_system(tools: Tools, tmp_path: Path) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        output = said(tools, f"echo hi > /dev/tcp/127.0.0.1/{port}; ls -A /run | wc -l")
    assert "Connection refused" in output or "unreachable" in output
    assert "\n0\n" in output


@needs_bwrap
def test_a_command_sees_only_its_own_processes_and_has_no_power(tools: Tools) -> None:
    output = said(
        tools,
        f"kill -0 {os.getpid()} && echo seen; ls -d /proc/[0-9]* | wc -l;"
        " for each in $(find /proc/sys /proc/irq /proc/bus /proc/sysrq-trigger /sys -maxdepth 3"
        " -type f 2> /dev/null); do test -w $each && echo writable; done;"
        " mount -o remount,rw / && echo remounted; grep CapEff /proc/self/status",
    )
    assert "seen" not in output and "writable" not in output and "remounted" not in output
    assert "0000000000000000" in output


@needs_bwrap
def test_output_exit_code_progress_and_stdin_are_as_without_a_jail(tools: Tools) -> None:
    shown: list[str] = []
    output = bash(tools, "echo hi; cat; echo err >&2; exit 3", progress=shown.append)
    assert output.is_error and "\nhi\nerr\n" in text(output) and "[exit 3]" in text(output)
    assert "hi" in "".join(shown)
    assert output.details is not None and output.details["exit_code"] == 3
    assert "late" in said(tools, "echo late > >(sleep 0.03; cat)")


@needs_bwrap
def test_leftovers_are_named_and_stopped(tools: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    mark = f"zot-test-{os.urandom(6).hex()}"
    monkeypatch.setenv("MARKED", mark)
    output = said(tools, "sleep 301 & (setsid sleep 302 &) ; echo started")
    assert "2 background processes were stopped" in output
    assert "sleep 301" in output and "sleep 302" in output and "(bwrap" not in output
    assert none_left(mark)


@needs_bwrap
def test_timeout_and_abort_leave_nothing(tools: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    mark = f"zot-test-{os.urandom(6).hex()}"
    monkeypatch.setenv("MARKED", mark)
    command = "trap '' TERM; setsid sleep 303 & sleep 304"
    output = text(bash(tools, command, timeout=0.5))
    assert "timed out after 0.5 s" in output and "[exit -1]" in output
    assert none_left(mark)
    cancel = Cancel()
    thread = threading.Thread(
        target=lambda: eventually(lambda: len(marked(mark)) > 3) and cancel.set(), name="abort"
    )
    thread.start()
    assert "aborted" in text(bash(tools, command, cancel=cancel))
    thread.join()
    assert none_left(mark)


@needs_bwrap
def test_the_complete_output_can_be_read_though_it_lies_outside(tools: Tools) -> None:
    output = bash(tools, "seq 1 30000")
    assert output.details is not None
    path = Path(str(output.details["full_output"]))
    try:
        assert text(call(tools["read"], path=str(path), offset=29000, limit=1)).startswith("29000")
        with pytest.raises(ToolError, match="is outside"):
            call(tools["read"], path=str(path.parent))
        with pytest.raises(ToolError, match="is outside"):
            call(tools["write"], path=str(path), content="x")
    finally:
        path.unlink()


@needs_bwrap
def test_commands_share_the_cover_of_what_is_not_there(tools: Tools, root: Path) -> None:
    results: dict[str, str] = {}

    def wait(name: str) -> None:
        command = f"touch {name}; while ! test -e go-{name}; do sleep 0.02; done; mkdir .zot/x"
        results[name] = said(tools, command)

    threads = [threading.Thread(target=wait, args=name, name=name) for name in "ab"]
    for name, thread in zip("ab", threads, strict=True):
        thread.start()
        assert eventually(lambda name=name: (root / name).exists())  # type: ignore[misc]
    for name, thread in zip("ab", threads, strict=True):  # the first, which made it, ends first
        assert (root / ".zot").is_dir() and (root / ".git").is_dir()
        (root / f"go-{name}").touch()
        thread.join()
        assert "Read-only" in results[name]
    assert sorted(each.name for each in root.iterdir()) == ["a", "b", "f", "go-a", "go-b"]


@needs_bwrap
def test_a_cover_that_a_killed_zot_left_is_removed(tools: Tools, root: Path) -> None:
    (root / ".zot").mkdir(covers.COVER)
    said(tools, "true")
    assert [each.name for each in root.iterdir()] == ["f"]


@needs_bwrap
def test_what_zot_itself_runs_from_cannot_be_changed(
    root: Path, zot_home: Path, supervisor: SharedSupervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "deep/venv/bin").mkdir(parents=True)
    monkeypatch.setattr(sys, "prefix", str(root / "deep/venv"))
    tools = jailed(root, zot_home, supervisor)
    with pytest.raises(ToolError, match="is protected"):
        call(tools["write"], path="deep/venv/bin/python", content="evil")
    output = said(tools, "echo evil > deep/venv/bin/python; mv deep old; echo ok > elsewhere")
    assert "Read-only" in output and (root / "elsewhere").exists()
    assert list((root / "deep/venv/bin").iterdir()) == [] and not (root / "old").exists()


def test_names_zot_runs_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert own_names(str(tmp_path)) == ()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / ".venv").symlink_to("elsewhere")
    monkeypatch.setattr(sys, "prefix", str(tmp_path / ".venv"))
    assert own_names(str(tmp_path), str(tmp_path)) == (".venv", "elsewhere")
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert own_names(str(tmp_path)) == ()


def test_without_bubblewrap_no_command_runs(
    tools: Tools, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "bin").mkdir()
    fake = root / "bin/bwrap"
    fake.write_text(f"#!/bin/sh\ntouch {root}/ran\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(root / "bin"))
    with pytest.raises(ToolError, match=r"no `bwrap` on PATH; install it \(apt"):
        said(tools, f"touch {root}/ran")
    assert not (root / "ran").exists()
    assert text(call(tools["read"], path="f")) == "inside\n"


def test_a_bubblewrap_that_cannot_work_is_an_error_not_a_way_out(
    tools: Tools, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    fake = folder / "bwrap"
    fake.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2; exit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    with pytest.raises(ToolError, match="cannot make a jail .*No permissions.*user namespaces"):
        said(tools, f"touch {root}/ran")
    cancel = Cancel()
    cancel.set()
    with pytest.raises(Cancelled):
        bash(tools, "true", cancel=cancel)
    assert sorted(each.name for each in root.iterdir()) == ["f"]


def test_the_model_is_told_of_the_jail(tools: Tools) -> None:
    assert "Jailed" in tools["bash"].description
    assert len(tools["bash"].description) < 300


# --- the cover of what is not there ----------------------------------------------------------


def opened(path: Path) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY)


def test_a_cover_that_was_removed_meanwhile_is_made_again(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = root / ".zot"
    path.mkdir(covers.COVER)
    before = covers.lock
    calls: list[int] = []

    def lock(fd: int, *, shared: bool = False, wait: bool = False) -> bool:
        if not calls:
            path.rmdir()  # its maker was the last
        calls.append(fd)
        return before(fd, shared=shared, wait=wait)

    monkeypatch.setattr(covers, "lock", lock)
    with held(opened(root), ".zot"):
        assert path.is_dir()
    assert not path.exists()


def test_a_directory_of_the_user_is_not_removed_though_it_is_empty(root: Path) -> None:
    (root / ".zot").mkdir()
    with protected(opened(root), str(root), PROTECTED) as made:
        assert made == [
            (name, *beneath.identity((root / name).stat()), False) for name in (".git", ".zot")
        ]
    assert (root / ".zot").exists() and not (root / ".git").exists()


def test_where_nothing_can_be_made_nothing_needs_a_cover(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str, mode: int, *, dir_fd: int) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(covers.os, "mkdir", refuse)
    with protected(opened(root), str(root), PROTECTED) as made:
        assert made == []

    def full(path: str, mode: int, *, dir_fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(covers.os, "mkdir", full)
    with (
        pytest.raises(ToolError, match="cannot protect .*no space left"),
        protected(opened(root), str(root), PROTECTED),
    ):
        pass


def test_hidden_are_only_secrets_that_exist_and_do_not_hold_the_project(
    home: Path, zot_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jail, "CLOSED", ())
    project = home / ".claude/project"
    (project / ".git").mkdir(parents=True)
    (home / ".aws").mkdir()
    place = Jail(str(project), os.environ, str(zot_home))
    real = str(home.parent / "real")
    Path(real, ".ssh").mkdir(parents=True)
    entry = list(pwd.getpwuid(os.getuid()))
    entry[5] = real
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: pwd.struct_passwd(entry))
    assert f"{real}/.ssh" in place._secrets()
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)
    assert place._secrets() == [str(home / ".aws"), str(zot_home)]
    assert beneath.is_below(place.root, str(home))


# --- what other programs obey ----------------------------------------------------------------

EVIL = "mkdir -p {0}/objects {0}/refs; echo 'ref: refs/heads/main' > {0}/HEAD;"
EVIL += r" printf '[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = ..\n"
EVIL += r"\tfsmonitor = \"touch {1}; false\"\n' > {0}/config"


@needs_bwrap
@pytest.mark.parametrize("where", [".", "sub", "deep/er/.git", "x/.GIT"])
def test_a_repository_that_a_command_makes_is_harmless_afterwards(
    tools: Tools, root: Path, outside: Path, where: str
) -> None:
    output = said(tools, "mkdir -p x deep/er; " + EVIL.format(where, outside / "ran"))
    assert "was renamed to" in output
    folder = root / where
    subprocess.run(["git", "status"], cwd=folder if folder.is_dir() else folder.parent)
    assert not (outside / "ran").exists()


def nest(depth: int) -> str:
    """Return a command that makes a repository in so many `.git` inside each other."""
    inner = EVIL.format(".git", "/tmp/ran")
    return f"mkdir pkg; cd pkg; for i in $(seq {depth - 1}); do mkdir .git; cd .git; done; {inner}"


def gits(root: Path) -> str:
    find = ["find", str(root), "-name", ".git", "-printf", "%d "]
    return subprocess.run(find, capture_output=True, text=True, check=True).stdout


@needs_bwrap
@pytest.mark.parametrize("depth", [6, 300])
def test_repositories_inside_each_other_are_all_renamed(
    tools: Tools, root: Path, depth: int
) -> None:
    output = said(tools, nest(depth))
    assert gits(root) == ""
    assert output.count(" was renamed to") == min(depth + 1, aftermath.MAX_NOTES)  # and its HEAD


@needs_bwrap
def test_too_many_repositories_inside_each_other_stop_all_commands_until_they_are_renamed(
    tools: Tools,
    root: Path,
    zot_home: Path,
    supervisor: SharedSupervisor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(obeyed, "MAX_DEPTH", 50)
    assert "no command runs until all are" in said(tools, nest(240))
    for _ in range(2):
        with pytest.raises(ToolError, match="no command runs until all are"):
            bash(tools, "touch ran")
    tools = jailed(root, zot_home, supervisor)  # the next zot goes on
    assert gits(root) != ""
    said(tools, "touch later")
    assert gits(root) == ""
    assert not (root / "ran").exists() and (root / "later").exists()


@pytest.mark.parametrize("name", ["HEAD", "config", "hooks/post-checkout"])
def test_file_tools_neither_make_nor_change_a_repository(
    tools: Tools, root: Path, name: str
) -> None:
    call(tools["write"], path="sub/objects/x", content="x")
    call(tools["write"], path="sub/HEAD", content="ref: refs/heads/main")
    with pytest.raises(ToolError, match="is protected"):
        call(tools["write"], path="sub/refs/x", content="x")
    subprocess.run(["git", "init", "-q", "--bare", str(root / "bare")], check=True)
    with pytest.raises(ToolError, match="is protected"):
        call(tools["write"], path=f"bare/{name}", content="evil")


@needs_bwrap
def test_what_is_obeyed_is_read_only_at_any_depth(tools: Tools, root: Path) -> None:
    subprocess.run(["git", "init", "-q", str(root / "a/b")], check=True)
    subprocess.run(["git", "init", "-q", "--bare", str(root / "bare")], check=True)
    (root / "a/.vscode").mkdir()
    (root / "a/.vscode/tasks.json").write_text("{}")
    output = said(
        tools,
        "for f in a/b/.git/config a/b/.git/hooks/x a/.vscode/tasks.json bare/config; do"
        " echo evil >> $f; done; rm -rf a/b/.git; mv a/b a/c; mkdir a/b; "
        + EVIL.format("a/b/.git", "/tmp/ran"),
    )
    assert output.count("Read-only file system") >= 4
    assert "'a/b/.git' was renamed" in output
    assert "evil" not in (root / "a/c/.git/config").read_text()
    assert not (root / "a/b/.git").exists()
    assert (root / "a/.vscode/tasks.json").read_text() == "{}"
    with pytest.raises(ToolError, match="is protected"):
        call(tools["write"], path="a/.mcp.json", content="{}")


@needs_bwrap
def test_a_file_with_another_name_outside_cannot_be_written(
    root: Path, zot_home: Path, outside: Path, supervisor: SharedSupervisor
) -> None:
    (root / "linked").hardlink_to(outside / "f")
    (root / "one").write_text("1")
    (root / "two").hardlink_to(root / "one")
    tools = jailed(root, zot_home, supervisor)
    assert "Read-only" in said(tools, "echo evil > linked; echo 2 > two")
    assert (outside / "f").read_text() == "sk-canary\n"
    assert (root / "one").read_text() == "2\n"


@needs_bwrap
def test_a_tree_too_large_to_be_searched_for_links_is_said(
    root: Path, zot_home: Path, supervisor: SharedSupervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(obeyed, "MAX_SECONDS", -1.0)
    tools = jailed(root, zot_home, supervisor)
    assert "too large to be searched for files with another name" in said(tools, "true")


@needs_bwrap
def test_what_there_was_no_time_to_see_is_not_taken_for_new(
    tools: Tools, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "sub" / ".vscode").mkdir(parents=True)
    made = (root / "sub" / ".vscode").stat().st_ctime_ns
    assert eventually(lambda: time.time_ns() > made + 2 * obeyed.FRESH)
    limits = iter([-1.0])  # of the look before the command
    look = obeyed.Survey.look

    def with_limit(survey: obeyed.Survey, *args: object, **more: object) -> obeyed.Look:
        monkeypatch.setattr(obeyed, "MAX_SECONDS", next(limits, 60.0))
        return look(survey, *args, **more)

    monkeypatch.setattr(obeyed.Survey, "look", with_limit)
    answer = text(call(tools["bash"], command="mkdir -p new/.vscode"))
    assert "too large to be looked through" in answer
    assert "'new/.vscode' was renamed" in answer
    assert [path.name for path in (root / "sub").iterdir()] == [".vscode"]


@needs_bwrap
@pytest.mark.parametrize("name", [".git", "sub/.envrc"])
def test_what_appears_during_a_long_command_is_renamed_before_it_ends(
    root: Path,
    zot_home: Path,
    supervisor: SharedSupervisor,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    monkeypatch.setattr(aftermath, "WATCH_EVERY", 0.1)
    monkeypatch.setattr(aftermath, "WATCH_AFTER", 0.1)
    (root / "sub" / "repository").mkdir(parents=True)
    path = f"sub/repository/{name}" if name == ".git" else name
    command = f"mkdir {path}; until [ ! -e {path} ]; do sleep 0.05; done; echo gone"
    output = said(jailed(root, zot_home, supervisor), command)
    assert "\ngone\n" in output
    assert output.count(f"{path!r} was renamed") == 1


# --- the filter and its like -----------------------------------------------------------------

REFUSE, ALLOW = 0x00050001, 0x7FFF0000
NUMBERS = {  # ptrace, process_vm_*, io_uring_*, keys, bpf, userfaultfd, perf_event_open
    "x86_64": (0xC000003E, (101, 310, 311, 425, 426, 427, 248, 249, 250, 321, 323, 298), (41, 53)),
    "aarch64": (
        0xC00000B7,
        (117, 270, 271, 425, 426, 427, 217, 218, 219, 280, 282, 241),
        (198, 199),
    ),
}


def verdict(code: bytes, arch: int, number: int, *args: int) -> int:
    """What the kernel makes of the filter."""
    data = struct.pack("<IIQ6Q", number, arch, 0, *args, *[0] * (6 - len(args)))
    at = value = 0
    while True:
        kind, yes, no, operand = struct.unpack_from("<HBBI", code, 8 * at)
        at += 1
        match kind:
            case 0x20:
                (value,) = struct.unpack_from("<I", data, operand)
            case 0x06:
                return int(operand)
            case _:
                holds = {0x15: value == operand, 0x35: value >= operand, 0x45: value & operand}
                at += yes if holds[kind] else no


@pytest.mark.parametrize("machine", NUMBERS)
def test_each_call_of_the_list_is_refused_on_each_machine(machine: str) -> None:
    """Some are refused by this kernel anyway, and the other machine is not here."""
    arch, numbers, sockets = NUMBERS[machine]
    code = filter_for(machine, root=False)
    assert [verdict(code, arch, number) for number in numbers] == [REFUSE] * len(numbers)
    for number in sockets:
        families = {family for family in range(50) if verdict(code, arch, number, family) == ALLOW}
        assert families == {socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK}
    assert verdict(code, 0x40000003, numbers[0]) == 0x80000000  # another machine's numbers: killed
    assert verdict(code, arch, 63) == ALLOW
    if machine == "x86_64":
        assert verdict(code, arch, 0x40000000 | 101) == REFUSE


CALLS = """
import ctypes, os, socket
call = ctypes.CDLL(None, use_errno=True).syscall
x86 = os.uname().machine == "x86_64"
def said(name, value):
    print(name, value if value >= 0 else os.strerror(ctypes.get_errno()))
said("keyctl", call(250 if x86 else 219, 0, -3, 0))
said("io_uring", call(425, 1, 0))
said("userfaultfd", call(323 if x86 else 282, 0))
said("unshare", call(272 if x86 else 97, 0x10000000))
try:
    socket.socket(40, socket.SOCK_STREAM)
    print("vsock made")
except OSError as error:
    print("vsock", error.strerror)
os.open("set", os.O_CREAT | os.O_WRONLY, 0o755)
for mode in (0o4755, 0o2755, 0o2644, 0o755):
    try:
        os.chmod("set", mode)
        print("chmod", oct(mode))
    except OSError as error:
        print("chmod", error.strerror)
try:
    os.open("set2", os.O_CREAT | os.O_WRONLY, 0o4755)
except OSError as error:
    print("open", error.strerror)
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
server.accept()[0].sendall(b"loopback works")
print(client.recv(99).decode())
a, b = socket.socketpair()
"""


@needs_bwrap
@pytest.mark.skipif(
    not filter_for(os.uname().machine, root=True), reason="no filter for this machine"
)
def test_calls_that_reach_past_the_jail_are_refused(tools: Tools, root: Path) -> None:
    (root / "calls.py").write_text(CALLS)
    refused = "Operation not permitted"
    python = "/usr/bin/python3" if Path("/usr/bin/python3").exists() else sys.executable
    lines = said(tools, f"{python} calls.py").split("\n\n")[1].splitlines()
    assert lines[:3] == [f"{name} {refused}" for name in ("keyctl", "io_uring", "userfaultfd")]
    assert lines[3] == "unshare No space left on device"
    assert lines[4] == f"vsock {refused}"
    lent = refused if os.geteuid() == 0 else "0o2755"
    assert lines[5:] == [
        f"chmod {refused}",
        f"chmod {lent}",
        "chmod 0o2644",
        "chmod 0o755",
        f"open {refused}",
        "loopback works",
    ]


@needs_bwrap
def test_its_own_places_have_a_size(tools: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jail, "tmp_size", lambda: 1 << 20)
    for folder in ("/tmp", "/dev/shm", "/run"):
        assert "No space left" in said(tools, f"head -c 2000000 /dev/zero > {folder}/x")


def test_passwords_in_addresses_are_masked() -> None:
    env = {"DB": "postgres://u:pw@h/x?a=b", "URL": "https://h:80/@x", "API_KEY": "k", "A": "b:c@d"}
    assert jail.visible(env) == {
        "DB": "postgres://u:***@h/x?a=b",
        "URL": "https://h:80/@x",
        "A": "b:c@d",
    }


@needs_bwrap
@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("echo 'bwrap: setting up uid map: Permission denied' >&2; exit 1", "apparmor_parser"),
        ("echo 'bwrap: No namespaces' >&2; exit 1", "user namespaces"),
    ],
)
def test_the_error_says_what_to_do(
    tools: Tools, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, words: str
) -> None:
    fake_bwrap(tmp_path, monkeypatch, body)
    with pytest.raises(ToolError, match=words):
        bash(tools, "true")


@needs_bwrap
def test_an_old_bubblewrap_is_used_and_said(
    tools: Tools, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = shutil.which("bwrap")
    body = 'for w in "$@"; do case $w in --disable-userns|--size)'
    body += (
        f" echo bwrap: Unknown option $w >&2; exit 1;; --) break;; esac; done; exec {real} "
        + '"$@"'
    )
    fake_bwrap(tmp_path, monkeypatch, body)
    output = said(tools, "echo ran")
    assert "\nran\n" in output
    assert "older than 0.8" in output
    assert "older" not in said(tools, "echo ran")


def fake_bwrap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "bwrap").write_text(f"#!/bin/sh\n{body}\n")
    (folder / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


@needs_bwrap
def test_covers_of_a_killed_zot_are_removed_at_the_next_start(root: Path, zot_home: Path) -> None:
    (root / ".git").mkdir(covers.COVER)
    (root / ".zot").mkdir()
    Jail(str(root), os.environ, str(zot_home))
    assert sorted(each.name for each in root.iterdir()) == [".zot", "f"]


def test_too_many_covers_become_their_directories() -> None:
    paths = [f"a/b{n}/c/f{m}" for n in range(3) for m in range(90)] + ["top"]
    assert obeyed.few_covers(paths) == ["a/b0/c", "a/b1/c", "a/b2/c", "top"]
