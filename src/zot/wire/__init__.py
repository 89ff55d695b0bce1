"""Wires: framing and dialects. A dialect is pure: it does no input or output."""
