"""Wires providers, core and terminal into the `zot` program."""
