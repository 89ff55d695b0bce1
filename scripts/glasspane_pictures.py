"""Make the pictures of docs/glasspane.md: a real page in a real browser, with logs that tell of an
afternoon's work. Needs Chromium: .venv/bin/python scripts/glasspane_pictures.py
"""

from __future__ import annotations

import base64
import json
import os
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]

from glasspane.support import Pane  # noqa: E402
from support.browser import Browser  # noqa: E402

import zot.swarm.log  # noqa: E402
from zot.swarm.log import AgentFolder, LogWriter  # noqa: E402
from zot.swarm.task import (  # noqa: E402
    AgentStarted,
    AnySwarmRow,
    Claimed,
    Exited,
    Merged,
    RunOver,
    RunsOn,
    Sized,
    SwarmTask,
    TreeMade,
)
from zot.swarm.worktrees import DiffSize, Worktree  # noqa: E402

OUT = ROOT / "docs" / "pictures"
TURN = {"type": "turn_start", "step": 1}
DONE = {"type": "done"}


def usage(cost: float, cached: int = 120_000) -> dict[str, Any]:
    sums = {"input": 31_000, "output": 2_900, "cache_read": cached, "cost_usd": cost}
    return {"type": "usage", **sums, "cumulative": sums}


def text(said: str) -> list[dict[str, Any]]:
    return [{"type": "assistant_start"}, {"type": "text_delta", "delta": said}]


def call(id: str, name: str, **args: object) -> list[dict[str, Any]]:
    return [
        {"type": "tool_use_start", "id": id, "name": name},
        {"type": "assistant_message", "content": []},
        {"type": "tool_call", "id": id, "name": name, "args": args},
        {"type": "turn_end", "stop": "tool_use"},
        {"type": "tool_start", "id": id, "name": name},
    ]


def result(id: str, said: str, *, failed: bool = False) -> dict[str, Any]:
    content = [{"type": "text", "text": said}]
    return {"type": "tool_result", "id": id, "is_error": failed, "content": content}


EDIT = """\
net/retry.py
-    return 2 ** n + random()
+    return 2 ** n"""
FIX: list[Any] = [
    {
        "type": "user_message",
        "content": [{"type": "text", "text": "Fix the flaky test in tests/net"}],
    },
    TURN,
    {"type": "thinking_delta", "delta": "The test sleeps a fixed time. Look at the clock first."},
    *text("I will run the test first, then look at `wait`.\n"),
    *call("a", "bash", command="pytest tests/net/test_retry.py -x"),
    {"type": "tool_progress", "id": "a", "text": "F\n"},
    result("a", "1 failed in 0.42 s\n\n    assert attempts == 2\nE   assert 3 == 2", failed=True),
    usage(0.12),
    TURN,
    *text(
        "## What is wrong\n\nThe pause has *jitter*, and the test counts on **none**:\n\n"
        "```python\ndef wait(n: int) -> float:\n    return 2 ** n + random()\n```\n\n"
        "| attempt | expected | measured |\n| --- | --- | --- |\n| 1 | 1.0 s | 1.9 s |\n"
        "| 2 | 2.0 s | 2.3 s |\n"
    ),
    *call("b", "edit", path="net/retry.py", old_text="2 ** n + random()", new_text="2 ** n"),
    {
        "type": "approval_request",
        "request_id": "q1",
        "id": "b",
        "name": "edit",
        "args": {},
        "preview": EDIT,
        "timeout_ms": 300_000,
    },
    usage(0.31),
]
AGENTS: dict[str, tuple[str, list[Any]]] = {
    "fix-flaky-test-1a2b3c": ("Fix the flaky test in tests/net", FIX),
    "dark-mode-77aa01": (
        "Add a dark mode to the settings page",
        [
            Claimed(1, "build-3-4711-9f3c1a"),
            TURN,
            *call("a", "bash", command="npm test"),
            usage(0.92, 61_000),
        ],
    ),
    "docs-of-the-api-9f8e7d": (
        "Write docs of the public API",
        [TURN, *text("hm"), usage(0.05, 4_000)],
    ),
    "upgrade-deps-551122": (
        "Upgrade all dependencies and fix what breaks",
        [
            TURN,
            DONE,
            RunOver("upgrade-deps-551122-1", "failed", "anthropic: http 529: overloaded"),
            Exited(0),
        ],
    ),
    "slow-query-0c0c0c": (
        "Find the slow query of the orders page and add an index",
        [
            TURN,
            usage(1.2),
            DONE,
            RunOver("slow-query-0c0c0c-1", "answered"),
            Sized(DiffSize(3, 41, 7)),
            Exited(0),
        ],
    ),
    "rename-module-abc123": (
        "Rename the module billing to invoices",
        [
            TURN,
            usage(0.7),
            DONE,
            RunOver("rename-module-abc123-1", "answered"),
            Sized(DiffSize(58, 310, 310)),
            Exited(0),
            Merged("abcdef123456"),
        ],
    ),
    "translate-444444": ("Translate the checkout to French", []),
}


