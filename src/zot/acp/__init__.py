"""The Agent Client Protocol, version 1: a dialect, and the door `zot acp` that editors start."""
