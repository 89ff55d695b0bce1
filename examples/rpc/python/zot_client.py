#!/usr/bin/env python3
"""Send one prompt to `zot rpc` and stream the answer. Standard library only.

zot_client.py PROMPT [FLAGS FOR ZOT...]        ZOT_BIN: the command, default zot
Exit code: 0 answered, 1 failed, 2 wrong usage.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import IO, Any


def main() -> int:
    if len(sys.argv) < 2:
        print("usage: zot_client.py PROMPT [FLAGS FOR ZOT...]", file=sys.stderr)
        return 2
    command = [os.environ.get("ZOT_BIN", "zot"), "rpc", *sys.argv[2:]]
    try:
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    except OSError as error:
        print(f"error: cannot start {command[0]}: {error.strerror}", file=sys.stderr)
        return 1
    with child as zot:
        assert zot.stdin is not None and zot.stdout is not None  # both are pipes
        if token := os.environ.get("ZOTCORE_RPC_TOKEN"):
            send(zot.stdin, {"id": "0", "type": "hello", "token": token})
        send(zot.stdin, {"id": "1", "type": "prompt", "message": sys.argv[1]})
        # Bytes end at LF and nowhere else; text mode would also split elsewhere.
        code = follow(json.loads(line) for line in zot.stdout)
        with suppress(BrokenPipeError):
            zot.stdin.close()  # the end of input is what ends zot
    return code


def send(zot: IO[bytes], command: dict[str, str]) -> None:
    with suppress(BrokenPipeError):  # it has ended already; reading will say so
        zot.write(json.dumps(command).encode() + b"\n")
        zot.flush()


def follow(frames: Iterable[dict[str, Any]]) -> int:
    """Show the events of one prompt, up to its `done`."""
    failed = False
    for frame in frames:
        match frame["type"]:
            case "text_delta":
                print(frame["delta"], end="", flush=True)
            case "tool_call":
                print(f"[{frame['name']}] {json.dumps(frame['args'])}", file=sys.stderr)
            case "response" if not frame["success"]:
                print(f"error: {frame['error']}", file=sys.stderr)
                return 1
            case "error":
                print(f"error: {frame['message']}", file=sys.stderr)
                failed = True
            case "turn_start":
                failed = False  # an error that the run got over
            case "turn_end":
                failed = frame["stop"] in ("error", "aborted")
            case "assistant_message" if any(block["type"] == "text" for block in frame["content"]):
                print()
            case "done":
                return int(failed)
            case _:
                pass
    print("error: zot ended before it was done", file=sys.stderr)
    return 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:  # the terminal told zot as well, and it ends by itself
        sys.exit(130)
