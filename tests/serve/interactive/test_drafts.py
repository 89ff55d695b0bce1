from zot.serve.interactive.drafts import MAX_HISTORY_BYTES, Draft, History


def test_texts_come_back_in_order_and_broken_lines_are_left_out(tmp_path):
    history = History(str(tmp_path), print)
    history.add("one\ntwo")
    history.add("  ")
    history.add("half \ud800 a pair")
    with (tmp_path / "history.jsonl").open("ab") as file:
        file.write(b'"torn\n{}\n')
    history.add("last")
    assert History(str(tmp_path), print).load() == ["one\ntwo", "half ? a pair", "last"]
    assert (tmp_path / "history.jsonl").stat().st_mode & 0o777 == 0o600


def test_a_long_history_is_shortened(tmp_path):
    history = History(str(tmp_path), print)
    for number in range(30):
        history.add(f"{number} " + "x" * (MAX_HISTORY_BYTES // 20))
    assert history.load()[-1].startswith("29 ")
    for number in range(600):
        history.add(f"short {number}")
    texts = History(str(tmp_path), print).load()
    assert len(texts) == 630
    assert texts[-1] == "short 599"


def test_where_nothing_can_be_written_nothing_fails(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    history, draft = History(str(blocked), print), Draft(str(blocked), "/work", print)
    history.add("text")
    draft.keep("text")
    draft.close("text")
    assert history.load() == []
    assert draft.recover() == ""


def test_a_draft_is_found_by_the_next_one_in_the_same_directory_only(tmp_path):
    first = Draft(str(tmp_path), "/work", print)
    first.keep("a long text")
    first.keep("text")
    assert Draft(str(tmp_path), "/work", print).recover() == ""
    first.close("text")
    assert Draft(str(tmp_path), "/elsewhere", print).recover() == ""
    assert Draft(str(tmp_path), "/work", print).recover() == "text"
    assert Draft(str(tmp_path), "/work", print).recover() == ""


def test_an_empty_draft_leaves_no_file(tmp_path):
    draft = Draft(str(tmp_path), "/work", print)
    draft.keep("")
    draft.keep("something")
    draft.close("")
    assert list((tmp_path / "drafts").iterdir()) == []


def test_a_line_that_was_cut_off_does_not_take_the_next_one_with_it(tmp_path):
    (tmp_path / "history.jsonl").write_bytes(b'"one"\n"torn')
    history = History(str(tmp_path), print)
    history.add("two")
    history.add("three")
    assert history.load() == ["one", "two", "three"]


def test_what_cannot_be_kept_is_told(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    problems = []
    History(str(blocked), problems.append).add("text")
    Draft(str(blocked), "/work", problems.append).keep("text")
    assert len(problems) == 2 and all(problems)


def test_a_draft_that_was_found_stays_on_disk_until_another_is_there(tmp_path):
    first = Draft(str(tmp_path), "/work", print)
    first.close("text")
    second = Draft(str(tmp_path), "/work", print)
    assert second.recover() == "text"
    assert [path.read_text() for path in (tmp_path / "drafts").iterdir()] == ["text"]
    second.close("other")
    assert [path.read_text() for path in (tmp_path / "drafts").iterdir()] == ["other"]
