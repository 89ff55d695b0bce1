import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from zot.tui.cells import clean, clip, line_cells, plain
from zot.tui.markdown import MarkdownBlock
from zot.tui.screen import LiveScreen
from zot.tui.theme import Theme

NO_WRAP = "\x1b[?7l"
STYLES = st.sampled_from(["", "bold", "code", "error dim", "link href:http://a.b/c"])
TEXTS = st.one_of(
    st.text(alphabet="abc xyz", max_size=30),
    st.lists(st.sampled_from(["日", "本", "é", "→", "e\u0301", "ö", " "]), max_size=12).map(
        "".join
    ),
)
LINES = st.lists(st.tuples(STYLES, TEXTS), max_size=3).map(tuple)
FEW = settings(
    max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)


def fitted(lines, width):
    return [clip([(style, clean(text)) for style, text in line], width) for line in lines]


def texts(lines):
    return [plain(line).rstrip() for line in lines]


@pytest.mark.untraced
@FEW
@given(
    st.integers(20, 60),
    st.lists(
        st.tuples(st.lists(LINES, max_size=6), st.lists(LINES, min_size=1, max_size=6)), max_size=8
    ),
)
def test_the_emulators_screen_is_the_frame_and_scrollback_is_what_settled(emulator, width, frames):
    rows = 10
    emulator.reset(width, rows)
    emulator.write(NO_WRAP)
    screen = LiveScreen(Theme())
    settled = []
    for final, live in frames:
        final, live = fitted(final, width), fitted(live, width)
        shown = emulator.write(screen.frame(final, live, len(live) - 1, 0))
        settled += texts(final)
        expected = [*settled, *texts(live)]
        while expected and not expected[-1]:
            expected.pop()
        everything = [line.rstrip() for line in shown.everything]
        while everything and not everything[-1]:
            everything.pop()
        assert everything == expected
        assert shown.cursor[1] == 0


@pytest.mark.untraced
@FEW
@given(st.lists(LINES, min_size=1, max_size=5), st.lists(LINES, min_size=1, max_size=5))
def test_a_frame_that_is_drawn_again_writes_nothing(first, second):
    screen = LiveScreen(Theme())
    screen.frame([], first, 0, 0)
    screen.frame([], second, 0, 0)
    assert screen.frame([], second, 0, 0) == ""


SIZES = st.tuples(st.integers(24, 70), st.integers(12, 24))


@pytest.mark.untraced
@FEW
@given(
    st.lists(
        st.tuples(st.integers(0, 4), st.integers(1, 5), st.one_of(st.none(), SIZES)),
        min_size=1,
        max_size=20,
    )
)
def test_scrollback_holds_each_settled_line_once_after_any_resizes(emulator, steps):
    columns, rows = 60, 20
    emulator.reset(columns, rows)
    emulator.write(NO_WRAP)
    screen = LiveScreen(Theme())
    settled: list[str] = []
    live = []
    for index, (count, height, size) in enumerate(steps):
        if size is not None:
            columns, rows = size
            emulator.resize(columns, rows)
            emulator.write(screen.resized(columns, "above"))
        final = [
            f"settled-{index}-{number}-".ljust(columns - 3, "=") + "|" for number in range(count)
        ]
        settled += final
        live = [f"live-{number}-{columns}".ljust(columns - number, ".") for number in range(height)]
        shown = emulator.write(
            screen.frame(
                [(("", text),) for text in final], [(("", text),) for text in live], height - 1, 3
            )
        )
    lines = [line for line in shown.whole_lines if line.strip()]
    assert [line for line in lines if line.startswith("settled")] == settled
    # A live area that was higher than the whole new screen leaves its top behind.
    assert [line for line in lines if line.startswith("live")][-len(live) :] == live


@pytest.mark.parametrize("text", ["plain", "with ünï", "❯ mark", "日本語"])
def test_text_that_grows_is_not_written_again_where_that_is_safe(text):
    screen = LiveScreen(Theme())
    screen.frame([], [(("bold", text),)], 0, 0)
    written = screen.frame([], [(("bold", text + "!"),)], 0, 0)
    assert (text in written) is (text == "日本語")
    assert "!" in written


def test_no_line_is_wider_than_the_room_it_was_cut_for():
    line = (("bold", "日本"), ("", "abc"))
    for width in range(9):
        assert line_cells(clip(line, width)) <= width
        assert line_cells(clip(line, width, "...")) <= max(width, 3)


@pytest.mark.untraced
@settings(
    max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(
    st.lists(
        st.sampled_from(["{}", "**{}**", "`{}`", "{}\n\n", "\n\n- {}", "\n\n# {}\n\n", "{}, "]),
        min_size=5,
        max_size=60,
    ),
    st.lists(st.tuples(st.integers(1, 40), st.one_of(st.none(), SIZES)), min_size=1, max_size=30),
)
def test_an_answer_that_streams_through_resizes_has_every_word_once_and_in_order(
    emulator, shapes, steps
):
    text = " ".join(shape.format(f"word{number}x") for number, shape in enumerate(shapes))
    columns, rows = 60, 20
    emulator.reset(columns, rows)
    emulator.write(NO_WRAP)
    screen, block = LiveScreen(Theme()), MarkdownBlock()
    place, foot = 0, [(), (("", "status"),)]

    def draw():
        final = block.settle(columns)
        live = [*block.live(columns, 8), *foot]
        return emulator.write(screen.frame(final, live, len(live) - 1, 0))

    for size, resize in steps:
        if resize is not None:
            columns, rows = resize
            emulator.resize(columns, rows)
            emulator.write(screen.resized(columns, "above"))
        block.add(text[place : place + size])
        place += size
        draw()
    block.add(text[place:])
    block.close()
    shown = draw()
    words = re.findall(r"word\d+x", "\n".join(shown.whole_lines))
    assert words == [f"word{number}x" for number in range(len(shapes))]
    assert sum("status" in line for line in shown.everything) == 1
