"""`zot --list-models`: the models of a provider, as a table or as JSON."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from zot.agent.flags import Options
from zot.agent.known import Known, configured
from zot.agent.setup import DEFAULT_PROVIDER, LOCAL, choose_provider, working_directory
from zot.agent.wire.ndjson import encode_line
from zot.errors import AuthError
from zot.provider.types import Model

_HEAD = ("provider", "model", "context", "max out", "reasoning", "$/M in", "$/M out", "source")


def list_models(options: Options) -> int:
    models = _models(options)
    if options.json:
        sys.stdout.buffer.write(encode_line({"models": models}))
        return 0
    rows = [_HEAD, *(_row(model) for model in models)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    for row in rows:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        sys.stdout.write(line.rstrip() + "\n")
    return 0


def _models(options: Options) -> Sequence[Model]:
    known = Known()
    try:
        wanted, _ = configured(options, os.environ, working_directory(options.cwd))
        name = choose_provider(wanted, os.environ, known).info.name
    except AuthError:  # the list needs no key
        name = DEFAULT_PROVIDER
    if name == LOCAL:
        from zot.agent.local.provider import local_models  # deferred: only for this provider

        return local_models()
    return known.all(name)


def _row(model: Model) -> tuple[str, ...]:
    price = model.price
    return (
        model.provider,
        model.id,
        str(model.context_window),
        str(model.max_output),
        "yes" if model.reasoning else "",
        f"{price.input:g}" if price else "?",
        f"{price.output:g}" if price else "?",
        model.source,
    )
