"""A session is the same session in every format, whoever writes it."""

import tempfile
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.session import user

from tests.support.around import zot_home
from zot.core import session as core
from zot.core.session import Compaction, Entry, Session, Title
from zot.formats import format_named, formats
from zot.pi.messages import LEVEL_WORDS
from zot.provider.types import LEVELS, Message, Origin, Text, ToolCall, ToolResult, Usage
from zot.sessions import library
from zot.sessions.export import export, import_file
from zot.sessions.files import FileStore, Loaded, load
from zot.sessions.rows import Meta

NAMES = [format.name for format in formats()]
CALLS = Message(
    "assistant",
    (ToolCall("a", "read", {}), ToolCall("b", "read", {})),
    1.0,
    Origin("p", "m", "anthropic", "tool_use"),
)


def result(id: str) -> ToolResult:
    return ToolResult(id, (Text(f"out of {id}"),), False, "read")


RESULTS = Message("tool", (result("a"), result("b")), 2.0)
NOTES = (core.ResultNote(result("a")), core.ResultNote(result("b")))

steps = st.lists(
    st.one_of(
        st.sampled_from(["one", "two"]).map(lambda text: (user(text),)),
        st.sampled_from(
            [
                (CALLS, RESULTS),
                (CALLS, *NOTES),
                (CALLS, *NOTES, RESULTS),
                (CALLS, NOTES[0], RESULTS),
            ]
        ),
        st.sampled_from(["x", "y"]).map(lambda name: (core.ModelChange("p", name),)),
        st.sampled_from(LEVELS).map(lambda level: (core.LevelChange(level),)),
        st.sampled_from(["named", "better"]).map(lambda title: (Title(title),)),
        st.just((core.UsageNote(Usage(1), Usage(2)),)),
        st.just((core.Custom("mine", {"k": 1}),)),
        st.just((core.Cleared(),)),
        st.just((core.Replaced((user("r1"), CALLS, RESULTS, user("r2"))),)),
        st.tuples(st.just("compact"), st.integers(-2, 30)),
        st.tuples(st.just("move"), st.integers(0, 30)),
    ),
    max_size=14,
)


def play(session: Session, story) -> None:
    """Do what the steps say; it ends with words, so that the last entry is the leaf."""
    for step in [*story, (user("last"),)]:
        match step:
            case ("compact", at):
                ids = [None, "unknown", *(e.id for e in session.path())]
                ids += [id for id, _ in session.context()]
                session.append(Compaction("sum", ids[(at + 2) % len(ids)]))
            case ("move", at):
                said = [e.id for e in session.entries.values() if e.body.__class__ is Message]
                said = [id for id in said if session.entries[id].body.role == "user"]
                if said:
                    session.move(said[at % len(said)])
            case bodies:
                for body in bodies:
                    session.append(body)


def seen(meta: Meta, session: Session):
    """What the user would notice a change of."""
    bodies = [entry.body for entry in session.path()]
    models = [(body.provider, body.model) for body in bodies if isinstance(body, core.ModelChange)]
    levels = [body.level for body in bodies if isinstance(body, core.LevelChange)]
    return (
        [(message.role, message.content) for message in session.messages()],
        [(meta.provider, meta.model), *models][-1],
        ["off", *levels][-1],
        session.title or meta.title or "",
    )


def seen_in(path: str):
    loaded: Loaded = load(path)
    assert loaded.notes == ()
    return seen(loaded.meta, Session(entries=loaded.entries.values()))


@pytest.mark.parametrize("name", NAMES)
@given(story=steps, named=st.booleans())
@settings(max_examples=60)
def test_a_session_stays_the_same_wherever_it_goes(name, story, named):
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        title = {"title": "at first"} if named else {}
        meta = Meta("id-1", "/w", "m0", "p0", "2026-01-02T03:04:05Z", **title)
        path = str(place / "session.jsonl")
        store = FileStore.create(path, meta, format=name)
        session = Session(id="id-1", store=store)
        store.follow(session)
        play(session, story)
        before = seen(meta, session)
        session.close()
        assert seen_in(path) == before
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("ZOT_HOME", directory)
            forked = library.fork(path)
            assert load(forked).format == name
            assert seen_in(forked) == before
            for format in ("zotsession", "pi"):
                target = export(path, str(place / f"out.{format}"), format)
                assert seen_in(target) == before
                assert seen_in(import_file(target, "/w", zot_home())) == before


@pytest.mark.parametrize("name", NAMES)
def test_an_id_nobody_has_keeps_the_same_messages_in_store_and_library(name, tmp_path):
    path = str(tmp_path / "session.jsonl")
    store = FileStore.create(path, Meta("id-1"), format=name)
    session = Session(store=store)
    store.follow(session)
    play(session, [(user("a"),), (user("b"),), (Compaction("sum", "nobody"),)])
    session.close()
    assert len(session.messages()) == 4
    copy = library.fork(path)
    assert seen_in(path) == seen_in(copy) == seen(Meta(), session)
    rows = [line for line in Path(path).read_bytes().splitlines() if b'"compaction"' in line]
    copied = [line for line in Path(copy).read_bytes().splitlines() if b'"compaction"' in line]
    assert rows == copied


class Unread(Session):
    """A session that must not be asked for what came before."""

    def path(self, leaf=None):
        raise AssertionError("the whole branch was looked at")


@pytest.mark.parametrize("name", NAMES)
def test_an_entry_costs_the_same_however_long_the_session_is(name):
    session = Session()
    writer = format_named(name).writer(Meta("id-1"), None)
    unread = Unread()
    unread._entries = session._entries
    play(
        session,
        [
            (CALLS, *NOTES, RESULTS),
            (Title("t"), core.ModelChange("p", "m")),
            (core.Custom("k", {}),),
        ],
    )
    for entry in session.entries.values():
        writer.entry(entry, unread)
        writer.last = entry.id


@pytest.mark.parametrize("name", NAMES)
def test_a_head_that_could_not_be_written_is_written_again(name):
    writer = format_named(name).writer(Meta("id-1", model="m", title="t"), None)
    assert writer.head() == writer.head()


def test_a_result_that_could_not_be_noted_is_written_with_its_message():
    session = Session()
    writer = format_named("pi").writer(Meta("id-1"), None)
    session.append(CALLS)
    writer.entry(Entry("0000abcd", session.leaf, 1.0, NOTES[0]), session)  # the disk was full
    rows = writer.entry(session.append(RESULTS), session)
    assert rows.count(b"toolCallId") == 2


@pytest.mark.parametrize("name", NAMES)
def test_sessions_of_every_format_are_listed(name, tmp_path, monkeypatch):
    monkeypatch.setenv("ZOT_HOME", str(tmp_path))
    path = str(tmp_path / "sessions" / "x" / "session.jsonl")
    store = FileStore.create(path, Meta("id-1"), format=name)
    session = Session(store=store)
    store.follow(session)
    session.append(user("hello"))
    session.close()
    (summary,) = islice(library.summaries(None, zot_home()), 2)
    assert (summary.format, summary.first_text) == (name, "hello")


def test_every_level_has_a_word_in_pi_of_its_own():
    assert set(LEVEL_WORDS) == set(LEVELS)
    assert len(set(LEVEL_WORDS.values())) == len(LEVELS)
