"""Front matter: a few lines of YAML at the top of an untrusted text.

The text is limited before the parser sees it, and aliases, anchors and tags are refused: a few
lines of those can expand to more than the memory holds.
"""

from __future__ import annotations

from typing import Any

import yaml

from zot.errors import ConfigError
from zot.provider.types import Json

MAX_BYTES = 16 * 1024
MAX_DEPTH = 8
"""Maximum nesting of lists and mappings."""
MAX_BRACKETS = 200
"""Maximum number of opening brackets; the parser looks ahead from each of them."""
MAX_PARTS = 1000
"""Maximum number of parser events (keys, values, starts, ends); usual are a dozen."""

LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_head(text: str) -> dict[str, Json]:
    """Return the keys and values. Raises ConfigError, with a text that follows "the file ..."."""
    if len(text.encode("utf-8", "replace")) > MAX_BYTES:
        raise ConfigError(f"has more than {MAX_BYTES} bytes of front matter")
    if text.count("[") + text.count("{") > MAX_BRACKETS:
        raise ConfigError(f"has front matter with more than {MAX_BRACKETS} brackets")
    try:
        _check(text)
        head = yaml.load(text, Loader=LOADER)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        line = getattr(getattr(error, "problem_mark", None), "line", None)
        where = "" if line is None else f" (line {line + 2})"
        raise ConfigError(f"has front matter that is not valid YAML{where}") from error
    if not isinstance(head, dict):
        raise ConfigError("has front matter that is not a list of keys and values")
    return head


def _check(text: str) -> None:
    """Check the parser events without building values from them."""
    depth = 0
    for number, event in enumerate(yaml.parse(text, Loader=LOADER)):
        named = getattr(event, "anchor", None) or getattr(event, "tag", None)
        if named or isinstance(event, yaml.AliasEvent):
            raise ConfigError(
                "has front matter with an alias, an anchor or a tag, which is not read"
            )
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH or number > MAX_PARTS:
            raise ConfigError(
                f"has front matter with more than {MAX_PARTS} parts, or deeper than {MAX_DEPTH}"
            )
