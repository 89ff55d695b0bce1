from hypothesis import given
from hypothesis import strategies as st

from zot.swarm.agent import SwarmAgent
from zot.swarm.schedule import blocked_by, next_agents, unmet
from zot.swarm.task import LogRow, SwarmTask


def agent(id, *rows, alive=False, **fields):
    task = SwarmTask(id=id, prompt=id, directory="/", created=fields.pop("created", 1.0), **fields)
    made = SwarmAgent(task, clock=lambda: 100.0)
    for number, row in enumerate(rows):
        made.take(LogRow(number, 2.0, row))
    made.alive = alive
    return made


def over(id, outcome="answered"):
    return {"type": "swarm_run_over", "run": f"{id}-1", "outcome": outcome}


def named(*agents):
    return {agent.task.id: agent for agent in agents}


def test_the_most_important_begins_first_then_the_oldest():
    agents = named(
        agent("old", created=1.0), agent("older", created=0.5), agent("urgent", priority=5)
    )
    assert next_agents(agents, 2) == ["urgent", "older"]


def test_no_more_than_there_are_slots():
    agents = named(agent("a", alive=True), agent("b"), agent("c"))
    assert next_agents(agents, 2) == ["b"]
    assert next_agents(agents, 1) == []
    assert next_agents(agents, 0) == []


def test_one_that_comes_after_another_waits_until_that_is_done():
    first, second = agent("first"), agent("second", after=("first",))
    agents = named(first, second)
    assert next_agents(agents, 5) == ["first"]
    assert unmet(second, agents) == ["first"]
    agents = named(agent("first", over("first")), second)
    assert next_agents(agents, 5) == ["second"]


def test_one_that_comes_after_a_failure_can_never_begin():
    second = agent("second", after=("first",))
    agents = named(agent("first", over("first", "failed")), second)
    assert next_agents(agents, 5) == []
    assert blocked_by(second, agents) == "first, which it was to begin after, was failed"
    assert "was removed" in blocked_by(second, named(second))


STATES = st.sampled_from(["queued", "alive", "answered", "failed"])


@given(st.lists(st.tuples(STATES, st.integers(-2, 2), st.integers(0, 5)), max_size=12))
def test_slots_are_never_passed_and_only_the_ready_begin(rows):
    agents = {}
    for number, (state, priority, before) in enumerate(rows):
        id = f"a{number}"
        after = (f"a{before}",) if before < number else ()
        ended = [over(id, state)] if state in ("answered", "failed") else []
        agents[id] = agent(id, *ended, alive=state == "alive", priority=priority, after=after)
    chosen = next_agents(agents, 3)
    running = sum(a.alive for a in agents.values())
    assert len(chosen) + running <= max(3, running)
    for id in chosen:
        assert agents[id].stage == "queued"
        assert all(agents[other].stage == "done" for other in agents[id].task.after)
