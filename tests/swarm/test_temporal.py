"""The swarm on a real Temporal server, with workers that are processes of their own."""

import asyncio
import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
from contextlib import closing

import pytest

from swarm.cluster import Cluster, TlsDoor
from swarm.support import ZOT, bash, says
from zot.errors import ConfigError
from zot.swarm.task import SwarmError
from zot.swarm.temporal.config import server_command
from zot.testing.fakeserver import FakeServer


def why_not():
    for name in ("temporalio", "starlette", "uvicorn"):
        if importlib.util.find_spec(name) is None:
            return f"{name} is not installed"
    try:
        server_command("", 1)
    except ConfigError as error:
        return str(error)
    return ""


pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(why_not()), reason=why_not() or "-")]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with FakeServer() as server:
        made = Cluster(tmp_path_factory.mktemp("t"), server)
        try:
            made.worker("first")
            yield made
            assert "Traceback" not in made.place.log() + made.said("first")
        finally:
            made.close()


@pytest.fixture
def place(cluster, request):
    if list(cluster.processes) == ["server"]:  # a test before this one ended the last worker
        cluster.worker(request.node.name)
    return cluster.place


def test_a_task_is_done_elsewhere_and_merged_here(cluster, place):
    words = [f"--rpc={word}" for word in place.words]
    task = f"{bash('echo two >> a.txt; echo secret-prompt')}\nthen\n{says('Done.')}"
    done = place.zot(
        *("--engine", "temporal", "--address", cluster.config.address),
        *("new", task, "--provider", "anthropic", *words, "--wait", "--json"),
    )
    assert done.returncode == 0, done.stdout + done.stderr + place.log() + cluster.said("first")
    id = json.loads(done.stdout.splitlines()[0])["id"]
    assert (place.repository / "a.txt").read_text() == "one\n"
    assert "+two" in place.zot("diff", id).stdout
    assert place.zot("logs", id).stdout.endswith("Done.\n-- answered\n")
    assert place.zot("merge", id).returncode == 0
    assert (place.repository / "a.txt").read_text() == "one\ntwo\n"
    assert (place.home / "swarm/agents" / id / "session.jsonl").stat().st_mode & 0o777 == 0o600
    assert not list((cluster.folder / "first").glob(f"{id}*"))  # nothing is left at the worker
    history = asyncio.run(history_of(cluster, id))
    assert id in history
    token = (place.home / "swarm/hub.token").read_text()
    for secret in (place.environment["ANTHROPIC_API_KEY"], token, "secret-prompt", "echo two"):
        assert secret not in history
    place.swarm.remove(id)
    assert place.git("for-each-ref", "refs/zot", "refs/heads/zot") == ""


async def history_of(cluster, id):
    from zot.swarm.temporal.engine import connect

    client = await connect(cluster.config)
    flow = client.get_workflow_handle(f"{cluster.config.queue}-{id}")
    await flow.result()
    return (await flow.fetch_history()).to_json()


def test_one_that_asks_and_one_that_is_cancelled(cluster, place):
    asks = cluster.submit("Ask", bash("echo x > new.txt"), says("Done."), approve=["bash"])
    waits = cluster.submit("Wait", bash("echo kept > kept.txt; sleep 60"), says("Done."))
    (question,) = place.wait(asks, "needs_you").questions
    place.swarm.approve(asks, question.id, "allow")
    assert place.wait(asks).stage == "done"
    cluster.until(lambda: place.rows(waits, "tool_start"), "its tool does not begin")
    place.swarm.steer(waits, "hurry up")
    place.swarm.cancel(waits)
    assert place.wait(waits).stage == "cancelled"
    assert "+kept" in place.swarm.diff(waits)
    place.swarm.send(asks, "say:Once more.")
    cluster.until(lambda: len(place.rows(asks, "swarm_run_over")) == 2, "no second run")
    assert place.wait(asks).stage == "done"
    assert [row["attempt"] for row in place.rows(asks, "swarm_claimed")] == [1, 2]


def test_all_agents_together_keep_to_one_budget(cluster, place):
    place.swarm.budget(max_usd=place.swarm.spending().total().usd + 0.0001)
    id = cluster.submit("Spend", bash("sleep 0.5"), bash("sleep 60"), says("Done."))
    summary = place.wait(id)
    assert (summary.stage, summary.outcome) == ("failed", "limit")
    assert "used up" in summary.doing
    assert summary.turns <= 2
    late = place.wait(cluster.submit("Late", says("Done.")))
    assert (late.stage, late.turns) == ("failed", 0)
    place.swarm.budget()


def test_what_cannot_travel_is_refused(cluster, place):
    with pytest.raises(SwarmError, match="no --here"):
        cluster.submit("Here", here=True)
    plain = cluster.folder / "plain"
    plain.mkdir()
    done = place.zot("--engine", "temporal", "new", "x", "--cwd", str(plain))
    assert "not in a git repository with a commit" in done.stderr


