"""The command that adds an optional part to this installation of zot, and the addresses of the
project. All sentences about a missing package are made here; they hold however zot was installed:
from a clone, from an archive or from the package index.
"""

from __future__ import annotations

import os
import sys

PACKAGE = "zot-agent"


def install_command(extra: str) -> str:
    """Return the command that installs zot once more, with this extra."""
    import shlex

    source, url, is_editable = _source()
    what = shlex.quote(f"{source}[{extra}]{url}")
    if os.path.exists(f"{sys.prefix}/pipx_metadata.json"):
        return f"pipx install --force {what}"
    if os.path.exists(f"{sys.prefix}/uv-receipt.toml"):
        return f"uv tool install --force {what}"
    what = f"-e {what}" if is_editable else what
    python = shlex.quote(sys.executable)
    if not _has_pip():
        return f"uv pip install --python {python} {what}"
    return f"{python} -m pip install {what}"


def missing(feature: str, package: str, extra: str) -> str:
    """Return the sentence for a feature whose package is not installed."""
    return f"{feature} needs the package {package}: run {install_command(extra)}"


def addresses() -> dict[str, str]:
    """Return the project's addresses by their label, as `[project.urls]` of pyproject.toml has
    them; empty: there are none, or zot runs without being installed."""
    from importlib.metadata import PackageNotFoundError, metadata

    try:
        rows = metadata(PACKAGE).get_all("Project-URL") or []
    except PackageNotFoundError:
        return {}
    return {label: url.strip() for label, _, url in (row.partition(",") for row in rows)}


def _source() -> tuple[str, str, bool]:
    """Return what stands before and after the extras of a requirement for the same zot, and whether
    it is used in place."""
    import json
    from importlib.metadata import PackageNotFoundError, distribution
    from urllib.parse import unquote, urlsplit

    try:
        text = distribution(PACKAGE).read_text("direct_url.json")
    except PackageNotFoundError:  # run from its source
        clone = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        return clone, "", True
    if text is None:  # from the index
        return PACKAGE, "", False
    origin = json.loads(text)
    url = urlsplit(origin["url"])
    if url.scheme == "file":
        return unquote(url.path), "", bool(origin.get("dir_info", {}).get("editable"))
    vcs = f"{origin['vcs_info']['vcs']}+" if "vcs_info" in origin else ""
    return PACKAGE, f" @ {vcs}{origin['url']}", False


def _has_pip() -> bool:
    from importlib.util import find_spec

    return find_spec("pip") is not None
