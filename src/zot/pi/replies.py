"""Data for the responses to pi's commands: state, models, messages, entries, statistics. No I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import UNSET

from zot.core import events
from zot.core.cost import add
from zot.core.session import Compaction, Entry, Session
from zot.pi import frames
from zot.pi.format import PiWriter
from zot.pi.messages import PiMessage, PiPrice, PiSummary, api_word, text_of, to_pi, usage_to_pi
from zot.provider import types
from zot.provider.providers import PROVIDERS
from zot.sessions.rows import Meta

_FILE_TOOLS = ("read", "write", "edit")


# --- models ----------------------------------------------------------------------------------


def model(known: types.Model) -> frames.PiModel:
    """Describe a model in pi's form."""
    price = known.price or types.Price(0.0, 0.0)
    info = PROVIDERS.get(known.provider)
    return frames.PiModel(
        id=known.id,
        name=known.name or known.id,
        api=api_word(known.api),
        provider=known.provider,
        baseUrl=known.base_url or (info.base_url if info else ""),
        reasoning=known.reasoning,
        input=["text", "image"] if known.images else ["text"],
        cost=PiPrice(price.input, price.output, price.cache_read, price.cache_write),
        contextWindow=known.context_window,
        maxTokens=known.max_output,
        headers=known.headers or UNSET,
    )


# --- messages --------------------------------------------------------------------------------


def messages(transcript: Iterable[types.Message]) -> list[PiMessage]:
    return [shown for message in transcript for shown in _shown(message)]


def count(transcript: Iterable[types.Message]) -> int:
    """Return the number of messages that `messages` returns, without building them."""
    return sum(
        sum(isinstance(block, types.ToolResult) for block in message.content)
        if message.role == "tool"
        else 1
        for message in transcript
    )


def _shown(message: types.Message) -> list[PiMessage]:
    extra = message.extra or {}
    if not extra.get("compaction"):
        return to_pi(message)
    heading, _, summary = text_of(message.content).partition("\n\n")
    tokens = extra.get("tokens_before", 0)
    return [PiSummary(summary or heading, tokens, round(message.time * 1000))]


def last_assistant_text(transcript: Sequence[types.Message]) -> str | None:
    for message in reversed(transcript):
        if message.role == "assistant" and (text := text_of(message.content).strip()):
            return text
    return None


def forkable(session: Session) -> list[frames.ForkPoint]:
    """Return the user's own messages on the current branch."""
    return [
        frames.ForkPoint(entry.id, first_text(entry.body))
        for entry in session.path()
        if is_own(entry)
    ]


def is_own(entry: Entry) -> bool:
    """Whether the user wrote the entry; summaries and command output do not count."""
    body = entry.body
    return (
        isinstance(body, types.Message) and body.role == "user" and "pi" not in (body.extra or {})
    )


def first_text(body: object) -> str:
    blocks = body.content if isinstance(body, types.Message) else ()
    return next(iter(types.texts_in(blocks)), "")


# --- the session -----------------------------------------------------------------------------


class Rows:
    """The session as rows of pi's file format."""

    def __init__(self, session: Session) -> None:
        writer = PiWriter(Meta())
        self.rows: list[dict[str, types.Json]] = [
            row for entry in list(session.entries.values()) for row in writer.rows(entry, session)
        ]
        self.leaf = None if session.leaf is None else writer.row_of(session.leaf)

    def since(self, id: str | None) -> list[dict[str, types.Json]] | None:
        """Return the rows after the one with this id; None if there is no such row."""
        if id is None:
            return self.rows
        at = next((at for at, row in enumerate(self.rows) if row["id"] == id), None)
        return None if at is None else self.rows[at + 1 :]

    def tree(self) -> list[dict[str, types.Json]]:
        nodes: dict[str, dict[str, types.Json]] = {
            row["id"]: {"entry": row, "children": []} for row in self.rows
        }
        roots: list[dict[str, types.Json]] = []
        for row in self.rows:
            parent = nodes.get(row["parentId"])
            (roots if parent is None else parent["children"]).append(nodes[row["id"]])
            if row["type"] == "label" and (node := nodes.get(row["targetId"])) is not None:
                node |= {"label": row.get("label"), "labelTimestamp": row["timestamp"]}
        for node in nodes.values():
            if node.get("label", "") is None:  # the label was removed
                del node["label"], node["labelTimestamp"]
        return roots


def stats(session: Session, path: str, context: int, window: int) -> frames.SessionStats:
    branch = session.path()
    said = [entry.body for entry in branch if isinstance(entry.body, types.Message)]
    roles = Counter(message.role for message in said)
    blocks = Counter(type(block) for message in said for block in message.content)
    results = blocks[types.ToolResult]
    own = sum(is_own(entry) for entry in branch)
    usage = spent(session)
    compacted = isinstance(_last_telling(branch), Compaction)
    return frames.SessionStats(
        sessionFile=path or UNSET,
        sessionId=session.id,
        userMessages=own,
        assistantMessages=roles["assistant"],
        toolCalls=blocks[types.ToolCall],
        toolResults=results,
        totalMessages=roles["user"] + roles["assistant"] + results,
        tokens=frames.TokenCounts(
            usage.input, usage.output, usage.cache_read, usage.cache_write, usage.total
        ),
        cost=usage.cost.total,
        contextUsage=frames.ContextUsage(None, window, None)
        if compacted
        else frames.ContextUsage(context, window, round(100 * context / window, 2)),
    )


def spent(session: Session) -> types.Usage:
    """Return the usage of the session, summaries included."""
    total = types.Usage()
    for entry in list(session.entries.values()):
        body = entry.body
        if isinstance(body, types.Message) and body.origin is not None:
            total = add(total, body.origin.usage)
        elif isinstance(body, Compaction) and body.usage is not None:
            total = add(total, body.usage)
    return total


def _last_telling(path: Sequence[Entry]) -> object:
    """Return the last message or compaction, which determines the size of the context."""
    for entry in reversed(path):
        if isinstance(entry.body, Compaction | types.Message):
            return entry.body
    return None


def compaction(event: events.CompactDone, session: Session) -> frames.CompactionResult:
    """Return a compaction's result. If nothing was kept, it refers to itself, as in the file."""
    return frames.CompactionResult(
        summary=event.summary,
        firstKeptEntryId=event.first_kept or session.leaf or "",
        tokensBefore=event.tokens_before,
        estimatedTokensAfter=event.tokens_after,
        usage=usage_to_pi(event.usage),
        details=touched_files(session),
    )


def touched_files(session: Session) -> frames.TouchedFiles:
    """Return the files that the conversation read and changed."""
    read, changed = set[str](), set[str]()
    for entry in session.path():
        for block in entry.body.content if isinstance(entry.body, types.Message) else ():
            if isinstance(block, types.ToolCall) and block.name in _FILE_TOOLS:
                path = (block.args or {}).get("path")
                if isinstance(path, str):
                    (read if block.name == "read" else changed).add(path)
    return frames.TouchedFiles(sorted(read - changed), sorted(changed))
