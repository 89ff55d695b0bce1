"""Binds each thought of a model to everything before it in the request that it answers.

Some servers refuse a thought for good once the system prompt, the tools or any earlier message
differs: after a compaction, with late tools, on the next day. So a thought stores a digest of its
prefix, and is left out of a request with another prefix. Text and tool calls stay. No I/O, no API's
words.
"""

from __future__ import annotations

from hashlib import sha256

from msgspec.structs import replace

from zot.provider.providers import Quirks
from zot.provider.transcript import EncodeTurn, ModelTurn
from zot.provider.types import Block, Finished, Reasoning
from zot.text import encode_json

PREFIX = "prefix"
"""Key of the digest in a thought's opaque data."""


def fitting(turn: ModelTurn, digest: str, encode: EncodeTurn, quirks: Quirks) -> ModelTurn:
    """Return the turn without the thoughts made with another prefix than `digest`."""
    blocks: list[Block] = []
    for block in turn.blocks:
        if isinstance(block, Reasoning):
            made_with = (block.opaque or {}).get(PREFIX)
            if made_with != _before(blocks, digest, encode, quirks):
                continue
        blocks.append(block)
    return turn if len(blocks) == len(turn.blocks) else replace(turn, blocks=tuple(blocks))


def bound(finished: Finished, digest: str, encode: EncodeTurn, quirks: Quirks) -> Finished:
    """Return the answer with each thought bound to its prefix; `digest` is the request's."""
    blocks: list[Block] = []
    for block in finished.content:
        if isinstance(block, Reasoning):
            prefix = _before(blocks, digest, encode, quirks)
            block = replace(block, opaque={**(block.opaque or {}), PREFIX: prefix})
        blocks.append(block)
    return replace(finished, content=tuple(blocks))


def _before(blocks: list[Block], digest: str, encode: EncodeTurn, quirks: Quirks) -> str:
    """Return the digest of the request and of the blocks before in the same answer."""
    if not blocks:
        return digest
    said = ModelTurn(tuple(blocks), same_provider=True, same_model=True)  # type: ignore[arg-type]
    data = b",".join(map(encode_json, encode(said, quirks)))
    return sha256(digest.encode() + data).hexdigest()
