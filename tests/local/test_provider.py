from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace
from support.local import large_model_file, place, small_model_file, within
from support.rpc import Zot

from tests.support.around import tools_at, zot_home
from zot.cancel import Cancel
from zot.core.agent import IDENTITY
from zot.errors import Cancelled, ConfigError, ContextTooLong, NetworkError
from zot.home import of_process
from zot.local.call import LOOPED, MAX_CALLS, LocalCall
from zot.local.form import forms_for
from zot.local.models import SMALL, Weights, find_weights
from zot.local.provider import (
    LocalProvider,
    PrefixStore,
    StderrProgress,
    find_local,
    local_models,
    open_local,
)
from zot.local.serve import ServerAddress
from zot.local.server import LocalServer, running_server
from zot.provider.scripted import ScriptedProvider
from zot.provider.types import (
    Finished,
    Message,
    Model,
    Request,
    StreamEvent,
    Text,
    TextDelta,
    ToolCall,
    ToolCallArgs,
    ToolCallEnd,
    ToolCallStart,
    ToolResult,
    ToolSpec,
)

SPECS = tuple(ToolSpec(tool.name, tool.description, tool.schema) for tool in tools_at("/"))
SHELL = tuple(spec for spec in SPECS if spec.name == "bash")
"""A short prompt: a real model reads it faster."""
MODEL = Model("m", "local", "openai-chat", context_window=8192, max_output=1024)


def user(text: str) -> Message:
    return Message("user", (Text(text),), 0.0)


def used(command: str, times: int = 1) -> tuple[Message, ...]:
    call = ToolCall("c", "bash", {"command": command})
    result = ToolResult("c", (Text("out"),), name="bash")
    return (Message("assistant", (call,), 0.0), Message("tool", (result,), 0.0)) * times


def played(turns: list[dict], *messages: Message, **changes: object) -> list[StreamEvent]:
    """What a model that says these things becomes."""
    request = Request(MODEL, IDENTITY, (user("go"), *messages), SPECS, **changes)
    call = LocalCall(request, forms_for(request.tools), tiny=False)
    return list(call.run(ScriptedProvider(turns), Cancel()))


def end(events: list[StreamEvent]) -> Finished:
    assert isinstance(events[-1], Finished)
    return events[-1]


LS = '{"tool":"bash","command":"ls"}'


# --- what comes of an answer -----------------------------------------------------------------


def test_text_streams_as_text() -> None:
    events = played([{"text": ["Hel", "lo"]}])
    assert [event.text for event in events if isinstance(event, TextDelta)] == ["Hel", "lo"]
    assert end(events).content == (Text("Hello"),)
    assert end(events).stop == "end"


def test_a_call_is_told_while_it_grows() -> None:
    events = played([{"text": ['{"tool":"ba', 'sh","comm', 'and":"ls"}']}])
    shown = [e for e in events if isinstance(e, ToolCallStart | ToolCallArgs | ToolCallEnd)]
    assert isinstance(shown[0], ToolCallStart)
    assert isinstance(shown[-1], ToolCallEnd)
    args = "".join(event.delta for event in shown if isinstance(event, ToolCallArgs))
    assert json.loads(args) == {"command": "ls"}
    finished = end(events)
    (call,) = finished.content
    assert isinstance(call, ToolCall)
    assert (call.name, call.args, finished.stop) == ("bash", {"command": "ls"}, "tool_use")
    assert shown[0] == ToolCallStart(call.id, "bash")


def test_an_edit_is_told_when_it_is_whole() -> None:
    events = played([{"text": ['{"tool":"edit","path":"a",', '"old":"x","new":"y"}']}])
    (args,) = [event for event in events if isinstance(event, ToolCallArgs)]
    assert json.loads(args.delta)["edits"] == [{"oldText": "x", "newText": "y"}]


def test_a_cut_call_has_no_arguments() -> None:
    events = played([{"text": '{"tool":"write","path":"a","content":"xxx', "stop": "length"}])
    (call,) = end(events).content
    assert isinstance(call, ToolCall)
    assert (call.name, call.args, call.raw) == ("write", None, '{"path":"a","content":"xxx')
    assert end(events).stop == "length"


def test_a_brace_that_is_no_call_is_a_bad_call() -> None:
    (call,) = end(played([{"text": "{nonsense"}])).content
    assert isinstance(call, ToolCall)
    assert (call.name, call.args, call.raw) == ("unknown", None, "{nonsense")


def test_a_call_in_the_text_is_rescued() -> None:
    finished = end(played([{"text": f"Sure:\n```json\n{LS}\n```"}]))
    text, call = finished.content
    assert text == Text("Sure:\n")
    assert isinstance(call, ToolCall)
    assert call.args == {"command": "ls"}
    assert finished.stop == "tool_use"


def test_with_calls_forbidden_their_markup_is_left_out() -> None:
    events = played([{"text": f"Done. ```json\n{LS}\n```"}], tool_choice="none")
    assert end(events).content == (Text("Done. "),)


