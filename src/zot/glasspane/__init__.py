"""Glasspane: one page, on this machine, of every agent that can be seen."""
