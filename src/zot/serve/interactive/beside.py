"""Agents beside the conversation. Loads nothing of the swarm while there are none."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from zot.later import Later

if TYPE_CHECKING:
    from zot.serve.interactive import swarm_feed
    from zot.serve.interactive.app import App
else:
    swarm_feed = Later("zot.serve.interactive.swarm_feed")


def watch_agents(app: App) -> None:
    """Bring the answers of agents back that this conversation started, if there are any."""
    if app.answers is None:
        if not os.access(f"{app.around.home}/swarm/agents", os.R_OK):
            return
        app.answers = swarm_feed.AnswerWatch(app)
    app.answers.begin()
