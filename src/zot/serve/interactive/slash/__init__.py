"""Slash commands of the terminal: `table.py` lists them, the other modules implement them."""
