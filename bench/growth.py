"""How costs grow: with the turns of a conversation, with runtimes in one process, with the output
of a tool, with the files of a directory. Writes growth.md and growth.svg.

    .venv/bin/python bench/growth.py
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

from measure import PAGE, Program
from run import FakeServer, Provider

from zot.sdk import Runtime

ROOT = Path(__file__).parent.parent
TURNS = (10, 100, 1_000, 5_000)
RUNTIMES = (1, 10, 100, 300)
OUTPUTS = (1, 10, 50)
FILES = (2_000, 20_000, 200_000)
Curve = list[tuple[float, float]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="without the largest of each")
    last = -1 if parser.parse_args().quick else None
    curves: dict[str, Curve] = {}
    with tempfile.TemporaryDirectory() as name, FakeServer(sys.executable) as url:
        folder = Path(name)
        command = [str(Path(sys.executable).with_name("zot")), "--compact-at", "0"]
        zot = Program("zot", command, url, folder)
        # First: what others leave behind of this process's memory would be used again.
        runtimes = with_runtimes(folder, RUNTIMES[:last])
        curves |= with_turns(zot, Provider(url), TURNS[:last])
        curves |= runtimes
        curves |= with_output(zot, OUTPUTS[:last])
        curves |= with_files(zot, FILES[:last])
    (ROOT / "bench" / "growth.svg").write_text(picture(curves), encoding="utf-8")
    (ROOT / "bench" / "growth.md").write_text(page(curves), encoding="utf-8")
    print(page(curves))


def with_turns(zot: Program, provider: Provider, counts: Sequence[int]) -> dict[str, Curve]:
    """Conversations of so many turns; each figure is the middle of seven prompts, without what the
    fake provider took to read the request."""
    curves: dict[str, Curve] = {
        name: [] for name in ("first delta, ms, by turns", "CPU, ms, by turns", "MB, by turns")
    }
    delta, cpu, memory = curves.values()
    for count in counts:
        with zot.warm() as server:
            server.ask(type="set_messages", messages=conversation(count))
            server.prompt("text:4 size:50")  # the first one makes what the others keep
            before, firsts = server.cpu(), []
            for _ in range(7):
                provider.spent()
                first, _ = server.prompt("text:4 size:50")
                firsts.append(first - provider.spent()[0])
            delta.append((count, sorted(firsts)[3] * 1e3))
            cpu.append((count, (server.cpu() - before) / 7 * 1e3))
            memory.append((count, server.memory()))
    return curves


def conversation(turns: int) -> list[dict[str, object]]:
    """So many questions and answers."""
    text = [{"type": "text", "text": "word " * 8}]
    return [{"role": role, "content": text} for role in ("user", "assistant") * turns]


def with_runtimes(folder: Path, counts: Sequence[int]) -> dict[str, Curve]:
    """Runtimes of one process that have each answered a prompt."""
    script = folder / "script.json"
    script.write_text('{"turns": [{"text": "ok"}, {"text": "ok"}]}')
    memory: Curve = []
    threads: Curve = []
    runtimes: list[Runtime] = []

    def one_more() -> Runtime:
        runtime = Runtime(provider="scripted", script=script, cwd=folder)
        for _ in runtime.prompt("hello"):
            pass
        return runtime

    one_more().close()  # loads what all of them need
    before = own_memory()
    for count in counts:
        while len(runtimes) < count:
            runtimes.append(one_more())
        memory.append((count, own_memory() - before))
        threads.append((count, threading.active_count()))
    for runtime in runtimes:
        runtime.close()
    return {"MB more, by runtimes": memory, "threads, by runtimes": threads}


def own_memory() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE / 1e6


def with_output(zot: Program, megabytes: Sequence[int]) -> dict[str, Curve]:
    seconds: Curve = []
    memory: Curve = []
    for size in megabytes:
        with zot.warm() as server:
            command = f"head -c {size}000000 /dev/zero | tr '\\\\0' x | fold -w 99"
            seconds.append((size, server.run(f"tool:bash:{command}") * 1e3))
            memory.append((size, server.memory()))
    return {"ms, by MB of output": seconds, "MB, by MB of output": memory}


def with_files(zot: Program, counts: Sequence[int]) -> dict[str, Curve]:
    curves: dict[str, Curve] = {"glob, ms, by files": [], "grep, ms, by files": []}
    tree = zot.work / "tree"
    made = 0
    for count in counts:
        for number in range(made, count):
            folder = tree / f"{number // 1000}"
            if number % 1000 == 0:
                folder.mkdir(parents=True)
                first = folder / f"{number}.txt"
                first.write_text("a line of text\n")
            else:  # a link is made much quicker than a file, and costs whoever reads it the same
                (folder / f"{number}.txt").hardlink_to(first)
        made = count
        with zot.warm() as server:
            for name, call in (
                ("glob, ms, by files", 'tool:glob:{"pattern":"**/*7.md"}'),
                ("grep, ms, by files", 'tool:grep:{"pattern":"no such words"}'),
            ):
                curves[name].append((count, server.run(call) * 1e3))
    subprocess.run(["rm", "-rf", str(tree)], check=True)
    return curves


# --- the page and its picture --------------------------------------------------------------------


def page(curves: dict[str, Curve]) -> str:
    rows = ["| what | figures | growth of the last step |", "| --- | --- | --- |"]
    for name, curve in curves.items():
        points = ", ".join(f"{x:,.0f}: {y:.3g}" for x, y in curve)
        (x0, y0), (x1, y1) = curve[-2:]
        rows.append(
            f"| {name} | {points} | {y1 / max(y0, 1e-9):.2f} for {x1 / x0:.0f} times as much |"
        )
    return "\n".join(
        [
            "# Growth",
            "",
            "Written by `bench/growth.py`. Nothing may grow faster than what it is made of: a",
            "request carries the whole conversation, so its cost may be linear in the turns.",
            "",
            "![curves](growth.svg)",
            "",
            *rows,
            "",
        ]
    )


WIDTH, HEIGHT, COLUMNS = 230, 150, 3


def picture(curves: dict[str, Curve]) -> str:
    """Small charts, both axes from zero: a straight line is linear growth."""
    rows = -(-len(curves) // COLUMNS)
    charts = [
        chart(name, curve, place % COLUMNS * WIDTH, place // COLUMNS * HEIGHT)
        for place, (name, curve) in enumerate(curves.items())
    ]
    size = f'width="{WIDTH * COLUMNS}" height="{HEIGHT * rows}"'
    style = "<style>text{font:10px sans-serif}</style>"
    ground = '<rect width="100%" height="100%" fill="white"/>'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size}>'
    return "\n".join([head, style, ground, *charts, "</svg>", ""])


def chart(name: str, curve: Curve, left: int, top: int) -> str:
    most_x, most_y = max(x for x, _ in curve), max(max(y for _, y in curve), 1e-9)
    points = [
        (left + 15 + x / most_x * (WIDTH - 40), top + HEIGHT - 25 - y / most_y * (HEIGHT - 60))
        for x, y in curve
    ]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="#1f6feb"/>' for x, y in points)
    base = top + HEIGHT - 25
    return (
        f'<text x="{left + 15}" y="{top + 18}">{name}: {most_y:.3g} at {most_x:,.0f}</text>'
        f'<path d="M{left + 15} {top + 30}V{base}H{left + WIDTH - 20}" fill="none" stroke="#bbb"/>'
        f'<polyline points="{line}" fill="none" stroke="#1f6feb" stroke-width="1.5"/>{dots}'
    )


if __name__ == "__main__":
    os.environ.setdefault("ZOT_HOME", tempfile.mkdtemp())
    main()
