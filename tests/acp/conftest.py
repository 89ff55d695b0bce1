from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.acp import Acp, AcpSchema
from support.npm import cache

__all__ = ["cache"]  # a fixture


@pytest.fixture(scope="session")
def schema(cache: Path) -> AcpSchema:
    return AcpSchema(cache)


@pytest.fixture
def acp(tmp_path: Path, schema: AcpSchema) -> Callable[..., Acp]:
    """Starts a `zot acp` with turns; each in the same home."""

    def start(*turns: Any, **options: Any) -> Acp:
        if turns:
            options["turns"] = turns
        return Acp(tmp_path, schema, **options)

    return start
