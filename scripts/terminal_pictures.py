"""Makes the pictures of docs/terminal.md: the real program in a pty, the emulator's cells as SVG.

    .venv/bin/python scripts/terminal_pictures.py --write [SCENE ...]

Needs node and npm, as the tests of the terminal do.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests")]

from support.npm import unpacked  # noqa: E402
from support.picture import svg  # noqa: E402
from support.terminal import XTERM, AtTerminal, Emulator, environment, zot  # noqa: E402

from zot.swarm.local import LocalSwarm  # noqa: E402

TARGET = Path(os.environ.get("PICTURES") or ROOT / "docs" / "pictures")
ANSWER = """The budget is **1 ms** from a key to its echo. Three things keep it:

- settled lines are *never* drawn again
- only the changed part of a line is written
- no timer runs while nothing happens

| part | file | lines |
| --- | --- | --- |
| keys | `tui/keys.py` | 230 |
| the screen | `tui/screen.py` | 150 |

```python
def frame(self, settled: Sequence[Line], live: Sequence[Line]) -> str:
    \"\"\"What brings the terminal up to date; empty when nothing changed.\"\"\"
    lines = [*settled, *live]
    return "".join(self._changes(lines))  # one write
```
"""
CODE = "def greet(name):\n    print('Hello ' + name)\n\n\ngreet('you')\n"


def call(name: str, **args: object) -> dict[str, object]:
    return {"tools": [{"name": name, "args": args}]}


EDIT = call(
    "edit",
    path="greet.py",
    edits=[{"oldText": "    print('Hello ' + name)", "newText": "    print(f'Hello {name}!')"}],
)
Scene = Callable[[AtTerminal], None]


def answer(program: AtTerminal) -> None:
    program.until("one write")
    program.pump(0.5)


def question(program: AtTerminal) -> None:
    program.until("May zot use edit?")
    program.pump(0.3)


def tools(program: AtTerminal) -> None:
    program.until("It greets with")
    program.pump(0.5)


def pager(program: AtTerminal) -> None:
    program.until("It greets with")
    program.type("\x0f")
    program.until("turn 1 of 1")
    program.pump(0.3)


def swarm(program: AtTerminal) -> None:
    program.until("scripted")
    commit = "git -c user.name=t -c user.email=t@t commit -qm first"
    program.type(f"!!git init -q -b main && git add -A && {commit} && git status -sb\r")
    program.until("## main")
    for task in ("say which tests are slow", "write the changelog", "make the greeting livelier"):
        program.type(f"/swarm new {task}\r")
        program.until(f"{task.split()[0]}-")
    program.type("/swarm\r")
    program.until(lambda shown: "2 need you" in shown.text and "1 done" in shown.text)
    program.type("j")
    program.until("print(f'Hello {name}!')")
    program.pump(0.5)


def welcome(program: AtTerminal) -> None:
    program.until("It needs a model")
    program.pump(0.3)


def aside(program: AtTerminal) -> None:
    program.until("It greets with")
    program.type("/btw what does the f before a string mean?\r")
    program.until("It fills in")
    program.until(lambda shown: "answering" not in shown.text)


def commands(program: AtTerminal) -> None:
    program.until("scripted")
    program.type("/se")
    program.until("/settings")
    program.pump(0.3)


LAST = {"text": "It greets with an exclamation mark now; `python greet.py` says so."}
TOOLS = [{"thinking": "Read it first.", **call("read", path="greet.py")}, EDIT]
TOOLS += [call("bash", command="python3 greet.py; seq 1 40"), LAST]
ASIDE = {
    "match": "what does the f",
    "text": "It fills in what stands in braces: `f'{1 + 1}'` is `'2'`.",
}
SWARM: list[dict[str, object]] = [
    {"match": "slow", "text": "Two of them: `test_walk` and `test_storm`."},
    {"match": "changelog", **call("bash", command="git log --oneline | head -20")},
    {"match": "livelier", "thinking": "Read it first.", **call("read", path="greet.py")},
    {"match": "livelier", "text": "A greeting may be **livelier**: one line does it.", **EDIT},
]
SCENES: dict[str, tuple[list[dict[str, object]], tuple[str, ...], Scene]] = {
    "answer": ([{"text": ANSWER}], ("how is the screen so quick?",), answer),
    "question": (TOOLS, ("make the greeting livelier",), question),
    "tools": (TOOLS, ("make the greeting livelier", "--yolo"), tools),
    "swarm": (SWARM, (), swarm),
    "pager": (TOOLS, ("make the greeting livelier", "--yolo"), pager),
    "aside": ([ASIDE, *TOOLS], ("make the greeting livelier", "--yolo"), aside),
    "commands": ([LAST], (), commands),
    "welcome": ([], (), welcome),
}


def picture(emulator: Emulator, folder: Path, name: str) -> str:
    """The scene as the emulator shows it."""
    turns, words, scene = SCENES[name]
    home = folder / name
    work = home / "greeting"
    work.mkdir(parents=True)
    (work / "greet.py").write_text(CODE)
    script = home / "script.json"
    script.write_text(json.dumps({"turns": turns}))
    command = zot("--provider", "scripted", "--script", str(script), "--no-ext", *words)
    if name == "welcome":
        command = zot()  # an empty machine
    environ = environment(home, COLORTERM="truecolor")
    program = AtTerminal(emulator, command, environ, work, (92, 34))
    program.background = b"\x1b]11;rgb:15/18/1d\x1b\\"
    try:
        scene(program)
        return svg(program.pump(0.1, cells=True).cells)
    finally:
        program.close()
        LocalSwarm(home / "zot", environment(home)).stop()


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        package = unpacked(XTERM, folder) / "lib-headless" / "xterm-headless.js"
        emulator = Emulator(package)
        try:
            wanted = [word for word in sys.argv[1:] if word in SCENES] or list(SCENES)
            for scene in wanted:
                drawn = picture(emulator, folder, scene)
                if "--write" in sys.argv:
                    TARGET.mkdir(exist_ok=True)
                    (TARGET / f"terminal-{scene}.svg").write_text(drawn, encoding="utf-8")
        finally:
            emulator.close()
    if "--png" in sys.argv and (chromium := shutil.which("chromium")):
        for path in TARGET.glob("terminal-*.svg"):
            subprocess.run(
                [chromium, "--headless", "--no-sandbox", "--window-size=820,680",
                 f"--screenshot={path.with_suffix('.png')}", path.as_uri()],
                check=True, stderr=subprocess.DEVNULL,
            )  # fmt: skip


if __name__ == "__main__":
    main()
