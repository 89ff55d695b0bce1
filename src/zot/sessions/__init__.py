"""Session files: formats, the crash-safe store, and the library of what is on disk."""
