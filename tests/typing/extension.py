"""An extension with types, checked by mypy and pyright in test_typing.py; never run."""

from dataclasses import dataclass

from zot_ext import Call, Event, Extension, Harness, Reply, block, prompt

ext = Extension("typed", "1.0")


@dataclass
class Place:
    city: str
    country: str = "DE"


@ext.tool
def weather(place: Place, call: Call) -> str:
    """Current weather."""
    call.progress("looking")
    return place.city


@ext.tool("other", timeout=3.0)
def named(text: str) -> dict[str, int]:
    """Count letters."""
    return {"letters": len(text)}


@ext.command("hello")
def hello(args: str) -> Reply:
    return prompt(args)


@ext.intercept("tool_call")
def check(event: Event) -> Reply | None:
    return block("no") if event.tool_name == "bash" else None


letters: dict[str, int] = named("abc")
with Harness(ext) as host:
    text: str = host.call("weather", place={"city": "Berlin"}).text
