"""A real browser without a window, driven over a pipe with its own protocol; no driver needed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

from support.patience import PATIENCE

CHROMIUM = next(
    (
        found
        for name in ("chromium", "chromium-browser", "google-chrome")
        if (found := shutil.which(name))
    ),
    None,
)


ELSEWHERE = ("navigated", "context was destroyed", "Cannot find default execution context")
"""What is said of a script whose page was just left for another one."""


class Browser:
    def __init__(self, directory: Path, *more: str) -> None:
        assert CHROMIUM
        to_read, to_write = os.pipe()
        from_read, from_write = os.pipe()
        script = f'exec "$@" 3<&{to_read} 4>&{from_write}'
        flags = (
            "--headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run "
            f"--remote-debugging-pipe --user-data-dir={directory} about:blank"
        )
        self._process = subprocess.Popen(
            ["bash", "-c", script, "bash", CHROMIUM, *more, *flags.split()],
            pass_fds=(to_read, from_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(to_read)
        os.close(from_write)
        self._out = to_write
        self._in = os.fdopen(from_read, "rb", buffering=0)
        self._buffer = b""
        self._next = 0
        self._session = ""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        self.call("Page.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        self._next += 1
        message = {"id": self._next, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._message()
            if answer.get("id") == self._next:
                assert "error" not in answer, answer
                return answer["result"]

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)
        self.wait_for("document.readyState === 'complete' && location.href !== 'about:blank'")

    def run(self, script: str) -> Any:
        """What a script evaluates to in the page."""
        answer = self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        return answer["result"].get("value")

    def wait_for(self, script: str, seconds: float = PATIENCE) -> Any:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            try:
                if found := self.run(script):
                    return found
            except AssertionError as error:
                if not any(word in str(error) for word in ELSEWHERE):
                    raise
            time.sleep(0.02)
        raise AssertionError(f"never true: {script}; page: {self.run('document.body.innerText')}")

    def close(self) -> None:
        os.close(self._out)
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, 9)
            self._process.wait()
        self._in.close()

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            data = self._in.read(65536)
            assert data, "the browser is gone"
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(line)
