"""Credentials: how they are stored, found and obtained."""
