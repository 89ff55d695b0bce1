"""Browser pages for logging in: the form for an API key, and the callback of an OAuth login, from a
small HTTP server on 127.0.0.1 that lives as long as the login.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Mapping
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from zot.cancel import Cancel
from zot.errors import AuthError
from zot.provider.auth.oauth import Attempt, AuthServer, begin
from zot.text import Frozen, cookie_of

WAIT_SECONDS = 600.0
MAX_KEY = 8192


class KeyPage:
    """A form for a key. The address works once; afterwards a cookie identifies the browser."""

    def __init__(self, title: str, take: Callable[[str], str]) -> None:
        """`take` stores the key; if it returns a text, that is shown and the user may try again."""
        self._title = title
        self._take = take
        self._token = secrets.token_urlsafe(24)
        self._cookie = ""
        self._lock = threading.Lock()
        self.done = threading.Event()
        self._server = LoginServer(self._answer)
        self.url = f"{self._server.url}/?token={self._token}"

    def wait(self, cancel: Cancel, seconds: float = WAIT_SECONDS) -> bool:
        """Return whether a key was entered in time. Raises Cancelled: it was given up."""
        with cancel.calling(self.done.set):
            taken = self.done.wait(seconds)
        cancel.check()
        return taken

    def close(self) -> None:
        self._server.close()

    def _answer(self, query: Query) -> WebPage:
        with self._lock:
            if self.done.is_set():
                return refusal(410, "This login is over.")
            if query.method == "GET" and query.path == "/" and "token" in query.fields:
                return self._enter(query.fields["token"])
            if not same(query.cookie, self._cookie):
                return refusal(403, "Open the address that zot printed.")
            if query.path != "/":
                return refusal(404, "There is nothing here.")
            if query.method == "GET":
                return WebPage(200, self._form())
            return self._save(query.fields.get("api_key", "").strip())

    def _enter(self, token: str) -> WebPage:
        if not same(token, self._token):
            return refusal(403, "This address was used before, or is not the one zot printed.")
        self._token = ""
        self._cookie = secrets.token_urlsafe(24)
        moved = {"location": "/", "set-cookie": set_cookie(self._cookie)}
        return WebPage(303, "", moved)

    def _save(self, key: str) -> WebPage:
        if not key or len(key) > MAX_KEY or not key.isprintable():
            return WebPage(400, self._form("That is not a key."))
        try:
            problem = self._take(key)
        except AuthError as error:
            problem = str(error)
        if problem:
            return WebPage(400, self._form(problem))
        self.done.set()
        text = "<p>The key is kept. You can close this page and go back to the terminal.</p>"
        return WebPage(200, document("Logged in", text))

    def _form(self, problem: str = "") -> str:
        bad = f'<p class="bad" role="alert">{escape(problem)}</p>' if problem else ""
        return document(
            f"Log in to {escape(self._title)}",
            f'{bad}<form method="post" action="/" autocomplete="off">'
            '<label for="api_key">API key</label>'
            '<input id="api_key" name="api_key" type="password" required autofocus '
            'autocomplete="off" spellcheck="false">'
            '<button type="submit">Keep the key on this machine</button></form>',
        )


class CallbackPage:
    """Waits for the code that an OAuth server sends back through the browser."""

    def __init__(self, server: AuthServer) -> None:
        self._server = server
        self._path = server.callback_path
        self._code = ""
        self._problem = ""
        self._arrived = threading.Event()
        self._http = LoginServer(self._answer, server.callback_host, server.callback_port)
        self.attempt: Attempt = begin(server, self._http.url + self._path)

    def begin(self, server: AuthServer) -> None:
        """Start a new attempt with server data known only now, before anyone sees the page."""
        self._server = server
        self.attempt = begin(server, self._http.url + self._path)

    def wait(self, cancel: Cancel, seconds: float = WAIT_SECONDS) -> str:
        """Wait for the code and return it.

        Raises:
            AuthError: the server said no, or nothing came in time.
            Cancelled: it was given up.
        """
        with cancel.calling(self._arrived.set):
            self._arrived.wait(seconds)
        cancel.check()
        if not self._code:
            raise AuthError(self._problem or "nobody logged in within ten minutes; start again")
        return self._code

    def paste(self, code: str) -> None:
        """Accept a code that the user pasted."""
        self._code = code
        self._arrived.set()

    def close(self) -> None:
        self._http.close()

    def _is_from(self, issuer: str) -> bool:
        if not issuer:
            return not self._server.issuer_needed
        return not self._server.issuer or issuer == self._server.issuer

    def _answer(self, query: Query) -> WebPage:
        if query.method != "GET" or query.path != self._path:
            return refusal(404, "There is nothing here.")
        if self._arrived.is_set():
            return refusal(410, "This login is over.")
        if not same(query.fields.get("state", ""), self.attempt.state):
            return refusal(403, "This answer belongs to another login.")
        if not self._is_from(query.fields.get("iss", "")):
            self._problem = "the answer comes from another OAuth server than the one that was asked"
            self._arrived.set()
            return refusal(403, "This answer is from another server.")
        if "error" in query.fields:
            self._problem = f"the OAuth server refused: {query.fields['error'][:200]}"
            self._arrived.set()
            return refusal(400, "The login was refused.")
        self._code = query.fields.get("code", "")
        if not self._code:
            return refusal(400, "The answer holds no code.")
        self._arrived.set()
        text = "<p>You can close this page and go back to the terminal.</p>"
        return WebPage(200, document("Logged in", text))


# --- the server of a login ---------------------------------------------------------------------

MAX_BODY = 64 * 1024
SECONDS = 30.0
"""Timeout of a connection on which the browser sends nothing."""

POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-type": "text/html; charset=utf-8",
    "content-security-policy": POLICY,
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    # Not no-referrer: browsers then send `Origin: null` with a form, and the check would fail.
    "referrer-policy": "same-origin",
}


class Query(Frozen):
    """A request that passed the checks."""

    method: str
    path: str
    fields: Mapping[str, str]
    """Fields of the address, or of the submitted form."""
    cookie: str


class WebPage(Frozen):
    status: int
    body: str
    headers: Mapping[str, str] = {}


Answering = Callable[[Query], WebPage]


class LoginServer:
    """Listens until closed, and answers only the user's browser. `answer` runs in a thread of the
    server.

    Neither another page in the same browser (cross-site requests) nor a name that was made to point
    to 127.0.0.1 (DNS rebinding) may use it: Host and Origin are checked here, and KeyPage wants the
    cookie that its first page set.
    """

    def __init__(self, answer: Answering, host: str = "127.0.0.1", port: int = 0) -> None:
        self._answer = answer
        try:
            self._server = _Server(("127.0.0.1", port), _Handler)
        except OSError as error:
            raise AuthError(
                f"cannot listen on port {port} of this machine: {error.strerror}; "
                "is another login running?"
            ) from error
        self.port: int = self._server.server_address[1]
        self.host = f"{host}:{self.port}"
        self.url = f"http://{self.host}"
        self._server.login = self
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.1,), name="zot-login", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def handle(self, request: _Handler) -> WebPage:
        """Check a request; return its page, or a refusal."""
        if request.headers.get("host") not in (self.host, f"127.0.0.1:{self.port}"):
            return refusal(403, "This address belongs to a login on another name.")
        parts = urlsplit(request.path)
        if request.command == "GET":
            fields = parse_qs(parts.query, max_num_fields=50)
        else:
            if request.headers.get("origin") != f"http://{request.headers['host']}":
                return refusal(403, "The form came from another page.")
            fields = request.form()
        plain = {name: values[0] for name, values in fields.items()}
        return self._answer(Query(request.command, parts.path, plain, request.cookie()))


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    login: LoginServer


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = SECONDS
    server_version = "zot"
    sys_version = ""

    def do_GET(self) -> None:
        self._reply()

    def do_POST(self) -> None:
        self._reply()

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: an address may contain a code."""

    def form(self) -> dict[str, list[str]]:
        """Return the fields of a form; empty for anything else."""
        kind = self.headers.get("content-type", "").partition(";")[0].strip()
        length = self.headers.get("content-length", "")
        if kind != "application/x-www-form-urlencoded" or not length.isdigit():
            return {}
        if int(length) > MAX_BODY:
            return {}
        text = self.rfile.read(int(length)).decode("utf-8", "replace")
        try:
            return parse_qs(text, max_num_fields=50)
        except ValueError:
            return {}

    def cookie(self) -> str:
        return cookie_of(self.headers.get("cookie", ""), "zot_login")

    def _reply(self) -> None:
        try:
            page = self.server.login.handle(self)
        except ValueError:  # an invalid address
            page = refusal(400, "This request cannot be read.")
        data = page.body.encode()
        self.send_response(page.status)
        for name, value in {**HEADERS, **page.headers}.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(data)))
        self.send_header("connection", "close")
        self.end_headers()
        self.wfile.write(data)
        self.close_connection = True


