"""Joins a runtime with a wire: rpc, one prompt."""
