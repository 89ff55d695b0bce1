import json
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.extension import (
    OBJECT,
    HostOfOne,
    Seen,
    call,
    hook_context,
    log_of,
    only,
    patient,
    running_host,
    text_of,
    wait_for,
    write_extension,
)
from support.patience import PATIENCE

from zot import __version__
from zot.cancel import Cancel
from zot.core.events import (
    AssistantMessage,
    CompactDone,
    CompactStart,
    ExtensionAsk,
    ExtensionDisplay,
    ExtensionNotify,
    ExtensionPanel,
    TextDelta,
    ToolCalled,
    ToolReturned,
    TurnEnd,
    TurnStart,
    UserMessage,
)
from zot.core.hook import ALLOW, Block, ReplaceArgs, ReplaceText
from zot.core.source import PersonAnswer
from zot.core.tool import ToolContext
from zot.errors import Cancelled, CommandError, ToolError
from zot.extensions.guard import ExtensionHook
from zot.extensions.guest import Guest
from zot.extensions.host import HostSettings
from zot.provider.types import Image, Message, Text, ToolCall, ToolResult

ECHO = f"""
hello("echo")
emit("register_tool", name="echo", description="echoes", schema={OBJECT!r})
emit("register_command", name="say", description="says it")
emit("ready")
for frame in frames():
    match frame["type"]:
        case "tool_call": text(frame["id"], "echo: " + json.dumps(frame["args"]))
        case "command_invoked":
            emit("command_response", id=frame["id"], action="prompt", prompt=frame["args"])
        case "shutdown":
            emit("shutdown_ack")
            break
"""


def test_a_tool_of_an_extension_runs_and_names_its_origin(tmp_path):
    folder = write_extension(tmp_path, "echo", ECHO)
    with running_host(tmp_path, folder) as (host, seen):
        (tool,) = host.tools()
        assert (tool.name, tool.description, tool.schema) == ("echo", "echoes", OBJECT)
        output = call(host, "echo", {"a": "\u2028"})
        assert text_of(output) == 'echo: {"a": "\\u2028"}'
        assert output.details == {"extension": "echo", "tool": "echo"}
        assert seen.events == []


def test_a_command_gives_its_prompt(tmp_path):
    folder = write_extension(tmp_path, "echo", ECHO)
    with running_host(tmp_path, folder) as (host, _):
        assert [(each.name, each.source) for each in host.commands()] == [("say", "echo")]
        outcome = host.run_command("/say", "  hi there ")
        assert (outcome.action, outcome.text) == ("prompt", "hi there")
        with pytest.raises(CommandError, match="unknown extension command 'nope'"):
            host.run_command("nope", "")


def test_hello_ack_tells_about_zot_and_the_folders(tmp_path):
    body = """
hello("x")
ack = next(frames())
emit("register_tool", name="t", description=json.dumps(ack), schema={"type": "object"})
emit("ready")
for frame in frames(): pass
"""
    folder = write_extension(tmp_path, "x", body)
    with running_host(tmp_path, folder, provider="anthropic", model="m1") as (host, _):
        ack = json.loads(host.tools()[0].description)
        assert ack["type"] == "hello_ack"
        assert ack["protocol_version"] == 1
        assert (ack["zot_version"], ack["provider"], ack["model"]) == (
            __version__,
            "anthropic",
            "m1",
        )
        assert ack["cwd"] == str(tmp_path / "work")
        assert ack["extension_dir"] == str(folder)
        assert ack["data_dir"] == str(folder)


DATA_DIR = """
hello("x")
emit("register_command", name="data", description=next(frames())["data_dir"])
emit("ready")
for frame in frames(): pass
"""


def test_files_of_an_extension_stay_where_they_are(tmp_path):
    folder = write_extension(tmp_path, "x", DATA_DIR)
    apart = tmp_path / "home" / "extension-data" / "x"
    apart.mkdir(parents=True)
    for where in (folder, apart):
        with running_host(tmp_path, folder) as (host, _):
            assert host.commands()[0].description == str(where)
        (apart / "state.json").touch()


