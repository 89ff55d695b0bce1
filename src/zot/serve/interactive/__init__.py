"""`zot` at a terminal: a person and the agent. Joins the room `tui/` with a `Runtime`.

`loop.py` waits and draws, `app.py` is what a key does, `asking.py` opens menus and questions,
`view.py` turns events into blocks, `slash/` has the slash commands.
"""
