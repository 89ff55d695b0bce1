"""Uniform view of agents of different makes: frames of zot, pi, Claude Code or codex in, one small
set of facts and states out. Pure: it reads no stream and depends on nothing else of zot.

    observer = Observer()
    for line in stream:
        observer.feed(line)
        print(observer.status())
    observer.end()
"""

from zot.observe.observer import Observer
from zot.observe.status import AgentOutcome, AgentState, OpenQuestion, Status
from zot.observe.tables import Lifecycle, normalize

__all__ = [
    "AgentOutcome",
    "AgentState",
    "Lifecycle",
    "Observer",
    "OpenQuestion",
    "Status",
    "normalize",
]
