"""Draws events in a terminal and returns keys; never sees a Runtime."""
