"""MCP from the server's side, in both eras. No I/O, and nothing about what tools do.

In the older era a client begins with `initialize`, and the server may send requests. Since
2026-07-28 every request carries its version and the client's capabilities; a question of the server
is the result of the call, and the client calls again with the answer.

Needed for the first answer, so it imports little.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, Raw, UnsetType, field

from zot import __version__
from zot.jsonrpc import INVALID_PARAMS, RpcError, RpcId
from zot.text import Frozen, prepared

MODERN = ("2026-07-28",)
HANDSHAKE = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
UNSUPPORTED_VERSION = -32022
_META = "io.modelcontextprotocol/"
CACHE_SECONDS = 3600
INSTRUCTIONS = (
    "zot is a coding agent. The tool `zot` gives it a task in a directory and returns its answer; "
    "`zot_reply` goes on with the same session."
)
JsonObject = dict[str, Any]


class McpPeer(Frozen):
    """The client of a request: its era, and whether it can show forms."""

    modern: bool = False
    forms: bool = False


class McpParams(Frozen):
    """Parameters of any request; each method reads its own."""

    meta: JsonObject = field(default_factory=dict, name="_meta")
    protocol_version: str = field(default="", name="protocolVersion")
    capabilities: JsonObject = {}
    name: str = ""
    arguments: JsonObject = {}
    input_responses: JsonObject = field(default_factory=dict, name="inputResponses")
    request_state: str = field(default="", name="requestState")
    request_id: RpcId | UnsetType = field(default=UNSET, name="requestId")

    @property
    def progress_token(self) -> int | str | None:
        token = self.meta.get("progressToken")
        return token if isinstance(token, int | str) else None


prepared(McpParams)


def read_params(params: Raw) -> McpParams:
    """Raises RpcError: a field has the wrong type."""
    try:
        return msgspec.json.decode(params, type=McpParams)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise RpcError(INVALID_PARAMS, f"invalid params: {error}") from error


def peer_of(params: McpParams, greeted: McpPeer) -> McpPeer:
    """Return the sender of a request; `greeted` is the client that sent `initialize`. Raises
    RpcError: its version is not supported."""
    version = params.meta.get(f"{_META}protocolVersion")
    if version is None:
        return greeted
    if version not in MODERN:
        data = {"supported": [*MODERN, *HANDSHAKE], "requested": version}
        raise RpcError(UNSUPPORTED_VERSION, f"there is no version {version!r} here", data)
    abilities = params.meta.get(f"{_META}clientCapabilities")
    return McpPeer(modern=True, forms=has_forms(abilities))


def has_forms(abilities: Any) -> bool:
    """Whether a client can show forms; an empty object counts as yes."""
    forms = abilities.get("elicitation") if isinstance(abilities, dict) else None
    return isinstance(forms, dict) and (not forms or isinstance(forms.get("form"), dict))


# --- results ---------------------------------------------------------------------------------


def initialized(params: McpParams) -> JsonObject:
    known = params.protocol_version in HANDSHAKE
    return {
        "protocolVersion": params.protocol_version if known else HANDSHAKE[-1],
        "capabilities": {"tools": {}},
        "serverInfo": _server_info(),
        "instructions": INSTRUCTIONS,
    }


def discovered() -> JsonObject:
    return _cacheable(
        {
            "supportedVersions": [*MODERN, *HANDSHAKE],
            "capabilities": {"tools": {}},
            "instructions": INSTRUCTIONS,
        }
    )


def listed(tools: list[JsonObject], peer: McpPeer) -> JsonObject:
    return _cacheable({"tools": tools}) if peer.modern else {"tools": tools}


def called(
    text: str, peer: McpPeer, facts: JsonObject | None = None, *, failed: bool
) -> JsonObject:
    """Return the result of a tool; without facts: it could not start."""
    result: JsonObject = {"content": [{"type": "text", "text": text}], "isError": failed}
    if facts is not None:
        result["structuredContent"] = facts
    return _modern("complete", result) if peer.modern else result


def input_required(forms: dict[str, JsonObject], state: str) -> JsonObject:
    """Return questions instead of a result: the client asks its user, and calls again."""
    requests = {
        key: {"method": "elicitation/create", "params": {"mode": "form", **form}}
        for key, form in forms.items()
    }
    result = {"inputRequests": requests, "requestState": state}
    return _modern("input_required", result)


def _modern(kind: str, result: JsonObject) -> JsonObject:
    return {"resultType": kind, **result, "_meta": {f"{_META}serverInfo": _server_info()}}


def _cacheable(result: JsonObject) -> JsonObject:
    return _modern("complete", {**result, "ttlMs": CACHE_SECONDS * 1000, "cacheScope": "public"})


def _server_info() -> JsonObject:
    return {"name": "zot", "title": "zot", "version": __version__}


# --- questions -------------------------------------------------------------------------------

Choice = Literal["allow", "allow_session", "deny"]
DECISIONS: dict[str, Choice] = {
    "Allow": "allow",
    "Allow for this session": "allow_session",
    "Deny": "deny",
}


def approval_form(title: str, preview: str) -> JsonObject:
    """Return the form that asks for approval of a tool call."""
    choice = {"type": "string", "title": "Allow it?", "enum": list(DECISIONS)}
    schema = {"type": "object", "properties": {"decision": choice}, "required": ["decision"]}
    return {"message": f"zot wants to run: {title}\n\n{preview}", "requestedSchema": schema}


def chosen(answer: Any) -> Choice:
    """Return the decision of a filled form; anything unclear denies."""
    match answer:
        case {"action": "accept", "content": {"decision": str(word)}}:
            return DECISIONS.get(word, "deny")
        case _:
            return "deny"
