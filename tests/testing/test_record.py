import json
import stat
import sys
from pathlib import Path

import pytest

from zot import Runtime, tool
from zot.client import Client, ServerGoneError
from zot.errors import ConfigError, ToolBlocked, ToolError
from zot.provider.auth.store import AuthFile, Credential, Token
from zot.provider.scripted import ScriptedProvider
from zot.testing.cassette import Packer, tool_failure
from zot.testing.fakeserver import FakeServer

ZOT = str(Path(sys.executable).parent / "zot")
KEY = "sk-very-secret-key"
PROMPTS = [
    "tool:bash:pwd; echo hi\nthen\nsay:it is there",
    "status:400 echo-key",
    "usage:5,5 say:last",
]


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("ZOT_HOME", str(tmp_path / "home"))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recorded")
    cassette = folder / "run.jsonl"
    with FakeServer() as server:
        flags = ["--provider", "anthropic", "--base-url", server.url, "--api-key", KEY]
        command = [ZOT, "rpc", *flags, "--no-ext", "--no-skills", "--record", str(cassette)]
        with Client(command, cwd=folder, env={"PATH": "/usr/bin:/bin"}) as client:
            frames = [frames_of(client, prompt) for prompt in PROMPTS]
    return cassette, frames, str(folder)


def frames_of(client, prompt):
    return [event.to_wire() for event in client.prompt(prompt)]


def replay(cassette, cwd):
    command = [ZOT, "rpc", "--no-ext", "--no-skills", "--replay", str(cassette)]
    return Client(command, cwd=cwd)


def comparable(frames, cwd):
    text = json.dumps(frames).replace(cwd, "CWD")
    return json.loads(text, object_hook=lambda fields: {**fields, "time": ""})


@pytest.mark.slow
def test_a_replay_gives_the_recorded_events_elsewhere_without_network_or_key(recorded, tmp_path):
    cassette, frames, folder = recorded
    with replay(cassette, tmp_path) as client:
        again = [frames_of(client, prompt) for prompt in PROMPTS]
    assert comparable(again, str(tmp_path)) == comparable(frames, folder)


def test_the_cassette_holds_no_secret_and_is_for_the_user_alone(recorded):
    cassette, _, _ = recorded
    assert KEY not in cassette.read_text()
    assert stat.S_IMODE(cassette.stat().st_mode) == 0o600


def test_the_cassette_holds_calls_tool_results_and_frames(recorded):
    cassette, frames, folder = recorded
    lines = [json.loads(line) for line in cassette.read_text().splitlines()]
    assert [line["name"] for line in lines if line["type"] == "tool"] == ["bash"]
    assert sum(line["type"] == "call" for line in lines) == 4
    kept = [line["frame"]["type"] for line in lines if line["type"] == "frame"]
    assert kept == [frame["type"] for run in frames for frame in run]
    assert folder not in cassette.read_text()


def test_a_request_that_was_not_recorded_shows_the_nearest_and_the_difference(recorded, tmp_path):
    cassette, _, _ = recorded
    with replay(cassette, tmp_path) as client:
        last = frames_of(client, "tool:bash:pwd; echo ho\nthen\nsay:it is there")
        (error,) = [frame["message"] for frame in last if frame["type"] == "error"]
        assert last[-1] == {"type": "done"}
        assert frames_of(client, "again")[-1] == {"type": "done"}
    assert "not recorded" in error
    assert "the nearest one is call 1, which differs:" in error
    assert '-     "text": "tool:bash:pwd; echo hi' in error
    assert '+     "text": "tool:bash:pwd; echo ho' in error


def test_a_replay_says_which_provider_and_model_were_recorded(recorded, tmp_path):
    with replay(recorded[0], tmp_path) as client:
        hello = client.hello()
        assert (hello.provider, hello.model) == ("anthropic", "claude-sonnet-5-5")
        assert [model.id for model in client.models()] == ["claude-sonnet-5-5"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "No such file"),
        ("", "it is no cassette"),
        ("not json", "it is no cassette"),
        ('{"type":"frame"}\n', "it is no cassette"),
        ('{"type":"cassette","version":99}\n', "version 99"),
    ],
)
def test_a_file_that_is_no_cassette_is_refused_at_the_start(content, said, tmp_path):
    path = tmp_path / "bad.jsonl"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ServerGoneError, match=said) as caught, replay(path, tmp_path) as client:
        client.ping()
    assert caught.value.returncode == 1


