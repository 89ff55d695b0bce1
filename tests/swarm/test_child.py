import asyncio
import contextlib
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from zot.swarm.child import AgentChild, ChildGone
from zot.swarm.task import SwarmError

ECHO = """
import json, sys
for line in sys.stdin:
    command = json.loads(line)
    if command["type"] == "exit":
        sys.exit(3)
    print(json.dumps({"type": "note", "of": command["type"]}), flush=True)
    ok = command["type"] != "refuse"
    answer = {"type": "response", "command": command["type"], "id": command["id"], "success": ok}
    print(json.dumps({**answer, "data": {"pong": True}, "error": "no"}), flush=True)
"""


def drive(scenario, tmp_path, code=ECHO, on_frame=lambda line, fields: None):
    async def run():
        child = AgentChild(on_frame)
        child.start([sys.executable, "-c", code], str(tmp_path), {})
        try:
            await asyncio.wait_for(scenario(child), 60)
        finally:
            child.kill()
            with contextlib.suppress(OSError):
                await child.ended()

    asyncio.run(run())


def test_a_request_gets_its_own_response_and_other_frames_are_passed_on(tmp_path):
    frames = []

    async def scenario(child):
        answers = await asyncio.gather(*(child.request(f"ping-{n}") for n in range(20)))
        assert answers == [{"pong": True}] * 20
        with pytest.raises(SwarmError, match="no"):
            await child.request("refuse")
        assert await child.stop() == 0

    drive(scenario, tmp_path, on_frame=lambda line, fields: frames.append(fields["of"]))
    assert sorted(frames) == sorted([*(f"ping-{n}" for n in range(20)), "refuse"])


def test_a_request_fails_when_the_process_ends(tmp_path):
    async def scenario(child):
        with pytest.raises(ChildGone):
            await child.request("exit")
        assert await child.ended() == 3
        with pytest.raises(ChildGone):
            await child.request("ping")

    drive(scenario, tmp_path)


def test_a_request_does_not_wait_for_the_threads_of_others(tmp_path):
    async def scenario(child):
        gate = threading.Event()
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        blocked = asyncio.create_task(asyncio.to_thread(gate.wait))
        try:
            assert await child.request("ping") == {"pong": True}
        finally:
            gate.set()
            await blocked
        await child.stop()

    drive(scenario, tmp_path)


def test_a_child_that_does_not_read_holds_nobody_up(tmp_path):
    async def scenario(child):
        request = asyncio.create_task(child.request("prompt", message="x" * 1_000_000))
        for _ in range(10):
            await asyncio.sleep(0.01)
        assert not request.done()
        child.kill()
        with pytest.raises(ChildGone):
            await request
        assert await child.ended() == -9

    drive(scenario, tmp_path, "import time\ntime.sleep(60)")


def test_a_frame_that_cannot_be_stored_ends_the_child_with_that_error(tmp_path):
    def full(line, fields):
        raise OSError(28, "No space left on device")

    async def scenario(child):
        with contextlib.suppress(ChildGone):  # it may be killed before its response is read
            await child.request("ping")
        with pytest.raises(OSError, match="No space left"):
            await child.ended()

    drive(scenario, tmp_path, on_frame=full)


def test_stderr_is_kept_for_the_log(tmp_path):
    async def scenario(child):
        assert await child.ended() == 1
        assert child.stderr.endswith("RuntimeError: broken")
        assert len(child.stderr) <= 8 * 1024

    code = "import sys\nsys.stderr.write('x' * 100000)\nraise RuntimeError('broken')"
    drive(scenario, tmp_path, code)
