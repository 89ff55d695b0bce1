"""`zot` at a terminal: a person and the agent. Joins the room `tui/` with a `Runtime`.

`loop.py` waits and draws, `app.py` is what a key does, `view.py` turns events into blocks,
`commands.py` has the slash commands.
"""
