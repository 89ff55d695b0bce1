from pathlib import Path

import pytest
from support.pi import PiServers


@pytest.fixture
def servers(tmp_path: Path) -> PiServers:
    return PiServers(tmp_path)
