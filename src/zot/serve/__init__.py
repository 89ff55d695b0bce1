"""Connects a runtime to a client: RPC, one prompt, the terminal."""
