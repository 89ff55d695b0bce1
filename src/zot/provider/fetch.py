"""One request to any URL, on a connection of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from zot.cancel import Cancel
from zot.provider.address import split_query
from zot.provider.http import Http, HttpAnswer


@contextmanager
def open_url(
    name: str,
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
    seconds: float = 30.0,
    is_download: bool = False,
) -> Iterator[HttpAnswer]:
    """A GET, or a POST when there is a body. Raises as `exchange` does."""
    base, query = split_query(url)
    http = Http(name, base, connect_seconds=seconds, idle_seconds=seconds)
    path = "/" + base.partition("://")[2].partition("/")[2] + query
    method = "GET" if body is None else "POST"
    try:
        with http.exchange(
            method, path, headers or {}, body, Cancel(), is_download=is_download
        ) as answer:
            yield answer
    finally:
        http.close()
