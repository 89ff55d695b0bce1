"""Give the model a tool of your own: a typed function with a docstring is enough.

custom_tool.py PROMPT [PROVIDER]
"""

import sys
from typing import Literal

from zot import Runtime, events, tool
from zot.sdk import ToolError

STOCK = {"apple": 12, "pear": 0}


@tool
def stock(fruit: str, unit: Literal["pieces", "boxes"] = "pieces") -> int:
    """How much of a fruit is in stock.

    Args:
        fruit: its name in the singular, such as apple
        unit: a box holds six pieces
    """
    if fruit not in STOCK:
        raise ToolError(f"we do not sell {fruit!r}")  # the model sees this text
    return STOCK[fruit] if unit == "pieces" else STOCK[fruit] // 6


def main(prompt: str, provider: str = "") -> None:
    with Runtime(provider=provider, tools=[stock]) as runtime:
        for event in runtime.prompt(prompt):
            if isinstance(event, events.TextDelta):
                print(event.delta, end="", flush=True)
            elif isinstance(event, events.ToolResult):
                print(f"[{event.content[0]}]", file=sys.stderr)
    print()


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: custom_tool.py PROMPT [PROVIDER]")
    main(*sys.argv[1:])
