import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from zot.tui import markdown
from zot.tui.cells import line_cells, plain
from zot.tui.markdown import MarkdownBlock

RICH = """# Title

A paragraph with **bold**, *italics*, `code`, ~~gone~~ and a [link](https://example.org/a?b=c).
Its second line.

- first item
- second item with `code`
  - nested one
  - nested two

    a paragraph inside

1. one
2. two
1. three

10. ten

> quoted text
> goes on
>
> - a list in it

| name | what it is | n |
| --- | :---: | ---: |
| alpha | the first of them, with a long description | 1 |
| 日本 | wide | 22 |

```python
def f(x: int) -> str:
    \"\"\"Doc
    string.\"\"\"
    return f"{x}"  # done
```

~~~
plain code
~~~

---

    indented code

<b>html</b>

Setext
======

The end. https://example.org
"""
PIECES = st.lists(
    st.sampled_from(
        ["#", "##", "*", "**", "_", "`", "```", "~~~", "\n", "\n\n", "|", "---", "- ", "1. ", "2) ",
         "> ", "[", "](", ")", "<", "&amp;", "\\", "!", "    ", "\t", "word", "日本",
         "e\u0301", "=", "\x1b[31m", "py", " ", "| a | b |\n", "| --- | --- |\n", "```python\n",
         "def f():\n"]
    ),
    max_size=30,
).map("".join)  # fmt: skip


def drawn(chunks, width, height=10):
    """The lines that settled, after drawing the rest between any two chunks."""
    block = MarkdownBlock()
    lines = []
    for chunk in chunks:
        block.add(chunk)
        lines += block.settle(width)
        live = block.live(width, height)
        assert len(live) <= height
        assert all(line_cells(line) <= width for line in live)
    block.close()
    lines += block.settle(width)
    assert block.live(width, height) == []
    return lines


def words(lines):
    return " ".join(plain(line) for line in lines).split()


@pytest.mark.untraced
@pytest.mark.parametrize(("width", "step"), [(4, 7), (30, 1), (90, 11)])
def test_every_beginning_of_a_text_can_be_drawn(width, step):
    for end in range(0, len(RICH), step):
        lines = MarkdownBlock(RICH[:end], closed=True).settle(width)
        assert all(line_cells(line) <= width for line in lines)


@pytest.mark.untraced
@settings(max_examples=100)
@given(PIECES, st.integers(4, 60), st.integers(1, 9))
def test_any_text_in_any_pieces_at_any_width(text, width, size):
    chunks = [text[start : start + size] for start in range(0, len(text), size)]
    lines = drawn(chunks, width)
    assert all(line_cells(line) <= width for line in lines)
    assert not any("\x1b" in plain(line) for line in lines)


@pytest.mark.untraced
@settings(max_examples=150, deadline=None)
@given(PIECES, st.integers(4, 60), st.integers(1, 9))
@example("```| a | b |\n---| --- | --- |\n", 4, 1)
@example("- ##word", 4, 1)
@example("> - word", 5, 1)
def test_no_word_is_lost_or_said_twice_however_it_streams(text, width, size):
    chunks = [text[start : start + size] for start in range(0, len(text), size)]
    whole = MarkdownBlock(text, closed=True).settle(200)
    streamed = drawn(chunks, 200)
    assert said(streamed) == said(whole)
    narrow = drawn(chunks, width)
    assert said(narrow).count("w") == said(whole).count("w")


def said(lines):
    """The letters, without the marks of lists and the room between."""
    return "".join(char for line in lines for char in plain(line) if char.isalpha())


@pytest.mark.parametrize("size", [1, 3, 7, 50, 5000])
def test_what_settles_while_it_streams_is_what_the_whole_looks_like(size):
    chunks = [RICH[start : start + size] for start in range(0, len(RICH), size)]
    assert words(drawn(chunks, 60)) == words(MarkdownBlock(RICH, closed=True).settle(60))


@pytest.mark.untraced
@pytest.mark.parametrize("size", [1, 4, 10_000])
def test_a_long_list_and_long_code_settle_line_by_line(size):
    text = "".join(f"{n}. item {n}\n" for n in range(1, 80))
    text += "\n```python\n" + "".join(f"x{n} = {n}\n" for n in range(200)) + "```\nend"
    lines = [
        plain(line) for line in drawn([text[i : i + size] for i in range(0, len(text), size)], 50)
    ]
    assert [line for line in lines if "item" in line] == [f"{n}. item {n}" for n in range(1, 80)]
    assert [line for line in lines if "=" in line] == [f"  x{n} = {n}" for n in range(200)]
    assert lines[-1] == "end"
    assert lines.count("") == 2


