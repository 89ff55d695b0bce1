"""The whole API of an agent, for every front end."""
