"""Compatibility with pi: its protocol, modes, flags and session format."""
