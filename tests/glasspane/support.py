"""A real `zot glasspane`, and a plain client of it."""

import http.client
import json
import signal
import ssl
import subprocess
import sys


class Pane:
    def __init__(self, environment, cwd, *words):
        self._process = subprocess.Popen(
            [sys.executable, "-m", "zot", "glasspane", "--port", "0", "--no-open", *words],
            cwd=cwd,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.url = self._process.stdout.readline().strip()
        assert self.url, self._process.stderr.read()
        self.secure = self.url.startswith("https:")
        self.port = int(self.url.split(":")[2].split("/")[0])
        self.token = self.url.partition("#token=")[2].partition(" ")[0]
        self.tokens = [self.token]
        """Of those who may see, answer and drive, where there are several."""
        if self.secure:
            lines = [self._process.stdout.readline() for _ in range(2)]
            self.tokens += [line.partition("#token=")[2].partition(" ")[0] for line in lines]
        self.cookie = ""

    def ask(self, path, body=None, *, headers=None, method=None):
        """Status, headers and body of one request."""
        connection = self._connection()
        sent = {"x-zot": "1", "cookie": self.cookie, **(headers or {})}
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

    def login(self):
        status, headers, content = self.ask("/login", {"token": self.token})
        assert status == 200, content
        self.cookie = headers["set-cookie"].partition(";")[0]
        return self

    def post(self, path, **fields):
        status, _, content = self.ask(path, fields)
        return status, json.loads(content)

    def events(self, path, last=""):
        """The events of a stream, one after the other: name, id, data."""
        connection = self._connection()
        headers = {"cookie": self.cookie, **({"last-event-id": last} if last else {})}
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
