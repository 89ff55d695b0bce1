"""Binds each thought of a model to all that came before it in the request that it answers.

Some servers refuse a thought for good once the system prompt, the tools or any earlier message is
another one: after a compaction, with tools that come late, on the next day. So a thought keeps a
digest of what it was made with, and is left out of a request that begins in another way. Text and
tool calls stay. No I/O, no API's words.
"""

from __future__ import annotations

from hashlib import sha256

from msgspec.structs import replace

from zot.provider.providers import Quirks
from zot.provider.transcript import EncodeTurn, ModelTurn
from zot.provider.types import Block, Finished, Reasoning
from zot.text import encode_json

PREFIX = "prefix"
"""Where in the opaque data of a thought the digest is."""


def fitting(turn: ModelTurn, digest: str, encode: EncodeTurn, quirks: Quirks) -> ModelTurn:
    """The turn without the thoughts that were made with another beginning than `digest`."""
    blocks: list[Block] = []
    for block in turn.blocks:
        if isinstance(block, Reasoning):
            made_with = (block.opaque or {}).get(PREFIX)
            if made_with != _before(blocks, digest, encode, quirks):
                continue
        blocks.append(block)
    return turn if len(blocks) == len(turn.blocks) else replace(turn, blocks=tuple(blocks))


def bound(finished: Finished, digest: str, encode: EncodeTurn, quirks: Quirks) -> Finished:
    """The answer to the request of that digest, each thought with what came before it."""
    blocks: list[Block] = []
    for block in finished.content:
        if isinstance(block, Reasoning):
            prefix = _before(blocks, digest, encode, quirks)
            block = replace(block, opaque={**(block.opaque or {}), PREFIX: prefix})
        blocks.append(block)
    return replace(finished, content=tuple(blocks))


def _before(blocks: list[Block], digest: str, encode: EncodeTurn, quirks: Quirks) -> str:
    """The digest of the request and of what the model said before in the same answer."""
    if not blocks:
        return digest
    said = ModelTurn(tuple(blocks), same_provider=True, same_model=True)  # type: ignore[arg-type]
    data = b",".join(map(encode_json, encode(said, quirks)))
    return sha256(digest.encode() + data).hexdigest()
