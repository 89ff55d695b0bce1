"""What happens when an extension misbehaves; the rows X01 to X10 of the fault list, and more."""

import json
import os
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace
from support.extension import (
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
from support.patience import PATIENCE, patience

from zot.cancel import Cancel
from zot.core.events import ExtensionNotify, TurnStart
from zot.core.hook import ALLOW, Block
from zot.errors import Cancelled, ToolError
from zot.provider.types import Message, Text, ToolCall

pytestmark = pytest.mark.long

QUICK = patient(
    intercept=0.3,
    command=0.3,
    shutdown=0.3,
    terminate=0.3,
    restart_delays=(0.05,),
)
IMPATIENT = replace(QUICK, grace=patience(2.0), late=patience(3.0))
"""For extensions that are not ready in time; the others are."""
GOOD = """
hello_with_tool("good")
for frame in frames():
    if frame["type"] == "tool_call": text(frame["id"], "fine")
"""
BASH = ToolCall("c1", "bash", {"command": "ls"})


@pytest.fixture
def good(tmp_path):
    return write_extension(tmp_path, "good", GOOD)


def assert_good_is_unharmed(host):
    assert text_of(call(host, "good")) == "fine"


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


# --- X01: start ------------------------------------------------------------------------------


@pytest.mark.parametrize("body", ["time.sleep(60)", "for line in sys.stdin: pass"])
def test_an_extension_that_says_nothing_is_given_up_with_a_warning(tmp_path, good, body):
    silent = write_extension(tmp_path, "silent", body)
    with running_host(tmp_path, silent, good, limits=IMPATIENT) as (host, seen):
        warning = seen.wait(lambda event: getattr(event, "extension", "") == "silent")
        grace, late = f"{IMPATIENT.grace:g} s", f"{IMPATIENT.late:g} s"
        assert f"said no hello within {grace}; zot goes on without it" in warning.message
        assert_good_is_unharmed(host)
        seen.wait(lambda event: f"said no hello within {late}; it is off" in event.message)
        assert host.extensions()[0].state == "stopped"


def test_an_extension_that_starts_late_joins_later(tmp_path, good):
    body = """
while not os.path.exists("go"): time.sleep(0.01)
hello()
emit("register_tool", name="late", schema={"type": "object"})
for frame in frames():
    if frame["type"] == "tool_call": text(frame["id"], "here I am")
"""
    slow = write_extension(tmp_path, "slow", body)
    with running_host(tmp_path, slow, good, limits=patient(grace=0.7)) as (host, seen):
        seen.wait(lambda event: "zot goes on without it" in event.message)
        wait_for(lambda: [tool.name for tool in host.tools()] == ["good"])
        (slow / "go").touch()
        seen.wait(lambda event: event.extension == "slow" and "is ready after" in event.message)
        assert text_of(call(host, "late")) == "here I am"


def test_an_extension_that_never_stops_registering_is_used_after_the_grace(tmp_path, good):
    body = """
hello()
emit("register_tool", name="early", schema={"type": "object"})
def later():
    i = 0
    while True:
        time.sleep(0.1)
        i += 1
        emit("register_command", name="c%d" % i)
threading.Thread(target=later, daemon=True).start()
for frame in frames():
    if frame["type"] == "tool_call": text(frame["id"], "works")
"""
    busy = write_extension(tmp_path, "busy", body)
    with running_host(tmp_path, busy, good, limits=IMPATIENT) as (host, seen):
        warning = seen.wait(lambda event: getattr(event, "extension", "") == "busy")
        assert f"is not ready after {IMPATIENT.grace:g} s" in warning.message
        assert text_of(call(host, "early")) == "works"
        before = len(host.commands())
        wait_for(lambda: len(host.commands()) > before)


@pytest.mark.parametrize(
    ("manifest", "reason"),
    [
        ({"exec": "./missing"}, "no file"),
        ({"exec": "surely-not-installed-anywhere"}, "is not on the PATH"),
        ({"exec": "./extension.json"}, "Permission denied"),
    ],
)
def test_a_program_that_cannot_be_started_is_a_warning(tmp_path, good, manifest, reason):
    broken = write_extension(tmp_path, "broken", "", **manifest)
    with running_host(tmp_path, broken, good, limits=QUICK) as (host, seen):
        (event,) = seen.events
        assert event.extension == "broken"
        assert "cannot be started" in event.message
        assert reason in event.message
        assert_good_is_unharmed(host)


def test_an_extension_that_exits_at_once_is_a_warning_with_the_code(tmp_path, good):
    broken = write_extension(tmp_path, "broken", "sys.exit(3)")
    with running_host(tmp_path, broken, good, limits=QUICK) as (host, seen):
        event = seen.wait(lambda event: getattr(event, "extension", "") == "broken")
        assert "exited with code 3" in event.message
        assert_good_is_unharmed(host)


def test_frames_before_hello_and_a_second_hello_are_ignored(tmp_path):
    body = """
emit("register_command", name="early")
emit("ready")
hello("another-name")
hello("again")
emit("register_command", name="c")
emit("ready")
for frame in frames(): pass
"""
    with running_host(tmp_path, write_extension(tmp_path, "x", body), limits=QUICK) as (host, _):
        assert [command.name for command in host.commands()] == ["c"]
    log = log_of(tmp_path, "x")
    assert "before hello" in log
    assert "says hello as 'another-name'" in log
    assert "a second hello was ignored" in log


# --- X02: garbage ----------------------------------------------------------------------------


def test_garbage_lines_are_dropped_and_the_extension_goes_on(tmp_path):
    body = """
hello()
emit("register_tool", name="t", schema={"type": "object"})
out = sys.stdout.buffer
out.write(b"debug output\\n[1, 2]\\nnull\\n{}\\n\\xff\\xfe\\x00\\n\\n   \\r\\n")
out.write(b"[" * 100000 + b"\\n")
out.flush()
emit("ready")
for frame in frames():
    if frame["type"] == "tool_call": text(frame["id"], "fine")
"""
    with running_host(tmp_path, write_extension(tmp_path, "x", body), limits=QUICK) as (host, _):
        assert text_of(call(host, "t")) == "fine"
    assert log_of(tmp_path, "x").count("a line was dropped") == 6


def test_random_bytes_harm_nobody(tmp_path, good):
    noise = write_extension(tmp_path, "noise", "", exec="cat", args=["hello", "noise"])
    (noise / "hello").write_text('{"type":"hello","name":"noise"}\n')
    pieces = [b"\n", b'{"type":"', b"tool_result", b'"}', b"\xff", b'"id":', b"[", b"\0", b"null"]
    random = Random(7)
    (noise / "noise").write_bytes(b"".join(random.choices(pieces, k=200_000)))
    with running_host(tmp_path, noise, good, limits=QUICK) as (host, seen):
        seen.wait(lambda event: event.extension == "noise" and "no frames" in event.message)
        assert_good_is_unharmed(host)


def test_too_much_garbage_stops_the_extension_and_it_can_be_reloaded(tmp_path, good):
    body = """
hello_with_tool()
if not os.path.exists("fixed"):
    while True: print("noise", flush=True)
for frame in frames():
    if frame["type"] == "tool_call": text(frame["id"], "fixed")
"""
    noisy = write_extension(tmp_path, "noisy", body)
    with running_host(tmp_path, noisy, good, limits=QUICK) as (host, seen):
        event = seen.wait(lambda event: "no frames" in getattr(event, "message", ""))
        assert event.extension == "noisy"
        with pytest.raises(ToolError, match=r"extension noisy/t failed: .*not running.*no frames"):
            call(host, "t")
        assert_good_is_unharmed(host)
        (noisy / "fixed").touch()
        host.reload()
        assert text_of(call(host, "t")) == "fixed"


def test_a_line_of_100_megabytes_is_skipped_and_fails_only_its_own_call(tmp_path, good):
    body = """
hello_with_tool()
for frame in frames():
    if frame["type"] != "tool_call": continue
    if frame["args"]["big"]:
        out = sys.stdout
        out.write('{"type":"tool_result","id":"%s",' % frame["id"])
        out.write('"content":[{"type":"text","text":"')
        for _ in range(100): out.write("x" * 1000000)
        out.write('"}]}\\n')
        out.flush()
    else:
        text(frame["id"], "small")
"""
    big = write_extension(tmp_path, "big", body)
    with running_host(tmp_path, big, good, limits=QUICK) as (host, _):
        with pytest.raises(ToolError, match=r"extension big/t failed: its answer is longer"):
            call(host, "t", {"big": True})
        assert text_of(call(host, "t", {"big": False})) == "small"
        assert_good_is_unharmed(host)


# --- X03: ends -------------------------------------------------------------------------------

MORTAL = """
hello_with_tool()
for frame in frames():
    if frame["type"] == "tool_call":
        how = frame["args"].get("how")
        if how == "crash": raise RuntimeError("boom")
        if how == "exit": sys.exit(0)
        if how == "kill": os.kill(os.getpid(), 9)
        if how == "close": os.close(1); time.sleep(60)
        text(frame["id"], "alive")
"""


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("crash", "exited with code 1"),
        ("exit", "exited with code 0"),
        ("kill", "was ended by signal 9"),
    ],
)
def test_an_end_in_the_middle_of_a_call_fails_it_at_once_and_the_extension_returns(
    tmp_path, good, how, reason
):
    folder = write_extension(tmp_path, "x", MORTAL)
    with running_host(tmp_path, folder, good, limits=QUICK) as (host, seen):
        with pytest.raises(ToolError, match=f"extension x/t failed: {reason}"):
            call(host, "t", {"how": how})
        assert text_of(call(host, "t")) == "alive"
        event = seen.wait(lambda event: getattr(event, "extension", "") == "x")
        assert f"{reason}; restart 1 of 3" in event.message
        assert_good_is_unharmed(host)


