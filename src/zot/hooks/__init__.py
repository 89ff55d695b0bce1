"""Hooks in a file: commands of the user that run at fixed moments of an agent's work.

The file has the `hooks` block of Claude Code's settings, so that existing scripts run unchanged:
`config` reads it, `claude` translates tool names and arguments, `program` runs one command, and
`guard` is the core `Hook` that joins them.
"""
