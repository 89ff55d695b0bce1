from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.local import place, small_model_file

from tests.support.around import zot_home
from zot.cancel import Cancel
from zot.home import of_process
from zot.local.models import SMALL, Weights, find_weights
from zot.local.serve import ServerAddress
from zot.local.server import LocalServer


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test has a ZOT_HOME of its own; the servers of others are not seen."""
    home = tmp_path / "zot-home"
    monkeypatch.setenv("ZOT_HOME", str(home))
    monkeypatch.delenv("ZOT_LOCAL_PORT", raising=False)
    monkeypatch.setenv("ZOT_LOCAL_THREADS", "1")
    return home


@pytest.fixture
def small(own_home: Path) -> Weights:
    place(small_model_file())
    return find_weights(SMALL, zot_home())


@pytest.fixture(scope="module")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerAddress]:
    """One server for a whole file of tests that only talk to it."""
    file = small_model_file()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ZOT_HOME", str(tmp_path_factory.mktemp("home")))
        patch.setenv("ZOT_LOCAL_THREADS", "1")
        weights = Weights("small", file, file.stat().st_size)
        server = LocalServer(
            weights, of_process(), context=1024, linger=0.2, template=TOOL_TEMPLATE
        )
    try:
        yield server.acquire(Cancel())
    finally:
        server.release()


TOOL_TEMPLATE = """\
{%- for message in messages -%}
{{- '<|im_start|>' + ('user' if message.role == 'tool' else message.role) + '\\n' -}}
{%- if loop.first and tools -%}
{{- 'Functions:\\n' -}}
{%- for tool in tools -%}{{- tool.function | tojson + '\\n' -}}{%- endfor -%}
{{- 'Call one with [TOOL]{"name": ..., "arguments": ...}[/TOOL]\\n' -}}
{%- endif -%}
{{- message.content or '' -}}
{%- for call in message.tool_calls or [] -%}
{{- '[TOOL]{"name": "' + call.function.name + '", "arguments": ' -}}
{%- set given = call.function.arguments -%}
{{- (given if given is string else given | tojson) + '}[/TOOL]' -}}
{%- endfor -%}
{{- '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
"""
"""A chat template from which the server learns to parse tool calls."""