def test_an_extension_that_keeps_crashing_is_given_up(tmp_path):
    folder = write_extension(tmp_path, "x", MORTAL)
    with running_host(tmp_path, folder, limits=QUICK) as (host, seen):
        for _ in range(4):
            with pytest.raises(ToolError, match="exited with code 1"):
                call(host, "t", {"how": "crash"})
        wait_for(lambda: only(host).state == "stopped")
        seen.wait(lambda event: "off until it is reloaded" in event.message)
        with pytest.raises(ToolError, match="it is not running"):
            call(host, "t")
        host.reload()
        assert text_of(call(host, "t")) == "alive"
    assert "boom" in log_of(tmp_path, "x")


def test_an_extension_that_closes_its_stdout_is_stopped(tmp_path):
    folder = write_extension(tmp_path, "x", MORTAL)
    with running_host(tmp_path, folder, limits=QUICK) as (host, _):
        with pytest.raises(ToolError, match="extension x/t failed: closed its stdout"):
            call(host, "t", {"how": "close"})
        wait_for(lambda: only(host).state == "stopped")


def test_an_extension_that_is_done_is_not_restarted(tmp_path):
    body = 'hello()\nemit("register_command", name="c")\nemit("ready")\n'
    with running_host(tmp_path, write_extension(tmp_path, "x", body), limits=QUICK) as (host, _):
        wait_for(lambda: only(host).state == "stopped")
        outcome = host.run_command("c", "")
        assert outcome.action == "error"
        assert "it is not running (exited with code 0)" in outcome.text


