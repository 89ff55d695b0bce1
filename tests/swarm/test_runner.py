from hypothesis import given
from hypothesis import strategies as st

from zot.swarm.agent import SwarmAgent
from zot.swarm.rows import LogRow
from zot.swarm.runner import blocked_by, next_agents, unmet
from zot.swarm.task import SwarmTask


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


def test_time_counts_while_it_works_and_not_while_it_waits():
    made = agent("a", max_seconds=50.0, max_cost=1.0)
    asked = {"type": "approval_request", "request_id": "q", "tool": "bash", "args": {}}
    rows = [
        (10.0, {"type": "swarm_started", "attempt": 1, "pid": 7}),
        (20.0, asked),
        (80.0, {"type": "approval_resolved", "request_id": "q", "decision": "allow"}),
        (95.0, {"type": "text_delta", "delta": "x"}),
    ]
    for number, (at, frame) in enumerate(rows):
        made.take(LogRow(number, at, frame))
    assert made.spent().seconds == 10.0 + 15.0 + 5.0  # its clock says 100
    limits, used_up = made.left()
    assert (limits, used_up) == ({"max_cost": 1.0, "max_seconds": 20.0}, "")
    made.take(LogRow(9, 130.0, {"type": "text_delta", "delta": "x"}))
    limits, used_up = made.left()
    assert limits["max_seconds"] == 0.001
    assert "max_seconds is 50, spent are 60" in used_up


def test_being_killed_early_passes_and_ending_early_does_not():
    started, killed = {"type": "swarm_started", "attempt": 1, "pid": 7}, {"type": "swarm_exited"}
    made = agent("a", *[started, {**killed, "code": -9}] * 10)
    assert (made.stage, made.gives_up) == ("queued", "")
    made = agent("a", *[started, {**killed, "code": 2}] * 5)
    assert "died 5 times" in made.gives_up
    made = agent("a", *[started, {"type": "turn_start"}, {**killed, "code": 2}] * 9)
    assert made.gives_up == ""
