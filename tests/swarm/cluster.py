"""A real Temporal server, workers as processes, and a place that gives them tasks."""

import asyncio
import contextlib
import os
import signal
import socket
import ssl
import subprocess
import threading
import time
from pathlib import Path

from support.patience import patience

from swarm.support import ZOT, Place
from zot.swarm.temporal.config import TemporalConfig, save_config, server_command

WORKER_PATIENCE = patience(60.0)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Cluster:
    def __init__(self, tmp_path, server, *, lease=4.0, database=""):
        self.place = Place(tmp_path, server)
        self.folder = tmp_path
        self.processes = {}
        self.port = free_port()
        self.config = TemporalConfig(
            address=f"127.0.0.1:{self.port}", lease_seconds=lease, hub_port=free_port()
        )
        save_config(self.place.home / "swarm", self.config)
        command = server_command(database, self.port)
        self.start("server", [*command, "--headless"])
        self.until(lambda: _listens(self.port), "the server does not listen")

    def start(self, name, command, **environment):
        log = (self.folder / f"{name}.log").open("ab")
        with log:
            self.processes[name] = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env={**self.place.environment, **environment},
                start_new_session=True,
            )

    def worker(self, name, *words, slots=4, before=(), **environment):
        folder = self.folder / name
        command = [*ZOT, "swarm", *before, "worker", "--folder", str(folder)]
        self.start(name, [*command, "--slots", str(slots), *words], **environment)
        self.until(lambda: "slots of" in self.said(name), f"{name} does not begin")

    def only_worker(self, name, *words, **options):
        """A new one; the others have nothing to do and end."""
        others = [self.processes.pop(other) for other in list(self.processes) if other != "server"]
        for process in others:
            process.terminate()
        self.worker(name, *words, **options)
        for process in others:
            assert process.wait(30) == 0

    def said(self, name):
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def kill(self, name):
        """The worker, and with `kill -9` of everything it started: its agents and their tools."""
        top = self.processes[name].pid
        for pid in (top, *below(top)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.processes.pop(name).wait()

    def until(self, condition, what, seconds=WORKER_PATIENCE):
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                said = {name: self.said(name)[-2000:] for name in self.processes}
                raise AssertionError(f"{what}: {said}\n{self.place.log()}")
            time.sleep(0.05)

    def submit(self, prompt, *turns, **options):
        return self.place.submit(prompt, *turns, engine="temporal", **options)

    def close(self):
        self.place.swarm.stop()
        for name in reversed(list(self.processes)):
            process = self.processes[name]
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                self.kill(name)


def below(top):
    """Every process below this one."""
    children = {}
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (path / "stat").read_text().rpartition(")")[2].split()
                children.setdefault(int(fields[1]), []).append(int(path.name))
    found, queue = [], [top]
    while queue:
        queue += children.get(queue.pop(), [])
        found = found + [pid for pid in queue if pid not in found]
    return found


class TlsDoor:
    """Before a port that speaks none, as a cluster has it."""

    def __init__(self, port, cert, key):
        self._to = port
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(cert, key)
        self._context.set_alpn_protocols(["h2"])
        self._loop = asyncio.new_event_loop()
        starting = asyncio.start_server(self._pass_on, "127.0.0.1", 0, ssl=self._context)
        self._server = self._loop.run_until_complete(starting)
        self.port = self._server.sockets[0].getsockname()[1]
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()

    async def _pass_on(self, reader, writer):
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", self._to)
        with contextlib.suppress(OSError, asyncio.CancelledError):
            await asyncio.gather(_copy(reader, inner_writer), _copy(inner_reader, writer))

    def close(self):
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._end())
        self._loop.close()

    async def _end(self):
        self._server.close()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)


async def _copy(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()


def _listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
