import os
import queue
import signal
import sys
import threading
import time
from pathlib import Path

import pytest
from support.extension import write_extension

from zot import events
from zot.client import Client, ClientTimeoutError, ServerGoneError
from zot.errors import BusyError, ClosedError, CommandError
from zot.sdk import Image, Unknown
from zot.testing.fakeserver import FakeServer

ZOT = str(Path(sys.executable).parent / "zot")
PNG = Image("image/png", b"\x89PNG\r\n\x1a\nnot really")


@pytest.fixture(scope="module")
def server():
    with FakeServer() as server:
        yield server


@pytest.fixture
def command(server, tmp_path):
    flags = ["--provider", "anthropic", "--base-url", server.url, "--api-key", "k"]
    return [ZOT, "rpc", *flags, "--no-ext", "--cwd", str(tmp_path)]


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("ZOT_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("ZOTCORE_RPC_TOKEN", raising=False)


@pytest.fixture
def client(command):
    with Client(command) as client:
        yield client


def python(code):
    return [sys.executable, "-c", code]


def text_of(stream):
    return "".join(event.delta for event in stream if isinstance(event, events.TextDelta))


# --- runs ------------------------------------------------------------------------------------


def test_a_prompt_gives_typed_events(client):
    seen = list(client.prompt("say:hello world"))
    assert isinstance(seen[0], events.UserMessage)
    assert text_of(seen) == "hello world"
    assert seen[-1] == events.Done()


def test_a_second_prompt_queues_and_each_gets_its_own_events(client):
    first, second = client.prompt("text:5 delay:20"), client.prompt("say:second")
    assert (first.queued, second.queued) == (0, 1)
    assert text_of(second) == "second"
    assert text_of(first) == "abcd " * 5


def test_closing_the_iterator_early_aborts_that_run_only(client):
    first, second = client.prompt("text:2 hang:2"), client.prompt("say:second")
    with first:
        next(first)
    assert list(first) == []
    assert text_of(second) == "second"
    first.close()


def test_abort_ends_the_events_with_done(client):
    seen = []
    for event in client.prompt("text:2 hang:2"):
        seen.append(event)
        if isinstance(event, events.TextDelta) and len(seen) < 6:
            client.abort()
    assert [e.stop for e in seen if isinstance(e, events.TurnEnd)] == ["aborted"]


def test_a_refused_prompt_raises(client):
    with pytest.raises(CommandError, match="empty"):
        client.prompt("")
    assert text_of(client.prompt("say:fine")) == "fine"


def test_images_are_sent(client):
    first = next(client.prompt("say:seen", images=[PNG]))
    assert first.content[1].bytes == len(PNG.data)


COMMANDS = """
hello()
for name in ("look", "show"):
    emit("register_command", name=name, description=name)
emit("ready")
for frame in frames():
    if frame["type"] == "command_invoked" and frame["name"] == "look":
        emit("command_response", id=frame["id"], action="tool_prompt", prompt="say:seen",
             tool_name="bash", tool_args={"command": "echo from-the-tool"})
    elif frame["type"] == "command_invoked":
        emit("command_response", id=frame["id"], action="display", display="shown")
"""


def test_a_command_is_submitted_with_the_tool_that_it_wants_or_its_prompt_is_handed_back(
    command, tmp_path
):
    folder = write_extension(tmp_path, "commands", COMMANDS)
    with Client([*command, "--ext", str(folder)]) as client:
        handed = client.run_command("look")
        assert (handed.action, handed.prompt, handed.started) == ("prompt", "say:seen", False)
        looked = client.submit_command("look")
        seen = list(looked)
        assert looked.ran is not None and looked.ran.started
        assert [event.name for event in seen if isinstance(event, events.ToolCall)] == ["bash"]
        assert (text_of(seen), seen[-1]) == ("done", events.Done())  # to the result of the tool
        shown = client.submit_command("show")
        assert (list(shown), shown.ran.display) == ([], "shown")
        with pytest.raises(CommandError, match="nothing"):
            client.submit_command("nothing")
        assert text_of(client.prompt("say:on")) == "on"


def test_compact_brings_the_summary_among_its_events(client):
    for number in range(4):
        list(client.prompt(f"say:answer {number}"))
    seen = list(client.compact("keep names"))
    assert any(isinstance(event, events.CompactDone) for event in seen)
    assert seen[-1] == events.Done()


def test_steering_needs_a_run(client, tmp_path):
    with pytest.raises(BusyError, match="nothing to steer"):
        client.steer("go left")
    stream = client.prompt("tool:bash:until [ -e gate ]; do sleep 0.05; done\nthen\nsay:ok")
    client.follow_up("say:later", images=[PNG])
    client.steer("say:sooner")
    (tmp_path / "gate").touch()
    said = [e.content[0].text for e in stream if isinstance(e, events.UserMessage)]
    assert sorted(said[1:]) == ["say:later", "say:sooner"]


def test_a_silent_run_times_out_and_can_be_aborted(client):
    stream = client.prompt("text:1 hang:1", timeout=0.3)
    with pytest.raises(ClientTimeoutError, match=r"no event for 0.3 s"):
        list(stream)
    stream._timeout = None
    stream.close()


# --- questions -------------------------------------------------------------------------------


def test_questions_are_answered_with_types(client):
    client.ping()
    hello = client.hello()
    assert (hello.protocol_version, hello.provider) == (1, "anthropic")
    list(client.prompt("say:hi"))
    assert client.state().message_count == 2
    assert [message.role for message in client.messages()] == ["user", "assistant"]
    models = [model.id for model in client.models()]
    assert client.set_model(models[0]) == models[0]
    assert client.set_reasoning("low") == "low"
    client.clear()
    assert client.messages() == ()


def test_a_refusal_raises_with_its_code_when_codes_were_asked_for(command):
    with Client(command, features=["codes"]) as client:
        with pytest.raises(CommandError) as caught:
            client.request("no_such_command")
        assert caught.value.code == "unknown_command"
        with pytest.raises(CommandError, match="no approval 'x' is waiting"):
            client.approve("x", "allow")


def test_many_threads_ask_at_once(client):
    wrong = []

    def ask(number):
        for _ in range(20):
            answer = client.request("ping")
            if not answer.success:
                wrong.append(number)

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_the_token_and_features_are_sent_in_hello(command):
    with Client(command, token="secret", features=["thinking"]) as client:
        assert "thinking" in client.hello(features=["thinking"]).features
        seen = list(client.prompt("think:1 text:1"))
    assert seen[-1] == events.Done()


def test_a_token_that_is_refused_raises():
    code = (
        'print(\'{"type":"response","id":"1","command":"hello","success":false,'
        '"error":"invalid token"}\', flush=True)\ninput()\n'
    )
    with pytest.raises(CommandError, match="invalid token"):
        Client(python(code), token="wrong")


# --- a child that misbehaves -----------------------------------------------------------------


def test_a_child_that_is_killed_in_the_middle_is_a_clear_error(command):
    with Client(command) as client:
        stream = client.prompt("text:2 hang:2")
        os.kill(client.pid, signal.SIGKILL)
        with pytest.raises(ServerGoneError, match="exit code -9") as caught:
            list(stream)
        assert caught.value.returncode == -9
        with pytest.raises(ServerGoneError):
            client.ping()
        stream.close()


def test_a_child_that_does_not_start_says_what_it_said(tmp_path):
    with (
        pytest.raises(ServerGoneError, match="unknown provider 'zzz'") as caught,
        Client([ZOT, "rpc", "--provider", "zzz"]) as client,
    ):
        client.ping()
    assert caught.value.returncode == 1


def test_a_command_that_does_not_exist_is_a_clear_error():
    with pytest.raises(ServerGoneError, match="cannot start"):
        Client(["/no/such/command"])


def test_output_that_is_no_frame_is_a_clear_error():
    with (
        pytest.raises(ServerGoneError, match="not a frame: b'hello'"),
        Client(python("print('hello', flush=True); input()")) as client,
    ):
        client.ping()


def test_a_child_that_never_answers_times_out():
    with Client(python("import time; time.sleep(60)"), timeout=0.3) as client:
        with pytest.raises(ClientTimeoutError, match="no answer within 0.3 s"):
            client.ping()
        with pytest.raises(ClientTimeoutError, match="did not read its input"):
            client.prompt("x" * 500_000)
        client._server.signal(signal.SIGKILL)


def test_a_late_answer_is_passed_over():
    code = (
        "import sys, time\nfor line in sys.stdin:\n    time.sleep(0.4)\n"
        "    id = line.partition('\"id\":\"')[2].partition('\"')[0]\n"
        '    print(\'{"type":"response","id":"%s","command":"ping","success":true}\''
        " % id, flush=True)\n"
    )
    with Client(python(code), timeout=0.1) as client:
        with pytest.raises(ClientTimeoutError):
            client.ping()
        client.timeout = 20
        client.ping()


def test_events_outside_of_runs_are_told():
    heard = []
    arrived = threading.Event()
    code = 'print(\'{"type":"mood","value":7}\', flush=True)\ninput()'
    with Client(python(code), on_event=lambda e: (heard.append(e), arrived.set())):
        assert arrived.wait(20)
    assert heard == [Unknown("mood", {"type": "mood", "value": 7})]


def test_a_listener_may_ask_and_its_failure_ends_nothing():
    code = """
import json
print('{"type":"mood"}', flush=True)
for line in iter(input, ""):
    id = json.loads(line)["id"]
    row = {"type": "response", "command": "ping", "id": id, "success": True, "data": {"pong": True}}
    print(json.dumps(row), flush=True)
"""
    asked = queue.SimpleQueue()

    def listener(event):
        client.ping()
        asked.put(event)
        raise ValueError("of the listener")

    holder = queue.SimpleQueue()
    with Client(python(code), on_event=lambda event: (holder.get(), listener(event))) as client:
        holder.put(client)
        assert asked.get(timeout=20) == Unknown("mood", {"type": "mood"})
        client.ping()


def test_a_child_that_ignores_the_end_of_its_input_is_ended(monkeypatch):
    monkeypatch.setattr("zot.client.STOP_SECONDS", 0.3)
    code = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(60)"
    client = Client(python('print(\'{"type":"mood"}\', flush=True)\n' + code))
    time.sleep(0)
    assert client.close() in (-signal.SIGKILL, -signal.SIGTERM)


def threads():
    """All but those of the model's server, which end when they have noticed that nobody listens."""
    return {thread for thread in threading.enumerate() if not thread.name.startswith("fake-")}


def test_close_ends_a_run_and_leaves_no_thread(command):
    before = threads()
    client = Client(command)
    client.prompt("text:2 hang:2")
    assert client.close() == 128 + signal.SIGTERM
    assert client.close() == 128 + signal.SIGTERM
    assert threads() - before == set()
    with pytest.raises(ClosedError):
        client.ping()


def test_stderr_is_kept_for_diagnosis():
    code = "import sys\nsys.stderr.write('x' * 200000 + 'the end')\nsys.stdin.read()"
    client = Client(python(code))
    client.close()
    assert client.stderr.endswith("the end")
    assert len(client.stderr) <= 64 * 1024


def test_an_approval_is_asked_for_and_given(command):
    with Client([*command, "--approve", "bash"], features=["approvals"]) as client:
        results = []
        for event in client.prompt("tool:bash:echo ran\ntool:bash:echo denied\nthen\nsay:ok"):
            if isinstance(event, events.ApprovalRequest):
                asked = str(event.args)
                client.approve(event.request_id, "deny" if "denied" in asked else "allow")
            elif isinstance(event, events.ToolResult):
                results.append(event.is_error)
    assert results == [False, True]


# --- durable runs ----------------------------------------------------------------------------


def test_a_durable_run_is_taken_up_by_its_name_and_what_was_missed_is_read(command, tmp_path):
    gate, later = tmp_path / "gate", tmp_path / "later"
    os.mkfifo(gate)
    os.mkfifo(later)
    durable = [*command, "--session", str(tmp_path / "s.jsonl"), "--durable"]
    text = "tool:bash:cat gate\nthen\ntool:bash:cat later\nthen\nsay:the end"
    with Client(durable, features=["seq"]) as first:
        run = first.prompt(text, run="job")
        next(run)
        with gate.open("w"):
            os.kill(first.pid, signal.SIGKILL)
            with pytest.raises(ServerGoneError):
                list(run)
    with Client(durable, features=["seq"]) as second:
        with later.open("w"):  # it goes on by itself, and waits here
            run = second.prompt(text, run="job")
        assert (run.resumed, run.end) == (True, None)
        assert list(run)[-1] == events.Done("job")
        again = second.prompt(text, run="job")
        assert list(again) == []
        assert again.end is not None
        assert again.end.text == "the end"
        kinds = [frame["type"] for frame in second.events().events]
        assert (kinds[0], kinds[-1]) == ("user_message", "done")
        assert kinds.count("run_resumed") == 1
        with pytest.raises(CommandError, match="is held"):
            second.resume_run("job")
