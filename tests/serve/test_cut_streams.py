"""A stream that is cut is asked for anew: every position, over every API, and what clients see."""

import json
import shutil
import ssl
import subprocess

import pytest
from support.provider import BY_API
from support.rpc import CANARIES, Zot, run_zot, texts, types

from zot.testing.fakeserver import FakeServer

pytestmark = pytest.mark.long

TEXT = "abcd " * 6
# Where the first attempt breaks, and whether the client had seen something of it by then.
POSITIONS = {
    "before the head": ("cut:0", False),
    "in the head": ("cut:head", False),
    "reset before the head": ("reset:0", False),
    "in the text": ("cut:3", True),
    "reset in the text": ("reset:3", True),
    "before the stop": ("cut:99", True),
    "ended without a stop": ("nostop", True),
    "ended without a stop and a length": ("nostop close", True),
    "an error in the stream": ("error", True),
    "503": ("status:503", False),
}


def flags_for(api, url):
    return ["--provider", BY_API[api], "--base-url", url, "--max-steps", "4"]


def keys():
    return dict.fromkeys(("GEMINI_API_KEY", "GOOGLE_API_KEY", "OPENAI_API_KEY"), CANARIES[0])


def messages_of(frames):
    """The text of each assistant_start, in order."""
    said = []
    for frame in frames:
        if frame["type"] == "assistant_start":
            said.append("")
        elif frame["type"] == "text_delta":
            said[-1] += frame["delta"]
    return said


@pytest.fixture
def server():
    with FakeServer() as made:
        yield made


@pytest.mark.parametrize("api", BY_API)
@pytest.mark.parametrize("features", [[], ["retries", "codes"]], ids=["plain", "retries"])
def test_a_cut_text_comes_whole_in_a_message_of_its_own(tmp_path, server, api, features):
    flags = flags_for(api, server.url)
    with Zot(tmp_path, args=flags, env=keys(), features=features) as zot:
        for name, (fault, is_seen) in POSITIONS.items():
            frames = zot.prompt(f"{fault} tries:1 text:6\n{name}")
            said = messages_of(frames)
            assert said[-1] == TEXT, name
            assert TEXT.startswith(said[0]), name
            assert "error" not in types(frames), name
            kept = [frame for frame in frames if frame["type"] == "assistant_message"]
            assert [frame["content"][0]["text"] for frame in kept] == [TEXT], name
            ends = [frame["stop"] for frame in frames if frame["type"] == "turn_end"]
            assert ends[-1] == "end", name
            if is_seen:
                assert ends == ["length", "end"], name
            retries = [frame for frame in frames if frame["type"] == "retry"]
            # A kept connection that is gone is opened anew without a word.
            assert len(retries) == bool(features) or (not retries and fault.endswith(":0")), name
            for retry in retries:
                assert (retry["attempt"], retry["max_attempts"]) == (1, 10)
                assert retry["code"] in ("network", "overloaded", "bad_response")
                assert retry.get("dropped", False) == (len(ends) == 2), name
        roles = [message["role"] for message in zot.data("get_messages")["messages"]]
        assert roles == ["user", "assistant"] * len(POSITIONS)
        zot.invariants()


CALLS = {
    "in the arguments": "cut:1",
    "behind the call": "cut:99",
    "ended without a stop": "nostop",
    "reset behind the call": "reset:99",
}


@pytest.mark.parametrize("api", BY_API)
def test_a_tool_of_a_cut_answer_runs_once(tmp_path, server, api):
    with Zot(tmp_path, args=flags_for(api, server.url), env=keys()) as zot:
        for number, fault in enumerate(CALLS.values()):
            script = f"{fault} tries:1 tool:bash:echo ran >> {number}\nthen\nsay:after"
            frames = zot.prompt(script)
            assert messages_of(frames)[-1] == "after"
            assert types(frames).count("tool_call") == types(frames).count("tool_result") == 1
            assert (zot.cwd / str(number)).read_text() == "ran\n"
        zot.invariants()


@pytest.mark.parametrize("api", BY_API)
def test_thinking_before_a_cut_is_dropped(tmp_path, server, api):
    features = ["thinking", "retries"]
    with Zot(tmp_path, args=flags_for(api, server.url), env=keys(), features=features) as zot:
        frames = zot.prompt("think:4 cut:2 tries:1 text:2")
        assert messages_of(frames)[-1] == "abcd abcd "
        at = [frame.get("dropped", False) for frame in frames if frame["type"] == "retry"]
        assert len(at) == 1
        zot.invariants()


def test_a_cut_in_tls_is_retried(tmp_path):
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make a certificate with")
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-keyout", "key.pem", "-out", "cert.pem", "-days", "2"]
    command += ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    env = {"SSL_CERT_FILE": str(tmp_path / "cert.pem")}
    with (
        FakeServer(tls=context) as server,
        Zot(tmp_path, args=flags_for("anthropic", server.url), env=env) as zot,
    ):
        for fault in ("cut:0", "cut:3", "reset:3", "cut:99"):
            frames = zot.prompt(f"{fault} tries:1 text:6\n{fault}")
            assert messages_of(frames)[-1] == TEXT, fault
        zot.invariants()


