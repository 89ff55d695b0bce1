#!/usr/bin/env python3
"""/hello greets, /summon writes into the editor. `zot_ext` is zot's own `zot.ext`: zot puts it on
the path of every Python extension it starts."""

from zot_ext import Extension, Reply, insert, prompt

ext = Extension("hello", "1.0.0")


@ext.command("hello", "say hi")
def hello(args: str) -> Reply:
    return prompt(f"Greet {args or 'me'} in one short sentence.")


@ext.command("summon", "start a message to somebody")
def summon(args: str) -> Reply:
    if not args:
        raise ValueError("whom? try /summon Ada")
    return insert(f"Dear {args}, ")


ext.run()