def test_an_extension_that_cannot_write_to_its_folder_has_one_elsewhere(tmp_path, monkeypatch):
    folder = write_extension(tmp_path, "x", DATA_DIR)
    # Not by chmod: root may write everywhere.
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != folder)
    with running_host(tmp_path, folder) as (host, _):
        apart = Path(host.commands()[0].description)
    assert apart == tmp_path / "home" / "extension-data" / "x"
    assert apart.stat().st_mode & 0o777 == 0o700


def test_an_extension_that_is_quiet_after_hello_is_ready(tmp_path):
    body = """
hello()
emit("register_command", name="c")
for frame in frames(): pass
"""
    with running_host(tmp_path, write_extension(tmp_path, "x", body)) as (host, seen):
        assert only(host).live
        assert [command.name for command in host.commands()] == ["c"]
        assert seen.events == []


def test_extensions_start_side_by_side(tmp_path):
    body = """
time.sleep(0.6)
hello()
emit("ready")
for frame in frames(): pass
"""
    folders = [write_extension(tmp_path, f"x{i}", body) for i in range(4)]
    started = time.monotonic()
    with running_host(tmp_path, *folders) as (host, _):
        assert all(each.live for each in host.extensions())
    assert time.monotonic() - started < 10


def test_notifications_during_start_are_kept_until_somebody_listens(tmp_path):
    body = """
hello()
emit("notify", level="success", message="early")
emit("ready")
for frame in frames(): pass
"""
    folder = write_extension(tmp_path, "x", body)
    host = HostOfOne(
        HostSettings(tmp_path, tmp_path / "home", (folder,), search=False, environ=os.environ)
    )
    try:
        host.start()
        host.wait_ready()
        seen = Seen()
        host.attach(seen)
        assert seen.events == [ExtensionNotify("x", "success", "early")]
    finally:
        host.close()


def test_images_unknown_blocks_and_no_content(tmp_path):
    body = """
hello_with_tool()
blocks = {
    "image": [{"type": "image", "mime_type": "image/gif", "data": "R0lGODlh"}],
    "bad": [{"type": "image", "mime_type": "image/png", "data": "%%%"}],
    "nomime": [{"type": "image", "mime_type": "text/html", "data": "aGk="}],
    "unknown": [{"type": "zzz"}],
    "none": None,
    "emoji": [{"type": "text", "text": "\\ud83d!"}],
    "long": [{"type": "text", "text": "x" * 300000}, {"type": "text", "text": "y"}],
}
for frame in frames():
    if frame["type"] == "tool_call":
        emit("tool_result", id=frame["id"], content=blocks[frame["args"]["kind"]])
"""
    with running_host(tmp_path, write_extension(tmp_path, "x", body)) as (host, _):
        assert call(host, "t", {"kind": "image"}).content == (Image("image/gif", b"GIF89a"),)
        bad = call(host, "t", {"kind": "bad"})
        assert bad.is_error
        assert text_of(bad).startswith("[bad image from extension x: ")
        assert call(host, "t", {"kind": "nomime"}).is_error
        unknown = call(host, "t", {"kind": "unknown"})
        assert text_of(unknown) == '[unknown block type "zzz" from extension x]'
        assert text_of(call(host, "t", {"kind": "none"})) == "(extension returned no content)"
        assert text_of(call(host, "t", {"kind": "emoji"})) == "\ufffd!"
        long = call(host, "t", {"kind": "long"})
        assert len(text_of(long)) < 270_000
        assert text_of(long).endswith("[cut after 262144 characters]")


def test_progress_reaches_the_turn_in_order(tmp_path):
    body = """
hello_with_tool()
for frame in frames():
    if frame["type"] == "tool_call":
        for i in range(5): emit("tool_progress", id=frame["id"], text=str(i))
        text(frame["id"], "done")
"""
    with running_host(tmp_path, write_extension(tmp_path, "x", body)) as (host, _):
        pieces: list[str] = []
        (tool,) = host.tools()
        tool.run({}, ToolContext("1", Cancel(), pieces.append))
        assert "".join(pieces) == "01234"


