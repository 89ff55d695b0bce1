"""What one streamed answer costs on pi's wire: bytes and CPU, for each generation of the protocol.

Generations a and b want the whole message in every update. `every_delta` is what that would cost
without a budget; it is computed, not sent. Prints one JSON object.

    python bench/pi_stream.py [--deltas 200,2000,20000] [--rate 100]
"""

from __future__ import annotations

import argparse
import json
import time

from zot.core import events
from zot.lines import encode_line
from zot.pi.commands import Generation, PiPeer
from zot.pi.events import Encoder

DELTA = "word "
GENERATIONS: tuple[Generation, ...] = ("a", "b", "c")


def measure(generation: Generation, deltas: int, rate: float | None) -> dict[str, float]:
    """Encode one answer; `rate` deltas a second (by a made-up clock), or all at one moment."""
    encoder = Encoder(PiPeer(generation))
    size, updates, now = 0, 0, 1000.0
    started = time.process_time()

    def take(event: events.Event) -> None:
        nonlocal size, updates
        for frame in encoder.encode(event, "prompt", now):
            size += len(encode_line(frame))
            updates += 1

    take(events.TurnStart(1))
    take(events.AssistantStart("bench", "bench", "anthropic"))
    for _ in range(deltas):
        now += 1 / rate if rate else 0.0
        take(events.TextDelta(DELTA))
    take(events.TurnEnd("aborted"))
    cpu = time.process_time() - started
    return {
        "bytes": size,
        "frames": updates,
        "cpu_ms": round(cpu * 1000, 2),
        "cpu_us_per_delta": round(cpu * 1e6 / deltas, 2),
    }


def every_delta(deltas: int) -> int:
    """Bytes of two snapshots with every delta: what a server without a budget sends."""
    overhead = 900
    return sum(2 * (overhead // 2 + len(DELTA) * count) for count in range(1, deltas + 1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--deltas", default="200,2000,20000")
    parser.add_argument("--rate", type=float, default=100.0)
    options = parser.parse_args()
    counts = [int(each) for each in options.deltas.split(",")]
    found = {
        generation: {
            str(count): {
                f"at_{options.rate:g}_a_second": measure(generation, count, options.rate),
                "at_once": measure(generation, count, None),
            }
            for count in counts
        }
        for generation in GENERATIONS
    }
    without = {str(count): every_delta(count) for count in counts}
    print(json.dumps({"delta_bytes": len(DELTA), "every_delta_bytes": without, **found}, indent=2))


if __name__ == "__main__":
    main()
