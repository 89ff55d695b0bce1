"""A swarm of real agents with a scripted model, in a home of its own."""

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.patience import patience

from zot.swarm.local import LocalSwarm
from zot.swarm.task import new_id
from zot.testing.fakeserver import FakeServer

AGENT_PATIENCE = patience(90.0)

ZOT = [sys.executable, "-m", "zot"]


class Place:
    """A repository, a home, and what a test does with them."""

    def __init__(self, tmp_path, server, **environment):
        self.words = ("--base-url", server.url, "--no-ext")
        self.home = tmp_path / "h"
        self.repository = tmp_path / "repository"
        self.repository.mkdir()
        self.scripts = tmp_path
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("ZOT_")},
            "ZOT_HOME": str(self.home),
            "HOME": str(tmp_path),
            "ANTHROPIC_API_KEY": "sk-ant-test-0123456789",
            **environment,
        }
        self.git("init", "-q", "-b", "main")
        (self.repository / "a.txt").write_text("one\n")
        self.git("add", "-A")
        self.git("commit", "-qm", "first")
        self.swarm = LocalSwarm(self.home, self.environment)

    def git(self, *words):
        who = ["-c", "user.name=t", "-c", "user.email=t@t"]
        done = subprocess.run(
            ["git", *who, *words], cwd=self.repository, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def submit(self, prompt, *turns, **options):
        """A task whose prompt also tells the model server what to answer, turn by turn."""
        text = "\nthen\n".join([f"{turns[0]}", *turns[1:]]) if turns else prompt
        options = {"provider": "anthropic", "words": self.words, **options}
        return self.swarm.submit(text, str(self.repository), id=new_id(prompt), **options)

    def zot(self, *words):
        return subprocess.run(
            [*ZOT, "swarm", *words],
            cwd=self.repository,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=100,
        )

    def wait(self, id, *stages, seconds=AGENT_PATIENCE):
        stages = stages or ("done", "failed", "cancelled", "lost")
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            summary = self.swarm.show(id)
            if summary.stage in stages:
                return summary
            time.sleep(0.05)
        raise AssertionError(f"{id} never was {stages}: {summary}\n{self.log()}")

    def rows(self, id, kind=""):
        rows = [row.frame for _, row in self.swarm.events(id)]
        return [row for row in rows if not kind or row["type"] == kind]

    def supervisor(self):
        """Its process id; None: there is none."""
        with socket.socket(socket.AF_UNIX) as asked:
            try:
                asked.connect(str(self.home / "swarm" / "socket"))
            except OSError:
                return None
            peer = asked.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
            return struct.unpack("3i", peer)[0]

    def kill_supervisor(self):
        pid = self.supervisor()
        os.kill(pid, signal.SIGKILL)
        while Path(f"/proc/{pid}/stat").exists() and self.supervisor() == pid:
            time.sleep(0.01)

    def log(self):
        path = self.home / "swarm" / "supervisor.log"
        return path.read_text() if path.exists() else ""


@pytest.fixture
def place(tmp_path):
    with FakeServer() as server:
        made = Place(tmp_path, server)
        yield made
        made.swarm.stop()
        assert "Traceback" not in made.log()


def bash(command):
    return f"tool:bash:{json.dumps({'command': command})}"


def says(text):
    return f"say:{text}"
