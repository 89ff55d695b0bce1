"""What pi's commands answer with: state, models, messages, entries, statistics. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from zot.core import events
from zot.core.cost import add
from zot.core.session import Compaction, Entry, Session
from zot.pi.format import PiWriter
from zot.pi.messages import api_word, text_of, to_pi, usage_to_pi
from zot.provider.providers import PROVIDERS
from zot.provider.types import (
    LEVELS,
    Json,
    Level,
    Message,
    Model,
    Price,
    Text,
    ToolCall,
    ToolResult,
    Usage,
)
from zot.sessions.rows import Meta

_EVERY_MODEL_THINKS: tuple[Level, ...] = ("off", "minimum", "low", "medium", "high")
_FILE_TOOLS = {"read": "readFiles", "write": "modifiedFiles", "edit": "modifiedFiles"}


# --- models and levels -----------------------------------------------------------------------


def model(found: Model) -> dict[str, Json]:
    """A model as pi describes it; prices in dollars per million tokens."""
    price = found.price or Price(0.0, 0.0)
    info = PROVIDERS.get(found.provider)
    shown: dict[str, Json] = {
        "id": found.id,
        "name": found.name or found.id,
        "api": api_word(found.api),
        "provider": found.provider,
        "baseUrl": found.base_url or (info.base_url if info else ""),
        "reasoning": found.reasoning,
        "input": ["text", "image"] if found.images else ["text"],
        "cost": {
            "input": price.input,
            "output": price.output,
            "cacheRead": price.cache_read,
            "cacheWrite": price.cache_write,
        },
        "contextWindow": found.context_window,
        "maxTokens": found.max_output,
    }
    return {**shown, "headers": found.headers} if found.headers else shown


def levels(found: Model) -> list[Level]:
    """The levels a model has."""
    if not found.reasoning:
        return ["off"]
    words = (found.compat or {}).get("levels")
    words = words if isinstance(words, dict) else {}
    plain = [each for each in _EVERY_MODEL_THINKS if words.get(each, "") is not None]
    more: tuple[Level, ...] = ("xhigh", "max")
    return plain + [each for each in more if words.get(each)]


def clamped(wanted: Level, found: Model) -> Level:
    """The level itself, or the highest one below it that the model has."""
    have = [each for each in levels(found) if LEVELS.index(each) <= LEVELS.index(wanted)]
    return have[-1] if have else "off"


# --- messages --------------------------------------------------------------------------------


def messages(found: Iterable[Message]) -> list[dict[str, Json]]:
    return [shown for message in found for shown in _shown(message)]


def count(found: Iterable[Message]) -> int:
    """How many messages `messages` gives, without making them."""
    return sum(
        sum(isinstance(block, ToolResult) for block in message.content)
        if message.role == "tool"
        else 1
        for message in found
    )


def _shown(message: Message) -> list[dict[str, Json]]:
    extra = message.extra or {}
    if not extra.get("compaction"):
        return to_pi(message)
    heading, _, summary = text_of(message.content).partition("\n\n")
    return [
        {
            "role": "compactionSummary",
            "summary": summary or heading,
            "tokensBefore": extra.get("tokens_before", 0),
            "timestamp": round(message.time * 1000),
        }
    ]


def system_message(text: str, tools: Sequence[Json], time: float) -> dict[str, Json]:
    """The message that opens a conversation in generation C."""
    return {
        "role": "system",
        "content": "",
        "sections": {"prompt": text},
        "toolsAdded": list(tools),
        "timestamp": round(time * 1000),
    }


def last_assistant_text(found: Sequence[Message]) -> str | None:
    for message in reversed(found):
        if message.role == "assistant" and (text := text_of(message.content).strip()):
            return text
    return None


def forkable(session: Session) -> list[dict[str, Json]]:
    """The user's own messages on the current branch."""
    return [
        {"entryId": entry.id, "text": first_text(entry.body)}
        for entry in session.path()
        if is_own(entry)
    ]


def is_own(entry: Entry) -> bool:
    """Whether the user wrote it: not a summary, nor the output of a command."""
    body = entry.body
    return isinstance(body, Message) and body.role == "user" and "pi" not in (body.extra or {})


def first_text(body: object) -> str:
    blocks = body.content if isinstance(body, Message) else ()
    return next((block.text for block in blocks if isinstance(block, Text)), "")