def same(said: str, secret: str) -> bool:
    """Compare two texts in constant time; False if `secret` is empty."""
    return bool(secret) and secrets.compare_digest(said.encode(), secret.encode())


def set_cookie(value: str) -> str:
    return f"zot_login={value}; Path=/; HttpOnly; SameSite=Strict"


def refusal(status: int, text: str) -> WebPage:
    return WebPage(status, document("Not here", f"<p>{text}</p>"))


STYLE = """
:root { color-scheme: light dark; --line: #ccd; --ink: #1c1e21; --bg: #fff; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --line: #445; --ink: #e3e6ea; --bg: #15171a;
  --bad: #ff8a80; } }
body { max-width: 30rem; margin: 12vh auto; padding: 0 1rem; background: var(--bg);
  color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.3rem; } label { display: block; margin: 1rem 0 .3rem; }
input, button { font: inherit; width: 100%; padding: .6rem .7rem; border-radius: .4rem;
  border: 1px solid var(--line); box-sizing: border-box; }
button { margin-top: 1rem; cursor: pointer; } .bad { color: var(--bad); }
"""


def document(title: str, body: str) -> str:
    """Return a page. `body` is trusted markup; foreign text in it is already escaped."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title} - zot</title><style>{STYLE}</style></head>"
        f"<body><h1>{title}</h1>{body}</body></html>\n"
    )