# --- X04: interception -----------------------------------------------------------------------

GUARD = """
hello()
emit("subscribe", intercept=["tool_call", "turn_start", "before_agent_start"], fail_closed=CLOSED)
emit("ready")
for frame in frames():
    DO
"""


def hanging_guard(tmp_path, closed, do="pass", **manifest):
    body = GUARD.replace("CLOSED", repr(closed)).replace("DO", do)
    return write_extension(tmp_path, "guard", body, **manifest)


def test_a_hanging_interceptor_allows_by_default(tmp_path):
    with running_host(tmp_path, hanging_guard(tmp_path, False), limits=QUICK) as (host, _):
        assert host.hook().before_tool(BASH, hook_context()) == ALLOW
        assert host.hook().before_turn(1, hook_context()) == ALLOW
        assert host.hook().before_start("x", hook_context()) == ALLOW
    assert "it did not answer in time; allowed" in log_of(tmp_path, "guard")


def test_a_hanging_guard_blocks_when_it_asked_for_that(tmp_path):
    with running_host(tmp_path, hanging_guard(tmp_path, True), limits=QUICK) as (host, _):
        verdict = host.hook().before_tool(BASH, hook_context())
        assert isinstance(verdict, Block)
        assert "the guard extension guard must agree, and it did not answer" in verdict.reason
        assert isinstance(host.hook().before_turn(1, hook_context()), Block)
        assert isinstance(host.hook().before_start("x", hook_context()), Block)


