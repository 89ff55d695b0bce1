"""An OAuth 2 server on loopback that holds clients to the standard, and a list of models behind it.

It checks what a real one checks: the client, the address to go back to, PKCE, one use of a code,
one use of a refresh token, the pace of device polling.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlencode, urlsplit

CLIENT = "client-1"


class OAuthServer:
    def __init__(self) -> None:
        self.codes: dict[str, dict[str, str]] = {}
        self.refresh_tokens: set[str] = set()
        self.access_tokens: set[str] = set()
        self.keys: set[str] = set()
        self.devices: dict[str, str] = {}
        """Device codes, and what the user did: pending, allowed or denied."""
        self.slow_down = 0
        self.expires_in = 3600
        self.refreshes = 0
        self.reused = 0
        self.refresh_seconds = 0.0
        self.fail_with: tuple[int, bytes] | None = None
        self.bodies: list[str] = []
        self.lock = threading.Lock()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,))
        self._thread.start()

    def close(self) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    def settings(self, **more: object) -> dict[str, object]:
        """What a user would write in oauth.json."""
        return {
            "client_id": CLIENT,
            "authorize_url": f"{self.url}/authorize",
            "token_url": f"{self.url}/token",
            "device_url": f"{self.url}/device",
            "scopes": ["models"],
            **more,
        }

    def issue(self) -> dict[str, object]:
        access, refresh = f"at-{secrets.token_hex(8)}", f"rt-{secrets.token_hex(8)}"
        self.access_tokens.add(access)
        self.refresh_tokens.add(refresh)
        return {
            "access_token": access,
            "refresh_token": refresh,
            "token_type": "Bearer",
            "expires_in": self.expires_in,
            "scope": "models",
        }

    # --- endpoints ---------------------------------------------------------------------------

    def authorize(self, query: dict[str, str]) -> str:
        """Where the browser goes next."""
        assert query["response_type"] == "code", query
        assert query["code_challenge_method"] == "S256", query
        back = query.get("redirect_uri") or query["callback_url"]
        assert urlsplit(back).hostname in ("127.0.0.1", "localhost"), back
        code = secrets.token_hex(8)
        self.codes[code] = query
        answer = {"code": code, **self.also_answered()}
        if "state" in query:
            answer["state"] = query["state"]
        return back + ("&" if "?" in back else "?") + urlencode(answer)

    def also_answered(self) -> dict[str, str]:
        """What the browser brings back besides."""
        return {}

    def described(self, path: str) -> dict[str, object] | None:
        """What stands below `/.well-known/`."""
        return None

    def registered(self, fields: dict[str, str]) -> dict[str, object]:
        return {}

    def posted(self, path: str, fields: dict[str, str]) -> tuple[int, dict[str, object]]:
        if path == "/device":
            return 200, self.device()
        return (201, self.registered(fields)) if path == "/register" else self.token(fields)

    def token(self, fields: dict[str, str]) -> tuple[int, dict[str, object]]:
        match fields.get("grant_type"):
            case "refresh_token":
                return self._refresh(fields)
            case "urn:ietf:params:oauth:grant-type:device_code":
                return self._device_token(fields)
            case "authorization_code":
                return self._code(fields)
            case _:
                return 400, {"error": "unsupported_grant_type"}

    def _code(self, fields: dict[str, str]) -> tuple[int, dict[str, object]]:
        asked = self.codes.pop(fields.get("code", ""), None)
        if asked is None:
            return 400, {"error": "invalid_grant", "error_description": "no such code"}
        digest = hashlib.sha256(fields.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        if challenge != asked["code_challenge"]:
            return 400, {"error": "invalid_grant", "error_description": "wrong verifier"}
        if fields.get("client_id", "") != asked.get("client_id", ""):
            return 400, {"error": "invalid_client"}
        if "callback_url" in asked:
            key = f"sk-{secrets.token_hex(8)}"
            self.keys.add(key)
            return 200, {"key": key}
        if fields.get("redirect_uri") != asked["redirect_uri"]:
            return 400, {"error": "invalid_grant", "error_description": "wrong address"}
        return 200, self.issue()

    def _refresh(self, fields: dict[str, str]) -> tuple[int, dict[str, object]]:
        time.sleep(self.refresh_seconds)  # a slow server: others wait for the lock meanwhile
        with self.lock:
            self.refreshes += 1
            token = fields.get("refresh_token", "")
            if token not in self.refresh_tokens:
                self.reused += 1
                return 400, {"error": "invalid_grant", "error_description": "used or unknown"}
            self.refresh_tokens.remove(token)
            return 200, self.issue()

    def device(self) -> dict[str, object]:
        code = secrets.token_hex(8)
        self.devices[code] = "pending"
        return {
            "device_code": code,
            "user_code": "ABCD-1234",
            "verification_uri": f"{self.url}/activate",
            "interval": 0.01,
            "expires_in": 30,
        }

    def _device_token(self, fields: dict[str, str]) -> tuple[int, dict[str, object]]:
        if self.slow_down:
            self.slow_down -= 1
            return 400, {"error": "slow_down"}
        match self.devices.get(fields.get("device_code", "")):
            case "allowed":
                return 200, self.issue()
            case "denied":
                return 400, {"error": "access_denied"}
            case "pending":
                return 400, {"error": "authorization_pending"}
            case _:
                return 400, {"error": "expired_token"}

    def models(self, headers: dict[str, str]) -> tuple[int, dict[str, object]]:
        bearer = headers.get("authorization", "").removeprefix("Bearer ")
        key = headers.get("x-api-key", "") or bearer
        if key in self.keys or key in self.access_tokens:
            return 200, {"data": [{"id": "m-1"}]}
        return 401, {"error": {"message": "bad key"}}


def _handler(oauth: OAuthServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            if parts.path == "/authorize":
                query = {name: values[0] for name, values in parse_qs(parts.query).items()}
                self._send(302, b"", oauth.authorize(query))
            elif parts.path.endswith("/models"):
                headers = {name.lower(): value for name, value in self.headers.items()}
                self._json(*oauth.models(headers))
            elif (described := oauth.described(parts.path)) is not None:
                self._json(200, described)
            else:
                self._json(404, {})

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"])).decode()
            oauth.bodies.append(body)
            is_json = self.headers["content-type"] == "application/json"
            fields = json.loads(body) if is_json else {k: v[0] for k, v in parse_qs(body).items()}
            if oauth.fail_with:
                self._send(*oauth.fail_with)
            else:
                self._json(*oauth.posted(self.path, fields))

        def _json(self, status: int, value: object) -> None:
            self._send(status, json.dumps(value).encode())

        def _send(self, status: int, data: bytes, location: str = "") -> None:
            self.send_response(status)
            if location:
                self.send_header("location", location)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    return Handler
