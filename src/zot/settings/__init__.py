"""Settings of a run: flags, files, environment, keys, and the setup resolved from them."""