def test_a_dead_guard_still_blocks(tmp_path):
    crash = "sys.exit(1)"
    no_restart = patient(intercept=0.3, restarts=0)
    with running_host(tmp_path, hanging_guard(tmp_path, True, crash), limits=no_restart) as (
        host,
        _,
    ):
        first = host.hook().before_tool(BASH, hook_context())
        assert isinstance(first, Block)
        wait_for(lambda: only(host).state == "stopped")
        verdict = host.hook().before_tool(BASH, hook_context())
        assert isinstance(verdict, Block)
        assert "exited with code 1" in verdict.reason


def test_a_guard_whose_manifest_says_fail_closed_blocks_even_if_it_cannot_start(tmp_path):
    folder = write_extension(tmp_path, "guard", "sys.exit(1)", fail_closed=True)
    with running_host(tmp_path, folder, limits=QUICK) as (host, _):
        assert isinstance(host.hook().before_tool(BASH, hook_context()), Block)
        assert host.hook().before_turn(1, hook_context()) == ALLOW


def test_a_restarted_guard_is_waited_for(tmp_path):
    do = """
    if frame["type"] == "event_intercept":
        if not os.path.exists("died"):
            open("died", "w").close(); sys.exit(1)
        emit("event_intercept_response", id=frame["id"])
"""
    limits = patient(intercept=PATIENCE, restart_delays=(0.2,))
    with running_host(tmp_path, hanging_guard(tmp_path, True, do), limits=limits) as (host, _):
        assert isinstance(host.hook().before_tool(BASH, hook_context()), Block)
        assert host.hook().before_tool(BASH, hook_context()) == ALLOW


SLOW_GUARD = """
BEFORE
while os.path.exists("slow") and not os.path.exists("go"): time.sleep(0.01)
AFTER
emit("subscribe", intercept=["tool_call"])
emit("ready")
for frame in frames():
    if frame["type"] == "event_intercept":
        emit("event_intercept_response", id=frame["id"], block=True, reason="never")
"""
WAIT_FOR_GO = 'while not os.path.exists("go"): time.sleep(0.01)'
SLOW = patient(grace=0.3, guard=PATIENCE)


def slow_guard(tmp_path, hello_at, **manifest):
    before, after = ("hello()", "") if hello_at == "once" else ("", "hello()")
    body = SLOW_GUARD.replace("BEFORE", before).replace("AFTER", after)
    return write_extension(tmp_path, "guard", body, **manifest)


@pytest.mark.parametrize("told", ["manifest", "earlier run"])
@pytest.mark.parametrize("hello_at", ["once", "the end"])
def test_a_guard_that_is_slow_to_start_is_waited_for(tmp_path, told, hello_at):
    folder = slow_guard(tmp_path, hello_at, guard=told == "manifest")
    if told == "earlier run":
        with running_host(tmp_path, folder, limits=SLOW) as (host, _):
            wait_for(lambda: isinstance(host.hook().before_tool(BASH, hook_context()), Block))
    (folder / "slow").touch()
    with running_host(tmp_path, folder, limits=SLOW) as (host, _):
        threading.Timer(1.0, (folder / "go").touch).start()
        verdict = host.hook().before_tool(BASH, hook_context())
        assert verdict == Block("blocked by extension guard: never")


def test_a_guard_that_said_what_it_guards_is_waited_for_until_it_is_ready(tmp_path):
    body = SLOW_GUARD.replace("BEFORE", "").replace("AFTER", "hello()")
    body = body.replace('emit("ready")', WAIT_FOR_GO + '\nemit("ready")')
    folder = write_extension(tmp_path, "guard", body, guard=True)
    limits = patient(grace=60, quiet=60, guard=60)
    with running_host(tmp_path, folder, limits=limits, ready=False) as (host, _):
        wait_for(lambda: host.extensions() and only(host).registered.intercepts)
        threading.Timer(0.2, (folder / "go").touch).start()
        verdict = host.hook().before_tool(BASH, hook_context())
        assert verdict == Block("blocked by extension guard: never")


@pytest.mark.slow
def test_a_guard_that_does_not_start_in_time_blocks_what_it_guards(tmp_path):
    folder = slow_guard(tmp_path, "the end", guard=True)
    (folder / "slow").touch()
    with running_host(tmp_path, folder, limits=patient(grace=0.1, guard=0.3)) as (host, _):
        verdict = host.hook().before_tool(BASH, hook_context())
        assert isinstance(verdict, Block)
        assert "guards this, and it has not started yet after waiting 0.3 s" in verdict.reason
        assert host.hook().before_turn(1, hook_context()) == ALLOW


