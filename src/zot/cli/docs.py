"""`zot docs [PAGE]`: the pages of the documentation, which come with the package."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from pydoc import pager

import zot
from zot.cli.output import PlainParser, arg, flag, say
from zot.errors import ConfigError, UsageError
from zot.extras import addresses
from zot.text import nearest


def main(argv: Sequence[str]) -> int:
    parser = PlainParser(
        prog="zot docs", description="Show a page of the documentation; without one, list them."
    ).add(
        arg("page", nargs="?", default="", help="a page of the list, as rpc"),
        flag("--path", help="print where the page is instead"),
    )
    options = parser.parse_args(argv[1:])
    folder = docs_folder()
    pages = {name_of(path, folder): path for path in sorted(folder.rglob("*.md"))}
    if not options.page:
        say(str(folder) if options.path else listing(pages))
        return 0
    name = options.page.removesuffix(".md").removeprefix("docs/")
    if name not in pages:
        near = nearest(name, tuple(pages), cutoff=0.5)
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise UsageError(f"there is no page {options.page!r}{hint}; `zot docs` lists them")
    if options.path:
        say(str(pages[name]))
    elif os.isatty(1):
        pager(pages[name].read_text(encoding="utf-8"))
    else:
        sys.stdout.write(pages[name].read_text(encoding="utf-8"))
    return 0


def docs_folder() -> Path:
    """Return the folder of the pages: in the package, or in the clone that zot runs from."""
    package = Path(zot.__file__).parent
    for folder in (package / "docs", package.parent.parent / "docs"):
        if (folder / "rpc.md").exists():
            return folder
    raise ConfigError(f"the pages of the documentation are missing from {str(package)!r}")


def name_of(path: Path, folder: Path) -> str:
    return str(path.relative_to(folder).with_suffix(""))


def listing(pages: dict[str, Path]) -> str:
    width = max(map(len, pages)) + 2
    rows = [f"  {name:<{width}}{title_of(path)}" for name, path in pages.items()]
    where = [f"{label}: {url}" for label, url in addresses().items()]
    return "\n".join(["zot docs PAGE shows one of these pages:", *rows, *where])


def title_of(path: Path) -> str:
    """Return the heading of a page."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return next((line[2:] for line in lines if line.startswith("# ")), "")
