"""Agents beside the conversation. Loads nothing of the swarm while there are none."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zot.serve.interactive.app import App


def watch_agents(app: App) -> None:
    """Bring the answers of agents back that this conversation started, if there are any."""
    if app.answers is None:
        if not os.access(f"{app.around.home}/swarm/agents", os.R_OK):
            return
        from zot.serve.interactive.swarm_feed import AnswerWatch

        app.answers = AnswerWatch(app)
    app.answers.begin()