@pytest.mark.parametrize("event", ["tool_call", "turn_start", "assistant_message"])
@pytest.mark.parametrize("hello_at", ["once", "the end"])
def test_a_slow_guard_holds_in_its_very_first_run(tmp_path, hello_at, event):
    folder = slow_guard(tmp_path, hello_at)
    main = folder / "main.py"
    main.write_text(main.read_text().replace("tool_call", event))
    (folder / "slow").touch()
    with running_host(tmp_path, folder, limits=SLOW) as (host, _):
        threading.Timer(1.0, (folder / "go").touch).start()
        verdict = ask_guard(host, event)
        assert verdict == Block("blocked by extension guard: never")


def ask_guard(host, event):
    context = hook_context()
    match event:
        case "tool_call":
            return host.hook().before_tool(BASH, context)
        case "turn_start":
            return host.hook().before_turn(1, context)
        case _:
            return host.hook().before_reply(Message("assistant", (Text("x"),), 0.0), context)


@pytest.mark.slow
def test_an_extension_that_never_says_what_it_guards_holds_nothing_up_twice(tmp_path):
    folder = slow_guard(tmp_path, "the end")
    (folder / "slow").touch()
    limits = patient(grace=0.1, undecided=patience(1.0))
    with running_host(tmp_path, folder, limits=limits) as (host, seen):
        assert host.hook().before_tool(BASH, hook_context()) == ALLOW
        seen.wait(lambda event: "did not say what it guards" in getattr(event, "message", ""))
        started = time.monotonic()
        assert host.hook().before_tool(BASH, hook_context()) == ALLOW
        assert time.monotonic() - started < limits.undecided


def test_an_extension_known_to_guard_nothing_is_not_waited_for_after_its_hello(tmp_path):
    folder = slow_guard(tmp_path, "once")
    (folder / "main.py").write_text((folder / "main.py").read_text().replace("tool_call", "none"))
    with running_host(tmp_path, folder, limits=SLOW):
        wait_for(lambda: (tmp_path / "home" / "guards" / "guard").exists())
    (folder / "slow").touch()
    with running_host(tmp_path, folder, limits=patient(undecided=60)) as (host, _):
        assert only(host).live  # by its silence
        assert host.hook().before_tool(BASH, hook_context()) == ALLOW


def test_an_abort_ends_the_wait_for_what_an_extension_guards(tmp_path):
    folder = slow_guard(tmp_path, "the end")
    (folder / "slow").touch()
    cancel = Cancel()
    with running_host(tmp_path, folder, limits=patient(grace=0.1, undecided=60)) as (
        host,
        _,
    ):
        threading.Timer(0.3, cancel.set).start()
        with pytest.raises(Cancelled):
            host.hook().before_tool(BASH, hook_context(cancel))


def test_what_no_longer_guards_is_forgotten(tmp_path):
    guards = tmp_path / "home" / "guards"
    folder = slow_guard(tmp_path, "once")
    with running_host(tmp_path, folder, limits=SLOW) as (host, _):
        wait_for(lambda: (guards / "guard").exists())
    assert stat.S_IMODE((guards / "guard").stat().st_mode) == 0o600
    (folder / "main.py").write_text((folder / "main.py").read_text().replace("tool_call", "none"))
    with running_host(tmp_path, folder, limits=SLOW) as (host, _):
        assert host.hook().before_tool(BASH, hook_context()) == ALLOW
        wait_for(lambda: (guards / "guard").read_text() == "")


def test_abort_ends_a_wait_for_an_interceptor(tmp_path):
    cancel = Cancel()
    do = 'emit("notify", level="info", message="asked")'
    folder = hanging_guard(tmp_path, True, do)
    with running_host(tmp_path, folder, limits=patient(intercept=60)) as (host, _):
        host.attach(lambda event: cancel.set())
        with pytest.raises(Cancelled):
            host.hook().before_tool(BASH, hook_context(cancel))


# --- X05: floods -----------------------------------------------------------------------------