def test_the_live_part_stays_small_while_code_streams():
    block = MarkdownBlock()
    block.add("```python\n")
    for number in range(100):
        block.add(f"value = {number}\n")
        block.settle(80)
        assert len(block.live(80, 50)) <= 1


def test_a_string_of_many_lines_keeps_its_colour():
    block = MarkdownBlock('```python\nx = """one\ntwo\nthree"""\ny = 1\n```\n', closed=True)
    styles = {
        plain(line).strip(): {style for style, text in line if text.strip()}
        for line in block.settle(80)
    }
    assert styles["two"] == {"tok.string"}
    assert "tok.string" not in styles["y = 1"]


def test_emphasis_links_and_code_have_their_styles():
    lines = MarkdownBlock(RICH, closed=True).settle(200)
    spans = {text: style for line in lines for style, text in line}
    assert spans["bold"] == "bold"
    assert spans["italics"] == "italic"
    assert spans["code"] == "code"
    assert spans["link"] == "link href:https://example.org/a?b=c"
    assert spans["Title"] == "heading underline"


def test_a_link_that_is_no_address_is_none():
    lines = MarkdownBlock("[a](javascript:alert(1)) [b](https://x.y/\u202e)", closed=True).settle(
        80
    )
    assert not any("href" in style and "javascript" in style for line in lines for style, _ in line)


def test_a_table_fits_and_keeps_every_word():
    lines = [plain(line) for line in MarkdownBlock(RICH, closed=True).settle(34)]
    table = " ".join(line for line in lines)
    for word in ("alpha", "description", "22", "日本"):
        assert word in table


def test_a_pager_gets_all_of_it():
    assert words(MarkdownBlock(RICH).lines(60)) == words(
        MarkdownBlock(RICH, closed=True).settle(60)
    )


LANGUAGES = "python javascript bash html diff json rust yaml c go sql perl php nosuch console ruby"
CODE = """<div class='a'>
  if (x > 1) { /* c */ return "s"; } # y
'''open
- a: [1, 2]
+b
$ ls
<<EOF
x
EOF"""


@pytest.mark.parametrize("language", LANGUAGES.split())
def test_any_language_is_coloured_without_losing_a_letter(language):
    lines = MarkdownBlock(f"```{language}\n{CODE}\n```", closed=True).settle(200)
    assert [plain(line)[2:].rstrip() for line in lines] == CODE.split("\n")


@given(st.text(alphabet="ab é.,:-1)日 ", max_size=40))
def test_prose_that_streams_looks_as_it_will_when_it_is_settled(text):
    block = MarkdownBlock()
    block.add(text)
    live = block.live(20, 100)
    block.close()
    assert live == block.settle(20)


OPEN_BLOCKS = {"quote": "> a\n", "words": "**w** ", "brackets": "[a](", "table": "|a|b|\n"}


@pytest.mark.untraced
@pytest.mark.parametrize("pattern", OPEN_BLOCKS.values(), ids=OPEN_BLOCKS)
def test_the_work_for_a_word_does_not_grow_with_the_block_it_stands_in(pattern, monkeypatch):
    parsed = []

    class CountedDocument(markdown.Document):
        def __init__(self, source):
            parsed.append(len(source))
            super().__init__(source)

    monkeypatch.setattr(markdown, "Document", CountedDocument)
    draw_growing(pattern, 2_000)
    half = sum(parsed)
    draw_growing(pattern, 4_000)
    whole = sum(parsed) - half
    assert half > 0
    assert whole < 2.7 * half  # four times as many where everything is parsed again


def draw_growing(pattern, size):
    text = ("|a|b|\n|-|-|\n" * ("|" in pattern) + pattern * size)[:size]
    block = MarkdownBlock()
    for start in range(0, size, 160):
        block.add(text[start : start + 160])
        block.settle(80)
        block.live(80, 14)


@pytest.mark.untraced
def test_a_large_open_block_is_drawn_to_its_last_word():
    block = MarkdownBlock()
    for number in range(1_000, 1_200):
        block.add(f"**word** of a line with some more of them {number}\n")
        block.settle(60)
        live = block.live(60, 14)
        assert len(live) <= 14
        assert plain(live[-1]).endswith(str(number))
    block.add("\nThe *next* one.\n\nAnd")
    assert plain(block.settle(60)[-1]).endswith("1199")
    assert [plain(line) for line in block.live(60, 14)] == ["", "The next one.", "", "And"]
