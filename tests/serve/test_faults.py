"""Every fault of a model server, over every API: one done each, and a transcript that goes on."""

import json

import pytest
from support.patience import patience
from support.provider import BY_API
from support.rpc import CANARIES, Zot, run_zot, texts, types

from zot.testing.fakeserver import FakeServer
from zot.testing.rules import problems

pytestmark = pytest.mark.long

# What the server is told to do, the stop of the last turn, and the code of the error.
FAULTS = {
    "400": ("status:400", "error", "invalid_request"),
    "401": ("status:401", "error", "auth"),
    "403": ("status:403", "error", "auth"),
    "404": ("status:404", "error", "invalid_request"),
    "413": ("status:413", "error", "too_large"),
    "the key in the error": ("status:400 echo-key", "error", "invalid_request"),
    "the prompt does not fit": ("status:400 overflow", "error", "too_large"),
    "a long pause asked for": ("status:429 retry-after:900", "error", "rate_limited"),
    "429 once": ("status:429:1 retry-after:0 text:2", "end", None),
    "529 once": ("status:529:1 text:2", "end", None),
    "cut in the text": ("text:20 cut:5", "error", "network"),
    "reset in the text": ("text:20 reset:5", "error", "network"),
    "cut in a call": ("tool:bash:touch never-run\ncut:1", "error", "network"),
    "no end": ("text:5 nostop", "error", "bad_response"),
    "error in the stream": ("text:10 error", "error", "overloaded"),
    "garbage": ("text:10 garbage", "error", "bad_response"),
    "html": ("html", "error", "bad_response"),
    "nothing": ("blank", "error", "bad_response"),
    "a document": ("json", "error", "bad_response"),
    "not http": ("junk", "error", None),
    "compressed": ("gzip", "error", "bad_response"),
    "redirect": ("redirect:URL", "error", "invalid_request"),
    "silence in the stream": ("text:20 hang:5", "error", "idle"),
    "refusal": ("refuse text:3", "error", "refused"),
    "length": ("text:5 stop:length", None, None),
    "an empty answer": ("empty", "end", None),
    "no token counts": ("text:3 nousage", "end", None),
    "one byte at a time": ("text:5 unicode chop:1", "end", None),
    "half a character": ("surrogate", "end", None),
    "keep-alives and crlf": ("text:20 pings crlf", "end", None),
    "a megabyte in one delta": ("big:1000000", "end", None),
    "bad arguments": ("badargs", "end", None),
    "wrong arguments": ('tool:bash:{"command": 7, "x": []}', "end", None),
    "unknown tool": ("tool:no_such_tool:x", "end", None),
    "no ids": ("tools:2 toolid:empty", "end", None),
    "long ids": ("tools:2 toolid:long", "end", None),
    "ids with line feeds": ("tools:2 toolid:lf", "end", None),
    "one id for all": ("tools:3 toolid:same", "end", None),
    "calls without an index": ("tools:2 noindex", "end", None),
    "whole calls": ("tools:2 whole", "end", None),
    "many calls": ("tools:6", "end", None),
    "the same call again and again": ("loop", None, "limit"),
}


@pytest.fixture(scope="module")
def servers():
    """For each API a server and a process that talks to it, all at work at the same time."""
    made = {}
    try:
        yield made
    finally:
        for server, zot in made.values():
            zot.kill()
            server.close()


def process_for(api, folder, server, **options):
    keys = dict.fromkeys(("GEMINI_API_KEY", "GOOGLE_API_KEY", "OPENAI_API_KEY"), CANARIES[0])
    flags = ["--provider", BY_API[api], "--base-url", server.url, "--no-auto-compact"]
    # One fault waits for it; a busy machine may well make a server silent for a second.
    flags += ["--idle-timeout", str(patience(8)), "--max-steps", "4", "--max-tries", "2"]
    return Zot(folder, args=flags, env=keys, features=["codes", "retries"], **options)


@pytest.fixture(scope="module")
def played(tmp_path_factory, servers):
    """Every fault queued at every API at once; each is followed by a prompt that must work."""
    elsewhere = FakeServer()
    for api in BY_API:
        server = FakeServer()
        zot = process_for(api, tmp_path_factory.mktemp(api), server)
        servers[api] = server, zot
        for name, (script, _, _) in FAULTS.items():
            zot.send("prompt", message=script.replace("URL", elsewhere.url), id=f"fault {name}")
            zot.send("prompt", message="say:fine", id=f"after {name}")
    runs = {}
    for api, (_, zot) in servers.items():
        zot.wait(lambda zot=zot: zot.done_count() == 2 * len(FAULTS), "every done", patience(90))
        runs[api] = by_prompt(zot)
    yield runs
    assert elsewhere.requests == []
    elsewhere.close()


