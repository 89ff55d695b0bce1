"""Credentials: where they are kept, in which order they are looked for, how they are obtained."""
