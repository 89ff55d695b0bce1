"""Ten agents in one `zot rpc`: each looks into one question, all at once, and all may ask.

ten_agents.py TOPIC [FLAGS FOR ZOT...]        ZOT_BIN: the command, default zot
"""

import json
import os
import subprocess
import sys

QUESTIONS = (
    *("what it is for", "how it starts", "how it is tested", "what it depends on"),
    *("where data is kept", "how errors are told", "what is slow", "what is risky"),
    *("what is documented", "what is missing"),
)


def main() -> int:
    if len(sys.argv) < 2:
        print("usage: ten_agents.py TOPIC [FLAGS FOR ZOT...]", file=sys.stderr)
        return 2
    topic, flags = sys.argv[1], sys.argv[2:]
    zot = subprocess.Popen(
        [os.environ.get("ZOT_BIN", "zot"), "rpc", *flags],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )

    assert zot.stdin is not None and zot.stdout is not None  # both are pipes
    stdin = zot.stdin

    def send(**command: object) -> None:
        stdin.write(json.dumps(command) + "\n")
        stdin.flush()

    send(type="hello", features=["agents", "approvals", "codes"])
    for number, question in enumerate(QUESTIONS):
        name = f"agent {number}"
        # An agent may read, and must ask before it runs a command; none may take too long.
        send(
            type="open_agent",
            agent=name,
            tools=["read", "grep", "glob", "bash"],
            approve=["bash"],
            limits={"max_steps": 20, "max_seconds": 300},
        )
        send(type="prompt", agent=name, message=f"{topic}: {question}")
    open_agents = {f"agent {number}": "" for number in range(len(QUESTIONS))}
    failed = 0
    for line in zot.stdout:
        frame = json.loads(line)
        name, kind = frame.get("agent", ""), frame["type"]
        if kind == "response" and not frame["success"]:
            print(f"zot: {frame['error']}", file=sys.stderr)
            return 1
        if kind == "assistant_message":  # whole, also where a stream was cut and began anew
            open_agents[name] += "".join(b["text"] for b in frame["content"] if b["type"] == "text")
        elif kind == "approval_request":
            send(type="approve", agent=name, request_id=frame["request_id"], decision="deny")
        elif kind == "error":
            failed += 1
            print(f"{name} failed: {frame['message']}", file=sys.stderr)
        elif kind == "done":
            print(f"{name} ({QUESTIONS[int(name.split()[1])]}): {open_agents.pop(name)}")
            if not open_agents:
                break
    stdin.close()  # the end of input ends the process
    return zot.wait() or (1 if failed or open_agents else 0)


if __name__ == "__main__":
    sys.exit(main())
