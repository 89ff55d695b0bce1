"""Show the path of a prompt: every file and function of zot that a warm prompt of one delta passes.

    python scripts/prompt_path.py [--functions]

Starts `zot rpc` beside a fake provider, sends some prompts and counts the shortest warm one, in all
threads: from its line on stdin to its `done` on stdout. On a slow machine another may be longer:
sources of tools look at the disk again every quarter of a second.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from zot.testing.fakeserver import FakeServer

TRACED = """
import json, sys, threading
from pathlib import Path
from zot.__main__ import main
calls = []
def count(frame, event, argument):
    code = frame.f_code
    if event == "call" and "/zot/" in code.co_filename and code.co_name[0] != "<":
        calls.append((code.co_filename, code.co_qualname))
url, report = sys.argv[1:]
sys.argv = ["zot", "rpc", "--provider", "anthropic", "--api-key", "k", "--base-url", url]
threading.setprofile(count)
sys.setprofile(count)
try:
    main()
finally:
    sys.setprofile(None)
    threading.setprofile(None)
    Path(report).write_text(json.dumps(calls))
"""
PROMPTS = 8
COLD = 2
"""Prompts that load and connect what later ones find ready."""


class Step(NamedTuple):
    file: str
    function: str


def path_of_a_prompt() -> list[Step]:
    """Return every call of a function of zot from one warm prompt to the next, in order."""
    with tempfile.TemporaryDirectory() as folder, FakeServer() as server:
        report = Path(folder) / "calls.json"
        with subprocess.Popen(
            [sys.executable, "-c", TRACED, server.url, str(report)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=folder,
            env={"ZOT_HOME": folder, "PATH": "/usr/bin:/bin"},
        ) as process:
            for _ in range(PROMPTS):
                _prompt(process)
        calls = json.loads(report.read_text())
    steps = [Step(_name(file), function) for file, function in calls]
    return _warm_prompt(steps)


def _prompt(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None and process.stdout is not None
    line = json.dumps({"id": "1", "type": "prompt", "message": "text:1"})
    process.stdin.write(f"{line}\n".encode())
    process.stdin.flush()
    for frame in process.stdout:
        if json.loads(frame)["type"] == "done":
            return
    raise SystemExit("zot ended before the prompt did")


def _name(file: str) -> str:
    return file.rpartition("/zot/")[2]


def _warm_prompt(steps: list[Step]) -> list[Step]:
    """Cut out the shortest warm prompt: a prompt begins with the decoding of its line."""
    decoded = [i for i, step in enumerate(steps) if step == Step("wire/zot.py", "decode")]
    assert len(decoded) == PROMPTS, "the function that decodes a line has another name now"
    prompts = [steps[start:end] for start, end in pairwise(decoded[COLD:])]
    return min(prompts, key=lambda prompt: len(set(prompt)))


def main() -> None:
    steps = path_of_a_prompt()
    files = Counter(step.file for step in steps)
    functions = Counter(steps)
    for file in dict.fromkeys(step.file for step in steps):
        names = dict.fromkeys(step.function for step in steps if step.file == file)
        print(f"{files[file]:4} {file}")
        if "--functions" in sys.argv:
            for name in names:
                print(f"     {functions[Step(file, name)]:4} {name}")
    print(f"{len(steps)} calls, {len(functions)} functions, {len(files)} files")


if __name__ == "__main__":
    main()
