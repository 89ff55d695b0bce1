"""A job that survives `kill -9`, of zot and of this program: python durable.py JOB "what to do".

Run it again with the same JOB after a crash: the run goes on where it was, or its answer is told
again; it is never run twice. JOB.jsonl has the conversation, JOB.cursor what was shown already.
"""

import json
import sys
from pathlib import Path
from typing import Any

from zot.client import Client

NAMES = {"text_delta": "delta", "tool_progress": "text"}


def show(frame: dict[str, Any]) -> None:
    if frame["type"] == "tool_call":
        print(f"\n[{frame['name']} {json.dumps(frame['args'])}]", flush=True)
    elif frame["type"] == "run_resumed":
        print(f"\n[goes on, attempt {frame['attempt']}]", flush=True)
    elif frame["type"] in NAMES:
        print(frame[NAMES[frame["type"]]], end="", flush=True)


def catch_up(client: Client, cursor: Path) -> None:
    """Show what was told since the last frame that was shown, by whichever process."""
    more = True
    while more:
        after = int(cursor.read_text()) if cursor.exists() else 0
        page = client.events(after)
        for frame in page.events:
            show(frame)
        half = cursor.with_suffix(".new")
        half.write_text(str(page.last))
        half.replace(cursor)  # in one step: this program may be killed too
        more = page.more


def main(job: str, text: str, flags: list[str]) -> int:
    command = [sys.executable, "-m", "zot", "rpc", "--session", f"{job}.jsonl", "--durable", *flags]
    with Client(command, features=["seq"]) as client:
        run = client.prompt(text, run=job)
        for _ in run:  # what is shown comes from the log: nothing is lost, and nothing twice
            catch_up(client, Path(f"{job}.cursor"))
        catch_up(client, Path(f"{job}.cursor"))
        if run.end is not None:
            print(f"[it has ended before: {run.end.text}]")
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
