"""How well the local models do as agents: python bench/local.py [MODEL...] [--held-out].

Needs the extra `local` and the models (`zot local pull`). Greedy decoding, one run;
the results go to stdout. bench/local.md keeps the numbers that were measured, and says how.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from local_requests import HELD_OUT, TASKS, TUNED, UNSEEN, Check, Task

from zot.cancel import Cancel
from zot.core.agent import IDENTITY
from zot.home import of_process
from zot.local.models import find_weights, known_models
from zot.local.provider import LocalProvider, find_local
from zot.local.server import LocalServer
from zot.provider.types import (
    Finished,
    Message,
    Model,
    Request,
    Started,
    Text,
    ToolCall,
    ToolSpec,
    UsageSeen,
)
from zot.runtime.task import TaskTool
from zot.tools.registry import SharedPlace, builtin_tools

STEP_LIMIT, TASK_SECONDS = 12, 240


def main(argv: list[str]) -> int:
    names = [word for word in argv if not word.startswith("-")]
    for name in names or [model.name for model in known_models()]:
        around = of_process()
        provider = LocalProvider(LocalServer(find_weights(name, around.home), around))
        try:
            measure(name, provider, held_out="--held-out" in argv, tasks="--no-tasks" not in argv)
        finally:
            provider.close()
    return 0


def measure(name: str, provider: LocalProvider, *, held_out: bool, tasks: bool) -> None:
    model = find_local(name, of_process().home)
    print(f"\n## {name}")
    others = {"held out": HELD_OUT, "unseen": UNSEEN}
    sets = {"tuned": TUNED, **(others if held_out else {})}
    for title, requests in sets.items():
        right, seconds = ask_all(provider, model, requests)
        print(f"{title}: {right}/{len(requests)}; first event, median {seconds:.2f} s")
    if tasks and shutil.which("bwrap") is None:
        print("tasks: not run; they need bwrap, or a model's commands would reach your files")
    elif tasks:
        passed = sum(run_task(name, task) for task in TASKS)
        print(f"tasks: {passed}/{len(TASKS)}")


def ask_all(
    provider: LocalProvider, model: Model, requests: tuple[tuple[str, Check], ...]
) -> tuple[int, float]:
    tools = (*builtin_tools(SharedPlace(str(Path.cwd()), {})), TaskTool)
    specs = tuple(ToolSpec(tool.name, tool.description, tool.schema) for tool in tools)
    right, firsts = 0, []
    for prompt, check in requests:
        request = Request(model, IDENTITY, (Message("user", (Text(prompt),), 0.0),), specs)
        began, first = time.monotonic(), 0.0
        for event in provider.stream(request, Cancel()):
            if not first and not isinstance(event, Started | UsageSeen):
                first = time.monotonic() - began
            if isinstance(event, Finished):
                good = judge(event, check)
                right += good
                print(f"{'ok ' if good else 'BAD'} {prompt[:50]:50} {shown(event)[:110]}")
        firsts.append(first)
    return right, sorted(firsts)[len(firsts) // 2]


def judge(event: Finished, check: Check) -> bool:
    calls = [block for block in event.content if isinstance(block, ToolCall)]
    text = "".join(block.text for block in event.content if isinstance(block, Text))
    return check(calls[0].name if calls else None, (calls[0].args or {}) if calls else {}, text)


def shown(event: Finished) -> str:
    parts = [
        json.dumps(block.args) if isinstance(block, ToolCall) else block.text
        for block in event.content
        if isinstance(block, ToolCall | Text)
    ]
    return " ".join(parts).replace("\n", "\\n")


def run_task(name: str, task: Task) -> bool:
    """Through the real program: `zot --json`, tools and all, in a directory of its own."""
    with tempfile.TemporaryDirectory() as folder:
        for file, content in task.files.items():
            (Path(folder) / file).write_text(content)
        command = jail(Path(folder))
        command += [sys.executable, "-m", "zot", "--json", "--provider", "local", "--model", name]
        command += ["--yolo", "--no-session", "--no-context-files", "--max-steps", str(STEP_LIMIT)]
        command += ["--cwd", folder, task.prompt]
        began = time.monotonic()
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=TASK_SECONDS,
                check=False,
            )
            out = done.stdout
        except subprocess.TimeoutExpired:
            out = ""
        calls, text = told(out)
        try:
            good = bool(text) and task.check(Path(folder), text, calls)
        except (OSError, subprocess.SubprocessError):
            good = False
        seconds = time.monotonic() - began
        last = text.replace("\n", "\\n")[:90]
        print(f"{'ok ' if good else 'BAD'} {task.prompt[:50]:50} {calls} {last!r} {seconds:.0f} s")
        return good


def jail(folder: Path) -> list[str]:
    """Everything read-only but the task's directory and the server's locks: models do damage."""
    command = ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-pid"]
    for path in (folder, Path(of_process().home, "local")):
        command += ["--bind", str(path), str(path)]
    return [*command, "--die-with-parent", "--"]


def told(out: str) -> tuple[list[str], str]:
    calls, text = [], ""
    for line in out.splitlines():
        frame = json.loads(line)
        if frame["type"] == "tool_call":
            calls.append(f"{frame['name']} {json.dumps(frame['args'])[:60]}")
        elif frame["type"] == "assistant_message":
            text = "".join(each.get("text", "") for each in frame["content"])
    return calls, text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
