"""The agent: loop, transcript, tools and hooks; no terminal, wire or file layout."""
