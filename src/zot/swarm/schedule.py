"""The order in which agents start and are shown. Pure: states in, order out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from zot.swarm.agent import AgentSummary, Stage, SwarmAgent

NEED = ("needs_you", "failed", "lost", "stalled", "working", "queued", "done", "cancelled")
"""Display order."""
ENDED: frozenset[Stage] = frozenset({"failed", "cancelled", "lost"})
"""Stages that are over, but not done."""


def next_agents(agents: Mapping[str, SwarmAgent], slots: int) -> list[str]:
    """Return the agents to start now on this machine, highest priority first, then oldest."""
    free = slots - sum(agent.alive for agent in agents.values() if not agent.task.engine)
    ready = [agent for agent in ready_agents(agents) if not agent.task.engine]
    return [agent.task.id for agent in ready[: max(0, free)]]


def ready_agents(agents: Mapping[str, SwarmAgent]) -> list[SwarmAgent]:
    """Return the agents that only wait for a slot, in starting order."""
    ready = [
        agent
        for agent in agents.values()
        if agent.stage == "queued" and not unmet(agent, agents) and not blocked_by(agent, agents)
    ]
    return sorted(ready, key=lambda a: (-a.task.priority, a.task.created, a.task.id))


def unmet(agent: SwarmAgent, agents: Mapping[str, SwarmAgent]) -> list[str]:
    """Return the agents it still has to wait for."""
    return [
        id for id in agent.task.after if id in agents and agents[id].stage not in (*ENDED, "done")
    ]


def blocked_by(agent: SwarmAgent, agents: Mapping[str, SwarmAgent]) -> str:
    """Return why the agent can never start; empty: it can."""
    for id in agent.task.after:
        if id not in agents:
            return f"{id}, which it was to begin after, was removed"
        if agents[id].stage in ENDED:
            return f"{id}, which it was to begin after, was {agents[id].stage}"
    return ""


def by_need(summaries: Iterable[AgentSummary]) -> list[AgentSummary]:
    """Sort by the attention agents need; within a stage, longest waiting first."""
    return sorted(
        summaries,
        key=lambda s: (NEED.index("stalled" if s.stalled else s.stage), s.since, s.id),
    )
