"""The whole API: an agent that can be driven, whatever door the caller came through."""
