import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zot.glasspane.feed import encode_event, next_batch
from zot.glasspane.guard import SESSION, Guard, names_of
from zot.swarm.log import LogWriter, start_of_last
from zot.swarm.web import Refusal

FRAMES = st.one_of(
    st.builds(lambda text: {"type": "text_delta", "delta": text}, st.text(max_size=5)),
    st.builds(lambda text: {"type": "thinking_delta", "delta": text}, st.text(max_size=5)),
    st.builds(
        lambda id, text: {"type": "tool_progress", "id": id, "text": text},
        st.sampled_from(["a", "b"]),
        st.text(max_size=5),
    ),
    st.sampled_from([{"type": "turn_start"}, {"type": "done"}, {"type": "nobody knows"}]),
    st.just({"type": "swarm_started", "attempt": 1, "pid": 7}),
)


def write(path, frames):
    log = LogWriter(path)
    for frame in frames:
        log.frame(json.dumps(frame).encode())
    log.close()


def texts(items):
    """What is said, by whom, whatever the pieces."""
    said = {}
    for item in items:
        key = (item.kind, getattr(item.data, "id", ""))
        if hasattr(item.data, "text"):
            said[key] = said.get(key, "") + item.data.text
    return said


@given(st.lists(FRAMES, max_size=30), st.data())
def test_a_reader_that_comes_back_misses_nothing_and_hears_nothing_twice(
    tmp_path_factory, frames, data
):
    path = tmp_path_factory.mktemp("log") / "events.jsonl"
    cut = data.draw(st.integers(0, len(frames)))
    write(path, frames[:cut])
    first = next_batch(path, 0)
    write(path, frames[cut:])
    second = next_batch(path, first.position)
    whole = next_batch(path, 0)
    assert texts([*first.items, *second.items]) == texts(whole.items)
    assert second.position == whole.position
    assert not next_batch(path, whole.position).items


def test_a_flood_of_pieces_becomes_one_and_what_differs_stays_apart(tmp_path):
    path = tmp_path / "events.jsonl"
    said = [{"type": "tool_progress", "id": id, "text": "x"} for id in ("a", "a", "b")]
    write(path, [{"type": "text_delta", "delta": "y"}] * 100 + said)
    batch = next_batch(path, 0)
    assert [(item.kind, item.data.text) for item in batch.items] == [
        ("TextAdded", "y" * 100),
        ("ToolSaid", "xx"),
        ("ToolSaid", "x"),
    ]


def test_a_long_log_comes_in_batches_and_can_be_begun_near_its_end(tmp_path, monkeypatch):
    path = tmp_path / "events.jsonl"
    write(path, [{"type": "user_message", "content": [{"type": "text", "text": "x" * 90}]}] * 50)
    monkeypatch.setattr("zot.glasspane.feed.BATCH_BYTES", 1000)
    position, count = 0, 0
    while True:
        batch = next_batch(path, position)
        position, count = batch.position, count + len(batch.items)
        if not batch.more:
            break
    assert count == 50
    start = start_of_last(path, 1000)
    assert 0 < path.stat().st_size - start <= 1000
    assert next_batch(path, start).items
    assert start_of_last(path, 10**9) == 0
    assert start_of_last(tmp_path / "none", 10) == 0


@given(st.text(), st.text(max_size=5))
def test_an_event_is_one_event_whatever_the_text(text, name):
    event = encode_event("facts", {"text": text, "name": name}, "7").decode()
    lines = event.split("\n")
    assert lines[:2] == ["id: 7", "event: facts"]
    assert json.loads(lines[2].removeprefix("data: ")) == {"text": text, "name": name}
    assert lines[3:] == ["", ""]


# --- the guard ---------------------------------------------------------------------------------

HOSTS = names_of("127.0.0.1", 7747)


def guard():
    return Guard(HOSTS)


@pytest.mark.parametrize("host", ["127.0.0.1:7747", "localhost:7747", "LOCALHOST:7747"])
def test_the_page_answers_to_its_own_names(host):
    guard().check_host({"host": host})


@pytest.mark.parametrize("host", ["", "evil.example:7747", "127.0.0.1", "127.0.0.1:80"])
def test_a_strangers_name_that_points_here_is_refused(host):
    with pytest.raises(Refusal, match="not called"):
        guard().check_host({"host": host})


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"x-zot": "0"},
        {"x-zot": "1", "origin": "http://evil.example"},
        {"x-zot": "1", "origin": "null"},
        {"x-zot": "1", "origin": "http://127.0.0.1:7748"},
    ],
)
def test_only_our_own_page_may_change_something(headers):
    with pytest.raises(Refusal):
        guard().check_origin(headers)


def test_our_own_page_and_programs_without_an_origin_may():
    guard().check_origin({"x-zot": "1", "origin": "http://127.0.0.1:7747"})
    guard().check_origin({"x-zot": "1"})


@pytest.mark.parametrize(
    ("have", "want", "allowed"),
    [
        ("see", "see", True),
        ("see", "answer", False),
        ("answer", "answer", True),
        ("answer", "drive", False),
        ("drive", "see", True),
        ("drive", "drive", True),
    ],
)
def test_a_role_may_what_those_below_it_may(have, want, allowed):
    at_door = guard()
    session, _ = at_door.log_in(at_door.new_code(have), "click")
    headers = {SESSION: session}
    if allowed:
        at_door.need(headers, want)
    else:
        with pytest.raises(Refusal, match=f"may {have}, not {want}"):
            at_door.need(headers, want)


@pytest.mark.parametrize("shown", ["", "wrong", "d" * 43, "\0=;=,", "é"])
def test_without_a_session_nothing_is_seen(shown):
    at_door = guard()
    at_door.log_in(at_door.new_token("drive"), "")
    with pytest.raises(Refusal, match="no session: open a new link"):
        at_door.need({SESSION: shown}, "see")


def test_codes_tokens_and_sessions_are_long_and_each_another():
    at_door = guard()
    token = at_door.new_token("see")
    sessions = [at_door.log_in(token, "")[0] for _ in range(2)]
    made = {token, at_door.new_code("see"), at_door.new_code("see"), *sessions}
    assert len(made) == 5
    assert all(len(word) >= 43 for word in made)


def test_further_names_and_six_are_known():
    assert "zot.example:1" in names_of("0.0.0.0", 1, ("zot.example",))
    assert "[::1]:1" in names_of("::1", 1)
