"""Browser pages for logging in: the form for an API key, and the callback of an OAuth login."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from html import escape

from zot.cancel import Cancel
from zot.errors import AuthError
from zot.provider.auth.oauth import Attempt, AuthServer, begin
from zot.provider.auth.server import (
    LoginServer,
    Query,
    WebPage,
    document,
    refusal,
    same,
    set_cookie,
)

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
