"""What workers may send, over real HTTP: only the attempt that has a task is heard."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
from contextlib import asynccontextmanager, closing
from pathlib import Path

import msgspec
import pytest

from swarm.cluster import free_port
from swarm.support import place as place
from zot.errors import ConfigError
from zot.swarm.log import AgentFolder
from zot.swarm.runner import AgentRunner
from zot.swarm.task import NoSuchAgent, SwarmError, SwarmTask
from zot.swarm.temporal.config import (
    TemporalConfig,
    WorkerPlace,
    hub_token,
    load_config,
    save_config,
)
from zot.swarm.temporal.hub import HubAddress, HubClient
from zot.swarm.temporal.remote import Claim, RemoteAgent, Superseded

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")


@asynccontextmanager
async def hub_with(place, *ids, tls=None):
    """A hub with agents of these ids; how each worker reaches it."""
    from zot.swarm.temporal.hub import Hub

    folder = place.home / "swarm"
    for id in ids:
        task = SwarmTask(id, "Do it", str(place.repository), 1.0, engine="temporal")
        AgentFolder(folder / "agents" / id).create(task)
    runner = AgentRunner(folder, place.environment, 1)
    agents = {id: RemoteAgent(runner, runner.agents[id]) for id in ids}

    def remote(id):
        if id not in agents:
            raise NoSuchAgent(f"no agent {id!r}")
        return agents[id]

    config = TemporalConfig(hub_port=free_port(), **(tls or {}))
    hub = Hub(config, hub_token(folder), remote)
    await hub.start()
    ca_file = config.tls_cert
    where = WorkerPlace(place.scripts, config.hub_url, hub_token(folder), ca_file=ca_file)
    address = HubAddress(where)
    clients = []

    def worker(id, attempt, name):
        clients.append(HubClient(address, id, attempt, name))
        return clients[-1]

    worker.remote = remote
    try:
        yield runner, worker
    finally:
        for client in clients:
            client.close()
        await hub.stop()
        await runner.stop()


def row(number, **frame):
    return json.dumps({"seq": number, "at": 1.0, "frame": frame}).encode()


def test_an_attempt_that_was_superseded_can_write_nothing(place):
    async def scenario():
        async with hub_with(place, "a") as (runner, worker):
            old, new = worker("a", 1, "w1"), worker("a", 2, "w2")
            claim = json.loads(await old.post("claim"))
            assert (claim["waiting"], claim["session_size"]) == ({"a-1": "Do it"}, 0)
            await old.post("claim")  # the answer was lost: the same worker may ask again
            await old.post("rows", row(1, type="swarm_started", attempt=1, pid=1))
            await old.post("session", b"one\n", at=0)
            await new.post("claim")
            for send in (
                lambda: old.post("rows", row(2, type="text_delta", delta="late", seq=5)),
                lambda: old.post("session", b"late\n", at=4),
                lambda: old.post("tip", commit="0" * 40, final=1),
                lambda: old.post("reply", b'{"number":1}'),
                lambda: old.get("orders", after=0),
                lambda: old.post("claim"),
                lambda: worker("a", 2, "w3").post("claim"),
                lambda: worker("b", 1, "w1").post("claim"),
            ):
                with pytest.raises(Superseded):
                    await send()
            assert await new.get("session") == b"one\n"
            kinds = [line.frame["type"] for _, line in place.swarm.events("a")]
            assert kinds == [
                *("swarm_claimed", "swarm_tree", "swarm_started"),
                *("swarm_exited", "swarm_claimed"),
            ]

    asyncio.run(scenario())


def test_rows_and_parts_of_a_session_that_are_sent_twice_are_kept_once(place):
    async def scenario():
        async with hub_with(place, "a") as (runner, worker):
            client = worker("a", 1, "w")
            await client.post("claim")
            rows = [
                row(1, type="swarm_started", attempt=1, pid=1),
                row(2, type="text_delta", delta="x", seq=1),
                row(3, type="swarm_merged", tip="not yours to say"),
            ]
            for _ in range(2):
                assert json.loads(await client.post("rows", b"\n".join(rows))) == {"taken": 3}
            assert not runner.agents["a"].agent.merged
            kinds = [line.frame["type"] for _, line in place.swarm.events("a")]
            assert kinds[-2:] == ["swarm_started", "text_delta"]
            assert json.loads(await client.post("session", b"one\n", at=0)) == {"size": 4}
            assert json.loads(await client.post("session", b"two\n", at=99)) == {"size": 4}
            assert json.loads(await client.post("session", b"two\n", at=4)) == {"size": 8}
            assert json.loads(await client.post("session", b"two\n", at=4)) == {"size": 8}
            assert await client.get("session") == b"one\ntwo\n"

    asyncio.run(scenario())


def test_what_the_agent_is_told_waits_for_its_worker(place):
    async def scenario():
        async with hub_with(place, "a") as (runner, worker):
            client = worker("a", 1, "w")
            await client.post("claim")
            await client.post("rows", row(1, type="swarm_started", attempt=1, pid=1))
            told = asyncio.create_task(runner.agents["a"].child.request("steer", message="hurry"))
            (order,) = json.loads(await client.get("orders", after=0))
            assert (order["type"], order["fields"]) == ("steer", {"message": "hurry"})
            await client.post("reply", b'{"number":1,"data":{"queued":1}}')
            assert await told == {"queued": 1}

    asyncio.run(scenario())


def test_nobody_is_let_in_without_the_token(place):
    async def scenario():
        async with hub_with(place, "a") as (_, worker):
            address = worker("a", 1, "w")._address
            for headers in ({}, {"Authorization": "Bearer wrong"}):
                status = await asyncio.to_thread(asked, address, "/agents/a/claim", headers)
                assert status == 401
            good = {"Authorization": f"Bearer {address.token}"}
            for path, status in (
                ("/agents/a/claim?attempt=x&worker=w", 400),
                ("/agents/a/tip?attempt=1&worker=w&commit=--output=x", 410),
                ("/agents/a/rows?attempt=0&worker=", 400),
                ("/agents/../claim?attempt=1&worker=w", 410),
                ("/agents/a/claim?attempt=0&worker=", 400),
            ):
                assert await asyncio.to_thread(asked, address, path, good, b"{") == status, path

    asyncio.run(scenario())


def asked(address, path, headers, body=b""):
    with closing(address.connect()) as connection:
        connection.request("POST", path, body, headers)
        return connection.getresponse().status


def test_workers_elsewhere_come_by_tls(place, tmp_path):
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make a certificate with")
    cert, key = str(tmp_path / "cert.pem"), str(tmp_path / "key.pem")
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-keyout", key, "-out", cert, "-days", "2", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=DNS:localhost"]
    subprocess.run(command, check=True, capture_output=True)

    async def scenario():
        tls = {"hub_name": "localhost", "tls_cert": cert, "tls_key": key}
        async with hub_with(place, "a", tls=tls) as (_, worker):
            client = worker("a", 1, "w")
            assert json.loads(await client.post("claim"))["waiting"] == {"a-1": "Do it"}
            stranger = HubAddress(WorkerPlace(tmp_path, "https://localhost:1", "token"))
            stranger.port = client._address.port
            with pytest.raises(SwarmError, match="certificate cannot be trusted"):
                await HubClient(stranger, "a", 1, "w").post("claim")

    asyncio.run(scenario())


def test_a_certificate_that_is_not_there_is_named_with_its_whole_path(place):
    kept = place.zot("temporal", "config", "--hub-cert", "c.pem", "--hub-key", "k.pem", "--json")
    cert = json.loads(kept.stdout)["tls_cert"]
    assert cert == str(place.repository / "c.pem")

    async def scenario():
        from zot.swarm.temporal.hub import Hub

        with pytest.raises(ConfigError, match=f"cannot use certificate '{cert}'.*: No such file"):
            await Hub(load_config(place.home / "swarm"), "token", lambda id: None).start()

    asyncio.run(scenario())


def test_the_last_checkpoint_is_where_the_next_attempt_begins(place):
    async def scenario():
        async with hub_with(place, "a") as (_, worker):
            client = worker("a", 1, "w")
            claim = json.loads(await client.post("claim"))
            clone = place.scripts / "clone"
            git("clone", "-q", str(place.repository), str(clone), at=place.scripts)
            (clone / "new.txt").write_text("new\n")
            git("add", "-A", at=clone)
            tree = git("write-tree", at=clone)
            commit = git("commit-tree", tree, "-p", claim["tip"], "-m", "checkpoint", at=clone)
            git("update-ref", "refs/zot/checkpoint", commit, at=clone)
            bundle = place.scripts / "bundle"
            words = ("refs/zot/checkpoint", f"^{claim['tip']}")
            git("bundle", "create", "-q", str(bundle), *words, at=clone)
            await client.post("tip", bundle, commit=commit, final=0)
            again = msgspec.json.decode(await worker("a", 2, "w").post("claim"), type=Claim)
            assert (again.tip, again.is_checkpoint) == (commit, True)
            with pytest.raises(Exception, match="not based on"):
                empty = git("commit-tree", tree, "-m", "unrelated", at=clone)
                git("update-ref", "refs/zot/checkpoint", empty, at=clone)
                git("bundle", "create", "-q", str(bundle), "refs/zot/checkpoint", at=clone)
                await worker("a", 2, "w").post("tip", bundle, commit=empty, final=1)

    asyncio.run(scenario())


def git(*words, at):
    who = ["-c", "user.name=t", "-c", "user.email=t@t"]
    done = subprocess.run(["git", *who, *words], cwd=at, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"hub_host": "0.0.0.0"}, "can be reached from other machines"),
        ({"tls_cert": "c.pem"}, "belong together"),
        ({"lease_seconds": 1.0}, "too short"),
    ],
)
def test_settings_that_would_not_be_safe_are_refused(tmp_path, changes, said):
    with pytest.raises(ConfigError, match=said):
        save_config(tmp_path, TemporalConfig(**changes))


@pytest.mark.parametrize("hub", ["http://10.0.0.1:7749", "ftp://x", "here"])
def test_a_worker_gives_its_token_to_nobody_in_the_clear(tmp_path, hub):
    with pytest.raises(ConfigError):
        HubAddress(WorkerPlace(tmp_path, hub, "token"))


ABSENT = """
import sys

