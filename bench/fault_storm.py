"""Prompts in a storm of faults: python bench/fault_storm.py --seconds 600.

Processes of `zot rpc` (some jailed) get prompts for which the model server fails in every way it
can, with commands that try to outlive them, aborts, steering and nonsense lines at random moments.
Then each process is ended in a random way. Every prompt has to end once, every line to be answered
once, the transcript to be valid, and no process to be left. Exit code 1 if something does not hold.
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "tests")]

from serve.test_faults import FAULTS, process_for  # noqa: E402
from support.provider import BY_API  # noqa: E402
from support.rpc import Zot, marked, still_there  # noqa: E402

from zot.testing.fakeserver import FakeServer  # noqa: E402

COMMANDS = (
    "echo fine",
    "sleep 30",
    "setsid sleep 300 & echo left one",
    "(trap '' TERM HUP INT; sleep 300) & exit 3",
    "nohup sleep 300 >/dev/null 2>&1 & disown; echo gone",
    "kill -9 $PPID",
    "kill -STOP $$",
    "yes | head -c 3000000",
    "head -c 100000 /dev/urandom",
    "exec >&- 2>&-; sleep 0.2",
    "cat",
)
LINES = (b"nonsense\n", b'{"type":"no such"}\n', b'{"type":"prompt"}\n', b"[1]\n", b'"\xff"\n')
ENDS = ("input", "term", "kill", "vanish")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    until = time.monotonic() + options.seconds
    counts: Counter[str] = Counter()
    with ThreadPoolExecutor(options.workers) as pool:
        seeds = (f"{options.seed}-{number}" for number in range(options.workers))
        for worked in pool.map(lambda seed: work(seed, until), seeds):
            counts += worked
    print(dict(sorted(counts.items())))
    return 1 if counts["failed"] else 0


def work(seed: str, until: float) -> Counter[str]:
    counts: Counter[str] = Counter()
    chance = random.Random(seed)
    while time.monotonic() < until and counts["failed"] < 5:
        with tempfile.TemporaryDirectory(prefix="zot-storm-") as folder, FakeServer() as server:
            try:
                one_life(Path(folder), server, chance, counts)
            except Exception:
                counts["failed"] += 1
                print(f"seed {seed}, life {counts['lives']}:\n{traceback.format_exc()}", flush=True)
    return counts


def one_life(folder: Path, server: FakeServer, chance: random.Random, counts: Counter[str]) -> None:
    way = chance.choice(ENDS)
    reader = ("sh", "-c", '"$@" | cat', "sh") if way == "vanish" else ()
    zot = process_for(chance.choice(list(BY_API)), folder, server, wrapper=reader)
    counts["lives"] += 1
    try:
        if chance.random() < 0.3:
            zot.data("set_jail", jail=True)
            counts["jailed lives"] += 1
        for _ in range(chance.randrange(4, 16)):
            one_round(zot, chance, counts)
        end(zot, way, chance, counts)
    finally:
        zot.kill()


def one_round(zot: Zot, chance: random.Random, counts: Counter[str]) -> None:
    """A few prompts at once, disturbed; then all must hold, and a plain prompt must work."""
    before = zot.run_count()
    for _ in range(chance.randrange(1, 4)):
        zot.send("prompt", message=script(chance))
    for _ in range(chance.randrange(4)):
        time.sleep(chance.random() * 0.3)
        match chance.choice(("abort", "ping", "line", "steer")):
            case "line":
                zot.write(chance.choice(LINES))
            case "steer":
                zot.send("steer", message="say:steered")
            case word:
                zot.send(word)
    zot.wait(lambda: len(zot.answers()) >= zot.sent, "every answer")
    while (done := zot.done_count()) < zot.run_count():  # what sleeps would take its time
        time.sleep(chance.random() * 0.5)
        zot.send("abort")
        zot.wait(lambda done=done: zot.done_count() > done, "an end after the abort")
    zot.invariants()
    counts["prompts"] += zot.run_count() - before
    if chance.random() < 0.3:
        frames = zot.prompt("say:fine")
        # What steered a run that was aborted is said with the next prompt.
        assert any(frame.get("delta") in ("fine", "steered") for frame in frames), frames
        counts["prompts"] += 1


def script(chance: random.Random) -> str:
    if chance.random() < 0.4:
        return f"tool:bash:{chance.choice(COMMANDS)}\ntext:3"
    return chance.choice([text for text, _, _ in FAULTS.values()]).replace(
        "URL", "http://x.invalid"
    )


def end(zot: Zot, way: str, chance: random.Random, counts: Counter[str]) -> None:
    """End it in the midst of a command; nothing may be left."""
    counts[f"ended by {way}"] += 1
    if way == "input":
        zot.close()
        return
    zot.send("prompt", message=f"tool:bash:{chance.choice(COMMANDS)}\ntext:3")
    time.sleep(chance.random() * 0.5)
    zot.signal(0)  # takes down who its children are
    if way == "term":
        zot.signal(signal.SIGTERM)
        zot.finish()
        return
    if way == "kill":
        zot.process.kill()
    else:
        zot.close_input()
        subprocess.run(["pkill", "-9", "-x", "-P", str(zot.process.pid), "cat"], check=False)
    zot.process.wait(20)
    deadline = time.monotonic() + 10
    while left := (marked(zot.mark), still_there(zot._children)):
        if left == ([], set()):
            return
        assert time.monotonic() < deadline, f"after {way}: {left}"
        time.sleep(0.05)


if __name__ == "__main__":
    sys.exit(main())
