"""Slash commands of the terminal: `table.py` lists them, the others say what they do."""
