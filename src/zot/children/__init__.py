"""Programs that zot starts and talks to by lines: their processes, logs and ends."""
