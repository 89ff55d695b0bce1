import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.session import FullDisk, assistant, call, results, user

from zot.core.session import (
    SUMMARY_HEADING,
    Cleared,
    Compaction,
    Custom,
    Label,
    LevelChange,
    ModelChange,
    Replaced,
    ResultNote,
    Session,
    Title,
    UsageNote,
    new_session_id,
)
from zot.errors import SessionError
from zot.provider.types import Text, ToolResult, Usage


def texts(session):
    return [m.content[0].text if m.content else "" for m in session.messages()]


def test_messages_are_what_was_appended():
    session = Session()
    for text in "abc":
        session.append(user(text))
    assert texts(session) == ["a", "b", "c"]
    assert session.message_count() == 3
    assert [entry.body for entry in session.path()] == list(session.messages())
    assert len(session.entries) == 3


def test_other_entries_do_not_show_in_the_messages():
    session = Session()
    session.append(user("a"))
    for body in (
        ModelChange("p", "m"),
        LevelChange("low"),
        Title("t"),
        UsageNote(Usage(), Usage()),
        Label("x", None),
        Custom("new", {}),
    ):
        session.append(body)
    assert texts(session) == ["a"]


def test_clear_starts_afresh_and_keeps_the_past_in_the_tree():
    session = Session()
    session.append(user("a"))
    session.append(Cleared())
    session.append(user("b"))
    assert texts(session) == ["b"]
    assert len(session.path()) == 3


def test_a_compaction_keeps_from_the_entry_it_names():
    session = Session()
    session.append(user("a"))
    kept = session.append(user("b"))
    session.append(user("c"))
    session.append(Compaction("short", kept.id, 77))
    assert texts(session) == [SUMMARY_HEADING + "short", "b", "c"]
    assert session.messages()[0].extra == {"compaction": True, "tokens_before": 77}
    session.append(Compaction("shorter", None))
    assert texts(session) == [SUMMARY_HEADING + "shorter"]
    session.append(Compaction("odd", "no-such-entry"))
    assert texts(session) == [SUMMARY_HEADING + "odd", SUMMARY_HEADING + "shorter"]


def test_a_compaction_may_keep_from_an_entry_that_is_no_message():
    for marker in (ModelChange("p", "m"), Title("t"), UsageNote(Usage(), Usage())):
        session = Session()
        session.append(user("a"))
        named = session.append(marker)
        session.append(user("b"))
        session.append(Title("later"))
        session.append(user("c"))
        session.append(Compaction("short", named.id))
        assert texts(session) == [SUMMARY_HEADING + "short", "b", "c"]
        session.append(Compaction("again", named.id))
        assert texts(session) == [SUMMARY_HEADING + "again", "b", "c"]


def test_a_compaction_that_names_what_was_summarised_keeps_that_summary():
    session = Session()
    gone = session.append(user("a"))
    kept = session.append(user("b"))
    session.append(Compaction("short", kept.id))
    session.append(Compaction("again", gone.id))
    assert texts(session) == [SUMMARY_HEADING + "again", SUMMARY_HEADING + "short", "b"]


def test_the_title_is_the_last_that_was_given_on_any_branch():
    session = Session()
    first = session.append(user("a"))
    session.append(Title("named"))
    session.move(first.id)
    session.append(user("b"))
    assert session.title == "named"
    assert Session(entries=session.entries.values()).title == "named"


def test_replaced_messages_can_be_compacted_one_by_one():
    session = Session()
    session.append(Replaced((user("a"), user("b"), user("c"))))
    ids = [id for id, _ in session.context()]
    assert len(set(ids)) == 3
    session.append(Compaction("s", ids[2]))
    assert texts(session) == [SUMMARY_HEADING + "s", "c"]


def test_move_goes_on_from_another_entry():
    session = Session()
    first = session.append(user("a"))
    session.append(user("b"))
    left = session.leaf
    session.move(first.id)
    session.append(user("c"))
    assert texts(session) == ["a", "c"]
    assert [entry.body.content[0].text for entry in session.path(left)] == ["a", "b"]
    session.move(None)
    assert session.messages() == ()
    assert session.append(user("d")).parent is None
    with pytest.raises(KeyError):
        session.move("nowhere")
    assert texts(session) == ["d"]


def note(id):
    return ResultNote(ToolResult(id, (Text("noted"),)))


def test_noted_results_stand_in_for_their_message_until_it_comes():
    session = Session()
    session.append(assistant("x", call("1"), call("2")))
    session.append(note("1"))
    assert [m.role for m in session.messages()] == ["assistant", "tool"]
    assert session.message_count() == 2
    session.append(results("1", "2"))
    assert [m.role for m in session.messages()] == ["assistant", "tool"]
    assert len(session.messages()[1].content) == 2


@pytest.mark.parametrize("body", [user("next"), Compaction("s", None)])
def test_noted_results_stay_when_their_message_never_comes(body):
    session = Session()
    session.append(assistant("x", call("1"), call("2")))
    session.append(note("1"))
    session.append(body)
    live = session.messages()
    again = Session(entries=session.entries.values())
    assert again.messages() == live
    if isinstance(body, Compaction):
        assert len(live) == 1
    else:
        assert [m.role for m in live] == ["assistant", "tool", "user"]


def test_what_cannot_be_written_does_not_happen():
    session = Session(store=FullDisk(2))
    session.append(user("a"))
    with pytest.raises(SessionError):
        session.append(user("b"))
    assert texts(session) == ["a"]
    session.append(user("c"))
    assert texts(session) == ["a", "c"]
    session.sync()
    session.close()
    assert session.store is not None


def test_a_session_of_entries_goes_on_where_it_ended():
    session = Session()
    first = session.append(user("a"))
    session.append(user("b"))
    again = Session(id=session.id, entries=session.entries.values())
    assert (again.id, again.leaf) == (session.id, session.leaf)
    assert again.messages() == session.messages()
    branch = Session(entries=session.entries.values(), leaf=first.id)
    assert texts(branch) == ["a"]
    assert Session().messages() == ()
    Session().sync()
    Session().close()


bodies = st.one_of(
    st.sampled_from(["u1", "u2"]).map(user),
    st.just(assistant("x", call("1"), call("2"))),
    st.just(results("1", "2")),
    st.sampled_from([note("1"), note("2")]),
    st.just(Cleared()),
    st.just(Replaced((user("r1"), user("r2")))),
    st.integers(0, 5),
)


@given(st.lists(bodies, max_size=12))
def test_live_and_rebuilt_agree_whatever_was_appended(steps):
    session = Session()
    for step in steps:
        if isinstance(step, int):  # compact, keeping from that message on
            context = session.context()
            step = Compaction("s", context[step][0] if step < len(context) else None)
        session.append(step)
    live = session.context()
    assert tuple(session.context_at(session.leaf).with_ids()) == live
    assert Session(entries=session.entries.values()).context() == live
    assert session.message_count() == len(live)
    assert len({id for id, _ in live}) == len(live)


def test_session_ids_are_sorted_uuids_of_version_seven():
    ids = [new_session_id() for _ in range(50)]
    assert len(set(ids)) == 50
    assert all(id[14] == "7" and id[19] in "89ab" and len(id) == 36 for id in ids)
    assert [id[:8] for id in ids] == sorted(id[:8] for id in ids)
