"""Many agents at once, each in a tree of its own."""
