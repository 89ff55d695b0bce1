"""Mistakes that a user's type checker must find: each line with an error says which one."""

from zot import Config, Runtime, tool
from zot.client import Client

Runtime(provider=7)  # arg-type
Runtime(no_such_setting=1)  # call-arg
Config(provider=7)  # arg-type
Config(no_such_setting=1)  # call-arg
Config(provider="x").model = "y"  # attr-defined
Runtime(provider="x").prompt(7)  # arg-type
Runtime(provider="x").set_reasoning("enormous")  # arg-type
Runtime(provider="x").no_such_method()  # attr-defined
Client("zot rpc", timeout="soon")  # arg-type
Client(["zot"]).prompt("hi", limits=3)  # arg-type
Client(["zot"]).open_agent("a", colour="red")  # call-arg
for event in Runtime(provider="x").prompt("hi"):
    text = event.delta  # union-attr
tool(7)  # call-overload
