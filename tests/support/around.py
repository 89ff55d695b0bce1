"""What a run takes from the process of the test."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from zot.core.tool import Tool
from zot.home import Surroundings, home_dir, of_process
from zot.tools.place import Place
from zot.tools.registry import SharedPlace, builtin_tools


def around(environ: Mapping[str, str]) -> Surroundings:
    """The directories of this process, with these variables."""
    return replace(of_process(), environ=environ)


def zot_home() -> str:
    return home_dir(os.environ)


def place_at(cwd: object) -> Place:
    return Place(str(cwd), os.environ)


def tools_at(cwd: object, names: Sequence[str] | None = None, **parts: object) -> list[Tool]:
    return builtin_tools(SharedPlace(str(cwd), os.environ), names, **parts)  # type: ignore[arg-type]  # as they are
