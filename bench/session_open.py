"""How long it takes to open a session of many messages, and what it costs in memory.

Prints one JSON object: sizes in MB, times in seconds, minimum of the runs. The memory is that of
a fresh process, against the same messages built without a file.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from zot.core.session import Session
from zot.provider.types import Message, Origin, Text, ToolCall, ToolResult, Usage
from zot.sessions.files import load
from zot.sessions.open import open_session


def message(number: int) -> Message:
    body = f"message {number}: " + "lorem ipsum dolor sit amet " * 12
    match number % 3:
        case 0:
            return Message("user", (Text(body),), float(number))
        case 1:
            call = ToolCall(f"call_{number}", "bash", {"command": body})
            origin = Origin("anthropic", "model", "anthropic", "tool_use", Usage(10, 20))
            return Message("assistant", (Text(body), call), float(number), origin)
        case _:
            result = ToolResult(f"call_{number - 1}", (Text(body),), name="bash")
            return Message("tool", (result,), float(number))


def write(path: str, count: int) -> float:
    session = open_session(path, "/bench")
    started = time.perf_counter()
    for number in range(count):
        session.append(message(number))
    seconds = time.perf_counter() - started
    session.close()
    return seconds


def in_fresh_process(mode: str, path: str, count: int) -> dict[str, float]:
    command = [sys.executable, __file__, mode, path, str(count)]
    done = subprocess.run(command, capture_output=True, check=True, text=True)
    return json.loads(done.stdout)


def peak_mb() -> float:
    # Not ru_maxrss: a child inherits that of the process that started it.
    status = Path("/proc/self/status").read_text(encoding="ascii")
    line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def measure(mode: str, path: str, count: int) -> None:
    before = peak_mb()
    started = time.perf_counter()
    if mode == "open":
        loaded = load(path)
        session = Session(entries=loaded.entries.values())
    else:
        session = Session()
        for number in range(count):
            session.append(message(number))
    seconds = time.perf_counter() - started
    peak = peak_mb() - before
    assert session.message_count() == count
    print(json.dumps({"seconds": seconds, "peak_mb": peak}))


def main(count: int = 100_000, runs: int = 3) -> None:
    os.environ["ZOT_FSYNC"] = "off"
    with tempfile.TemporaryDirectory() as directory:
        path = str(Path(directory) / "session.jsonl")
        written = write(path, count)
        opened = [in_fresh_process("open", path, count) for _ in range(runs)]
        built = in_fresh_process("build", path, count)
        report = {
            "bench": "session_open",
            "messages": count,
            "file_mb": round(Path(path).stat().st_size / 1e6, 1),
            "append_us": round(written / count * 1e6, 1),
            "open_seconds": round(min(run["seconds"] for run in opened), 3),
            "open_peak_mb": round(min(run["peak_mb"] for run in opened), 1),
            "in_memory_peak_mb": round(built["peak_mb"], 1),
        }
    print(json.dumps(report))


if __name__ == "__main__":
    if len(sys.argv) == 4:
        measure(sys.argv[1], sys.argv[2], int(sys.argv[3]))
    else:
        main(*(int(argument) for argument in sys.argv[1:]))
