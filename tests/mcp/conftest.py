from support.npm import cache

__all__ = ["cache"]  # a fixture
