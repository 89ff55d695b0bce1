"""A chat in the terminal: one conversation, streamed, with Ctrl-C to stop an answer.

chat.py [PROVIDER]
"""

import sys

from zot import Runtime, ZotError, events


def main() -> int:
    provider = sys.argv[1] if len(sys.argv) > 1 else ""
    try:
        runtime = Runtime(provider=provider, tools=["read", "grep", "glob"])
    except ZotError as error:  # no key, no such provider: the text says what to do
        print(error, file=sys.stderr)
        return 1
    with runtime:
        while prompt := ask():
            answer(runtime, prompt)
        cost = runtime.cost()
        print(f"\n{cost.input + cost.output} tokens, ${cost.cost_usd:.4f}")
    return 0


def ask() -> str:
    try:
        return input("> ").strip()
    except (EOFError, KeyboardInterrupt):
        return ""


def answer(runtime: Runtime, prompt: str) -> None:
    try:
        for event in runtime.prompt(prompt):
            match event:
                case events.TextDelta(delta):
                    print(delta, end="", flush=True)
                case events.ToolCall(_, name, args):
                    print(f"[{name} {args}]", file=sys.stderr)
                case events.Error(message):
                    print(f"error: {message}", file=sys.stderr)
                case _:
                    pass
    except KeyboardInterrupt:
        runtime.cancel()  # the conversation goes on without the rest of the answer
    print()


if __name__ == "__main__":
    sys.exit(main())