def test_abort_cancels_the_call_and_tells_the_extension(tmp_path):
    body = """
hello_with_tool()
for frame in frames():
    if frame["type"] == "tool_call":
        emit("notify", level="info", message="called " + frame["id"])
    if frame["type"] == "tool_cancel":
        emit("notify", level="info", message="cancelled " + frame["id"])
        text(frame["id"], "too late")
"""
    with running_host(tmp_path, write_extension(tmp_path, "x", body)) as (host, seen):
        cancel = Cancel()
        failed: list[BaseException] = []

        def run() -> None:
            try:
                call(host, "t", cancel=cancel)
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        called = seen.wait(lambda event: isinstance(event, ExtensionNotify))
        cancel.set()
        thread.join(PATIENCE)
        assert isinstance(failed[0], Cancelled)
        id = called.message.removeprefix("called ")
        seen.wait(lambda event: event == ExtensionNotify("x", "info", f"cancelled {id}"))


def test_a_call_that_takes_too_long_fails_with_both_names(tmp_path):
    body = """
hello()
emit("register_tool", name="t", schema={"type": "object"}, timeout=0.2)
emit("ready")
for frame in frames(): pass
"""
    late = r"extension x/t failed: no result within 0\.2 s"
    folder = write_extension(tmp_path, "x", body)
    with running_host(tmp_path, folder) as (host, _), pytest.raises(ToolError, match=late):
        call(host, "t")


def test_an_interactive_tool_needs_somebody_there(tmp_path):
    body = """
hello()
emit("register_tool", name="t", schema={"type": "object"}, interactive=True)
emit("ready")
for frame in frames():
    if frame["type"] == "tool_call": text(frame["id"], "asked")
"""
    folder = write_extension(tmp_path, "x", body)
    refused = "require an interactive host"
    with running_host(tmp_path, folder) as (host, _), pytest.raises(ToolError, match=refused):
        call(host, "t")
    with running_host(tmp_path, folder, can_answer=lambda: True) as (host, _):
        assert text_of(call(host, "t")) == "asked"


def test_commands_display_insert_panel_noop_and_error(tmp_path):
    body = """
hello()
for name in ("display", "insert", "noop", "open_panel", "error", "strange", "nopanel"):
    emit("register_command", name=name)
emit("ready")
for frame in frames():
    if frame["type"] != "command_invoked": continue
    answer = {
        "display": {"action": "display", "display": "shown"},
        "insert": {"action": "insert", "insert": "typed"},
        "noop": {"action": "noop"},
        "open_panel": {"action": "open_panel",
                       "open_panel": {"id": "p", "title": "T", "lines": ["a"]}},
        "error": {"action": "prompt", "prompt": "x", "error": "went wrong"},
        "strange": {"action": "dance"},
        "nopanel": {"action": "open_panel"},
    }[frame["name"]]
    emit("command_response", id=frame["id"], **answer)
"""
    with running_host(tmp_path, write_extension(tmp_path, "x", body)) as (host, seen):
        outcome = host.run_command("display", "")
        assert (outcome.action, outcome.text) == ("display", "shown")
        assert seen.events == [ExtensionDisplay("x", "shown")]
        assert host.run_command("insert", "").text == "typed"
        assert host.run_command("noop", "").action == "noop"
        panel = {"id": "p", "title": "T", "lines": ["a"], "footer": ""}
        assert host.run_command("open_panel", "").panel == panel
        assert seen.events[-1] == ExtensionPanel("x", "open", panel)
        outcome = host.run_command("error", "")
        assert (outcome.action, outcome.text) == ("error", "went wrong")
        assert "its action 'dance' is unknown" in host.run_command("strange", "").text
        assert host.run_command("nopanel", "").action == "error"


def test_panels_are_drawn_and_get_keys(tmp_path):
    body = """
hello()
emit("ready")
emit("open_panel", panel={"id": "p", "title": "T", "lines": None})
for frame in frames():
    if frame["type"] == "panel_key":
        emit("panel_render", panel_id="p", lines=[frame["key"], frame.get("text", "")])
    if frame["type"] == "panel_resize":
        emit("panel_render", panel_id="p", lines=[str(frame["width"])])
    if frame["type"] == "panel_close":
        emit("panel_close", panel_id="p")
"""
    with running_host(tmp_path, write_extension(tmp_path, "x", body)) as (host, seen):
        seen.wait(lambda event: isinstance(event, ExtensionPanel) and event.action == "open")
        assert host.panel_key("x", "p", "rune", "k")
        drawn = seen.wait(
            lambda event: isinstance(event, ExtensionPanel) and event.action == "render"
        )
        assert drawn.panel["lines"] == ["rune", "k"]
        assert host.panel_resize("x", "p", 80, 20)
        assert host.panel_close("x", "p")
        closed = seen.wait(
            lambda event: isinstance(event, ExtensionPanel) and event.action == "close"
        )
        assert closed.panel == {"id": "p"}
        assert not host.panel_key("nobody", "p", "up")


