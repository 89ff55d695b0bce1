"""The authorization server of an MCP server, on loopback: it describes itself, takes clients that
it does not know, and gives tokens for one resource only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from support.mcp_http import HttpServer, http_server
from support.oauth import CLIENT, OAuthServer


class McpOAuthServer(OAuthServer):
    def __init__(self) -> None:
        super().__init__()
        self.resource = ""
        """The address of the server that tokens are for."""
        self.issuer = self.url
        """Who it says that it is."""
        self.answers_as = self.url
        """Who it says to the browser that it is."""
        self.clients: list[dict[str, str]] = []
        self.logins: list[dict[str, str]] = []

    def described(self, path: str) -> dict[str, object] | None:
        if path == "/.well-known/oauth-protected-resource/mcp":
            return {"resource": self.resource, "authorization_servers": [self.url]}
        if path != "/.well-known/oauth-authorization-server":
            return None
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "registration_endpoint": f"{self.url}/register",
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none"],
            "authorization_response_iss_parameter_supported": True,
            "scopes_supported": ["everything"],
        }

    def registered(self, fields: dict[str, str]) -> dict[str, object]:
        self.clients.append(fields)
        return {"client_id": CLIENT, "token_endpoint_auth_method": "none"}

    def authorize(self, query: dict[str, str]) -> str:
        self.logins.append(query)
        return super().authorize(query)

    def also_answered(self) -> dict[str, str]:
        return {"iss": self.answers_as}

    def token(self, fields: dict[str, str]) -> tuple[int, dict[str, object]]:
        if fields.get("resource") != self.resource:
            return 400, {"error": "invalid_target"}
        return super().token(fields)


@contextmanager
def protected_server() -> Iterator[tuple[str, HttpServer, McpOAuthServer]]:
    """An MCP server by HTTP that wants a login."""
    oauth = McpOAuthServer()
    where = f"{oauth.url}/.well-known/oauth-protected-resource/mcp"
    challenge = f'Bearer resource_metadata="{where}", scope="tools:call"'
    try:
        with http_server(tokens=oauth.access_tokens, challenge=challenge) as (url, server):
            oauth.resource = url
            yield url, server, oauth
    finally:
        oauth.close()