OTHER = "gsk-of-another-provider-01"
TOKENS = ("access-token-of-a-login", "refresh-token-of-a-login")


@pytest.mark.slow
def test_no_key_of_the_user_is_in_a_cassette_and_it_replays_without_them(tmp_path):
    home, cassette = tmp_path / "home", tmp_path / "run.jsonl"
    project, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    project.mkdir()
    elsewhere.mkdir()
    AuthFile(str(home)).put("openai", Credential(oauth=Token(*TOKENS)))
    keys = (KEY, OTHER, *TOKENS)
    prompts = [
        f"tool:bash:cat {home}/auth.json; echo {' '.join(keys)} >&2\nthen\nsay:{' '.join(keys)}",
        f"status:400 {OTHER}",
        "usage:5,5 say:last",
    ]
    with FakeServer() as server:
        flags = ["--provider", "anthropic", "--base-url", server.url, "--api-key", KEY]
        command = [ZOT, "rpc", *flags, "--no-ext", "--no-skills", "--record", str(cassette)]
        env = {"PATH": "/usr/bin:/bin", "GROQ_API_KEY": OTHER, "ZOT_HOME": str(home)}
        with Client(command, cwd=project, env=env) as client:
            first = [frames_of(client, prompt) for prompt in prompts]
    text = joined(cassette.read_text())
    assert not [key for key in keys if key in cassette.read_text() or key in text]
    shown = [frame for run in first for frame in run if frame["type"] != "user_message"]
    said = [frame for frame in shown if frame["type"] not in ("tool_call", "assistant_message")]
    assert not [key for key in keys if key in joined("\n".join(map(json.dumps, said)))]
    with replay(cassette, elsewhere) as client:
        again = [frames_of(client, prompt) for prompt in prompts]
    assert [frame["type"] for run in again for frame in run] == [
        frame["type"] for run in first for frame in run
    ]
    assert not [frame for run in (again[0], again[2]) for frame in run if frame["type"] == "error"]


def joined(lines):
    """All texts that came in pieces, joined."""
    pieces = []
    for line in map(json.loads, lines.splitlines()):
        line = line.get("frame", line)
        pieces += [line.get(name) or "" for name in ("delta", "text")]
        pieces += [
            event.get("text") or event.get("delta") or "" for event in line.get("events", ())
        ]
    return "".join(piece for piece in pieces if isinstance(piece, str))


# --- in process ------------------------------------------------------------------------------


@tool
def count(word: str) -> str:
    """Count letters."""
    if word == "?":
        raise count_error()
    return str(len(word))


def count_error():
    from zot.sdk import ToolError

    return ToolError("nothing to count")


def texts(runtime, prompt):
    return [event.to_wire() for event in runtime.prompt(prompt)]


def record(path, turns, prompts, cwd):
    provider = ScriptedProvider(turns)
    with Runtime(provider=provider, tools=[count], record=path, cwd=cwd) as runtime:
        return [texts(runtime, prompt) for prompt in prompts]


def test_own_tools_do_not_run_in_a_replay(tmp_path):
    turns = [
        {"tools": [{"name": "count", "args": {"word": "four"}}]},
        {"tools": [{"name": "count", "args": {"word": "?"}}]},
        "done",
    ]
    first = record(tmp_path / "c", turns, ["go"], tmp_path)

    @tool(name="count")
    def broken(word: str) -> str:
        """Count letters."""
        raise AssertionError("it must not run")

    with Runtime(replay=tmp_path / "c", tools=[broken], cwd=tmp_path) as runtime:
        second = [texts(runtime, "go")]
    assert comparable(second, "\0") == comparable(first, "\0")
    results = [frame for frame in first[0] if frame["type"] == "tool_result"]
    assert [result["is_error"] for result in results] == [False, True]


