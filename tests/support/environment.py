"""Environments for child processes of tests."""

import os


def uncovered() -> dict[str, str]:
    """The environment without coverage, for tests that look at which modules a child loads."""
    return {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
