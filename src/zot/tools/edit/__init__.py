"""Changes files: the tools `edit` and `write`, and the same changes for other callers."""