class Absent:
    def find_spec(name, path=None, target=None):
        if name == "temporalio":
            raise ModuleNotFoundError("no", name="temporalio")

sys.meta_path.insert(0, Absent)
"""


def test_what_is_missing_is_said_in_one_sentence(place, tmp_path):
    """Without Temporal's library, and with nobody at its address."""
    blocked = tmp_path / "blocked"
    blocked.mkdir()
    (blocked / "sitecustomize.py").write_text(ABSENT)
    place.environment["PYTHONPATH"] = str(blocked)
    done = place.zot("--engine", "temporal", "new", "x")
    assert done.returncode == 1
    needs = "zot: the Temporal engine needs the package temporalio: run "
    assert done.stderr.startswith(needs) and "[temporal]" in done.stderr
    assert place.zot("worker").stderr == done.stderr
    assert not list((place.home / "swarm").glob("socket*"))  # nothing was started for it
    assert place.zot("list").returncode == 0  # nothing of it was kept
    del place.environment["PYTHONPATH"]
    pytest.importorskip("temporalio")
    address = f"127.0.0.1:{free_port()}"
    done = place.zot("--engine", "temporal", "--address", address, "new", "x")
    assert f"cannot reach Temporal at {address}" in done.stderr
    assert "zot swarm temporal dev" in done.stderr
    needs = place.zot("worker", "--hub", "https://far:1").stderr
    assert "ZOT_SWARM_TOKEN" in needs