def test_a_flood_of_notifications_is_limited_and_then_stopped(tmp_path, good):
    body = """
hello()
emit("ready")
line = json.dumps({"type": "notify", "level": "info", "message": "n"}) + "\\n"
while True: sys.stdout.write(line * 100); sys.stdout.flush()
"""
    flood = write_extension(tmp_path, "flood", body)
    limits = patient(notes_dropped=3000, frames_per_second=2000)
    with running_host(tmp_path, flood, good, limits=limits) as (host, seen):
        assert_good_is_unharmed(host)
        seen.wait(lambda event: "flooded zot" in getattr(event, "message", ""))
        shown = [event for event in seen.of(ExtensionNotify) if event.message == "n"]
        assert len(shown) < 300
        assert host.extensions()[0].state == "stopped"
        assert_good_is_unharmed(host)


def test_a_flood_of_panel_drawings_and_progress_is_slowed_down(tmp_path, good):
    body = """
hello_with_tool()
for frame in frames():
    if frame["type"] == "tool_call":
        for i in range(100): emit("panel_render", panel_id="p", lines=[str(i)])
        text(frame["id"], "drawn")
"""
    folder = write_extension(tmp_path, "x", body)
    with running_host(tmp_path, folder, good, limits=patient(draws_per_second=90)) as (
        host,
        seen,
    ):
        assert text_of(call(host, "t")) == "drawn"
        assert [event.panel["lines"] for event in seen.events][-1] == ["99"]
        assert_good_is_unharmed(host)


def test_a_chatty_tool_is_not_slowed_down(tmp_path):
    body = """
hello()
emit("register_tool", name="t", description="d" * 100000, schema={"type": "object"})
emit("ready")
for frame in frames():
    if frame["type"] == "tool_call":
        for i in range(3000): emit("tool_progress", id=frame["id"], text="line %d\\n" % i)
        text(frame["id"], "done")
"""
    with running_host(tmp_path, write_extension(tmp_path, "x", body)) as (host, _):
        assert len(host.tools()[0].description) == 16 * 1024
        started = time.monotonic()
        assert text_of(call(host, "t")) == "done"
        assert time.monotonic() - started < PATIENCE


def test_a_flood_of_stderr_does_not_fill_the_disk(tmp_path, good):
    body = """
hello_with_tool()
for frame in frames():
    if frame["type"] == "tool_call":
        for _ in range(100): sys.stderr.write("e" * 10000 + "\\n")
        sys.stderr.flush()
        text(frame["id"], "done")
"""
    folder = write_extension(tmp_path, "x", body)
    with running_host(tmp_path, folder, good, limits=patient(log_bytes=50_000)) as (
        host,
        _,
    ):
        assert text_of(call(host, "t")) == "done"
        assert_good_is_unharmed(host)
    logs = list((tmp_path / "home" / "logs").glob("ext-x.log*"))
    assert sum(path.stat().st_size for path in logs) < 400_000


# --- X06: a full pipe ------------------------------------------------------------------------


def test_an_extension_that_stops_reading_is_stopped_and_never_blocks_zot(tmp_path, good):
    body = """
hello()
emit("subscribe", events=["turn_start"])
emit("ready")
time.sleep(60)
"""
    deaf = write_extension(tmp_path, "deaf", body)
    with running_host(tmp_path, deaf, good, limits=QUICK) as (host, seen):
        started = time.monotonic()
        for step in range(3000):
            host.listen(TurnStart(step), "s" * 200)
        assert time.monotonic() - started < PATIENCE
        seen.wait(lambda event: "stopped reading its stdin" in getattr(event, "message", ""))
        assert_good_is_unharmed(host)


def test_arguments_too_long_for_a_line_fail_the_call_only(tmp_path, good):
    with running_host(tmp_path, good, limits=QUICK) as (host, _):
        with pytest.raises(ToolError, match="too long for one line"):
            call(host, "good", {"x": "y" * (5 * 1024 * 1024)})
        assert_good_is_unharmed(host)


# --- X07: names and schemas ------------------------------------------------------------------