def test_without_tools_the_prompt_is_the_callers() -> None:
    request = Request(MODEL, "Summarise.", (user("text"),))
    call = LocalCall(request, {}, tiny=False)
    assert call.system == "Summarise."
    wire = call._wire_request("auto")
    assert wire.messages == (replace(user("text")),)
    assert "grammar" not in (wire.model.compat or {})["extra_body"]


# --- loops -----------------------------------------------------------------------------------


def test_the_same_call_twice_in_a_row_becomes_text() -> None:
    events = played([{"text": LS}, {"text": "There is out."}], *used("ls"))
    assert not any(isinstance(event, ToolCallStart) for event in events)
    assert end(events).content == (Text("There is out."),)


def test_a_model_that_only_repeats_itself_is_stopped_and_said_so() -> None:
    events = played([{"text": LS}, {"text": f"```json\n{LS}\n```"}], *used("ls"))
    assert end(events).content == (Text(LOOPED),)


def test_the_same_call_after_another_one_may_be_made_again_but_not_for_ever() -> None:
    again = played([{"text": LS}], *used("ls"), *used("make"))
    assert end(again).stop == "tool_use"
    third = played(
        [{"text": LS}, {"text": "x"}], *used("ls"), *used("make"), *used("ls"), *used("a")
    )
    assert end(third).content == (Text("x"),)


def test_a_new_request_may_repeat_an_old_call() -> None:
    assert end(played([{"text": LS}], *used("ls"), user("again"))).stop == "tool_use"


def test_too_many_calls_force_an_answer() -> None:
    many = [message for number in range(MAX_CALLS) for message in used(f"echo {number}")]
    request = Request(MODEL, IDENTITY, (user("go"), *many), SPECS)
    call = LocalCall(request, forms_for(SPECS), tiny=False)
    assert end(list(call.run(ScriptedProvider([{"text": LS}]), Cancel()))).content == ()
    assert call._wire_request("none").model.compat is not None


def test_the_usage_of_a_second_try_is_added() -> None:
    usage = {"input": 10, "output": 2}
    turns = [{"text": LS, "usage": usage}, {"text": "x", "usage": usage}]
    assert end(played(turns, *used("ls"))).usage.total == 24


# --- the real small model --------------------------------------------------------------------


def small_provider(weights: Weights, **changes: object) -> LocalProvider:
    server = LocalServer(weights, of_process(), context=1024, linger=0.2)
    return LocalProvider(server, **changes)


def asked(text: str, **changes: object) -> Request:
    return Request(
        replace(find_local(SMALL, zot_home()), context_window=1024),
        IDENTITY,
        (user(text),),
        **changes,
    )


@pytest.mark.slow
def test_a_real_call_is_made_and_the_prefix_is_kept(small: Weights) -> None:
    provider = small_provider(small)
    provider.warm()
    events = list(provider.stream(asked("Delete the file old.bak.", tools=SHELL), Cancel()))
    (call,) = end(events).content
    assert isinstance(call, ToolCall)
    assert call.args == {"command": "rm old.bak"}
    saved = list((provider._server.directory / "prefixes").iterdir())
    assert len(saved) == 1
    assert saved[0].stat().st_mode & 0o777 == 0o600
    again = list(provider.stream(asked("Delete the file old.bak.", tools=SHELL), Cancel()))
    assert end(again).usage.cache_read > 100
    provider.close()


@pytest.mark.slow
def test_the_kept_prefix_spares_the_next_server_the_reading(small: Weights) -> None:
    for number in range(2):
        provider = small_provider(small)
        events = list(provider.stream(asked("Rename a.md to b.md.", tools=SHELL), Cancel()))
        assert (end(events).usage.cache_read > 100) is bool(number)
        os.kill(provider._server.acquire(Cancel()).pid, signal.SIGKILL)
        assert provider._server.ends_within(20)
        provider.close()


@pytest.mark.slow
def test_a_server_killed_in_the_stream_is_an_error_and_the_next_call_works(small: Weights) -> None:
    provider = small_provider(small)
    stream = provider.stream(asked("Tell me a very long story."), Cancel())
    with pytest.raises(NetworkError, match="ended in the middle of an answer"):
        for event in stream:
            if isinstance(event, TextDelta):
                os.kill(provider._server.acquire(Cancel()).pid, signal.SIGKILL)
    assert isinstance(list(provider.stream(asked("Hi", max_output=4), Cancel()))[-1], Finished)
    provider.close()


def test_a_prompt_longer_than_the_context_is_said_so(small: Weights) -> None:
    provider = small_provider(small)
    with pytest.raises(ContextTooLong):
        list(provider.stream(asked("word " * 3000), Cancel()))
    cancel = Cancel()
    cancel.set()
    with pytest.raises(Cancelled):
        list(provider.stream(asked("Hi"), cancel))
    provider.close()


