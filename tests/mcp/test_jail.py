"""With `--jail`, a server that zot starts is kept as a command of `bash` is."""

import json
import os
import shutil
import socket
from pathlib import Path

import pytest
from support.bwrap import needs_bwrap
from support.mcp import PROGRAM, configure
from support.rpc import Zot, make_folder, marked
from support.tools import eventually

pytestmark = [needs_bwrap, pytest.mark.slow]

RUN = {"name": "run", "inputSchema": {"type": "object"}}
FORK = {"name": "fork", "inputSchema": {"type": "object"}}
PYTHON = shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin") or "python3"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project with the program of the server in it: elsewhere in /tmp the jail has nothing."""
    work = make_folder(tmp_path)
    shutil.copy(PROGRAM, work / "server.py")
    (tmp_path / "zot-home").mkdir()
    (tmp_path / "zot-home" / "auth.json").write_text('{"canary": 1}')
    (tmp_path / "home" / ".ssh").mkdir()
    (tmp_path / "home" / ".ssh" / "id").write_text("canary")
    return tmp_path


def use(folder: Path, **more: object) -> None:
    options = json.dumps({"tools": [RUN, FORK]})
    args = ["-I", "-S", str(folder / "work" / "server.py"), options]
    configure(folder / "zot-home" / "mcp.json", s={"command": PYTHON, "args": args, **more})


def run(*commands: str) -> dict:
    return {"tools": [{"name": "mcp__s__run", "args": {"command": text}} for text in commands]}


def said(frames: list[dict]) -> list[str]:
    return [frame["content"][0]["text"] for frame in frames if frame["type"] == "tool_result"]


def test_a_server_writes_the_project_and_reaches_nothing_else(folder):
    use(folder, env={"GIVEN_KEY": "for the server"})
    commands = (
        "echo ok > made.txt",
        "mkdir -p ../home; echo evil > ../home/.bashrc",  # in a /tmp of its own
        "cat ../zot-home/auth.json; cat ../home/.ssh/id; ls /tmp",
        "mkdir -p .git/hooks",
        "echo x > .mcp.json; echo x > .zot",
        "unshare -U true",
        "cat /proc/sys/kernel/hostname > /proc/sys/kernel/hostname",
        "echo $GIVEN_KEY$ANTHROPIC_API_KEY",
    )
    with Zot(folder, [run(*commands), "bye"], args=["--jail"]) as zot:
        results = said(zot.prompt())
    assert results[0] == "[0]" and (folder / "work/made.txt").read_text() == "ok\n"
    assert "canary" not in results[2]
    for refused in results[3:7]:
        assert not refused.endswith("[0]"), refused
    assert results[7] == "[secret removed]\n[0]"  # it has the one that it was given
    assert not (folder / "home/.bashrc").exists()
    # What covers the names that must not appear goes away with the server.
    assert not {".git", ".zot", ".mcp.json"} & {path.name for path in (folder / "work").iterdir()}


CONNECT = "{python} -c \"import socket; socket.create_connection(('127.0.0.1', {port}), 5)\""
KEYCTL = {"x86_64": 250, "aarch64": 219}.get(os.uname().machine, 250)
KEYS = (
    '{python} -c "import ctypes, sys; l = ctypes.CDLL(None, use_errno=True);'
    ' sys.exit(l.syscall({number}, 0, -3, 0, 0) == -1 and ctypes.get_errno())"'
)


@pytest.mark.parametrize("network", [False, True])
def test_the_network_is_for_a_server_whose_entry_says_so_and_the_filter_for_all(folder, network):
    with socket.create_server(("127.0.0.1", 0)) as listener:  # it need not accept
        port = listener.getsockname()[1]
        use(folder, network=network)
        turn = run(
            CONNECT.format(python=PYTHON, port=port), KEYS.format(python=PYTHON, number=KEYCTL)
        )
        with Zot(folder, [turn, "bye"], args=["--jail"]) as zot:
            connected, keys = said(zot.prompt())
        assert connected.endswith("[0]") == network, connected
        assert keys == "[1]"  # EPERM


