"""`zot` at a terminal: connects `tui/` to a `Runtime`. Read `app.py` first: it has the way of a key
through the rest.

To add: a slash command is a function in `slash/` and a row in `slash/table.py`; a key is a row in
`tui/keymap.py` and one in `App._own_actions`; a menu, question or screen is an `Overlay` that
`DialogStack.open` or `Loop.open_full` shows; an event is a case of `View.take` (how it is drawn) or
of `Chat.take` (what else happens).
"""
