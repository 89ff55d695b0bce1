"""A small server that is nearly right: what a report about it should say is in test_conformance."""

import json
import os
import sys

TOKEN = os.environ.get("ZOTCORE_RPC_TOKEN")


def send(**frame):
    print(json.dumps(frame), flush=True)


def answer(command, **fields):
    send(type="response", id=command.get("id"), command=command["type"], **fields)


def prompt(command):
    answer(command, success=True, data={"started": True})
    text = command["message"].partition("say:")[2]
    send(type="user_message", content=[{"type": "text", "text": command["message"]}], time="today")
    send(type="turn_start", step="1")
    send(type="assistant_start")
    for word in text.split():
        send(type="text_delta", delta=word)
    send(type="assistant_message", content=[{"type": "text", "text": text}], time="today")
    numbers = {"input": 1, "output": 1, "cache_read": 0, "cache_write": 0, "cost_usd": 0}
    send(type="usage", cumulative=numbers, **numbers)
    send(type="turn_end", stop="end_turn")
    send(type="mood", mood="good")
    send(type="done")
    send(type="done")


def main():
    for line in sys.stdin:
        command = json.loads(line)  # a line that is not JSON ends it
        if command["type"] == "prompt":
            prompt(command)
        elif command["type"] == "ping":
            answer(command, success=True, data={"pong": True})
        elif command["type"] == "hello" and TOKEN not in (None, command.get("token")):
            answer(command, success=False, error="no")
        else:
            answer(command, success=True)


main()