RECORD = """
hello()
emit("subscribe", events=EVENTS)
emit("ready")
for frame in frames():
    if frame["type"] == "event":
        emit("notify", level="info", message=json.dumps(frame))
"""


def test_events_arrive_in_order_with_session_and_sequence(tmp_path):
    names = ["session_start", "session_end", "user_prompt_submit", "turn_start", "turn_end"]
    names += ["tool_call", "tool_result", "assistant_message", "pre_compact", "post_compact"]
    folder = write_extension(tmp_path, "x", RECORD.replace("EVENTS", repr(names)))
    tool_call = ToolCall("c1", "bash", {"command": "ls"})
    reply = Message("assistant", (Text("hel"), Text("lo"), tool_call), 0.0)
    with running_host(tmp_path, folder) as (host, seen):
        host.session_started("s1")
        user = Message("user", (Text("hi"), Image("image/png", b"x")), 0.0)
        for event in (
            UserMessage(user),
            TurnStart(1),
            TextDelta("hel"),
            AssistantMessage(reply),
            ToolCalled(tool_call),
            TurnEnd("tool_use"),
            ToolReturned(tool_call, ToolResult("c1", (Text("x" * 300_000),))),
            TurnEnd("error", "boom"),
            CompactStart("manual"),
            CompactDone("s", "manual", 10, 5),
        ):
            host.listen(event, "s1")
        host.session_ended("session_switch")
        wait_for(lambda: len(seen.of(ExtensionNotify)) == 11 or None)
        frames = [
            json.loads(event.message) if len(event.message) < 16_000 else None
            for event in seen.of(ExtensionNotify)
        ]
    big = frames.pop(6)
    assert big is None  # its notification was cut, being too long
    assert [frame["event"] for frame in frames] == [
        "session_start", "user_prompt_submit", "turn_start", "assistant_message", "tool_call",
        "turn_end", "turn_end", "pre_compact", "post_compact", "session_end",
    ]  # fmt: skip
    assert {frame["session_id"] for frame in frames} == {"s1"}
    assert {frame["cwd"] for frame in frames} == {str(tmp_path / "work")}
    assert [frame["sequence"] for frame in frames] == [1, 2, 3, 4, 5, 6, 8, 9, 10, 11]
    assert (frames[1]["text"], frames[1]["image_count"]) == ("hi", 1)
    assert frames[3]["text"] == "hello"
    assert (frames[4]["tool_id"], frames[4]["tool_args"]) == ("c1", {"command": "ls"})
    assert (frames[6]["stop"], frames[6]["error"]) == ("error", "boom")
    assert frames[7]["compaction_id"] == frames[8]["compaction_id"]
    assert (frames[8]["status"], frames[9]["reason"]) == ("completed", "session_switch")


def test_a_session_that_began_before_the_extension_is_announced_to_it(tmp_path):
    folder = write_extension(tmp_path, "x", RECORD.replace("EVENTS", "['session_start']"))
    with running_host(tmp_path, folder, ready=False) as (host, seen):
        host.session_started("s0")
        event = seen.wait(lambda event: isinstance(event, ExtensionNotify))
        assert '"session_id": "s0"' in event.message
        host.reload()
        wait_for(lambda: len(seen.of(ExtensionNotify)) == 2)


GUARD = """
hello()
emit("subscribe", intercept=INTERCEPT, fail_closed=CLOSED)
emit("ready")
for frame in frames():
    if frame["type"] == "event_intercept":
        answer = ANSWER
        if answer is not None:
            emit("event_intercept_response", id=frame["id"], **answer)
"""


def guard(tmp_path, name, intercept, answer, closed=False, **manifest):
    body = GUARD.replace("INTERCEPT", repr([intercept])).replace("ANSWER", answer)
    return write_extension(tmp_path, name, body.replace("CLOSED", repr(closed)), **manifest)


BASH = ToolCall("c1", "bash", {"command": "rm -rf /"})


