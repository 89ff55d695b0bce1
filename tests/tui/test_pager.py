from zot.tui.blocks import NoteBlock, ToolBlock, UserBlock
from zot.tui.cells import plain
from zot.tui.keys import KeyPress
from zot.tui.markdown import MarkdownBlock
from zot.tui.pager import Pager


def sections(turns=50):
    made = []
    for number in range(turns):
        tool = ToolBlock("bash")
        tool.set_args({"command": f"run {number}"})
        tool.finish(
            "\n".join(f"out-{number}-{row}" for row in range(30)), failed=False, seconds=1.0
        )
        made += [UserBlock(f"question {number}"), MarkdownBlock(f"answer **{number}**"), tool]
    return made


class Reader:
    def __init__(self, blocks, **more):
        self.left = []
        self.copied = []
        self.pager = Pager(
            blocks,
            lambda block: isinstance(block, UserBlock),
            leave=lambda: self.left.append(True),
            copy=self.copied.append,
            **more,
        )

    def type(self, *names):
        for name in names:
            self.pager.key(KeyPress("text", name) if len(name) == 1 else KeyPress(name))

    def look(self):
        return self.rows

    @property
    def rows(self):
        drawn = self.pager.draw(60, 20)
        assert len(drawn.lines) == 20
        return [plain(line) for line in drawn.lines]


def test_it_begins_at_the_end_and_scrolls_to_the_beginning():
    reader = Reader(sections())
    assert "out-49-29" in reader.rows[-2]
    reader.type("g")
    assert "question 0" in reader.rows[1]
    assert "turn 1 of 50" in reader.rows[-1]
    reader.type("up", "pageup")
    assert "question 0" in reader.rows[1]
    reader.type("G")
    assert "out-49-29" in reader.rows[-2]


def test_every_row_is_seen_once_when_one_pages_through():
    reader = Reader(sections(5), folded=False)
    reader.type("g")
    seen = []
    for _ in range(200):
        rows = reader.rows
        if seen[-1:] == [rows[0]] and rows[-2] and "out-4-29" in rows[-2]:
            break
        seen.append(rows[0])
        reader.type("j")
    seen += rows[1:-1]
    found = [row.strip() for row in seen if row.strip().startswith("out-")]
    assert found == [f"out-{turn}-{row}" for turn in range(5) for row in range(30)]


def test_it_goes_from_turn_to_turn():
    reader = Reader(sections())
    reader.type("g")
    reader.look()
    reader.type("]", "]")
    assert "question 2" in reader.rows[1]
    reader.type("[")
    assert "question 1" in reader.rows[1]


def test_a_search_finds_what_is_folded_and_says_when_there_is_no_more():
    reader = Reader(sections())
    reader.type("g", "/", *"out-7-15", "enter")
    assert "out-7-15" in reader.rows[0]
    reader.type("n")
    assert "no more of 'out-7-15'" in reader.rows[-1]
    reader.type("/", *"QUESTION 3", "enter")
    reader.look()
    reader.type("N")
    assert "question 3" in reader.rows[0]
    reader.type("/", "x", "esc")
    assert "turn" in reader.rows[-1]


def test_a_long_output_is_folded_until_one_asks_for_it():
    reader = Reader(sections(1))
    assert not any("out-0-15" in row for row in reader.rows)
    reader.type("o", "g", "pagedown")
    assert any("out-0-15" in row for row in reader.rows)


def test_a_section_is_copied_as_it_was_written():
    reader = Reader([UserBlock("question"), MarkdownBlock("answer **bold**")], at=1)
    reader.look()
    reader.type("c")
    assert reader.copied == ["answer **bold**"]
    reader.type("q")
    assert reader.left == [True]


def test_an_empty_transcript_and_a_short_one():
    assert "turn 0 of 0" in Reader([]).rows[-1]
    reader = Reader([NoteBlock("only this")])
    assert "only this" in reader.rows[1]
    reader.type("down", "up", "]", "[", "n", "c")
    assert "only this" in reader.rows[1]


def test_the_length_of_the_transcript_costs_nothing():
    class Counted(UserBlock):
        drawn = 0

        def lines(self, width, *, folded=True):
            Counted.drawn += 1
            return super().lines(width, folded=folded)

    reader = Reader([Counted(f"question {number}") for number in range(10_000)])
    reader.look()
    reader.type("up", "pageup")
    reader.look()
    assert Counted.drawn < 100
