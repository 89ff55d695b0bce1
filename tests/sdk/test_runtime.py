import gc
import json
import sys
import threading
import time
from pathlib import Path

import msgspec
import pytest

from zot import BusyError, ClosedError, Config, Runtime, events, tool
from zot.client import Client
from zot.errors import AuthError, CommandError, ConfigError, ProviderError
from zot.provider.scripted import ScriptedProvider
from zot.provider.types import Price
from zot.sdk import Hook, Image, Limits, Model, ReplaceText, Tool
from zot.sdk.config import Settings, _options
from zot.settings.options import SETTINGS, Options
from zot.testing.fakeserver import FakeServer

ZOT = str(Path(sys.executable).parent / "zot")
EXTENSIONS = Path(__file__).parent.parent.parent / "examples" / "extensions"
SLOW = {"text": ["x"] * 2000, "delay_ms": 20, "repeat": True}
PNG = Image("image/png", b"\x89PNG\r\n\x1a\nnot really")


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("ZOT_HOME", str(tmp_path / "home"))
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def open_runtime(tmp_path):
    opened = []

    def open_runtime(*turns, **settings):
        provider = ScriptedProvider(list(turns))
        settings = {"no_tools": "tools" not in settings, "cwd": tmp_path, **settings}
        runtime = Runtime(provider=provider, **settings)
        opened.append(runtime)
        return runtime

    yield open_runtime
    for runtime in opened:
        runtime.close()


@tool
def shout(word: str) -> str:
    """Say it loudly."""
    return word.upper()


def kinds(stream):
    return [event.to_wire()["type"] for event in stream]


def text_of(stream):
    return "".join(event.delta for event in stream if isinstance(event, events.TextDelta))


# --- prompts ---------------------------------------------------------------------------------


def test_a_prompt_is_an_iterator_of_typed_events(open_runtime):
    seen = list(open_runtime({"text": ["hel", "lo"]}).prompt("hi"))
    assert isinstance(seen[0], events.UserMessage)
    assert text_of(seen) == "hello"
    assert seen[-1] == events.Done()


def test_events_are_what_zot_rpc_would_have_sent(tmp_path):
    call = {"name": "bash", "args": {"command": "echo hi"}, "id": "c1"}
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"turns": [{"text": "a", "tools": [call]}, {"text": ["b", "c"]}]}))
    flags = ["--provider", "scripted", "--script", str(script), "--no-ext"]
    with Client([ZOT, "rpc", *flags], cwd=tmp_path) as client:
        sent = [event.to_wire() for event in client.prompt("go")]
    with Runtime(provider="scripted", script=script, cwd=tmp_path) as runtime:
        got = [event.to_wire() for event in runtime.prompt("go")]
    assert [timeless(frame) for frame in got] == [timeless(frame) for frame in sent]


def timeless(frame):
    text = json.dumps({**frame, "time": ""})
    return text.partition("Took")[0]  # how long the command took differs


def test_own_tools_and_guards_take_part(open_runtime):
    turn = {"tools": [{"name": "shout", "args": {"word": "hey"}}]}
    runtime = open_runtime(turn, "ok", tools=[shout], hooks=[lambda call: {"word": "guarded"}])
    (result,) = [e for e in runtime.prompt("go") if isinstance(e, events.ToolResult)]
    assert result.content[0].text == "GUARDED"


def test_a_guard_that_blocks_is_an_error_result(open_runtime):
    turn = {"tools": [{"name": "shout", "args": {"word": "hey"}}]}
    runtime = open_runtime(turn, "ok", tools=[shout], hooks=[lambda call: "not today"])
    (result,) = [e for e in runtime.prompt("go") if isinstance(e, events.ToolResult)]
    assert (result.is_error, result.content[0].text) == (True, "not today")


def test_a_list_of_tools_is_exactly_what_the_model_gets(open_runtime):
    runtime = open_runtime("ok", tools=["read", shout])
    list(runtime.prompt("go"))
    assert names_offered(runtime) == ["read", "shout"]


def test_a_plain_function_and_a_tool_object_are_tools(open_runtime):
    def whisper(word: str) -> str:
        """Say it quietly."""
        return word.lower()

    class Own:
        name = "own"
        description = "An object."
        schema = {"type": "object", "properties": {}}

        def run(self, args, context):
            return "ran"

    runtime = open_runtime("ok", tools=[whisper, Own()])
    list(runtime.prompt("go"))
    assert names_offered(runtime) == ["own", "whisper"]