def test_a_task_goes_on_elsewhere_when_its_worker_and_agent_are_killed(cluster, place):
    steps = cluster.folder / "steps"
    wait = cluster.folder / "wait"
    cluster.worker("second")
    id = cluster.submit(
        "Steps",
        bash(f"echo 1 >> {steps}; echo 1 >> work"),
        bash(f"echo 2 >> {steps}; echo 2 >> work; touch {wait}; sleep 3"),
        bash(f"echo 3 >> {steps}; echo 3 >> work"),
        says("Done."),
    )
    cluster.until(wait.exists, "the second step does not begin")
    name = next(n for n in ("first", "second") if list((cluster.folder / n).glob(f"{id}.*")))
    cluster.kill(name)
    summary = place.wait(id)
    assert (summary.stage, summary.attempt) == ("done", 2)
    assert steps.read_text() == "1\n2\n3\n"
    tree = place.home / "swarm/agents" / id / "tree"
    # The second step was cut off: what it had written at the worker is gone with it.
    assert (tree / "work").read_text() == "1\n3\n"
    assert "may have taken effect" in json.dumps(place.rows(id, "run_resumed") + place.rows(id))
    numbers = [row["seq"] for row in place.rows(id) if "seq" in row]
    assert numbers == sorted(set(numbers))
    assert len(place.rows(id, "done")) == len(place.rows(id, "swarm_run_over")) == 1


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl to make a certificate")
def test_a_worker_of_another_machine_comes_by_tls_and_brings_a_clone(cluster, place):
    cert, key = (str(cluster.folder / name) for name in ("cert.pem", "key.pem"))
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    words += ["-nodes", "-keyout", key, "-out", cert, "-days", "2", "-subj", "/CN=localhost"]
    words += ["-addext", "subjectAltName=DNS:localhost", "-addext", "basicConstraints=CA:FALSE"]
    subprocess.run(words, check=True, capture_output=True)
    clone = cluster.folder / "clone.git"
    place.git("clone", "-q", "--bare", str(place.repository), str(clone))
    with closing(TlsDoor(cluster.port, cert, key)) as door:
        other = {
            "ZOT_HOME": str(cluster.folder / "other"),
            "ZOT_SWARM_TOKEN": (place.home / "swarm/hub.token").read_text(),
            "TEMPORAL_TLS": "true",
        }
        options = ("--hub", cluster.config.hub_url, "--repository", str(clone))
        to_door = ("--address", f"localhost:{door.port}")
        refused = subprocess.run(
            [*ZOT, "swarm", *to_door, "worker", *options],
            env={**place.environment, **other},
            capture_output=True,
            text=True,
        )
        assert refused.returncode == 1
        assert "(InvalidCertificate(UnknownIssuer)); TEMPORAL_TLS_SERVER_CA" in refused.stderr
        trusted = {**other, "TEMPORAL_TLS_SERVER_CA_CERT_PATH": cert}
        cluster.only_worker("other", *options, before=to_door, **trusted)
        id = cluster.submit("Far", bash("echo two >> a.txt; pwd"), says("Done."))
        assert place.wait(id).stage == "done"
        assert f"/other/{id}." in json.dumps(place.rows(id, "tool_result"))
        assert place.swarm.show(id).machine == socket.gethostname()
        (copy,) = (cluster.folder / "other").glob("*.git")
        refs = subprocess.run(["git", "for-each-ref"], cwd=copy, capture_output=True, text=True)
        assert "refs/source/main" in refs.stdout
        assert "refs/tasks" not in refs.stdout  # nothing had to be sent
        worker = cluster.processes.pop("other")
        worker.terminate()
        assert worker.wait(30) == 0


def test_a_worker_that_was_only_asleep_can_do_nothing_more(cluster, place):
    """Its lease was over when it woke up: another attempt has the task."""
    steps = cluster.folder / "asleep"
    go = cluster.folder / "go"
    cluster.only_worker("sleeper")
    id = cluster.submit(
        "Steps",
        bash(f"echo 1 >> {steps}; while ! test -e {go}; do sleep 0.1; done"),
        bash(f"echo 2 >> {steps}"),
        says("Done."),
    )
    cluster.until(lambda: place.rows(id, "tool_start"), "the first step does not begin")
    sleeper = cluster.processes["sleeper"]
    os.kill(sleeper.pid, signal.SIGSTOP)
    try:
        cluster.worker("awake")
        cluster.until(lambda: len(place.rows(id, "swarm_claimed")) == 2, "nobody else has it")
        go.touch()
    finally:
        os.kill(sleeper.pid, signal.SIGCONT)
    assert place.wait(id).stage == "done"
    cluster.until(lambda: not list((cluster.folder / "sleeper").glob(f"{id}.*")), "it goes on")
    assert steps.read_text() == "1\n2\n"
    assert len(place.rows(id, "done")) == 1


def test_the_supervisor_is_killed_and_an_agent_too(cluster, place):
    steps = cluster.folder / "more"
    id = cluster.submit(
        "Steps", bash(f"echo 1 >> {steps}; sleep 2"), bash(f"echo 2 >> {steps}"), says("Done.")
    )
    cluster.until(steps.exists, "the first step does not begin")
    place.kill_supervisor()
    assert place.wait(id).stage == "done"
    assert steps.read_text() == "1\n2\n"
    assert len(place.rows(id, "done")) == 1
    again = cluster.submit(
        "Steps", bash(f"echo 3 >> {steps}; sleep 2"), bash(f"echo 4 >> {steps}"), says("Done.")
    )
    cluster.until(lambda: "3" in steps.read_text(), "the third step does not begin")
    os.kill(place.rows(again, "swarm_started")[-1]["pid"], 9)
    assert place.wait(again).stage == "done"
    assert steps.read_text() == "1\n2\n3\n4\n"
    assert len(place.rows(again, "swarm_claimed")) == 1  # the same worker went on


def test_a_worker_that_is_told_to_stop_hands_over_at_once(cluster, place):
    began = cluster.folder / "began"
    id = cluster.submit("Wait", bash(f"touch {began}; sleep 4"), says("Done."))
    cluster.until(began.exists, "the step does not begin")
    names = [name for name in cluster.processes if name != "server"]
    name = next(n for n in names if list((cluster.folder / n).glob(f"{id}.*")))
    process = cluster.processes.pop(name)
    process.terminate()
    assert process.wait(30) == 0
    if len(names) == 1:
        cluster.worker("fourth")
    assert place.wait(id).stage == "done"
    assert len(place.rows(id, "swarm_claimed")) == 2
    assert not place.rows(id, "swarm_cancelled")