def test_nothing_of_temporal_is_loaded_unless_it_is_used():
    code = (
        "import sys, zot.cli.swarm, zot.swarm.supervisor, zot.swarm.local\n"
        "print([n for n in sys.modules if n.startswith(('temporalio', 'starlette', 'uvicorn'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr


def test_a_hub_killed_while_it_stores_the_final_commit_finishes_it_at_the_next_claim(place):
    async def scenario():
        async with hub_with(place, "a") as (runner, worker):
            client = worker("a", 1, "w")
            claim = json.loads(await client.post("claim"))
            tree = place.home / "swarm/agents/a/tree"
            # The commit was named; git had written a file, and was killed with its lock.
            git("checkout", "-q", "--detach", at=tree)
            (tree / "new.txt").write_text("new\n")
            git("add", "-A", at=tree)
            git("commit", "-qm", "work", at=tree)
            commit = git("rev-parse", "HEAD", at=tree)
            git("checkout", "-q", claim["branch"], at=tree)
            git("update-ref", "refs/zot-final/a", commit, at=tree)
            git("update-ref", "refs/zot/a", claim["tip"], at=tree)
            (tree / "new.txt").write_text("ne")
            lock = Path(git("rev-parse", "--git-path", "index.lock", at=tree))
            lock.touch()
            os.utime(lock, (1, 1))
            again = msgspec.json.decode(await worker("a", 2, "w").post("claim"), type=Claim)
            assert (again.tip, again.is_checkpoint) == (commit, False)
            assert (tree / "new.txt").read_text() == "new\n"
            assert place.git("for-each-ref", "refs/zot", "refs/zot-final") == ""
            assert git("rev-parse", claim["branch"], at=tree) == commit
            assert git("branch", "--list", "*-edits", at=tree) == ""
            (tree / "a.txt").write_text("edited by hand\n")
            # Delivered once more: nothing is reset.
            await worker("a", 2, "w").post("tip", commit=commit, final=1)
            assert (tree / "a.txt").read_text() == "edited by hand\n"

    asyncio.run(scenario())


def test_a_slow_upload_of_an_attempt_that_was_superseded_meanwhile_is_refused(place):
    async def scenario():
        async with hub_with(place, "a") as (runner, worker):
            claim = json.loads(await worker("a", 1, "w1").post("claim"))
            remote = worker.remote("a")
            await remote._git_lock.acquire()  # another one is being stored
            late = asyncio.create_task(
                worker("a", 1, "w1").post("tip", commit=claim["tip"], final=0)
            )
            newer = asyncio.create_task(worker("a", 2, "w2").post("claim"))
            while runner.agents["a"].agent.claim.attempt != 2:
                await asyncio.sleep(0.01)
            remote._git_lock.release()
            with pytest.raises(Superseded):
                await late
            assert json.loads(await newer)["is_checkpoint"] is False

    asyncio.run(scenario())


def test_a_client_that_was_closed_waits_for_no_hub(place, tmp_path):
    async def scenario():
        url = f"http://127.0.0.1:{free_port()}"
        client = HubClient(HubAddress(WorkerPlace(tmp_path, url, "token")), "a", 1, "w")
        waiting = asyncio.create_task(client.post("rows", tmp_path / "gone"))
        await asyncio.sleep(0.3)
        assert not waiting.done()
        client.close()
        with pytest.raises(SwarmError, match="is over"):
            await asyncio.wait_for(waiting, 10)

    asyncio.run(scenario())
