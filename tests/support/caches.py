"""A model server with prompt caches as the providers document them.

Anthropic: entries end at marked blocks, are found up to 20 blocks before a mark, and live for five
minutes or an hour since their last use. Others: the longest prefix of whole items is found by
itself, in blocks of 128 tokens, below the conversation's `prompt_cache_key`.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from zot.testing import replies
from zot.testing.fakeserver import FakeServer, Seen
from zot.testing.script import FakeTurn

LOOK_BACK = 20
LEAST = 1_024
BLOCK = 128
SECONDS = {None: 300, "5m": 300, "1h": 3_600, "30m": 1_800, "12h": 43_200}


class CachingServer(FakeServer):
    def __init__(self) -> None:
        self.now = 0.0
        """Time of the caches, in seconds; tests let it pass."""
        self.entries: dict[str, tuple[float, int]] = {}
        """Digest of a prefix: when it ends, and its lifetime."""
        self.counts: list[tuple[int, int, int, int]] = []
        """Fresh, output, read and written tokens of each request."""
        super().__init__()

    def forget(self) -> None:
        self.entries.clear()

    def _build(self, call: replies.FakeCall, turn: FakeTurn, seen: Seen) -> replies.FakeReply:
        reply = super()._build(call, turn, seen)
        count = self._explicit if call.dialect == "anthropic" else self._implicit
        fresh, read, written = count(seen.body)
        reply.usage = fresh, reply.usage[1], read, written
        self.counts.append(reply.usage)
        return reply

    def _alive(self, digest: str) -> bool:
        return self.entries.get(digest, (-1.0, 0))[0] > self.now

    def _store(self, digest: str, seconds: int) -> None:
        self.entries[digest] = self.now + seconds, seconds

    def _explicit(self, body: dict[str, Any]) -> tuple[int, int, int]:
        units = [*body.get("tools", []), *body.get("system", [])]
        for message in body["messages"]:
            units += [{**block, "role": message["role"]} for block in message["content"]]
        settings = [body["model"], body.get("thinking"), body.get("tool_choice")]
        chain = prefixes(settings, units)
        marks = [(at, unit["cache_control"]) for at, unit in enumerate(units) if marked(unit)]
        marks = [(at, mark) for at, mark in marks if chain[at][1] >= LEAST]
        found = -1
        for at, _ in marks:
            near = range(at, max(at - LOOK_BACK, -1), -1)
            found = max(found, next((i for i in near if self._alive(chain[i][0])), -1))
        read = chain[found][1] if found >= 0 else 0
        if found >= 0:
            self._store(chain[found][0], self.entries[chain[found][0]][1])
        for at, mark in marks:
            self._store(chain[at][0], SECONDS[mark.get("ttl")])
        last = max([chain[at][1] for at, _ in marks], default=0)
        written = max(last - read, 0)
        return chain[-1][1] - read - written, read, written

    def _implicit(self, body: dict[str, Any]) -> tuple[int, int, int]:
        said = body.get("input") or body.get("messages") or body.get("contents")
        units = [body.get("tools"), body.get("systemInstruction"), *said]
        chain = prefixes([body.get("model"), body.get("prompt_cache_key")], units)
        options = body.get("prompt_cache_options") or {}
        alive = [tokens for digest, tokens in chain if self._alive(digest)]
        read = max(alive, default=0) // BLOCK * BLOCK
        for digest, tokens in chain:
            if tokens >= LEAST:
                self._store(digest, SECONDS[options.get("ttl")])
        return chain[-1][1] - read, read, 0


def marked(unit: dict[str, Any]) -> bool:
    return "cache_control" in unit


def prefixes(settings: list[Any], units: list[Any]) -> list[tuple[str, int]]:
    """Digest and tokens of everything up to each unit. Marks are no part of it."""
    chain, digest, tokens = [], hashlib.sha256(json.dumps(settings).encode()), 0
    for unit in units:
        plain = unit
        if isinstance(unit, dict):
            plain = {key: value for key, value in unit.items() if key != "cache_control"}
        text = json.dumps(plain, sort_keys=True)
        digest.update(text.encode())
        tokens += len(text) // 4
        chain.append((digest.hexdigest(), tokens))
    return chain
