"""What may not be loaded when the editor is first seen: a budget, not a timing."""

import sys

from support.terminal import environment

FORBIDDEN = {
    *("asyncio", "ssl", "http", "socket", "logging", "dataclasses", "json", "pathlib"),
    *("subprocess", "hashlib", "wcwidth", "markdown_it", "pygments", "tempfile", "urllib"),
    *("zot.build", "zot.runtime.runtime", "zot.core.agent", "zot.core.events"),
    *("zot.serve.interactive.chat", "zot.serve.interactive.slash.table"),
}
HARNESS = """
import sys
from zot.__main__ import main
from zot.serve.interactive.loop import Loop
plain_draw = Loop.draw_now
path = sys.argv[1]
sys.argv = ["zot", "--provider", "anthropic", "--api-key", "k", "--no-ext"]
def draw(self, shown):
    Loop.draw_now = plain_draw
    plain_draw(self, shown)
    names = sorted(sys.modules)
    with open(path, "w") as file:
        file.write(" ".join(names))
Loop.draw_now = draw
main()
"""


def test_the_editor_waits_for_nothing_that_it_does_not_need(opened, tmp_path):
    loaded = tmp_path / "loaded"
    environ = {k: v for k, v in environment(tmp_path).items() if not k.startswith("COVERAGE")}
    program = opened([sys.executable, "-c", HARNESS, str(loaded)], environ, tmp_path)
    program.until("claude")
    assert set(loaded.read_text().split()) & FORBIDDEN == set()