def test_a_retried_failure_is_replayed(tmp_path):
    turns = [{"error": {"status": 503, "message": "busy", "retry_after": 0}}, "then it works"]
    first = record(tmp_path / "c", turns, ["go"], tmp_path)
    with Runtime(replay=tmp_path / "c", tools=[count], cwd=tmp_path) as runtime:
        second = [texts(runtime, "go")]
    assert comparable(second, "\0") == comparable(first, "\0")


def test_a_run_that_was_cancelled_waits_for_the_cancel_again(tmp_path):
    provider = ScriptedProvider([{"text": ["a"] * 1000, "delay_ms": 20}])
    with Runtime(provider=provider, no_tools=True, record=tmp_path / "c", cwd=tmp_path) as runtime:
        stop_after_first_delta(runtime)
    with Runtime(replay=tmp_path / "c", no_tools=True, cwd=tmp_path) as runtime:
        assert stop_after_first_delta(runtime)["stop"] == "aborted"


def stop_after_first_delta(runtime):
    ends = []
    for event in runtime.prompt("go"):
        frame = event.to_wire()
        if frame["type"] == "text_delta":
            runtime.cancel()
        elif frame["type"] == "turn_end":
            ends.append(frame)
    return ends[-1]


def test_the_same_request_more_often_than_recorded_is_an_error(tmp_path):
    record(tmp_path / "c", ["one"], ["go"], tmp_path)
    with Runtime(replay=tmp_path / "c", tools=[count], cwd=tmp_path) as runtime:
        texts(runtime, "go")
        runtime.clear()
        again = texts(runtime, "go")
    assert "but not so many times" in again[-2]["message"]


def test_an_empty_cassette_says_that_nothing_was_recorded(tmp_path):
    record(tmp_path / "c", [], [], tmp_path)
    with Runtime(replay=tmp_path / "c", tools=[count], cwd=tmp_path) as runtime:
        assert "no request was recorded" in texts(runtime, "go")[-2]["message"]
        with pytest.raises(ConfigError, match="unknown model 'other'"):
            runtime.set_model("other")


def test_record_and_replay_contradict_each_other(tmp_path):
    with pytest.raises(ConfigError, match="contradict"):
        Runtime(replay="a", record="b")


def test_a_file_that_cannot_be_written_is_an_error(tmp_path):
    provider = ScriptedProvider([])
    with pytest.raises(ConfigError, match="cannot record to"):
        Runtime(provider=provider, record=tmp_path / "no" / "such" / "folder")


def test_the_working_directory_root_is_left_alone():
    assert Packer("/").plain("/etc/passwd") == "/etc/passwd"


def test_a_cassette_that_cannot_be_written_is_known_before_the_first_prompt(tmp_path):
    flags = ["--provider", "anthropic", "--api-key", "k", "--record", str(tmp_path / "no" / "x")]
    with (
        pytest.raises(ServerGoneError, match="cannot record to") as caught,
        Client([ZOT, "rpc", *flags]) as client,
    ):
        client.ping()
    assert caught.value.returncode == 1


def test_a_background_command_is_replayed(tmp_path):
    cassette = tmp_path / "run.jsonl"
    turns = [
        {"tools": [{"name": "bash", "args": {"command": "sleep 309", "background": True}}]},
        {"tools": [{"name": "bash_output", "args": {"id": "1"}}]},
        {"tools": [{"name": "bash_kill", "args": {"id": "1"}}]},
        {"text": "ended"},
    ]
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"turns": turns}))
    command = [ZOT, "rpc", "--no-ext", "--no-skills", "--provider", "scripted"]
    command += ["--script", str(script), "--record", str(cassette)]
    with Client(command, cwd=tmp_path) as client:
        frames = frames_of(client, "go")
    assert [frame["is_error"] for frame in frames if frame["type"] == "tool_result"] == [False] * 3
    with replay(cassette, tmp_path) as client:
        again = frames_of(client, "go")
    assert comparable(again, str(tmp_path)) == comparable(frames, str(tmp_path))


def test_how_a_call_failed_is_replayed(tmp_path):
    recorded = {"bash": {"class": "ToolBlocked", "error": "no"}}
    for name, line in recorded.items():
        failure = tool_failure(line["class"], line["error"])
        assert (type(failure), str(failure), name) == (ToolBlocked, "no", "bash")
    assert type(tool_failure("", "no")) is ToolError