def test_interception_blocks_a_tool_call_with_the_reason(tmp_path):
    folder = guard(
        tmp_path, "g", "tool_call", '{"block": True, "reason": "no " + frame["tool_name"]}'
    )
    with running_host(tmp_path, folder) as (host, _):
        verdict = host.hook().before_tool(BASH, hook_context())
        assert verdict == Block("blocked by extension g: no bash")


def test_rewrites_chain_in_load_order(tmp_path):
    answer = '{"modified_args": {"command": frame["tool_args"]["command"] + " %s"}}'
    folders = [guard(tmp_path, name, "tool_call", answer % name) for name in ("b", "a")]
    with running_host(tmp_path, *folders) as (host, _):
        verdict = host.hook().before_tool(BASH, hook_context())
        assert verdict == ReplaceArgs({"command": "rm -rf / b a"})


def test_turn_reply_and_system_prompt_can_be_intercepted(tmp_path):
    turn = guard(tmp_path, "t", "turn_start", '{"block": frame["step"] > 1}')
    reply = guard(tmp_path, "r", "assistant_message", '{"replace_text": frame["text"].upper()}')
    start = guard(
        tmp_path, "s", "before_agent_start", '{"system_prompt": frame["system_prompt"] + "!"}'
    )
    with running_host(tmp_path, turn, reply, start) as (host, _):
        hook = host.hook()
        assert hook.before_turn(1, hook_context()) == ALLOW
        assert hook.before_turn(2, hook_context()) == Block(
            "blocked by extension t: no reason given"
        )
        message = Message("assistant", (Text("hi"),), 0.0)
        assert hook.before_reply(message, hook_context()) == ReplaceText("HI")
        assert hook.before_start("be good", hook_context()) == ReplaceText("be good!")
        assert hook.before_tool(BASH, hook_context()) == ALLOW


def test_reload_swaps_extensions(tmp_path):
    root = tmp_path / "home" / "extensions"
    first = write_extension(root, "echo", ECHO)
    with running_host(tmp_path, search=True) as (host, _):
        assert [tool.name for tool in host.tools()] == ["echo"]
        pid = only(host).pid
        (first / "main.py").write_text(
            (first / "main.py").read_text().replace('name="echo", desc', 'name="echo2", desc')
        )
        write_extension(root, "other", ECHO.replace('"say"', '"say2"'))
        host.reload()
        assert sorted(tool.name for tool in host.tools()) == ["echo", "echo2"]
        assert sorted(command.name for command in host.commands()) == ["say", "say2"]
        assert text_of(call(host, "echo2")) == "echo: {}"
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_bad_manifest_is_one_warning_that_names_the_file(tmp_path):
    root = tmp_path / "home" / "extensions"
    (root / "broken").mkdir(parents=True)
    (root / "broken" / "extension.json").write_text('{"name": 3}')
    warnings: list[str] = []
    with running_host(tmp_path, search=True, warn=warnings.append) as (host, seen):
        (event,) = seen.events
        assert event.extension == "broken"
        assert event.level == "warn"
        assert str(root / "broken" / "extension.json") in event.message
        assert "Expected `str`, got `int`" in event.message
        assert warnings == [f"extension broken: {event.message}"]
        assert host.extensions() == []


def test_call_tool_runs_a_tool_of_the_host(tmp_path):
    body = """
hello_with_tool()
waiting = {}
for frame in frames():
    if frame["type"] == "tool_call":
        waiting["h1"] = frame["id"]
        emit("call_tool", id="h1", name="read", args={"path": "x"}, parent_id=frame["id"])
    if frame["type"] == "tool_result":
        text(waiting[frame["id"]], json.dumps(frame))
"""
    folder = write_extension(tmp_path, "x", body)

    def run_tool(name, args, context):
        if args["path"] == "x" and name == "read":
            return "contents"
        raise AssertionError

    with running_host(tmp_path, folder, run_tool=run_tool) as (host, _):
        assert '"contents"' in text_of(call(host, "t"))
    with running_host(tmp_path, folder) as (host, _):
        assert "does not run tools for extensions" in text_of(call(host, "t"))


def test_unknown_frames_are_counted_and_logged_once(tmp_path):
    body = """
hello()
for _ in range(3): emit("from_the_future", x=1)
emit("ready")
for frame in frames(): pass
"""
    with running_host(tmp_path, write_extension(tmp_path, "x", body)) as (host, _):
        assert only(host).unknown == {"from_the_future": 3}
    assert log_of(tmp_path, "x").count("unknown type 'from_the_future'") == 1


