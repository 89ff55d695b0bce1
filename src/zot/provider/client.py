"""Connects an API module with HTTP: the only Provider for real models. Contains no API's words."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import cache, partial
from importlib import import_module
from threading import Lock

from msgspec.structs import replace

from zot.cancel import Cancel
from zot.errors import (
    BadResponse,
    Cancelled,
    ConfigError,
    NetworkError,
    ProviderError,
    RateLimited,
    Rejected,
    StreamIdle,
)
from zot.provider import catalog, failure
from zot.provider.address import quoted
from zot.provider.assemble import AnswerReader, Wire
from zot.provider.cachewatch import CacheWatch, SentRequest, sent
from zot.provider.http import BOM, Http, HttpAnswer, Splitter
from zot.provider.keys import Keys
from zot.provider.providers import Key, ProviderInfo, Quirks, api_of, merge, resolve_quirks
from zot.provider.repair import repaired
from zot.provider.turns import EncodedTurn, EncodedTurns, bound, digest_of, has_thoughts
from zot.provider.types import (
    Api,
    Finished,
    Message,
    Model,
    Origin,
    Provider,
    Request,
    Started,
    StreamEvent,
)
from zot.text import encode_json

BETA = "anthropic-beta"
ANTHROPIC_TOKEN = "sk-ant-oat"
"""Prefix of login tokens, which are sent in another header than keys."""
COMPLETE_SECONDS = 5.0
"""Seconds a server may take to end a complete answer: some never do."""
MAX_KEPT = 32 * 1024 * 1024
"""Largest request in bytes whose JSON is kept for the next one: no server takes a larger one."""
MAX_PAUSES = 20
"""Times that a server may pause one answer."""
LINE_STARTS = (b"data:", b"event:", b"id:", b"retry:", b":")


class ModelClient:
    """Client of one API at one host. Thread-safe."""

    def __init__(self, info: ProviderInfo, wire: Wire, api: Api, key: Key, http: Http) -> None:
        self.name = info.name
        self._info = info
        self._wire = wire
        self._api = api
        self._key = key
        self._keys = Keys()
        self._http = http
        self._lock = Lock()
        self._encoded: EncodedTurns | None = None
        self._watch = CacheWatch()
        self._last_quirks: tuple[Model, Quirks] | None = None
        self._last_head: tuple[tuple[object, ...], bytes] | None = None

    def stream(self, request: Request, cancel: Cancel) -> Iterator[StreamEvent]:
        finished, bind = yield from self._answer(request, cancel)
        for _ in range(MAX_PAUSES if finished.paused else 0):
            so_far = bind(finished)
            more, _ = yield from self._answer(self._continued(request, so_far), cancel)
            finished = joined(so_far, more)
            if not more.paused or not more.content:
                break
        yield bind(finished)

    def _bound(
        self, start: bytes, turns: Sequence[EncodedTurn], quirks: Quirks, finished: Finished
    ) -> Finished:
        """Return the answer to this request with its thoughts bound to their prefix, if the API
        binds them."""
        if not start or not has_thoughts(finished.content):
            return finished
        return bound(finished, digest_of(start, turns), self._wire.encoder, quirks)

    def _continued(self, request: Request, answer: Finished) -> Request:
        """Return the request that lets the server go on with an answer that it paused."""
        origin = Origin(self.name, request.model.id, request.model.api, "end")
        said = Message("assistant", answer.content, time.time(), origin)
        messages = tuple(request.messages)
        if not request.repaired:
            messages = repaired(messages, request.model.images)
        return replace(request, messages=(*messages, said), repaired=True)

    def _answer(
        self, request: Request, cancel: Cancel
    ) -> Generator[StreamEvent, None, tuple[Finished, Callable[[Finished], Finished]]]:
        """Make one request; return its whole answer, and the function that binds its thoughts."""
        if cancel.aborted:
            raise Cancelled
        last = self._last_quirks
        if last is None or last[0] is not request.model:
            last = self._last_quirks = request.model, resolve_quirks(self._info, request.model)
        quirks = last[1]
        body, start, parts = self._body(request, quirks)
        with self._http.exchange(self._head(request, quirks), body, cancel) as answer:
            try:
                check_head(self.name, answer)
            except RateLimited as error:
                self._keys.rest(self._key_text(), self._http.secret, error)
                raise
            except failure.Unauthorized as error:
                error.args = (f"{error}{self._advice()}",)
                raise
            except Rejected as error:
                if failure.is_about_model(error.status, str(error)):
                    error.args = (f"{error}{self._other_models(request.model)}",)
                raise
            yield Started()
            reader = self._wire.reader(self.name)
            try:
                for events in pump(self.name, answer, reader):
                    yield from events
                finished = reader.finish()
            except ProviderError as error:
                yield from reader.out.take()  # events before the error in the same bytes
                raise self._told(error, answer) from error
        # After the exchange, so that a caller that stops at Finished does not lose the connection.
        reader.out.close_calls()
        yield from reader.out.take()
        missed = self._watch.check(request, parts, finished.usage)
        if missed is not None:
            yield missed
        return finished, partial(self._bound, start, parts.turns, quirks)

    def close(self) -> None:
        self._http.close()

    def _body(self, request: Request, quirks: Quirks) -> tuple[bytes, bytes, SentRequest]:
        """The request, its start if thoughts are bound to their prefix, and its parts."""
        with self._lock:  # calls at the same time do not share it
            encoded, self._encoded = self._encoded or EncodedTurns(), None
        fields = self._wire.body(request, quirks, encoded)
        body = encode_json(merge(fields, quirks.extra_body) if quirks.extra_body else fields)
        if len(body) <= MAX_KEPT:
            self._encoded = encoded
        return body, encoded.start, sent(request, encoded.turns, long=request.cache == "long")

    def _advice(self) -> str:
        """Return advice for a refused key."""
        places = (*self._info.env[:1], "--api-key (api_key in Python)")
        return f" (check the key: {' or '.join(places)}, or `zot login {self.name}`)"

    def _other_models(self, model: Model) -> str:
        """Return suggestions for a model that the server does not have."""
        near = catalog.near_ids(self.name, model.id)
        hint = f"did you mean {', '.join(near)}? " if near else ""
        return f" ({hint}`zot --list-models --provider {self.name}` shows all)"

    def _told(self, error: ProviderError, answer: HttpAnswer) -> ProviderError:
        """Remove the key from the error's text and add the request id for support."""
        error.args = (self._http.redact(str(error)),)
        error.request_id = error.request_id or answer.request_id()
        return error

    def _head(self, request: Request, quirks: Quirks) -> bytes:
        """Return the head of the HTTP request. The last one is kept: requests mostly repeat it."""
        key = self._keys.choose(self._key_text())
        asked = request.model, request.reasoning, bool(request.tools), request.cache_key, key
        last = self._last_head
        if last is None or last[0] != asked:
            usual = self._wire.path.format(quoted(request.model.id))
            path = self._info.paths.get(self._api) or usual
            path = join_path(self._http.address.path, path)
            headers = self._headers(request, quirks, key.strip())
            last = self._last_head = asked, self._http.head("POST", path, headers)
            self._http.secret = key.strip()
        return last[1]

    def _key_text(self) -> str:
        return self._key if isinstance(self._key, str) else self._key()

    def _headers(self, request: Request, quirks: Quirks, key: str) -> dict[str, str]:
        headers = {
            "content-type": "application/json",
            "accept": "text/event-stream",
            **self._wire.headers(request, quirks),
        }
        for more in (self._info.headers, request.model.headers):
            if more:
                headers |= {name.lower(): value for name, value in more.items()}
        for name, value in auth_headers(self._info, key).items():
            # Betas required by the key and by the request are joined.
            headers[name] = f"{headers[name]},{value}" if name == BETA in headers else value
        if quirks.session_header and request.cache_key:
            headers[quirks.session_header] = request.cache_key
        return headers


