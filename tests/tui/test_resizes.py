"""The live area in a terminal that treats its rows as tmux does, whose window changes at random."""

from hypothesis import given, settings
from hypothesis import strategies as st
from support.grid import TmuxGrid

from zot.tui.screen import LiveScreen
from zot.tui.theme import Theme

MARGIN = 6
SIZES = st.tuples(st.integers(40, 120), st.integers(18, 40))
# Lines settle in each step: what tmux pushes up from near the top of its screen is out of reach.
STEPS = st.lists(
    st.tuples(st.integers(8, 12), st.integers(0, 2), st.one_of(st.none(), SIZES)),
    min_size=1,
    max_size=25,
)


def foot(columns):
    return [(), (("", "> prompt"),), (("", "status".ljust(columns - 4) + "here"),)]


@settings(max_examples=200, deadline=None)
@given(STEPS)
def test_one_prompt_one_status_line_and_each_settled_line_once(steps):
    columns, rows = 100, 30
    grid, screen = TmuxGrid(columns, rows), LiveScreen(Theme(colour=False))
    settled = []
    grid.write(screen.frame([()] * MARGIN, foot(columns), 1, 3))
    for index, (count, height, size) in enumerate(steps):
        if size is not None:
            columns, rows = size
            grid.resize(columns, rows)
            grid.write(screen.resized(columns, "all"))
        new = [f"settled-{index}-{number}" for number in range(count)]
        settled += new
        live = [(("", f"live {number} ".ljust(columns, ".")),) for number in range(height)]
        lines = [*live, *foot(columns)]
        grid.write(screen.frame([(("", text),) for text in new], lines, len(lines) - 2, 3))
    shown = grid.text()
    assert sum(line.startswith("> prompt") for line in shown) == 1, shown
    assert sum(line.startswith("status") for line in shown) == 1, shown
    assert [line for line in shown if line.startswith("settled")] == settled
    assert sum(line.startswith("live") for line in shown) == steps[-1][1]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(60, 120), st.integers(18, 40)), min_size=1, max_size=12))
def test_at_the_top_of_the_screen_nothing_is_left_behind(sizes):
    grid, screen = TmuxGrid(100, 30), LiveScreen(Theme(colour=False))
    grid.write(screen.frame([], foot(100), 1, 3))
    for columns, rows in sizes:
        grid.resize(columns, rows)
        grid.write(screen.resized(columns, "all"))
        grid.write(screen.frame([], foot(columns), 1, 3))
        shown = grid.text()
        assert [line[:6] for line in shown] == ["> prom", "status"], shown


def test_the_model_keeps_a_screen_that_is_erased_at_once_as_tmux_does():
    grid = TmuxGrid(20, 5)
    grid.write("one\r\ntwo\x1b[1A\r\x1b[J")
    assert grid.text() == ["one", "two"]