# --- the session -----------------------------------------------------------------------------


class Rows:
    """The session as rows of pi's file format."""

    def __init__(self, session: Session) -> None:
        writer = PiWriter(Meta())
        self.rows: list[dict[str, Json]] = [
            row for entry in list(session.entries.values()) for row in writer.rows(entry, session)
        ]
        self.leaf = None if session.leaf is None else writer.row_of(session.leaf)

    def since(self, id: str | None) -> list[dict[str, Json]] | None:
        """Those after the one with this id; None if there is no such row."""
        if id is None:
            return self.rows
        at = next((at for at, row in enumerate(self.rows) if row["id"] == id), None)
        return None if at is None else self.rows[at + 1 :]

    def tree(self) -> list[dict[str, Json]]:
        nodes: dict[str, dict[str, Json]] = {
            row["id"]: {"entry": row, "children": []} for row in self.rows
        }
        roots: list[dict[str, Json]] = []
        for row in self.rows:
            parent = nodes.get(row["parentId"])
            (roots if parent is None else parent["children"]).append(nodes[row["id"]])
            if row["type"] == "label" and (node := nodes.get(row["targetId"])) is not None:
                node |= {"label": row.get("label"), "labelTimestamp": row["timestamp"]}
        for node in nodes.values():
            if node.get("label", "") is None:  # it was taken off again
                del node["label"], node["labelTimestamp"]
        return roots


def stats(session: Session, path: str, context: int, window: int) -> dict[str, Json]:
    found = session.path()
    shown = messages(entry.body for entry in found if isinstance(entry.body, Message))
    usage = spent(session)
    roles = [each["role"] for each in shown]
    calls = sum(
        isinstance(block, ToolCall)
        for entry in found
        if isinstance(entry.body, Message)
        for block in entry.body.content
    )
    compacted = bool(found) and isinstance(_last_telling(found), Compaction)
    return {
        **({"sessionFile": path} if path else {}),
        "sessionId": session.id,
        "userMessages": roles.count("user"),
        "assistantMessages": roles.count("assistant"),
        "toolCalls": calls,
        "toolResults": roles.count("toolResult"),
        "totalMessages": len(roles),
        "tokens": {
            "input": usage.input,
            "output": usage.output,
            "cacheRead": usage.cache_read,
            "cacheWrite": usage.cache_write,
            "total": usage.total,
        },
        "cost": usage.cost.total,
        "contextUsage": {
            "tokens": None if compacted else context,
            "contextWindow": window,
            "percent": None if compacted else round(100 * context / window, 2),
        },
    }


def spent(session: Session) -> Usage:
    """What the session cost, summaries included."""
    total = Usage()
    for entry in list(session.entries.values()):
        body = entry.body
        if isinstance(body, Message) and body.origin is not None:
            total = add(total, body.origin.usage)
        elif isinstance(body, Compaction) and body.usage is not None:
            total = add(total, body.usage)
    return total


def _last_telling(path: Sequence[Entry]) -> object:
    """What the size of the context was last learned from."""
    for entry in reversed(path):
        if isinstance(entry.body, Compaction | Message):
            return entry.body
    return None


def compaction(event: events.CompactDone, session: Session) -> dict[str, Json]:
    """A compaction's result. A kept-nothing one names itself, as it does in the file."""
    return {
        "summary": event.summary,
        "firstKeptEntryId": event.first_kept or session.leaf or "",
        "tokensBefore": event.tokens_before,
        "estimatedTokensAfter": event.tokens_after,
        "usage": usage_to_pi(event.usage),
        "details": touched_files(session),
    }


def touched_files(session: Session) -> dict[str, Json]:
    """The files that the conversation read and changed."""
    found: dict[str, dict[str, None]] = {"readFiles": {}, "modifiedFiles": {}}
    for entry in session.path():
        for block in entry.body.content if isinstance(entry.body, Message) else ():
            if isinstance(block, ToolCall) and block.name in _FILE_TOOLS:
                path = (block.args or {}).get("path")
                if isinstance(path, str):
                    found[_FILE_TOOLS[block.name]][path] = None
    changed = found["modifiedFiles"]
    read = sorted(path for path in found["readFiles"] if path not in changed)
    return {"readFiles": read, "modifiedFiles": sorted(changed)}
