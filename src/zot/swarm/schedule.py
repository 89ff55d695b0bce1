"""Which agents begin next, and which are shown first. Pure: states in, order out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from zot.swarm.agent import AgentSummary, Stage, SwarmAgent

NEED = ("needs_you", "failed", "lost", "stalled", "working", "queued", "done", "cancelled")
"""Who is shown first."""
ENDED: frozenset[Stage] = frozenset({"failed", "cancelled", "lost"})
"""Over, and not done."""


def next_agents(agents: Mapping[str, SwarmAgent], slots: int) -> list[str]:
    """Agents to begin now on this machine, the most important first, then the oldest."""
    free = slots - sum(agent.alive for agent in agents.values() if not agent.task.engine)
    ready = [agent for agent in ready_agents(agents) if not agent.task.engine]
    return [agent.task.id for agent in ready[: max(0, free)]]


def ready_agents(agents: Mapping[str, SwarmAgent]) -> list[SwarmAgent]:
    """Agents that wait for nothing but a slot, in their order."""
    ready = [
        agent
        for agent in agents.values()
        if agent.stage == "queued" and not unmet(agent, agents) and not blocked_by(agent, agents)
    ]
    return sorted(ready, key=lambda a: (-a.task.priority, a.task.created, a.task.id))


def unmet(agent: SwarmAgent, agents: Mapping[str, SwarmAgent]) -> list[str]:
    """What it still has to wait for."""
    return [
        id for id in agent.task.after if id in agents and agents[id].stage not in (*ENDED, "done")
    ]


def blocked_by(agent: SwarmAgent, agents: Mapping[str, SwarmAgent]) -> str:
    """Why it can never begin; empty: it can."""
    for id in agent.task.after:
        if id not in agents:
            return f"{id}, which it was to begin after, was removed"
        if agents[id].stage in ENDED:
            return f"{id}, which it was to begin after, was {agents[id].stage}"
    return ""


def by_need(summaries: Iterable[AgentSummary]) -> list[AgentSummary]:
    """Those that need somebody first; of the same kind the one that has been so the longest."""
    return sorted(
        summaries,
        key=lambda s: (NEED.index("stalled" if s.stalled else s.stage), s.since, s.id),
    )
