"""The Agent Client Protocol, version 1: a dialect, and the server `zot acp` for editors."""