def test_built_ins_win_then_the_extension_loaded_first(tmp_path):
    body = """
hello()
for name in ("bash", "mine"):
    emit("register_tool", name=name, description=NAME, schema={"type": "object"})
emit("register_command", name="help", description=NAME)
emit("register_command", name="c", description=NAME)
DELAY
emit("ready")
for frame in frames(): pass
"""
    first = body.replace("DELAY", "time.sleep(0.3)").replace("NAME", "'first'")
    second = body.replace("DELAY", "").replace("NAME", "'second'")
    folders = [
        write_extension(tmp_path, "z-first", first),
        write_extension(tmp_path, "a-second", second),
    ]
    names = {"reserved_tools": frozenset({"bash"})}
    with running_host(tmp_path, *folders, limits=QUICK, **names) as (host, _):
        assert [(tool.name, tool.description) for tool in host.tools()] == [("mine", "first")]
        host.tools()
        assert [(each.name, each.description) for each in host.commands()] == [("c", "first")]
    assert log_of(tmp_path, "z-first").count("tool 'bash' is shadowed") == 1
    log = log_of(tmp_path, "a-second")
    assert log.count("tool 'mine' is shadowed: the name belongs to an extension loaded bef") == 1
    assert "command 'help' is shadowed: the name belongs to zot itself" in log


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ('"a string"', "is no JSON object but str"),
        ("[]", "is no JSON object but list"),
        ('{"type": "array"}', "has type 'array', not 'object'"),
        ('{"type": "object", "properties": {"a": {"type": "strin"}}}', "is not valid"),
        ('{"type": "object", "$ref": "http://127.0.0.1:9/x"}', "refers to 'http://127.0.0.1:9/x'"),
        (
            '{"type": "object", "properties": {"a": {"anyOf": [{"$ref": "file:///etc/passwd"}]}}}',
            "refers to 'file:///etc/passwd'",
        ),
        ('{"type": "object", "$id": "http://127.0.0.1:9/x"}', "remote $id"),
        ('{"type": "object", "$schema": "http://127.0.0.1:9/x"}', "is not valid"),
    ],
)
def test_a_schema_that_no_model_can_take_is_refused(tmp_path, schema, reason):
    body = f"""
hello()
emit("register_tool", name="bad", schema=json.loads({schema!r}))
emit("register_tool", name="fine")
emit("ready")
for frame in frames(): pass
"""
    with running_host(tmp_path, write_extension(tmp_path, "x", body)) as (host, seen):
        (event,) = seen.events
        assert "tool 'bad' was refused: its schema" in event.message
        assert reason in event.message
        assert [(tool.name, tool.schema) for tool in host.tools()] == [
            ("fine", {"type": "object", "properties": {}})
        ]


def test_names_that_no_provider_takes_are_refused(tmp_path):
    body = """
hello()
emit("register_tool", name="a b", schema={"type": "object"})
emit("register_tool", name="x" * 65, schema={"type": "object"})
emit("register_command", name="../x y")
emit("register_command", name="/ok")
for i in range(600): emit("register_command", name="c%d" % i)
emit("ready")
for frame in frames(): pass
"""
    with running_host(tmp_path, write_extension(tmp_path, "x", body)) as (host, seen):
        assert host.tools() == []
        assert len(host.commands()) == 512
        assert host.commands()[0].name == "ok"
        assert len(seen.of(ExtensionNotify)) == 3


# --- X09: what is left behind ----------------------------------------------------------------


@pytest.mark.parametrize(
    "stubborn",
    [
        "pass",
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)",
        "signal.signal(signal.SIGTERM, signal.SIG_IGN); sys.stdin.close(); time.sleep(60)",
    ],
)
def test_close_leaves_no_process(tmp_path, stubborn):
    body = f"""
hello()
emit("register_tool", name="t", description=str(os.getpid()), schema={{"type": "object"}})
emit("ready")
{stubborn}
time.sleep(60)
"""
    with running_host(tmp_path, write_extension(tmp_path, "x", body), limits=QUICK) as (host, _):
        pid = int(host.tools()[0].description)
        assert not gone(pid)
    wait_for(lambda: gone(pid))


DAEMONS = """
import tempfile
def daemon():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            with open(sys.argv[1] if len(sys.argv) > 1 else "pids", "a") as file:
                file.write("%d\\n" % os.getpid())
            time.sleep(120)
        os._exit(0)
with open("pids", "a") as file: file.write("%d\\n" % os.getpid())
for _ in range(3): daemon()
while open("pids").read().count("\\n") < 4: time.sleep(0.01)
hello()
emit("ready")
ENDS
"""


def daemons(folder):
    wait_for(lambda: (folder / "pids").read_text().count("\n") == 4)
    return [int(line) for line in (folder / "pids").read_text().split()]


