"""A real `zot glasspane`, and a plain client of it."""

import http.client
import json
import os
import signal
import ssl
import subprocess
import sys
from contextlib import suppress
from pathlib import Path


class Pane:
    def __init__(self, environment, cwd, *words):
        self._process = subprocess.Popen(
            [sys.executable, "-m", "zot", "glasspane", "--port", "0", "--no-open", *words],
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.url = self._printed_link()
        """Works once: `link` makes another one."""
        self.secure = self.url.startswith("https:")
        self.port = int(self.url.split(":")[2].split("/")[0])
        self.code = self.url.partition("#code=")[2]
        lines = [self._process.stdout.readline() for _ in range(3)] if self.secure else []
        self.tokens = [line.split(": ")[1].strip() for line in lines]
        """Of those who may see, answer and drive from other machines."""
        self.session = ""

    def link(self):
        """Another link."""
        self._process.send_signal(signal.SIGUSR1)
        return self._printed_link()

    def _printed_link(self):
        link = self._process.stdout.readline().strip()
        assert "#code=" in link, self._process.stderr.read()
        assert "works once" in self._process.stdout.readline()
        return link

    def ask(self, path, body=None, *, headers=None, method=None):
        """Status, headers and body of one request."""
        connection = self._connection()
        sent = {"x-zot": "1", "x-zot-session": self.session, **(headers or {})}
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body)
        connection.request(method or ("GET" if body is None else "POST"), path, data, sent)
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        return answer.status, dict(answer.getheaders()), content

    def _connection(self):
        if not self.secure:
            return http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        trusting = ssl.create_default_context()
        trusting.check_hostname = False
        trusting.verify_mode = ssl.CERT_NONE  # it made its certificate itself
        return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=60, context=trusting)

    def login(self, code=""):
        status, headers, content = self.ask("/login", {"code": code or self.code})
        assert status == 200, content
        assert "set-cookie" not in headers
        self.session = json.loads(content)["session"]
        return self

    def post(self, path, **fields):
        status, _, content = self.ask(path, fields)
        return status, json.loads(content)

    def events(self, path, last=""):
        """The events of a stream, one after the other: name, id, data."""
        connection = self._connection()
        headers = {"x-zot-session": self.session, **({"last-event-id": last} if last else {})}
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        assert answer.getheader("content-type").startswith("text/event-stream")
        try:
            event = {"id": ""}
            while line := answer.readline():
                name, _, value = line.decode().rstrip("\n").partition(": ")
                if not line.strip() and "event" in event:
                    yield event["event"], event["id"], json.loads(event["data"])
                    event = {"id": ""}
                elif name:
                    event[name] = value
        finally:
            answer.close()
            connection.close()

    def close(self):
        """End it; what it said on stderr."""
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise
        said = self._process.stderr.read()
        self._process.stdout.close()
        self._process.stderr.close()
        assert "Traceback" not in said, said
        return said


class Terminal:
    """What a program wrote to it, a line after the other."""

    def __init__(self, fd):
        self._fd = fd
        self._rest = b""

    def until(self, mark):
        """The end of the next line with this mark, behind the mark."""
        while True:
            line, found, rest = self._rest.partition(b"\n")
            if not found:
                self._rest += os.read(self._fd, 4096)
                continue
            self._rest = rest
            if mark.encode() in line:
                return line.decode().strip().partition(mark)[2]


def command_lines():
    """Of every process, with its environment where we may look."""
    lines = []
    for path in Path("/proc").glob("[0-9]*"):
        for name in ("cmdline", "environ"):
            with suppress(OSError):
                lines.append((path / name).read_text(errors="replace"))
    return lines