def joined(first: Finished, second: Finished) -> Finished:
    """Return a paused answer and its continuation as one."""
    one, two = first.usage, second.usage
    sums = {
        field: getattr(one, field) + getattr(two, field)
        for field in ("input", "output", "cache_read", "cache_write", "cache_write_long")
    }
    costs = [each for each in (one.billed, two.billed) if each is not None]
    usage = replace(two, **sums, billed=sum(costs) if costs else None)
    return replace(second, content=first.content + second.content, usage=usage)


def pump(name: str, answer: HttpAnswer, reader: AnswerReader) -> Iterator[list[StreamEvent]]:
    """Read the body to the end of the answer, and yield the events of each piece."""
    splitter = Splitter(name)
    content_type = answer.headers.get("content-type", "").lower()
    piece = answer.read() if "event-stream" in content_type else sniff(name, answer)
    if not piece:
        raise BadResponse(f"{name}: http {answer.status} with an empty body")
    while piece:
        for data in splitter.feed(piece):
            reader.read(data)
            if reader.done:
                return
        yield reader.out.take()
        if reader.complete:
            answer.hurry(COMPLETE_SECONDS)
        try:
            piece = answer.read()
        except (NetworkError, StreamIdle):
            if reader.complete:
                return  # the answer is complete; only token counts may be missing
            raise
    for data in splitter.finish():
        reader.read(data)


