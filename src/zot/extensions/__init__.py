"""The host for extensions: subprocesses that add commands, tools and guards."""