def test_stderr_goes_to_a_private_log_that_is_rotated(tmp_path):
    body = """
hello()
emit("ready")
for i in range(40): sys.stderr.write("line %d " % i + "x" * 1000 + "\\n")
sys.stderr.flush()
for frame in frames(): pass
sys.stderr.write("last words\\n")
"""
    folder = write_extension(tmp_path, "x", body)
    limits = patient(log_bytes=20_000)
    with running_host(tmp_path, folder, limits=limits):
        path = tmp_path / "home" / "logs" / "ext-x.log"
        wait_for(lambda: path.with_name("ext-x.log.1").exists())
    old = path.with_name("ext-x.log.1")
    assert "last words" in log_of(tmp_path, "x") + old.read_text()
    assert old.stat().st_mode & 0o777 == 0o600


def test_questions_end_with_their_time_and_with_the_extension(tmp_path):
    body = """
hello()
emit("ready")
emit("ask", id="1", method="input", title="quick", timeout=0.05)
for i in range(9): emit("ask", id=str(10 + i), method="confirm", title="t%d" % i)
emit("ask", id="30", method="dance", title="no")
for frame in frames():
    if frame["type"] == "answer" and frame["cancelled"]:
        emit("notify", level="info", message="cancelled " + frame["id"])
"""
    folder = write_extension(tmp_path, "x", body)
    with running_host(tmp_path, folder, ready=False, can_answer=lambda: True) as (host, seen):
        seen.wait(lambda event: event == ExtensionNotify("x", "info", "cancelled 1"))
        seen.wait(lambda event: event == ExtensionNotify("x", "info", "cancelled 30"))
        asked = seen.wait(lambda event: getattr(event, "title", "") == "t5")
        host.reload()
        assert not host.dialogs.answer(asked.id, PersonAnswer(confirmed=True))


SLOW_GUARD = """
hello()
emit("subscribe", events=[], intercept=["tool_call"])
emit("ready")
for frame in frames():
    if frame["type"] == "event_intercept":
        time.sleep(1.5)
        emit("event_intercept_response", id=frame["id"], block=True, reason="never")
"""


@pytest.mark.slow
def test_a_guard_that_several_agents_ask_at_once_is_waited_for(tmp_path):
    folder = write_extension(tmp_path, "x", SLOW_GUARD)
    limits = patient(intercept=3.0)
    with running_host(tmp_path, folder, limits=limits) as (host, _):
        guests = [Guest() for _ in range(4)]
        for guest in guests:
            host.join(guest)
        with ThreadPoolExecutor(4) as pool:
            hooks = [ExtensionHook(host.host, guest) for guest in guests]
            asked = [pool.submit(hook.before_tool, BASH, hook_context()) for hook in hooks]
            verdicts = [answer.result(60) for answer in asked]
    assert all(isinstance(verdict, Block) for verdict in verdicts)


def test_who_leaves_a_shared_host_cancels_its_questions_only(tmp_path):
    body = """
hello()
emit("register_command", name="who", description="asks")
emit("ready")
for frame in frames():
    if frame["type"] == "command_invoked":
        emit("ask", id=frame["id"], method="input", title="who?", parent_id=frame["id"])
    if frame["type"] == "answer":
        said = str(frame.get("value")) + " " + str(frame["cancelled"])
        emit("command_response", id=frame["id"], action="insert", insert=said)
"""
    folder = write_extension(tmp_path, "x", body)
    with running_host(tmp_path, folder, can_answer=lambda: True) as (host, seen):
        other = Guest(can_answer=lambda: True)
        other_seen = Seen()
        other.attach(other_seen)
        host.join(other)
        with ThreadPoolExecutor(2) as pool:
            own = pool.submit(host.run_command, "who", "")
            question = seen.wait(lambda event: isinstance(event, ExtensionAsk))
            theirs = pool.submit(host.host.run_command, "who", "", other)
            other_seen.wait(lambda event: isinstance(event, ExtensionAsk))
            assert not host.leave(other)
            assert theirs.result(20).text == "None True"
            assert host.dialogs.answer(question.id, PersonAnswer("me"))
            assert own.result(20).text == "me False"