def test_nothing_that_a_jailed_server_started_outlives_it(folder):
    use(folder)
    turns = [{"tools": [{"name": "mcp__s__fork", "args": {}}]}, "bye"]
    with Zot(folder, turns, args=["--jail"]) as zot:
        assert said(zot.prompt()) == ["forked"]
        assert [
            line for _, line in marked(zot.mark) if "sleep" in line
        ] == []  # its own environment
        below = [line for line in children(zot.process.pid) if "sleep 300" in line]
        assert len(below) >= 2
        zot.process.kill()
        zot.process.wait()
        pids = [line.split()[0] for line in below]
        assert eventually(lambda: not any(is_alive(pid) for pid in pids))


def children(pid: int) -> list[str]:
    """The command lines of all processes below one, each after its pid."""
    below, waiting = [], [str(pid)]
    while waiting:
        for task in Path(f"/proc/{waiting.pop()}/task").glob("*/children"):
            for child in task.read_text().split():
                words = Path(f"/proc/{child}/cmdline").read_bytes().replace(b"\0", b" ")
                below.append(f"{child} {words.decode('utf-8', 'replace')}")
                waiting.append(child)
    return below


def is_alive(pid: str) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except OSError:
        return False
    return state not in (b"Z", b"X")


def test_what_other_programs_would_obey_is_renamed_and_told_once(folder):
    use(folder)
    servers = json.loads((folder / "zot-home" / "mcp.json").read_text())["mcpServers"]
    configure(folder / "zot-home" / "mcp.json", **servers, other=servers["s"])
    command = {"name": "bash", "args": {"command": "git init -q theirs"}}
    turns = [run("git init -q sub"), {"tools": [command]}, "bye"]
    with Zot(folder, turns, args=["--jail"]) as zot:
        _, of_command = said(zot.prompt())
        zot.data("reload_ext")  # ends the servers
        told = [frame["message"] for frame in zot.frames if frame["type"] == "ext_notify"]
    for name in ("sub", "theirs"):
        (inside,) = (folder / "work" / name).iterdir()
        assert inside.name.startswith(".git.jailed-")
    # What a command made is told to the model, not to the person.
    assert "'theirs/.git' was renamed" in of_command
    names = [text.split("'")[1] for text in told]
    assert names.count("sub/.git") == 1 and "theirs/.git" not in names, told


def test_a_jail_that_cannot_be_made_starts_no_server_and_touches_nothing(folder):
    use(folder)
    there = [".vscode/tasks.json", "sub/.mcp.json", "sub/deep/.git/config"]
    for name in there:
        (folder / "work" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "work" / name).write_text("x")
    broken = folder / "bin" / "bwrap"
    broken.parent.mkdir()
    broken.write_text("#!/bin/sh\necho setting up uid map: Permission denied >&2\nexit 1\n")
    broken.chmod(0o755)
    path = f"{broken.parent}:/usr/bin:/bin"
    with Zot(folder, ["bye"], args=["--jail"], features=["mcp"], env={"PATH": path}) as zot:
        zot.prompt()
        (state,) = zot.data("get_state")["mcp"]
    assert state["state"] == "failed" and "AppArmor" in state["error"]
    assert all((folder / "work" / name).read_text() == "x" for name in there)


def test_the_jail_can_be_switched_on_and_off_with_servers_running(folder):
    use(folder)
    outside = folder / "outside.txt"
    turn = run(f"echo x >> {outside}")
    with Zot(folder, [turn, "a", turn, "b", turn, "c"]) as zot:
        assert said(zot.prompt()) == ["[0]"]
        zot.data("set_jail", jail=True)
        zot.prompt()  # it may write a /tmp of its own
        zot.data("set_jail", jail=False)
        assert said(zot.prompt()) == ["[0]"]
    assert outside.read_text() == "x\nx\n"


def test_a_program_that_the_jail_does_not_have_is_named(folder):
    program = folder / "server"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    configure(folder / "zot-home" / "mcp.json", s={"command": str(program)})
    with Zot(folder, ["bye"], args=["--jail"], features=["mcp"]) as zot:
        zot.prompt()
        (state,) = zot.data("get_state")["mcp"]
    assert state["state"] == "failed"
    assert "lies in a directory that is empty in the jail; install it" in state["error"]
