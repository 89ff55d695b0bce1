"""Finds files and lines: the tools `glob` and `grep`."""
