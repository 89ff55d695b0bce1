"""What was asked for: flags, files, environment, keys, and what to run with."""
