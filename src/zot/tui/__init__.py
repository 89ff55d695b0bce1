"""Draws on a terminal and returns keys. It knows nothing of agents, models or sessions."""