def sniff(name: str, answer: HttpAnswer) -> bytes:
    """Return the first bytes of a body that has no event-stream content type but looks like one.

    Raises:
        BadResponse: it is something else; the text shows its beginning.
    """
    start = b""
    while b"\n" not in start.lstrip() and len(start) < failure.SHOWN and (piece := answer.read()):
        start += piece
    if start and not start.removeprefix(BOM).lstrip().startswith(LINE_STARTS):
        shown = failure.one_line(start.decode("utf-8", "replace"), failure.SHOWN)
        raise BadResponse(
            f"{name}: http {answer.status} with a body that is not a stream of events: {shown}"
        )
    return start


def check_head(name: str, answer: HttpAnswer) -> None:
    if not 200 <= answer.status < 300:
        raise answer.error()
    encoding = answer.headers.get("content-encoding", "identity").lower()
    if encoding not in ("identity", ""):
        raise BadResponse(f"{name}: a body with content-encoding {encoding!r}, not asked for")


def auth_headers(info: ProviderInfo, key: str) -> dict[str, str]:
    """Return the key's header; none without a key, so that a local server gets no empty one."""
    if not key or info.auth == "none":
        return {}
    if info.auth == "x-api-key" and key.startswith(ANTHROPIC_TOKEN):
        return {"authorization": f"Bearer {key}", BETA: "oauth-2025-04-20"}
    return {"authorization": f"Bearer {key}"} if info.auth == "bearer" else {info.auth: key}


@cache
def join_path(base: str, path: str) -> str:
    """Join a path to a base path, without repeating the part that the base already ends with."""
    have, want = base.split("/"), path.removeprefix("/").split("/")
    for size in range(min(len(have), len(want)), 0, -1):
        if have[-size:] == want[:size]:
            return "/".join(have + want[size:])
    if is_version(have[-1]) and is_version(want[0]):  # keep the version in the base URL
        return "/".join(have + want[1:])
    return "/".join(have + want)


def is_version(part: str) -> bool:
    return part[:1] == "v" and part[1:2].isdigit()


def load_wire(api: Api) -> Wire:
    """Import the module of an API, which has its name; only the one in use is loaded."""
    if api == "scripted":
        raise ValueError("the scripted provider makes no connection")
    wire: Wire = import_module(f"zot.provider.{api.replace('-', '_')}").WIRE
    return wire


def connect(
    info: ProviderInfo,
    model: Model,
    key: Key,
    base_url: str | None = None,
    *,
    idle_seconds: float = 120.0,
    connect_seconds: float = 10.0,
    script: str = "",
) -> Provider:
    """Create a client for the provider, ready to stream; nothing is sent yet.

    `key` may be a function, called before each request; it may raise AuthError. `script` is the
    file that the scripted provider plays.

    Raises:
        ConfigError: a base URL or script is missing or cannot be used.
    """
    if info.api == "scripted":
        if not script:
            raise ConfigError("the scripted provider needs a script file: pass --script FILE")
        from zot.provider import scripted

        return scripted.ScriptedProvider.from_file(script)
    url = base_url or model.base_url or info.base_url
    if not url:
        wanted = " or ".join(("--base-url", *info.base_url_env))
        raise ConfigError(f"no address for provider {info.name!r}: set {wanted}")
    api = api_of(info, model, base_url)
    http = Http(info.name, url, connect_seconds=connect_seconds, idle_seconds=idle_seconds)
    return ModelClient(info, load_wire(api), api, key, http)
