"""Work is stored before its end is told, whatever is killed, and whenever."""

import asyncio
import os
import signal
from contextlib import closing

import pytest

from swarm.cluster import Cluster
from swarm.faulty import FaultyWay, is_end, is_final
from swarm.support import bash, says
from swarm.test_temporal import why_not
from zot.testing.fakeserver import FakeServer

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(why_not()), reason=why_not() or "-")]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with FakeServer() as server:
        made = Cluster(tmp_path_factory.mktemp("s"), server, lease=2.5)
        try:
            yield made
            assert "Traceback" not in made.place.log()
        finally:
            made.close()


@pytest.fixture
def way(cluster):
    with closing(FaultyWay(cluster.config.hub_port)) as made:
        yield made
    for name in [name for name in cluster.processes if name != "server"]:
        cluster.kill(name)
    cluster.place.git("reset", "-q", "--hard", "main")


def worker(cluster, way, name, request):
    token = cluster.place.home / "swarm" / "hub.token"
    name = f"{request.node.name[:60]}-{name}".replace("/", "-")
    cluster.until(token.exists, "no hub")
    words = ("--hub", way.url)
    cluster.worker(name, *words, ZOT_SWARM_TOKEN=token.read_text())
    return name


def merged(place, id, name):
    """The file as it is in the checkout after a merge, and after the agent is removed."""
    place.swarm.merge(id)
    place.swarm.remove(id)
    assert id not in place.git("for-each-ref")
    return (place.repository / name).read_text()


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("moment", [is_end, is_final])
def test_a_worker_killed_at_the_end_of_its_run_loses_nothing(cluster, way, request, moment, when):
    place = cluster.place
    file = f"{moment.__name__}-{when}"
    id = cluster.submit("End", bash(f"echo work > {file}"), says("Done."))
    name = worker(cluster, way, "first", request)
    killed = way.once(when, moment, lambda: cluster.kill(name))
    assert killed.wait(60)
    if moment is is_end and when == "after":  # it was told: then it is there without any worker
        assert "+work" in place.swarm.diff(id)
    else:
        assert not place.rows(id, "swarm_run_over")
        worker(cluster, way, "second", request)
    assert place.wait(id).stage == "done"
    assert "+work" in place.swarm.diff(id)
    assert merged(place, id, file) == "work\n"


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("moment", [is_end, is_final])
def test_a_hub_killed_at_the_end_of_a_run_loses_nothing(cluster, way, request, moment, when):
    place = cluster.place
    file = f"hub-{moment.__name__}-{when}"
    id = cluster.submit("End", bash(f"echo work > {file}"), says("Done."))
    killed = way.once(when, moment, place.kill_supervisor)
    worker(cluster, way, "only", request)
    assert killed.wait(60)
    assert place.wait(id).stage == "done"
    assert len(place.rows(id, "swarm_run_over")) == len(place.rows(id, "done")) == 1
    assert merged(place, id, file) == "work\n"


@pytest.mark.parametrize("moment", [is_end, is_final])
def test_what_arrives_twice_is_stored_once(cluster, way, request, moment):
    place = cluster.place
    file = f"twice-{moment.__name__}"
    id = cluster.submit("Twice", bash(f"echo work > {file}"), says("Done."))
    again = way.once("after", moment, lambda: None)
    worker(cluster, way, "only", request)
    assert again.wait(60)
    assert place.wait(id).stage == "done"
    assert len(place.rows(id, "swarm_run_over")) == len(place.rows(id, "swarm_exited")) == 1
    assert place.git("rev-list", "--count", f"main..zot/{id}") == "1"
    assert merged(place, id, file) == "work\n"


def test_what_a_killed_worker_brought_is_kept_when_its_agent_is_cancelled(cluster, way, request):
    place = cluster.place
    id = cluster.submit("Cancel", bash("echo kept > kept"), bash("sleep 60"), says("Done."))
    name = worker(cluster, way, "first", request)
    cluster.until(lambda: len(place.rows(id, "tool_start")) == 2, "the second step does not begin")
    cluster.kill(name)
    place.swarm.cancel(id)
    assert place.wait(id, "cancelled").outcome == ""
    assert merged(place, id, "kept") == "kept\n"


def test_what_a_killed_worker_brought_is_kept_when_the_money_is_used_up(cluster, way, request):
    place = cluster.place
    id = cluster.submit("Money", bash("echo paid > paid"), bash("sleep 60"), says("Done."))
    name = worker(cluster, way, "first", request)
    cluster.until(lambda: len(place.rows(id, "tool_start")) == 2, "the second step does not begin")
    cluster.kill(name)
    place.swarm.budget(max_usd=place.swarm.spending().total().usd)
    try:
        worker(cluster, way, "second", request)
        assert (place.wait(id).outcome, place.swarm.show(id).turns) == ("limit", 2)
    finally:
        place.swarm.budget()
    assert merged(place, id, "paid") == "paid\n"


def test_what_a_killed_worker_brought_is_kept_when_its_workflow_is_terminated(
    cluster, way, request
):
    place = cluster.place
    id = cluster.submit("Hand", bash("echo hand > hand"), bash("sleep 60"), says("Done."))
    name = worker(cluster, way, "first", request)
    cluster.until(lambda: len(place.rows(id, "tool_start")) == 2, "the second step does not begin")
    cluster.kill(name)
    asyncio.run(terminate(cluster, id))
    assert place.wait(id, "lost").stage == "lost"
    place.swarm.merge(id)
    assert (place.repository / "hand").read_text() == "hand\n"


def test_an_agent_can_be_cancelled_while_temporal_is_away(cluster, way, request):
    place = cluster.place
    id = cluster.submit("Away", bash("echo away > away"), bash("sleep 60"), says("Done."))
    name = worker(cluster, way, "first", request)
    cluster.until(lambda: len(place.rows(id, "tool_start")) == 2, "the second step does not begin")
    cluster.kill(name)
    os.kill(cluster.processes["server"].pid, signal.SIGSTOP)
    try:
        place.kill_supervisor()
        place.swarm.cancel(id)
        assert merged(place, id, "away") == "away\n"
    finally:
        os.kill(cluster.processes["server"].pid, signal.SIGCONT)


async def terminate(cluster, id):
    from zot.swarm.temporal.engine import connect

    client = await connect(cluster.config)
    await client.get_workflow_handle(f"{cluster.config.queue}-{id}").terminate()


def test_a_message_that_comes_during_a_run_has_its_work_stored_too(cluster, way, request):
    place = cluster.place
    id = cluster.submit("One", bash("echo one > first; sleep 2"), says("Done."))
    worker(cluster, way, "only", request)
    cluster.until(lambda: place.rows(id, "tool_start"), "it does not begin")
    place.swarm.send(id, f"{bash('echo two > second')}\nthen\n{says('Done.')}")
    cluster.until(lambda: len(place.rows(id, "swarm_run_over")) == 2, "no second end")
    assert place.wait(id).stage == "done"
    assert len(place.rows(id, "swarm_claimed")) == 1
    assert merged(place, id, "second") == "two\n"