def test_an_own_tool_replaces_the_built_in_of_its_name(open_runtime):
    @tool(name="read")
    def mine(path: str) -> str:
        """Read, my way."""
        return "mine"

    turn = {"tools": [{"name": "read", "args": {"path": "x"}}]}
    runtime = open_runtime(turn, "ok", tools=["read", mine])
    (result,) = [e for e in runtime.prompt("go") if isinstance(e, events.ToolResult)]
    assert result.content[0].text == "mine"


def names_offered(runtime):
    return [spec.name for spec in runtime._inner.agent.toolbox.specs]


def test_hooks_may_be_whole_classes(open_runtime):
    class Polite(Hook):
        def before_start(self, system, context):
            return ReplaceText("be polite")

    runtime = open_runtime("ok", hooks=[Polite()])
    list(runtime.prompt("go"))
    assert runtime._inner.agent.provider._provider.own.requests[0].system == "be polite"


def test_the_system_prompt_is_the_embedders(open_runtime):
    runtime = open_runtime("ok", system_prompt="Only this.", append_system_prompt="And that.")
    list(runtime.prompt("go"))
    system = runtime._inner.agent.provider._provider.own.requests[0].system
    assert system.startswith("Only this.\n\nAnd that.\n\n")


def test_images_reach_the_model_and_are_counted_on_the_wire(open_runtime):
    runtime = open_runtime("seen")
    first = next(iter(runtime.prompt("look", images=[PNG])))
    assert first.content[1].bytes == len(PNG.data)


def test_an_image_that_no_model_takes_is_refused(open_runtime):
    with pytest.raises(CommandError, match="mime_type"):
        open_runtime().prompt("look", images=[Image("image/bmp", b"x")])


def test_an_empty_prompt_is_refused(open_runtime):
    runtime = open_runtime("ok")
    with pytest.raises(CommandError, match="empty"):
        runtime.prompt(" ")
    assert kinds(runtime.prompt("now"))[-1] == "done"


def test_a_failed_run_tells_in_events_and_leaves_the_runtime_usable(open_runtime):
    runtime = open_runtime({"error": {"status": 400, "message": "no"}}, "fine")
    assert kinds(runtime.prompt("go"))[-3:] == ["turn_end", "error", "done"]
    assert text_of(runtime.prompt("again")) == "fine"


def test_features_bring_more_kinds_of_events(open_runtime):
    turn = {"thinking": "hm", "text": "ok", "repeat": True}
    assert "thinking_delta" not in kinds(open_runtime(turn).prompt("go"))
    assert "thinking_delta" in kinds(open_runtime(turn, features=["thinking"]).prompt("go"))


# --- one at a time, and its end --------------------------------------------------------------


def test_a_second_prompt_is_busy(open_runtime):
    runtime = open_runtime(SLOW)
    stream = runtime.prompt("go")
    for refused in (
        lambda: runtime.prompt("more"),
        runtime.compact,
        runtime.clear,
        lambda: runtime.set_messages([]),
        lambda: runtime.set_model("x"),
        lambda: runtime.set_reasoning("high"),
    ):
        with pytest.raises(BusyError, match="busy"):
            refused()
    assert runtime.state().busy
    stream.close()
    assert not runtime.state().busy


def test_of_two_threads_that_prompt_at_once_one_is_busy(open_runtime):
    runtime = open_runtime(SLOW)
    barrier, streams, refused = threading.Barrier(4), [], []

    def go():
        barrier.wait()
        try:
            streams.append(runtime.prompt("go"))
        except BusyError:
            refused.append(True)

    threads = [threading.Thread(target=go) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(streams), len(refused)) == (1, 3)


def test_closing_the_iterator_early_aborts(open_runtime):
    runtime = open_runtime(SLOW, "after")
    with runtime.prompt("go") as stream:
        next(stream)
    assert list(stream) == []
    assert not runtime.state().busy


def test_leaving_the_loop_aborts_and_the_next_prompt_waits_for_that(open_runtime):
    runtime = open_runtime({"match": "next", "text": "after"}, SLOW)
    for event in runtime.prompt("go"):
        if isinstance(event, events.TextDelta):
            break
    del event
    gc.collect()
    assert text_of(runtime.prompt("next")) == "after"


def test_cancel_from_another_thread_ends_the_events_with_done(open_runtime):
    runtime = open_runtime(SLOW)
    seen = []
    for event in runtime.prompt("go"):
        seen.append(event)
        if isinstance(event, events.TextDelta):
            threading.Thread(target=runtime.cancel).start()
    ends = [event for event in seen if isinstance(event, events.TurnEnd)]
    assert ends[-1].stop == "aborted"
    assert seen[-1] == events.Done()
    assert not runtime.cancel()


