"""`zot` at a terminal: connects `tui/` to a `Runtime`.

`loop.py` waits and draws, `app.py` maps keys to actions, `asking.py` opens menus and questions,
`view.py` turns events into blocks, `slash/` has the slash commands.
"""
