"""The command line: what a person types, one file a subcommand."""