def by_prompt(zot):
    """The events of each run, in the order they were queued."""
    runs, current = [], []
    for frame in zot.events():
        current.append(frame)
        if frame["type"] == "done":
            runs.append(current)
            current = []
    names = [f"{kind} {name}" for name in FAULTS for kind in ("fault", "after")]
    return dict(zip(names, runs, strict=True))


@pytest.mark.parametrize("api", BY_API)
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_ends_in_one_done_and_the_next_prompt_works(played, api, name):
    _, stop, code = FAULTS[name]
    if (api, name) == ("google", "bad arguments"):
        stop = "error"  # this API carries arguments as an object, and says when it has none
    frames = played[api][f"fault {name}"]
    ends = [frame for frame in frames if frame["type"] == "turn_end"]
    assert types(frames).count("done") == 1
    assert types(frames).count("turn_start") == len(ends)
    if stop is not None:
        assert ends[-1]["stop"] == stop, frames[-3:]
    errors = [frame for frame in frames if frame["type"] == "error"]
    assert bool(errors) == (stop == "error" or code is not None)
    if code is not None:
        assert errors[-1]["code"] == code, errors[-1]
    assert texts(played[api][f"after {name}"]) == "fine"


@pytest.mark.parametrize("api", BY_API)
def test_what_was_said_before_a_cut_is_kept(played, api):
    for name in ("cut in the text", "silence in the stream", "error in the stream"):
        frames = played[api][f"fault {name}"]
        kept = [frame for frame in frames if frame["type"] == "assistant_message"]
        last = max(at for at, kind in enumerate(types(frames)) if kind == "turn_start")
        assert len(kept) == 1
        assert kept[-1]["content"] == [{"type": "text", "text": texts(frames[last:])}]


@pytest.mark.parametrize("api", BY_API)
def test_a_cut_call_never_runs(played, api, servers):
    frames = played[api]["fault cut in a call"]
    assert "tool_call" not in types(frames)
    assert not (servers[api][1].cwd / "never-run").exists()


@pytest.mark.parametrize("api", BY_API)
def test_retries_are_told_and_bounded(played, api):
    frames = played[api]["fault 429 once"]
    assert types(frames).count("retry") == 1
    assert "retry" not in types(played[api]["fault 400"])
    assert types(played[api]["fault cut in the text"]).count("retry") == 1
    assert "retry" not in types(played[api]["fault garbage"])


@pytest.mark.parametrize("api", BY_API)
def test_every_request_is_one_that_a_strict_server_takes(played, api, servers):
    server, _ = servers[api]
    for seen in server.requests:
        if seen.dialect is not None:
            assert problems(seen.dialect, seen.body) == []


@pytest.mark.parametrize("api", BY_API)
def test_everything_else_still_holds(played, api, servers):
    _, zot = servers[api]
    zot.invariants()
    assert zot.close()[0] == 0


# --- abort -------------------------------------------------------------------------------------

MOMENTS = {
    "before the head": ("hang", None),
    "after the head": ("hang:headers", None),
    "in the stream": ("text:20 hang:5", "text_delta"),
    "in a slow stream": ("text:500 delay:20", "text_delta"),
    "in a stream of bytes": ("text:5000 chop:1", "text_delta"),
    "in the arguments of a call": ("tool:bash:echo hello\nhang:1", "tool_use_start"),
    "in a tool": ("tool:bash:sleep 30", "turn_end"),
    "between calls": ("tools:5:sleep 0.05", "tool_result"),
    "in a retry pause": ("status:503 retry-after:30", "retry"),
    "in the second turn": ("tool:bash:true\nthen\ntext:20 hang:3", "text_delta"),
}


