"""Small tools for the benchmarks: spawn a server, drive it, read its memory and CPU time."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

TICKS = os.sysconf("SC_CLK_TCK")


class Zot:
    """A spawned `zot rpc`, driven over its pipes."""

    def __init__(self, python: str, *args: str, env: dict[str, str] | None = None) -> None:
        self.started = time.perf_counter()
        zot = str(Path(python).with_name("zot"))
        self.process = subprocess.Popen(
            [zot, "rpc", *args],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **(env or {})},
        )
        self.bytes_out = 0

    def __enter__(self) -> Zot:
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(10)

    def send(self, **command: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(command).encode() + b"\n")
        self.process.stdin.flush()

    def lines(self) -> Iterator[bytes]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.bytes_out += len(line)
            yield line

    def until(self, word: bytes) -> bytes:
        """Read on to the first frame of this type; a byte search, to cost the client little."""
        needle = b'"type":"' + word + b'"'
        for line in self.lines():
            if needle in line:
                return line
        raise RuntimeError(f"zot ended before {word!r}")

    def prompt(self, message: str) -> None:
        """One prompt, to its end."""
        self.send(id="p", type="prompt", message=message)
        self.until(b"done")

    def cpu(self) -> float:
        """CPU seconds of the process and of the children it has waited for."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def start_cpu(self) -> float:
        """The same to the nanosecond, but without threads that have ended: for the start."""
        total = 0
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            try:
                total += int((task / "schedstat").read_text().split()[0])
            except OSError:
                continue  # the thread ended while we looked
        return total / 1e9

    def rss_mb(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1024


def best(measure: Callable[[], float], runs: int) -> float:
    """The smallest of many: what the work costs when the machine does nothing else."""
    return min(measure() for _ in range(runs))
