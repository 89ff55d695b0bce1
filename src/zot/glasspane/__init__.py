"""Glasspane: a local web page of all visible agents."""