@pytest.mark.slow
def test_a_process_that_asks_nothing_lets_go_of_the_server(small: Weights) -> None:
    provider = small_provider(small, idle_release=0.0)
    list(provider.stream(asked("Hi", max_output=2), Cancel()))
    within(lambda: running_server(provider._server.directory) is None, "the end of the server")
    provider.close()


def test_a_prefix_that_cannot_be_kept_or_read_does_no_harm(tmp_path: Path) -> None:
    nobody = ServerAddress(1, 1, "key", "m", 1)
    store = PrefixStore(tmp_path)
    (tmp_path / "prefixes").mkdir()
    assert not store.save(nobody, [])
    assert not store.restore(nobody, [])
    from zot.local.provider import _file_name

    saved = tmp_path / "prefixes" / _file_name([])
    saved.write_bytes(b"old")
    (tmp_path / "warm").unlink()
    assert not store.restore(nobody, [])
    assert not saved.exists()


# --- names -----------------------------------------------------------------------------------


def test_models_are_found_by_name_and_by_path(own_home: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"`zot local pull qwen2.5-coder-1.5b` \(1.1 GB\)"):
        find_local("", zot_home())
    with pytest.raises(ConfigError, match="unknown local model 'gpt'"):
        find_local("gpt", zot_home())
    with pytest.raises(ConfigError, match="no model file at"):
        find_local("missing.gguf", zot_home())
    other = tmp_path / "other.gguf"
    other.write_bytes(b"x" * 10)
    assert find_local(str(other), zot_home()).id == str(other)
    weights = find_weights(str(other), zot_home())
    assert weights.memory > weights.memory_slim > 250_000_000
    assert local_models(zot_home()) == ()


def test_progress_on_stderr_is_two_lines_in_a_log(capsys: pytest.CaptureFixture[str]) -> None:
    progress = StderrProgress()
    for text in ("loading m: 1 s", "loading m: 2 s", "m ready in 3 s"):
        progress(text)
    assert capsys.readouterr().err == "zot: loading m: 1 s\nzot: m ready in 3 s\n"


# --- through the program ---------------------------------------------------------------------


def rpc(folder: Path, *args: str, model: Path | None = None, **env: str) -> Zot:
    home = folder / "zot-home" / "models"
    home.mkdir(parents=True, exist_ok=True)
    if model is not None and not (home / model.name).exists():
        (home / model.name).symlink_to(model)
    return Zot(folder, args=["--provider", "local", *args], env={"ZOT_LOCAL_THREADS": "1", **env})


def test_zot_rpc_goes_on_when_the_model_cannot_run(tmp_path: Path) -> None:
    file = small_model_file()
    with rpc(tmp_path, "--model", SMALL, model=file, ZOT_LOCAL_MEMORY_MB="5") as zot:
        frames = zot.prompt("hi")
        (error,) = [frame for frame in frames if frame["type"] == "error"]
        assert "of memory" in error["message"]
        failed = zot.ask("set_model", model="nowhere.gguf")
        assert not failed["success"]
        assert "no model file" in failed["error"]
        zot.invariants()


# Nobody answers here, so what a real model may want to write or run is refused.
ASK = ("--approve", "write,edit,bash")


@pytest.mark.timeout(300)
@pytest.mark.slow
def test_zot_rpc_answers_with_the_small_model(tmp_path: Path) -> None:
    with rpc(tmp_path, *ASK, model=small_model_file()) as zot:
        (zot.cwd / "notes.txt").write_text("alpha\n")
        zot.send("prompt", message="Show me what is in notes.txt.")
        zot.wait(lambda: zot.done_count() == 1, "the answer", 280)
        calls = [frame for frame in zot.frames if frame["type"] == "tool_call"]
        assert calls[0]["args"] == {"path": "notes.txt"}
        results = [frame for frame in zot.frames if frame["type"] == "tool_result"]
        assert "alpha" in results[0]["content"][0]["text"]
        assert zot.data("get_models")["models"][0]["id"] == SMALL
        zot.invariants()


@pytest.mark.timeout(300)
def test_a_real_agent_run_with_the_large_model(tmp_path: Path) -> None:
    with rpc(tmp_path, *ASK, model=large_model_file()) as zot:
        (zot.cwd / "server.py").write_text('HOST = "localhost"\nPORT = 8123\n')
        zot.send("prompt", message="What port does the server use? Look in server.py.")
        zot.wait(lambda: zot.done_count() == 1, "the answer", 280)
        calls = [frame for frame in zot.frames if frame["type"] == "tool_call"]
        assert [call["name"] for call in calls] == ["read"]
        text = "".join(f["delta"] for f in zot.frames if f["type"] == "text_delta")
        assert "8123" in text


def test_the_local_provider_is_opened_by_setup(small: Weights) -> None:
    provider = open_local(find_local(SMALL, zot_home()), of_process())
    assert provider.name == "local"
    provider.close()
    assert sys.stderr is not None


def test_place_is_what_pull_makes(own_home: Path) -> None:
    place(small_model_file())
    assert [model.id for model in local_models(zot_home())] == [SMALL]