@pytest.mark.parametrize("ends", ["for frame in frames(): pass", "time.sleep(120)", "os._exit(0)"])
def test_daemons_of_an_extension_end_with_it(tmp_path, ends):
    folder = write_extension(tmp_path, "x", DAEMONS.replace("ENDS", ends))
    with running_host(tmp_path, folder, limits=QUICK):
        pids = daemons(folder)
    wait_for(lambda: all(gone(pid) for pid in pids))


def test_a_process_that_keeps_forking_away_is_caught(tmp_path):
    body = """
if os.fork() == 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    end = time.monotonic() + 60  # a test that is killed must not leave it behind for ever
    while time.monotonic() < end:  # never the same process for long
        if os.fork(): os._exit(0)
        os.setsid()
        time.sleep(0.002)
    os._exit(0)
hello()
emit("ready")
for frame in frames(): pass
"""
    folder = write_extension(tmp_path, "hop", body)
    with running_host(tmp_path, folder, limits=QUICK) as (host, _):
        assert only(host).live
        assert working_in(folder) >= 1
    wait_for(lambda: working_in(folder) == 0)


def working_in(folder):
    """How many processes have the folder as their working directory."""
    found = 0
    for process in Path("/proc").glob("[0-9]*/cwd"):
        try:
            found += process.readlink() == folder
        except OSError:
            continue  # it ended while we looked
    return found


def test_everything_ends_when_zot_is_killed(tmp_path):
    stubborn = "signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(120)"
    folder = write_extension(tmp_path, "x", DAEMONS.replace("ENDS", stubborn))
    program = f"""
import os, sys, time
from pathlib import Path
from zot.extensions.host import ExtensionHost, HostSettings
root = Path({str(tmp_path)!r})
places = (root, root / "home", (root / "x",))
host = ExtensionHost(HostSettings(*places, search=False, environ=os.environ))
host.start()
host.wait_ready()
print("ready", flush=True)
time.sleep(120)
"""
    zot = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    with zot:
        assert zot.stdout is not None
        assert zot.stdout.readline() == b"ready\n"
        pids = daemons(folder)
        zot.kill()
        zot.wait()
    wait_for(lambda: all(gone(pid) for pid in pids))


def test_an_extension_that_kills_its_keeper_is_ended_all_the_same(tmp_path):
    body = """
hello()
emit("register_tool", name="t", description=str(os.getpid()), schema={"type": "object"})
emit("ready")
os.kill(os.getppid(), 9)
time.sleep(60)
"""
    folder = write_extension(tmp_path, "x", body)
    with running_host(tmp_path, folder, limits=QUICK) as (host, seen):
        pid = int(host.tools()[0].description)
        seen.wait(lambda event: "was ended by signal 9" in event.message)
        wait_for(lambda: gone(pid))


def test_an_extension_is_out_of_reach_of_signals_typed_at_the_terminal(tmp_path, good):
    with running_host(tmp_path, good) as (host, _):
        pid = only(host).pid
        assert pid is not None
        assert os.getsid(pid) != os.getsid(0)
        assert os.getpgid(pid) == pid


# --- X10: secrets ----------------------------------------------------------------------------


def test_secrets_do_not_reach_an_extension(tmp_path, monkeypatch):
    monkeypatch.setenv("ZOTCORE_RPC_TOKEN", "rpc-token-canary")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-canary-123456")
    monkeypatch.setenv("COPY_OF_KEY", "sk-canary-123456")
    monkeypatch.setenv("OTHER_KEY", "sk-other-123456")
    monkeypatch.setenv("WEATHER_KEY", "mine")
    body = """
hello()
emit("register_tool", name="t", description=json.dumps(dict(os.environ)))
emit("ready")
for frame in frames(): pass
"""
    secrets = frozenset({"ANTHROPIC_API_KEY", "OTHER_KEY", "NOT_SET"})
    manifest = {"env": ["OTHER_KEY", "ZOTCORE_RPC_TOKEN", "UNSET"]}
    folder = write_extension(tmp_path, "x", body, **manifest)
    with running_host(tmp_path, folder, secrets=secrets) as (host, _):
        env = json.loads(host.tools()[0].description)
    assert "rpc-token-canary" not in env.values()
    assert "sk-canary-123456" not in env.values()
    assert env["OTHER_KEY"] == "sk-other-123456"
    assert env["WEATHER_KEY"] == "mine"
    assert env["HOME"] == os.environ["HOME"]
