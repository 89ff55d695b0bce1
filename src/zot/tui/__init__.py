"""Draws on a terminal and returns keys. Knows nothing of agents, models or sessions."""