@pytest.fixture
def full_stream(open_runtime, monkeypatch):
    """A run that waits because nobody reads its events."""
    monkeypatch.setattr("zot.sdk.stream.MAX_UNREAD", 5)
    runtime = open_runtime({"text": [f"{number} " for number in range(200)]})
    stream = runtime.prompt("go")
    while len(stream._channel._waiting) < 5:
        time.sleep(0.001)
    return runtime, stream


def test_a_reader_that_does_not_read_slows_the_run_down(full_stream):
    runtime, stream = full_stream
    assert runtime.state().busy
    assert text_of(stream) == "".join(f"{number} " for number in range(200))


def test_a_run_that_waits_for_its_reader_can_be_closed(full_stream):
    runtime, stream = full_stream
    stream.close()
    assert not runtime.state().busy


def test_steering_and_follow_ups_are_heard(open_runtime):
    started, go_on = threading.Event(), threading.Event()

    @tool
    def hold(why: str) -> str:
        """Wait."""
        started.set()
        assert go_on.wait(20)
        return why

    turn = {"tools": [{"name": "hold", "args": {"why": "x"}}]}
    runtime = open_runtime(turn, "one", "two", tools=[hold])
    assert runtime.steer("nobody hears") is False
    stream = runtime.prompt("go")
    assert started.wait(20)
    assert runtime.steer("sooner")
    assert runtime.follow_up("later")
    go_on.set()
    said = [e.content[0].text for e in stream if isinstance(e, events.UserMessage)]
    assert said == ["go", "sooner", "later"]


# --- state -----------------------------------------------------------------------------------


def test_state_cost_and_models(open_runtime, tmp_path):
    priced = Model("m", "scripted", "scripted", price=Price(input=2, output=4))
    turn = {"text": "ok", "usage": {"input": 1_000_000, "output": 500_000}}
    runtime = open_runtime(turn, model=priced, reasoning="low")
    list(runtime.prompt("go"))
    state = runtime.state()
    assert (state.provider, state.model, state.cwd) == ("scripted", "m", str(tmp_path))
    assert (state.message_count, state.busy) == (2, False)
    assert (runtime.cost().input, runtime.cost().cost_usd) == (1_000_000, 4.0)
    assert [model.id for model in runtime.list_models()] == ["m"]
    runtime.set_model("other")
    assert runtime.state().model == "other"
    runtime.set_reasoning("high")
    assert runtime._inner.state().reasoning == "high"


def test_messages_can_be_read_and_set(open_runtime):
    turn = {"text": "ok", "tools": [{"name": "shout", "args": {"word": "a"}}]}
    runtime = open_runtime(turn, "done", tools=[shout])
    list(runtime.prompt("go"))
    messages = runtime.messages()
    assert [message.role for message in messages] == ["user", "assistant", "tool", "assistant"]
    other = open_runtime("fine", tools=[shout])
    other.set_messages(messages)
    assert other.messages() == messages
    assert text_of(other.prompt("more")) == "fine"
    other.clear()
    assert other.messages() == ()


def test_full_messages_carry_images_and_the_wire_shape_does_not(open_runtime):
    runtime, other = open_runtime("ok"), open_runtime("ok")
    list(runtime.prompt("look", images=[PNG]))
    with pytest.raises(CommandError, match="full_messages"):
        other.set_messages(runtime.messages())
    other.set_messages(runtime.full_messages())
    assert other.full_messages()[0].content[1] == PNG


def test_a_message_with_a_time_that_is_none_is_refused(open_runtime):
    shape = events.MessageShape("user", (events.TextBlock("hi"),), "yesterday")
    with pytest.raises(CommandError, match="not a time: 'yesterday'"):
        open_runtime().set_messages([shape])


def test_compact_gives_the_summary_and_the_messages(open_runtime):
    runtime = open_runtime("1", "2", "3", "4", "the summary")
    for number in range(4):
        list(runtime.prompt(f"prompt {number}"))
    result = runtime.compact("keep names")
    assert result.summary == "the summary"
    assert result.messages == runtime.messages()
    assert len(result.messages) < 8


