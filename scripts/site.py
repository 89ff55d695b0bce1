"""Hooks of mkdocs for the site (`python3 dev.py docs`): the reference of the Python API, made from
docstrings; links to files outside docs/; `llms.txt`, the list of pages for language models.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import zot
from zot import client, ext, sdk, testing

OUTSIDE = re.compile(r"\[([^\]]+)\]\(\.\./([^)]+)\)")
DOORS: tuple[tuple[str, Any, str], ...] = (
    ("zot", zot, "In process, and the client of another process."),
    ("zot.client", client, "Drive `zot rpc` from Python."),
    ("zot.ext", ext, "Write an extension; `zot_ext` is the same module."),
    ("zot.testing", testing, "Test programs and extensions without a model."),
)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    files.append(File.generated(config, "reference.md", content=reference()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Link to files outside docs/ in the repository, if its address is known; else name them."""

    def link(found: re.Match[str]) -> str:
        text, path = found[1], found[2]
        if config.repo_url:
            return f"[{text}]({config.repo_url.rstrip('/')}/blob/main/{path})"
        return f"`{path}`" if text.strip("`") in path else f"{text} (`{path}`)"

    return OUTSIDE.sub(link, markdown)


def on_post_build(config: MkDocsConfig) -> None:
    """Write llms.txt; remove the one script from elsewhere, which the plug-in `offline` adds."""
    for path in Path(config.site_dir).glob("*.html"):
        page = path.read_text(encoding="utf-8")
        path.write_text(
            re.sub(r'<script src="https://[^"]*"></script>', "", page), encoding="utf-8"
        )
    lines = ["# zot", "", "A coding-agent runtime that other programs embed.", "", "## Pages", ""]
    for path in sorted(Path(config.docs_dir).glob("*.md")):
        title = next(line[2:] for line in path.read_text().splitlines() if line.startswith("# "))
        lines.append(f"- [{title}]({path.with_suffix('.html').name})")
    (Path(config.site_dir) / "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def reference() -> str:
    """Return the page of all public names, with their signatures and docstrings."""
    parts = [
        "# Reference of the Python API",
        "",
        "Made from the docstrings; `help()` shows the same.",
    ]
    for name, module, text in DOORS:
        parts += ["", f"## `{name}`", "", text]
        for word in module.__all__:
            if word not in ("events", "sdk"):
                parts += _entry(f"{name}.{word}", getattr(module, word))
    parts += ["", "## `zot.events`", "", "The events of a prompt; each has `to_wire()`."]
    for event in get_args(sdk.EventFrame):
        fields = ", ".join(event.__struct_fields__)
        parts += [
            "",
            f"### `{event.__name__}`",
            "",
            f"{inspect.getdoc(event)} Fields: {fields or 'none'}.",
        ]
    return "\n".join(parts) + "\n"


def _entry(name: str, public: Any) -> Iterator[str]:
    yield from ("", f"### `{name}`", "")
    if not callable(public):
        yield f"`{public!r}`" if get_args(public) else ""
        return
    yield from (_text(public), "")
    if inspect.isclass(public):
        for word, member in inspect.getmembers(public):
            is_shown = not word.startswith("_") and not issubclass(public, BaseException)
            if is_shown and callable(member):
                yield f"- `{_signature(word, member)}`: {_text(member)}"
    else:
        yield f"`{_signature(public.__name__, public)}`"


def _text(thing: Any) -> str:
    return " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split()).replace("|", "\\|")


def _signature(name: str, function: Any) -> str:
    try:
        shown = str(inspect.signature(function)).replace("self, ", "").replace("(self)", "()")
    except (TypeError, ValueError):
        shown = "(...)"
    start = "await " if inspect.iscoroutinefunction(function) else ""
    return f"{start}{name}{shown}".replace("'", "")
