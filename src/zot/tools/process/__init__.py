"""Runs programs and leaves no process behind."""