def test_a_server_that_comes_back_is_heard(tmp_path, server):
    """A refused connection: nobody listens for a while."""
    with FakeServer() as gone:
        port = gone.port
    flags = flags_for("anthropic", f"http://127.0.0.1:{port}")
    with Zot(tmp_path, args=flags, features=["retries", "codes"]) as zot:
        zot.send("prompt", message="text:6")
        retry = zot.until("retry")[-1]
        assert (retry["code"], retry.get("dropped", False)) == ("network", False)
        with FakeServer(port=port):
            frames = zot.until("done")
        assert texts(frames) == TEXT


def test_usage_of_a_cut_attempt_is_counted(tmp_path, server):
    with Zot(tmp_path, args=flags_for("anthropic", server.url)) as zot:
        frames = zot.prompt("cut:3 tries:1 text:6 usage:100,5")
        counted = [frame["input"] for frame in frames if frame["type"] == "usage"]
        assert counted == [100, 100]
        assert zot.data("get_state")["usage"]["input"] == 200


def test_a_limit_ends_the_retries(tmp_path, server):
    flags = [*flags_for("anthropic", server.url), "--max-tokens", "20000"]
    with Zot(tmp_path, args=flags, features=["retries", "codes"]) as zot:
        frames = zot.prompt("cut:3 text:6 usage:9000,5")
        assert frames[-2]["code"] == "limit"
        assert types(frames).count("retry") < 4
        zot.invariants()


def test_an_abort_in_the_pause_behind_a_cut_leaves_no_half_answer(tmp_path, server):
    with Zot(tmp_path, args=flags_for("anthropic", server.url), features=["retries"]) as zot:
        zot.send("prompt", message="cut:3 text:6")
        zot.until("retry")
        zot.send("abort")
        ends = [frame["stop"] for frame in zot.until("done") if frame["type"] == "turn_end"]
        assert ends == ["length", "aborted"]
        roles = [message["role"] for message in zot.data("get_messages")["messages"]]
        assert roles == ["user"]
        assert texts(zot.prompt("say:fine")) == "fine"
        zot.invariants()


def test_when_all_tries_are_used_up_the_last_answer_is_kept_as_far_as_it_came(tmp_path, server):
    flags = [*flags_for("anthropic", server.url), "--max-tries", "2"]
    with Zot(tmp_path, args=flags, features=["retries", "codes"]) as zot:
        frames = zot.prompt("cut:3 text:6")
        assert types(frames)[-3:] == ["turn_end", "error", "done"]
        assert frames[-2]["code"] == "network"
        assert messages_of(frames) == ["abcd abcd abcd "] * 2
        said = zot.data("get_messages")["messages"]
        assert [block["text"] for block in said[-1]["content"]] == ["abcd abcd abcd "]
        zot.invariants()


def test_max_tries_1_never_asks_again(tmp_path, server):
    flags = [*flags_for("anthropic", server.url), "--max-tries", "1"]
    with Zot(tmp_path, args=flags, features=["retries", "codes"]) as zot:
        frames = zot.prompt("status:503 text:6")
        assert frames[-2]["code"] == "overloaded"
        assert len(server.requests) == 1


@pytest.mark.parametrize("mode", ["-p", "--json"])
def test_one_shot_modes_get_over_a_cut(tmp_path, server, mode):
    flags = [*flags_for("anthropic", server.url), mode, "cut:3 tries:1 text:6"]
    done = run_zot(tmp_path, flags)
    assert done.returncode == 0, done.stderr
    out = done.stdout.decode()
    if mode == "-p":
        assert out.strip() == TEXT.strip()
        assert b"trying again" in done.stderr
    else:
        frames = [json.loads(line) for line in out.splitlines()]
        assert messages_of(frames) == ["abcd " * 3, TEXT]


def test_a_compaction_gets_over_a_cut(tmp_path, server):
    with Zot(tmp_path, args=flags_for("anthropic", server.url)) as zot:
        for text in ("cut:2 tries:1 text:4 usage:50,2", "one", "two", "three"):
            zot.prompt(text)  # the first is in the text to summarise, so it is played again
        zot.send("compact")
        frames = zot.until("done")
        (done,) = [frame for frame in frames if frame["type"] == "compact_done"]
        assert done["summary"] == "abcd abcd abcd abcd"
        (usage,) = [frame for frame in frames if frame["type"] == "usage"]
        assert usage["input"] == 100
        zot.invariants()


def test_a_durable_run_gets_over_a_cut_and_its_effect_is_not_doubled(tmp_path, server):
    session = str(tmp_path / "s.jsonl")
    flags = [*flags_for("anthropic", server.url), "--session", session, "--durable"]
    script = "cut:99 tries:1 tool:bash:echo ran >> effects\nthen\ncut:1 tries:1 say:all is done"
    with Zot(tmp_path, args=flags) as zot:
        zot.send("prompt", message=script, run="job")
        frames = zot.until("done")
        assert messages_of(frames)[-1] == "all is done"
        zot.invariants()
    with Zot(tmp_path, args=flags) as zot:
        again = zot.data("prompt", message=script, run="job")
        assert again["already_done"]
        assert again["end"]["text"] == "all is done"
        assert (zot.cwd / "effects").read_text() == "ran\n"


def test_the_time_of_a_prompt_ends_a_pause(tmp_path, server):
    flags = [*flags_for("anthropic", server.url), "--max-seconds", "1"]
    with Zot(tmp_path, args=flags, features=["codes"]) as zot:
        frames = zot.prompt("status:503 retry-after:40")
        assert frames[-2]["code"] == "limit"
        zot.invariants()
