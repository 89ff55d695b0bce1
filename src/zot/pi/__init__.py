"""All that is pi's: its wire, its modes, its flags and its session format."""