def test_compact_raises_what_went_wrong(open_runtime):
    with pytest.raises(CommandError, match="nothing to compact"):
        open_runtime().compact()
    runtime = open_runtime("1", "2", "3", "4", {"error": {"status": 400, "message": "no"}})
    for number in range(4):
        list(runtime.prompt(f"prompt {number}"))
    with pytest.raises(ProviderError, match="no"):
        runtime.compact()


def test_a_compact_that_is_cancelled_raises(open_runtime):
    runtime = open_runtime("1", "2", "3", "4", SLOW)
    for number in range(4):
        list(runtime.prompt(f"prompt {number}"))
    failed = []

    def compact():
        try:
            runtime.compact()
        except CommandError as error:
            failed.append(error.code)

    thread = threading.Thread(target=compact)
    thread.start()
    while not runtime.cancel():
        pass
    thread.join()
    assert failed == ["aborted"]


def test_a_session_file_keeps_the_conversation(open_runtime, tmp_path):
    path = tmp_path / "chat.jsonl"
    first = open_runtime("hello", session=path)
    list(first.prompt("remember me"))
    first.close()
    second = open_runtime("again", session=path)
    assert [message.role for message in second.messages()] == ["user", "assistant"]


def test_limits_end_a_run(open_runtime):
    turn = {"tools": [{"name": "shout", "args": {"word": "x"}}], "repeat": True}
    seen = list(open_runtime(turn, tools=[shout], max_steps=2).prompt("go"))
    assert isinstance(seen[-2], events.Error)
    assert "max steps (2)" in seen[-2].message
    one = list(open_runtime(turn, tools=[shout]).prompt("go", limits=Limits(max_steps=1)))
    assert "max steps (1)" in one[-2].message


# --- life ------------------------------------------------------------------------------------


def test_after_close_everything_says_closed(open_runtime):
    runtime = open_runtime(SLOW)
    stream = runtime.prompt("go")
    runtime.close()
    runtime.close()
    assert kinds(stream)[-1] == "done"
    for refused in (
        lambda: runtime.prompt("x"),
        runtime.cancel,
        runtime.compact,
        runtime.state,
        runtime.messages,
        runtime.cost,
        runtime.list_models,
        runtime.clear,
    ):
        with pytest.raises(ClosedError):
            refused()


def test_close_leaves_no_thread(open_runtime):
    before = set(threading.enumerate())
    with Runtime(provider=ScriptedProvider([SLOW]), no_tools=True) as runtime:
        next(runtime.prompt("go"))
    assert [thread.name for thread in set(threading.enumerate()) - before] == []


def test_many_runtimes_live_side_by_side(open_runtime):
    runtimes = [open_runtime({"text": [f"{n} "] * 50, "delay_ms": 1}) for n in range(8)]
    streams = [runtime.prompt(f"go {n}") for n, runtime in enumerate(runtimes)]
    assert [text_of(stream) for stream in streams] == [f"{n} " * 50 for n in range(8)]
    assert [runtime.messages()[0].content[0].text for runtime in runtimes] == [
        f"go {n}" for n in range(8)
    ]


# --- settings --------------------------------------------------------------------------------


def test_a_config_or_keywords(tmp_path):
    config = Config(provider=ScriptedProvider(["ok"]), no_tools=True, cwd=tmp_path)
    with Runtime(config) as runtime:
        assert text_of(runtime.prompt("go")) == "ok"
    with pytest.raises(TypeError, match="not both"):
        Runtime(config, cwd=tmp_path)


def test_the_keywords_are_those_of_the_table_and_the_fields_of_config():
    of_table = {row.keyword or row.name for row in SETTINGS.values() if row.sdk}
    own = {"hooks", "features", "mcp_servers", "on_agent_event"}
    assert set(Settings.__annotations__) == of_table | own
    assert set(Settings.__annotations__) == set(Config.__struct_fields__)


def test_help_of_config_says_what_each_field_is():
    lines = Config.__doc__.splitlines()
    assert [line.partition(":")[0] for line in lines[2:]] == list(Config.__struct_fields__)
    assert "max_seconds: time for one prompt" in lines


def test_what_a_config_says_becomes_options_and_the_rest_says_nothing(tmp_path):
    config = Config(cwd=tmp_path, max_seconds=2.5, compact_at=0, tools=["read", print])
    nothing = Options(extensions=False, mcp=False)
    wanted = msgspec.structs.replace(
        nothing, cwd=str(tmp_path), max_seconds=2.5, compact_at=0, tools=("read",)
    )
    assert _options(config) == wanted
    assert _options(Config()) == nothing
    assert _options(Config(append_system_prompt="a")).append_system_prompt == ("a",)