@pytest.mark.parametrize("api", BY_API)
def test_an_abort_at_any_moment_ends_the_run_and_the_next_one_works(tmp_path, api):
    with FakeServer() as server, process_for(api, tmp_path, server) as zot:
        for name, (script, moment) in MOMENTS.items():
            asked = len(server.requests)
            zot.send("prompt", message=script)
            if moment is None:
                server.wait_for(asked + 1)
            else:
                zot.until(moment)
            zot.send("abort")
            frames = zot.until("done")
            ends = [frame for frame in frames if frame["type"] == "turn_end"]
            assert ends[-1]["stop"] == "aborted", name
            assert "error" not in types(frames), name
            assert texts(zot.prompt("say:fine")) == "fine", name
        for seen in server.requests:
            assert problems(seen.dialect, seen.body) == []
        zot.invariants()


@pytest.mark.slow
def test_nobody_listening_is_a_network_error(tmp_path):
    with FakeServer() as server:
        pass
    with process_for("anthropic", tmp_path, server) as zot:
        frames = zot.prompt("x")
        assert types(frames).count("retry") == 1
        assert frames[-2]["code"] == "network"
        zot.invariants()


def test_an_overflow_is_compacted_and_the_prompt_goes_on(tmp_path):
    with FakeServer() as server:
        flags = ["--provider", "anthropic", "--base-url", server.url]
        with Zot(tmp_path, args=flags) as zot:
            for number in range(4):
                zot.prompt(f"say:answer {number}")
            frames = zot.prompt("status:400:1 overflow text:3")
            assert types(frames).count("done") == 1
            assert "compact_start" in types(frames)
            assert frames[types(frames).index("compact_start")]["reason"] == "overflow"
            assert types(frames)[-2] == "turn_end"
            assert frames[-2]["stop"] == "end"
            zot.invariants()


@pytest.mark.parametrize("fault", ["empty", "text:9 cut:5", "text:5 hang:5"])
@pytest.mark.slow
def test_a_compaction_that_fails_is_paid_for_too(tmp_path, fault):
    with FakeServer() as server, process_for("anthropic", tmp_path, server) as zot:
        for text in (fault, "one", "two", "three"):
            zot.prompt(text)  # the first is in what is to be summarised, so it is played again
        before = zot.data("get_state")["usage"]
        zot.send("compact")
        frames = zot.until("done")
        assert types(frames)[-4:] == ["compact_start", "usage", "error", "done"]
        assert frames[-3]["cumulative"] == zot.data("get_state")["usage"]
        assert frames[-3]["cumulative"]["input"] > before["input"]
        zot.invariants()


@pytest.mark.slow
def test_twelve_megabytes_in_one_delta_arrive_in_pieces(tmp_path):
    with FakeServer() as server, process_for("anthropic", tmp_path, server) as zot:
        frames = zot.prompt("big:12000000")
        assert len(texts(frames)) == 12_000_000
        assert max(len(frame.get("delta", "")) for frame in frames) < 1024 * 1024
        zot.invariants()


def spare_models(folder, url):
    folder = folder / "zot-home"
    folder.mkdir()
    spare = {"baseUrl": url, "api": "openai", "auth": "none", "models": [{"id": "m2"}]}
    (folder / "models.json").write_text(json.dumps({"providers": {"spare": spare}}))


def test_a_model_that_fails_is_replaced_by_one_of_another_provider(tmp_path):
    failing = [{"error": {"status": 400, "message": "no such model"}}]
    with FakeServer() as server:
        spare_models(tmp_path, server.url)
        ran = run_zot(
            tmp_path, ["--json", "--fallback-model", "spare/m2", "say:fine"], turns=failing
        )
    frames = [json.loads(line) for line in ran.stdout.splitlines()]
    assert ran.returncode == 0, ran.stderr
    (told,) = [frame for frame in frames if frame["type"] == "fallback"]
    assert told == {
        "type": "fallback",
        "failed_model": "scripted",
        "provider": "spare",
        "model": "m2",
        "reason": "scripted: http 400: no such model",
    }
    assert texts(frames) == "fine"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("scripted/scripted", b"no such model"),  # the same provider, which fails again
        ("groq/llama-3.3-70b-versatile", b"no credential for groq"),
    ],
)
def test_a_fallback_that_cannot_help_is_told(tmp_path, name, said):
    failing = [{"error": {"status": 400, "message": "no such model"}}]
    args = ["-p", "--fallback-model", name, "x"]
    ran = run_zot(tmp_path, args, turns=failing)
    assert ran.returncode == 1
    assert said in ran.stderr
    assert b"Traceback" not in ran.stderr
