"""A bot that survives restarts: it answers each file of a folder once, whatever kills it.

bot.py FOLDER [PROVIDER]      FOLDER/NAME.question becomes FOLDER/NAME.answer

A message has a session and a durable run of its own, both with its name. A start finds out what is
left: a run that was cut goes on, one that ended is only delivered.
"""

import sys
from pathlib import Path

from zot import Runtime
from zot.sdk import TextBlock


def answer(question: Path, provider: str) -> str:
    session = question.with_suffix(".jsonl")
    with Runtime(provider=provider, session=session, durable=True, tools=["read"]) as runtime:
        text = question.read_text(encoding="utf-8")
        stream = runtime.resume() or runtime.prompt(text, run=question.stem)
        for _ in stream:
            pass
        stream.raise_for_error()
        last = runtime.messages()[-1]
        return "".join(block.text for block in last.content if isinstance(block, TextBlock))


def main() -> int:
    if len(sys.argv) < 2:
        print("usage: bot.py FOLDER [PROVIDER]", file=sys.stderr)
        return 2
    folder, provider = Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else ""
    for question in sorted(folder.glob("*.question")):
        delivered = question.with_suffix(".answer")
        if delivered.exists():
            continue
        text = answer(question, provider)
        half = question.with_suffix(".half")
        half.write_text(text + "\n", encoding="utf-8")
        half.replace(delivered)  # in one step: the bot may be killed at any moment
        print(f"{question.stem}: {text}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