@pytest.mark.parametrize(
    ("settings", "error", "said"),
    [
        ({"provider": "nonsense"}, ConfigError, "unknown provider 'nonsense'"),
        ({"provider": "anthropic"}, AuthError, "no credential for anthropic.*api_key="),
        ({"provider": "scripted", "script": "s", "model": "?"}, ConfigError, "unknown model"),
        ({"provider": "anthropic", "api_key": "k", "cwd": "/no"}, ConfigError, "not a directory"),
        ({"provider": "anthropic", "api_key": "k", "tools": ["x"]}, ConfigError, "unknown tool"),
        ({"provider": "anthropic", "api_key": "k", "tools": [7]}, ConfigError, "not a tool: 7"),
        ({"tools": ["read"], "no_tools": True}, ConfigError, "contradict"),
        ({"features": ["mood"]}, ConfigError, "unknown feature 'mood'"),
        ({"mcp_servers": {"x": {}}}, ConfigError, "mcp_servers: 'x': it needs either"),
        ({"features": ["seq"]}, ConfigError, "unknown feature 'seq'"),
    ],
)
def test_settings_that_cannot_be_used_say_what_to_do(settings, error, said):
    with pytest.raises(error, match=said.replace("?", r"\?")):
        Runtime(**settings)


def test_a_tool_is_recognised_by_its_members():
    own: Tool = shout
    assert own.name == "shout"


def test_extensions_bring_their_tools(open_runtime):
    turn = {"tools": [{"name": "todo", "args": {"action": "add", "text": "milk"}}]}
    runtime = open_runtime(turn, "ok", extensions=[EXTENSIONS / "todo"], no_tools=False)
    (result,) = [e for e in runtime.prompt("go") if isinstance(e, events.ToolResult)]
    assert not result.is_error, result


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"tools": "read"}, "tools must be a list of tools, not 'read'"),
        ({"reasoning": "hgh"}, "reasoning must be one of off, .*, not 'hgh'"),
        ({"max_steps": 0}, "max_steps must be a positive whole number, not 0"),
        ({"max_seconds": "10"}, "max_seconds must be a positive number, not '10'"),
        ({"hooks": [5]}, "not a guard: 5"),
        ({"extensions": ["/no/such"]}, "there is no extension.json in it"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named_at_once(open_runtime, settings, says):
    with pytest.raises(ConfigError, match=says):
        open_runtime("hi", **settings)


def test_an_unknown_level_changes_nothing(open_runtime):
    runtime = open_runtime("hi")
    with pytest.raises(ConfigError, match="not 'hgh'"):
        runtime.set_reasoning("hgh")


def test_a_client_wants_a_list_of_words():
    with pytest.raises(TypeError, match="a list of words, not 'zot rpc'"):
        Client("zot rpc")


def test_what_is_no_prompt_image_or_message_is_named(open_runtime):
    runtime = open_runtime({"text": "ok"})
    for wrong in (
        lambda: runtime.prompt(5),
        lambda: runtime.prompt("x", images=["nope"]),
        lambda: runtime.set_messages([{"a": 1}]),
    ):
        with pytest.raises(CommandError, match="invalid_params"):
            wrong()


def test_a_provider_of_ones_own_gets_its_messages_as_a_tuple():
    seen = []

    class Own(ScriptedProvider):
        def stream(self, request, cancel):
            seen.append((type(request.messages), msgspec.json.encode(request.messages)))
            return super().stream(request, cancel)

    with Runtime(provider=Own(["one", "two"]), no_tools=True) as runtime:
        for text in ("first", "second"):
            list(runtime.prompt(text))
    assert [kind for kind, _ in seen] == [tuple, tuple]
    assert b"first" in seen[1][1]


@pytest.fixture
def asked(tmp_path):
    """A runtime that asks a real server."""
    with (
        FakeServer() as server,
        Runtime(
            provider="anthropic", api_key="k", base_url=server.url, no_tools=True, cwd=tmp_path
        ) as runtime,
    ):
        yield runtime, server


def test_nothing_of_a_conversation_that_was_cleared_is_sent(asked):
    runtime, server = asked
    list(runtime.prompt("say:old"))
    runtime.clear()
    for limits in (Limits(max_tokens=1), None):  # the first one is not even asked
        list(runtime.prompt("say:new", limits=limits))
    sent = server.requests[-1].body["messages"]
    assert "old" not in json.dumps(sent)
    assert json.dumps(sent).count("say:new") == 2