PROJECTS = {"docs-of-the-api-9f8e7d": "/home/you/payments", "slow-query-0c0c0c": "/home/you/orders"}


class PastClock:
    """Rows that are written now tell of the last minutes."""

    def __init__(self, rows: int) -> None:
        self._now = time.time() - 8 - 6.5 * rows

    def time(self) -> float:
        self._now += 6.5
        return self._now


def write_logs(home: Path) -> None:
    for id, (prompt, rows) in AGENTS.items():
        folder = AgentFolder(home / "swarm" / "agents" / id)
        folder.create(SwarmTask(id, prompt, PROJECTS.get(id, "/home/you/shop"), time.time() - 700))
        log = LogWriter(folder.log)
        zot.swarm.log.time = PastClock(len(rows) + 3 + 2 * len(prompt) % 40)  # type: ignore[assignment]
        tree = Worktree("worktree", "tree", "/home/you/shop", branch=f"zot/{id}", base="abc")
        runs_on = RunsOn("claude-sonnet-5-5", 200_000)
        begun: list[AnySwarmRow | dict[str, Any]] = [TreeMade(tree), AgentStarted(1, 1), runs_on]
        for row in [*(begun if rows else []), *rows]:
            if isinstance(row, dict):
                log.frame(json.dumps(row).encode())
            else:
                log.row(row)
        log.close()


def take(browser: Browser, name: str, *, dark: bool, width: int = 1200, height: int = 760) -> None:
    theme = "dark" if dark else "light"
    browser.call(
        "Emulation.setDeviceMetricsOverride",
        width=width,
        height=height,
        deviceScaleFactor=1,
        mobile=False,
    )
    browser.call(
        "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}]
    )
    time.sleep(0.5)
    data = browser.call("Page.captureScreenshot", format="png")["data"]
    (OUT / f"glasspane-{name}-{theme}.png").write_bytes(base64.b64decode(data))


def main() -> None:
    OUT.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        write_logs(home)
        # The logs are of agents that work: a socket that answers is all the page asks for.
        (home / "swarm").mkdir(exist_ok=True)
        environment = {**os.environ, "ZOT_HOME": folder}
        with (
            _a_supervisor(home / "swarm" / "socket"),
            closing(Pane(environment, folder)) as pane,
            closing(Browser(home / "chromium")) as browser,
        ):
            browser.open(pane.url)
            browser.wait_for("document.querySelectorAll('.row').length === 7")
            for dark in (False, True):
                take(browser, "board", dark=dark)
            take(browser, "phone", dark=True, width=390)
            browser.run("location.hash = '#/agent/fix-flaky-test-1a2b3c'")
            browser.wait_for("document.querySelectorAll('.entry').length > 4")
            for dark in (False, True):
                take(browser, "agent", dark=dark, height=1000)
            take(browser, "agent-phone", dark=False, width=390)
            browser.run("document.querySelector('[data-tab=timeline]').click()")
            take(browser, "timeline", dark=False, height=640)


class _a_supervisor:
    def __init__(self, path: Path) -> None:
        import socket

        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(path))
        self._socket.listen(100)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self._socket.close()


if __name__ == "__main__":
    main()
