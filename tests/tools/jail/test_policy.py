"""Levels and words of a jail: what holds without namespaces, and what can be narrowed."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.bwrap import needs_bwrap
from support.rpc import Zot, run_zot
from support.tools import call, text

from zot.core.confinement import JailPolicy
from zot.core.tool import Tool
from zot.errors import ConfigError, ToolError
from zot.home import Surroundings
from zot.settings.agents import agent_words
from zot.settings.options import Options
from zot.settings.resolve import resolve
from zot.tools.jail import jail, landlock
from zot.tools.jail.fit import check_writable
from zot.tools.registry import SharedPlace, SharedSupervisor, builtin_tools

needs_landlock = pytest.mark.skipif(landlock.abi() < 1, reason="this kernel has no Landlock")
Make = Callable[..., dict[str, Tool]]


@pytest.fixture(scope="module")
def supervisor() -> Iterator[SharedSupervisor]:
    shared = SharedSupervisor()
    yield shared
    shared.close()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "home"
    for name, content in {
        "zot/auth.json": "sk-canary",
        ".ssh/id": "sk-canary",
        "other/code": "other project",
        "project/f": "inside",
        "project/.env": "sk-canary",
        "project/sub/key.pem": "sk-canary",
        "project/.git/config": "[core]\n",
        "cache/x": "x",
    }.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(content)
    monkeypatch.setenv("HOME", str(path))
    # The home directory of the tests is in /tmp; to be seen at all, that must not be covered.
    monkeypatch.setattr(jail, "CLOSED", ("/run",))
    return path


def without_namespaces(folder: Path) -> str:
    """A PATH on which bubblewrap fails, as in a container."""
    program = folder / "bin" / "bwrap"
    program.parent.mkdir(exist_ok=True)
    program.write_text(
        "#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1"
    )
    program.chmod(0o755)
    return f"{program.parent}:{os.environ['PATH']}"


@pytest.fixture
def make(home: Path, supervisor: SharedSupervisor) -> Make:
    def made(**policy: object) -> dict[str, Tool]:
        environ = dict(os.environ)
        if policy.get("best"):
            environ["PATH"] = without_namespaces(home.parent)
        chosen = JailPolicy(on=True, **policy)  # type: ignore[arg-type]
        place = SharedPlace(str(home / "project"), environ, home=str(home / "zot"), policy=chosen)
        return {tool.name: tool for tool in builtin_tools(place, supervisor=supervisor)}

    return made


def lines(tools: dict[str, Tool], *tries: str) -> list[str]:
    """How each try ended: `yes` and `no`, in their order."""
    command = "; ".join(f"( {one} ) >/dev/null 2>&1 && echo =yes || echo =no" for one in tries)
    printed = text(call(tools["bash"], command=command))
    return [line[1:] for line in printed.splitlines() if line in ("=yes", "=no")]


OUTSIDE = (
    'test "$(cat ~/.ssh/id)" = sk-canary',
    'test "$(cat ~/zot/auth.json)" = sk-canary',
    "echo x > ~/planted",
    "echo x > ../other/code",
    "mv f ../other/f",
    "ln f ../other/f",
    "kill -0 $PPID",
    'python3 -c "import socket; socket.socket()"',
    'python3 -c "import socket; socket.socket(socket.AF_UNIX)"',
    "unshare -U true",
    "chmod u+s f",
    "cat /proc/$PPID/environ",
    ": < /dev/ptmx",
)
INSIDE = (
    "echo x > new && mkdir d && mv new d/new && rm -r d",
    "echo x > $TMPDIR/x && rm $TMPDIR/x",
    "echo x > /dev/null",
    "cat ../other/code",
    "ls / ~",
    'python3 -c "import socket; socket.socketpair()"',
    "ls | cat",
)


@needs_landlock
def test_without_namespaces_rules_on_files_hold(make: Make, home: Path) -> None:
    tools = make(best=True)
    assert lines(tools, *OUTSIDE) == ["no"] * len(OUTSIDE)
    assert lines(tools, *INSIDE) == ["yes"] * len(INSIDE)
    assert not (home / "planted").exists()
    assert (home / "other/code").read_text() == "other project"


@needs_landlock
def test_the_weaker_level_is_told_and_so_is_what_it_cannot_protect(make: Make, home: Path) -> None:
    tools = make(best=True)
    first = text(call(tools["bash"], command="echo evil >> .git/config; mkdir -p s/.git"))
    assert "level files" in first and "No permissions to create new namespace" in first
    assert "'.git/config' changed meanwhile" in first
    assert "'s/.git' was renamed" in first
    second = text(call(tools["bash"], command="true"))
    assert "level files" not in second and "changed" not in second


@needs_landlock
def test_rules_for_reading_only_and_for_the_project_alone(make: Make) -> None:
    tools = make(best=True, read_only=True, project_only=True)
    tries = ("echo x > new", "echo x >> .git/config", "cat ../other/code", "cat f", "ls /usr/bin")
    assert lines(tools, *tries) == ["no", "no", "no", "yes", "yes"]


@needs_landlock
def test_what_cannot_be_hidden_by_rules_stops_the_command(make: Make) -> None:
    tools = make(best=True, deny_read=(".env",))
    with pytest.raises(ToolError, match=r"\.env' must not be read, and at the level files"):
        call(tools["bash"], command="cat f")
    outside = make(best=True, deny_read=("../other/**",))
    assert lines(outside, "cat ../other/code", "cat f") == ["no", "yes"]


@needs_bwrap
def test_a_read_only_jail_writes_nothing(make: Make, home: Path) -> None:
    tools = make(read_only=True)
    tries = ("echo x > new", "echo x > f", "rm f", "echo x > ~/cache/x", "echo x > /tmp/x", "cat f")
    assert lines(tools, *tries) == ["no", "no", "no", "no", "no", "yes"]
    for name, args in {
        "write": {"path": "new", "content": "x"},
        "edit": {"path": "f", "edits": [{"oldText": "inside", "newText": "x"}]},
    }.items():
        with pytest.raises(ToolError, match="the jail is read-only"):
            call(tools[name], **args)
    assert "$TMPDIR" in tools["bash"].description
    assert sorted(path.name for path in (home / "project").iterdir()) == [
        ".env", ".git", "f", "sub",
    ]  # fmt: skip


@needs_bwrap
def test_another_directory_can_be_opened_for_writing(make: Make, home: Path) -> None:
    tools = make(allow_write=(str(home / "cache"),))
    tries = ("echo x > ~/cache/y", "echo x > ~/other/y", "mv ~/cache ~/gone")
    assert lines(tools, *tries) == ["yes", "no", "no"]
    cache = str(home / "cache")
    assert "created" in text(call(tools["write"], path=f"{cache}/z", content="zz\n"))
    assert text(call(tools["read"], path=f"{cache}/z")) == "zz\n"
    assert "z:1: zz" in text(call(tools["grep"], pattern="zz", path=cache))
    (home / "cache/link").symlink_to(home / ".ssh")
    for path in (f"{cache}/link/id", f"{cache}/../.ssh/id", str(home / "other/code")):
        with pytest.raises(ToolError, match="is outside"):
            call(tools["read"], path=path)
    with pytest.raises(ToolError, match="is protected"):
        call(tools["write"], path=f"{cache}/.git/config", content="x")


NOT_WRITABLE = "/ /etc {home} {home}/.. {home}/project/sub {home}/zot {home}/zot/x {home}/gone"


@pytest.mark.parametrize("path", [*NOT_WRITABLE.split(), "{home}/other/.git"])
def test_directories_that_cannot_be_opened_for_writing(home: Path, path: str) -> None:
    (home / "other/.git").mkdir()
    (home / "zot/x").mkdir()
    with pytest.raises(ConfigError, match="--allow-write cannot be"):
        named = path.format(home=home)
        check_writable(named, str(home / "project"), str(home / "zot"), os.environ)


@needs_bwrap
def test_denied_files_are_hidden_from_every_tool(make: Make, home: Path) -> None:
    (home / "project/link").symlink_to(".env")
    (home / "project/hard").hardlink_to(home / "project/.env")
    tools = make(deny_read=(".env", "*.pem", "../other/**"))
    for path in (".env", "link", "sub/key.pem", str(home / "project/.env")):
        for name, args in {
            "read": {"path": path},
            "grep": {"path": path, "pattern": "sk"},
            "edit": {"path": path, "edits": [{"oldText": "sk", "newText": "x"}]},
            "write": {"path": path, "content": "x"},
        }.items():
            with pytest.raises(ToolError, match="is hidden from all tools"):
                call(tools[name], **args)
    found = text(call(tools["grep"], pattern="sk-canary"))
    assert ".env" not in found and ".pem" not in found
    assert text(call(tools["glob"], pattern="**/*", hidden=True)).split() == ["hard", "f", "link"]
    printed = text(call(tools["bash"], command="cat .env link hard sub/key.pem ../other/code; ls"))
    assert "canary" not in printed and "other project" not in printed
    assert (home / "project/.env").read_text() == "sk-canary"


def test_denied_files_are_hidden_from_file_tools_without_a_jail(
    home: Path, supervisor: SharedSupervisor
) -> None:
    policy = JailPolicy(deny_read=("*.pem",))
    place = SharedPlace(str(home / "project"), os.environ, policy=policy)
    tools = {tool.name: tool for tool in builtin_tools(place, supervisor=supervisor)}
    for name in ("read", "grep"):
        with pytest.raises(ToolError, match="is hidden from all tools"):
            call(tools[name], path="sub/key.pem", pattern="sk")
    assert text(call(tools["grep"], pattern="sk-canary")) == ".env:1: sk-canary"
    assert "inside" in text(call(tools["read"], path="f"))


def test_a_pattern_that_cannot_be_used_is_said(home: Path) -> None:
    with pytest.raises(ConfigError, match="deny_read has a pattern that cannot be used"):
        SharedPlace(str(home), os.environ, policy=JailPolicy(deny_read=("[x",))).get()


@needs_bwrap
def test_a_project_alone_sees_the_system_but_no_home(make: Make, home: Path) -> None:
    tools = make(project_only=True, allow_write=(str(home / "cache"),))
    works = ("cat f", "cat ~/cache/x", "echo x > new", "python3 -c 1", "ls /usr/bin")
    fails = ("cat ../other/code", "ls ~/other", "ls ~/zot", "cat /etc/shadow", "echo x > /x")
    assert lines(tools, *works, *fails) == ["yes"] * 5 + ["no"] * 5


# --- told ------------------------------------------------------------------------------------


def told(folder: Path, *flags: str, path: str = "") -> tuple[dict[str, object], bytes]:
    (folder / "work").mkdir(exist_ok=True)
    env = {"PATH": path} if path else {}
    with Zot(folder, ["hi"], args=list(flags), features=["jail"], env=env) as zot:
        state = zot.data("get_state")["jail"]
    ran = run_zot(folder, ["-p", "go", *flags], turns=["x"], env=env)
    return state, ran.stderr


@needs_bwrap
def test_the_level_and_the_words_are_told(tmp_path: Path) -> None:
    assert told(tmp_path)[0] is None
    state, warned = told(tmp_path, "--jail=best,read-only", "--jail-read", "project")
    assert state == {"level": "full", "mode": "read-only", "reads": "project"}
    assert b"jail" not in warned


@needs_landlock
def test_a_level_that_is_not_full_is_told_with_the_remedy(tmp_path: Path) -> None:
    path = without_namespaces(tmp_path)
    state, warned = told(tmp_path, "--jail=best", path=path)
    assert state["level"] == "files" and "No permissions" in str(state["problem"])
    assert b"the jail has the level files" in warned
    state, warned = told(tmp_path, "--jail", path=path)
    assert (state["level"], state["refuses"]) == ("none", True)
    assert b"no command can run in this jail" in warned and b"--jail=best" in warned


@needs_bwrap
def test_a_running_session_takes_words(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    write = {"tools": [{"name": "write", "args": {"path": "f", "content": "x"}}]}
    flags = ["--session", str(tmp_path / "s.jsonl")]
    with Zot(tmp_path, [write, "no", write, "yes"], args=flags, features=["jail"]) as zot:
        assert zot.data("set_jail", jail="read-only") == {"jail": "read-only"}
        assert zot.data("get_state")["jail"]["mode"] == "read-only"
        zot.prompt("go")
        assert not (tmp_path / "work/f").exists()
        assert "the jail cannot be 'tight'" in zot.ask("set_jail", jail="tight")["error"]
        assert zot.data("get_state")["jail"]["mode"] == "read-only"
        assert zot.data("set_jail", jail=False) == {"jail": False}
        zot.prompt("go")
    assert (tmp_path / "work/f").exists()
    rows = [json.loads(line) for line in (tmp_path / "s.jsonl").read_text().splitlines()]
    recorded = [row for row in rows if "jail" in json.dumps(row.get("data", ""))]
    assert [row["data"]["jail"] for row in recorded] == ["read-only", False]


def test_every_version_of_landlock_gets_the_rights_it_knows() -> None:
    for version in range(1, 10):
        rights, network, scopes = landlock.handled(version)
        assert rights.bit_length() == {1: 13, 2: 14, 3: 15, 4: 15}.get(version, 16)
        assert (bool(network), bool(scopes)) == (version >= 4, version >= 6)


def test_agents_of_the_swarm_get_what_is_hidden(tmp_path: Path) -> None:
    flags = Options(deny_read=(".env", "*.pem"), jail_read="project", provider="scripted")
    home = str(tmp_path / "home")
    around = Surroundings(dict(os.environ), home, home, str(tmp_path))
    words = agent_words(resolve(flags, around))
    assert words[:6] == ("--deny-read", ".env", "--deny-read", "*.pem", "--jail-read", "project")
