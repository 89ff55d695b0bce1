import _socket
import errno
import shutil
import socket
import ssl
import subprocess
import threading
import time
from unittest.mock import Mock
from urllib.parse import quote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.patience import PATIENCE, patience
from support.provider import KEY, ask, client, model_of, run

from zot.cancel import Cancel
from zot.errors import BadResponse, Cancelled, ConfigError, NetworkError, StreamIdle
from zot.provider import client as client_module
from zot.provider import connection
from zot.provider import http as http_module
from zot.provider.address import (
    Address,
    is_loopback,
    parse_url,
    proxy_for,
    quoted,
)
from zot.provider.connection import tls_context
from zot.provider.http import Http, check_header
from zot.provider.types import Finished
from zot.testing.fakeserver import FakeServer

PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture
def server():
    with FakeServer() as made:
        yield made


# --- addresses -------------------------------------------------------------------------------


def test_a_url_has_its_parts():
    assert parse_url("https://x.example/api/v1/") == Address("https", "x.example", 443, "/api/v1")
    assert parse_url("http://[::1]:81").netloc == "[::1]:81"


@pytest.mark.parametrize(
    "url",
    [
        *("", "x.example", "ftp://x", "http://", "http://x:port", "http://x:99999"),
        *("http://user:pass@x", "http://x?key=1", "http://x#a", "http://x/a b", "http://[::1"),
    ],
)
def test_what_is_no_base_url_is_refused(url):
    with pytest.raises(ConfigError):
        parse_url(url)


@pytest.mark.parametrize("url", ["http://me:hunter2@x", "socks5://me:hunter2@x/y"])
def test_a_password_in_a_url_is_refused_without_showing_it(url):
    with pytest.raises(ConfigError) as caught:
        parse_url(url)
    assert "hunter2" not in str(caught.value)


@given(
    st.sampled_from(["http", "HTTPS"]),
    st.sampled_from(["x.example", "127.0.0.1", "[::1]", "[fe80::1]", "UPPER.example"]),
    st.none() | st.integers(1, 65_535),
    st.text("abc/%-._~", max_size=12),
)
def test_a_url_is_read_as_the_standard_library_reads_it(scheme, host, port, path):
    url = f"{scheme}://{host}{'' if port is None else f':{port}'}/{path}"
    parts, address = urlsplit(url), parse_url(url)
    assert (address.scheme, address.host) == (parts.scheme, parts.hostname)
    assert address.port == (parts.port or (443 if parts.scheme == "https" else 80))
    assert address.path == parts.path.rstrip("/")


@given(st.text(max_size=20) | st.text("%0aG é", max_size=8))
def test_quoting_is_that_of_the_standard_library(text):
    assert quoted(text) == quote(text, safe="", errors="replace")


def test_the_proxy_comes_from_the_environment():
    address = Address("https", "api.example", 443, "")
    assert proxy_for(address, {}) is None
    assert proxy_for(address, {"HTTPS_PROXY": "http://p:81"}).port == 81
    assert proxy_for(address, {"https_proxy": "p:82", "HTTPS_PROXY": "http://q"}).port == 82
    assert proxy_for(address, {"ALL_PROXY": "http://p:83"}).port == 83
    assert proxy_for(address, {"HTTP_PROXY": "http://p:81"}) is None
    with pytest.raises(ConfigError, match="not usable"):
        proxy_for(address, {"HTTPS_PROXY": "socks5://user:secret@p"})


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.9.9.9", "::1"])
def test_this_machine_is_never_asked_through_a_proxy(host):
    assert is_loopback(host)
    assert proxy_for(Address("http", host, 80, ""), {"HTTP_PROXY": "http://p"}) is None


@pytest.mark.parametrize("host", ["127.evil.example", "127.0.0.1.evil.example", "localhost.x", ""])
def test_a_name_that_looks_like_this_machine_is_another(host):
    assert not is_loopback(host)


@pytest.mark.parametrize(
    ("entries", "skipped"),
    [
        ("*", True),
        ("api.example", True),
        ("example", True),
        (".example", True),
        ("*.example", True),
        ("other.example, api.example", True),
        ("api.example:443", True),
        ("api.example:8443", False),
        ("xapi.example", False),
        ("ample", False),
        ("", False),
    ],
)
def test_no_proxy_names_hosts_and_domains(entries, skipped):
    address = Address("https", "api.example", 443, "")
    proxy = proxy_for(address, {"HTTPS_PROXY": "http://p", "NO_PROXY": entries})
    assert (proxy is None) == skipped


def test_a_proxys_password_becomes_a_header():
    proxy = proxy_for(Address("http", "x", 80, ""), {"HTTP_PROXY": "http://me:p%40ss@p"})
    assert proxy.headers == {"proxy-authorization": "Basic bWU6cEBzcw=="}


def test_plain_http_goes_through_the_proxy_with_the_whole_url(server, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", server.url.replace("http://", "http://u:p@"))
    with client("anthropic", "http://model.test") as made:
        events, error = run(made, ask(model_of("anthropic"), "say:hi"))
    assert error is None
    assert server.requests[0].path == "http://model.test:80/v1/messages"
    assert server.requests[0].headers["proxy-authorization"] == "Basic dTpw"
    assert server.requests[0].headers["host"] == "model.test"


# --- TLS -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make a certificate with")
    folder = tmp_path_factory.mktemp("tls")
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-days", "2", "-subj", "/CN=zot test", "-keyout", "key.pem"]
    names = "subjectAltName=DNS:model.test,IP:127.0.0.1"
    command += ["-addext", names, "-out", "cert.pem"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return folder


@pytest.fixture
def secure(certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    with FakeServer(tls=context) as made:
        yield made


@pytest.fixture
def trusted(certificate, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "cert.pem"))
    tls_context.cache_clear()
    yield
    tls_context.cache_clear()


def test_tls_streams_and_keeps_its_connection(secure, trusted):
    with client("openai", secure.url) as made:
        for _ in range(2):
            events, error = run(made, ask(model_of("openai"), "chop:3 unicode text:100"))
            assert error is None
            assert isinstance(events[-1], Finished)


def test_what_tls_has_read_ahead_is_readable(secure, trusted):
    line = connection.Connection(parse_url(secure.url), None, 5)
    line.open(Cancel())
    line.send(b"GET /nothing HTTP/1.1\r\nhost: x\r\n\r\n")
    first = line.receive(1)
    while b"\r\n\r\n" not in first:
        assert line.is_readable()
        first += line.receive(1)
    line.close()


@pytest.mark.parametrize("prompt", ["hang", "hang:headers", "hang:2 text:4", "delay:60000 text:2"])
def test_abort_under_tls(secure, trusted, prompt):
    cancel = Cancel()
    threading.Timer(0.2, cancel.set).start()
    start = time.monotonic()
    with client("anthropic", secure.url) as made, pytest.raises(Cancelled):
        list(made.stream(ask(model_of("anthropic"), prompt), cancel))
    assert time.monotonic() - start < patience(5)


def test_a_cut_under_tls_is_an_error(secure, trusted):
    with client("anthropic", secure.url) as made:
        _, error = run(made, ask(model_of("anthropic"), "cut:2 text:4"))
    assert isinstance(error, NetworkError | BadResponse)


def test_a_certificate_nobody_trusts_is_refused_for_good(secure):
    tls_context.cache_clear()
    with client("anthropic", secure.url) as made:
        _, error = run(made, ask(model_of("anthropic"), "hi"))
    tls_context.cache_clear()
    assert isinstance(error, NetworkError)
    assert not error.retryable
    assert "certificate" in str(error).lower()
    assert secure.requests == []


def test_a_missing_certificate_file_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
    tls_context.cache_clear()
    with pytest.raises(ConfigError, match="SSL_CERT_FILE"):
        tls_context()
    tls_context.cache_clear()


class Tunnel:
    """A proxy that knows CONNECT, and sends everyone to one place."""

    def __init__(self, port, status=200):
        self.port, self.status, self.asked = port, status, []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.threads = [threading.Thread(target=self.accept)]
        self.threads[0].start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for thread in self.threads:
            thread.join(PATIENCE)

    def accept(self):
        while True:
            try:
                inner, _ = self.listener.accept()
            except OSError:
                return
            head = b""
            while b"\r\n\r\n" not in head:
                head += inner.recv(4096)
            self.asked.append(head.decode())
            inner.sendall(b"HTTP/1.1 %d Status\r\n\r\n" % self.status)
            if self.status != 200:
                inner.close()
                continue
            outer = socket.create_connection(("127.0.0.1", self.port))
            for one, other in ((inner, outer), (outer, inner)):
                thread = threading.Thread(target=self.pipe, args=(one, other))
                thread.start()
                self.threads.append(thread)

    @staticmethod
    def pipe(one, other):
        try:
            while data := one.recv(65536):
                other.sendall(data)
        except OSError:
            pass
        for each in (one, other):
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        one.close()


def test_https_goes_through_a_tunnel(secure, trusted, monkeypatch):
    with Tunnel(secure.port) as tunnel:
        monkeypatch.setenv("HTTPS_PROXY", tunnel.url)
        with client("anthropic", "https://model.test") as made:
            events, error = run(made, ask(model_of("anthropic"), "say:hi"))
        assert error is None
        assert tunnel.asked[0].startswith("CONNECT model.test:443")
        assert KEY not in tunnel.asked[0]


def test_a_tunnel_that_is_refused_is_a_network_error(trusted, monkeypatch):
    with Tunnel(0, status=407) as tunnel:
        monkeypatch.setenv("HTTPS_PROXY", tunnel.url)
        with client("anthropic", "https://model.test") as made:
            _, error = run(made, ask(model_of("anthropic"), "say:hi"))
    assert isinstance(error, NetworkError)
    assert "407" in str(error)


# --- limits and odd answers --------------------------------------------------------------------


def test_an_answer_without_end_is_stopped(server, monkeypatch):
    monkeypatch.setattr(http_module, "MAX_BODY", 100_000)
    with client("anthropic", server.url) as made:
        _, error = run(made, ask(model_of("anthropic"), "big:500000 text:4"))
    assert isinstance(error, BadResponse)
    assert "more than 100000 bytes" in str(error)


class Raw:
    """A server that answers every connection with the same bytes."""

    def __init__(self, *answers, hold=False):
        self.answers, self.hold = answers, hold
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.thread = threading.Thread(target=self.serve)
        self.held = []

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join(PATIENCE)
        for sock in self.held:
            sock.close()

    def serve(self):
        for answer in self.answers:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            self.held.append(sock)
            data = b""
            while b"\r\n\r\n" not in data:
                data += sock.recv(65536)
            size = int(data.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            body = data.split(b"\r\n\r\n", 1)[1]
            while len(body) < size:
                body += sock.recv(65536)
            try:
                sock.sendall(answer)
                if not self.hold:
                    sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # the client has seen enough


def answer(status, body, kind="application/json", **headers):
    lines = [
        f"HTTP/1.1 {status} Bad Thing",
        f"content-type: {kind}",
        f"content-length: {len(body)}",
    ]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b'{"error":{"message":"own words"}}', "own words"),
        (b'{"error":"short"}', "short"),
        (b'{"message":"top"}', "top"),
        (b'{"detail":"fast"}', "fast"),
        (b'[{"error":{"message":"google"}}]', "google"),
        (b'{"other":1}', '{"other":1}'),
        (b"3", "3"),
        (b"", "Bad Thing"),
        (b"plain \x1b[31m text\nwith lines", "plain [31m text with lines"),
        (b"<html>" + b"x" * 9_000, "<html>" + "x" * 194 + "..."),
        (b"{" * 5_000, "{" * 2_000 + "..."),
        (b"\xff\xfe", "\ufffd\ufffd"),
    ],
)
def test_an_error_body_becomes_one_short_line(body, text):
    with Raw(answer(400, body, x_request_id="req-7")) as raw, client("openai", raw.url) as made:
        _, error = run(made, ask(model_of("openai"), "hi"))
    assert str(error) == f"openai: http 400: {text}"
    assert error.request_id == "req-7"


def test_an_error_body_without_end_is_cut_short():
    with Raw(answer(500, b"y" * 500_000)) as raw, client("openai", raw.url) as made:
        _, error = run(made, ask(model_of("openai"), "hi"))
    assert len(str(error)) < 3_000


def test_an_error_body_that_never_comes_is_not_waited_for_long():
    head = b"HTTP/1.1 503 Busy\r\ncontent-length: 100\r\n\r\n"
    with Raw(head, hold=True) as raw, client("openai", raw.url, idle_seconds=0.2) as made:
        _, error = run(made, ask(model_of("openai"), "hi"))
    assert (error.status, str(error)) == (503, "openai: http 503: Busy")


@pytest.mark.parametrize(
    "bad", [b"HTTP/1.1 abc\r\n\r\n", b"\r\n\r\n", b"HTTP/1.1 200 OK\r\n" + b"a" * 70_000]
)
def test_broken_heads_are_errors(bad):
    with Raw(bad) as raw, client("openai", raw.url) as made:
        _, error = run(made, ask(model_of("openai"), "hi"))
    assert isinstance(error, BadResponse | NetworkError)


def test_a_body_shorter_than_it_said_is_an_error():
    body = b'data: {"choices":[{"delta":{"content":"x"}}]}\n\n'
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 9999\r\n\r\n"
    with Raw(head + body) as raw, client("openai", raw.url) as made:
        _, error = run(made, ask(model_of("openai"), "hi"))
    assert isinstance(error, NetworkError)


def test_the_last_blank_line_may_be_missing():
    body = b'data: {"choices":[{"delta":{"content":"x"},"finish_reason":"stop"}]}'
    with Raw(answer(200, body, "text/event-stream")) as raw, client("openai", raw.url) as made:
        events, error = run(made, ask(model_of("openai"), "hi"))
    assert error is None
    assert isinstance(events[-1], Finished)


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
SAID = b'data: {"choices":[{"delta":{"content":"x"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


def chunk(data):
    return b"%x\r\n%s\r\n" % (len(data), data)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 100 Continue\r\n\r\n" + HEAD + b"\r\n" + SAID,
        b"HTTP/1.0 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + SAID,
        HEAD
        + b"transfer-encoding: chunked\r\ntrailer: x\r\n\r\n"
        + chunk(SAID)
        + b"0\r\nx: 1\r\n\r\n",
        HEAD + b"transfer-encoding: chunked\r\n\r\n" + chunk(SAID).replace(b"\r", b";a=b\r", 1),
        HEAD + b"content-length: %d\r\n\r\n" % len(SAID) + SAID + b"HTTP/1.1 500 No\r\n\r\n",
    ],
    ids=["100", "1.0", "trailer", "extension", "surplus"],
)
def test_odd_but_whole_answers_are_read_and_the_next_call_works(answer):
    with Raw(answer, answer) as raw, client("openai", raw.url) as made:
        for _ in range(2):
            events, error = run(made, ask(model_of("openai"), "hi"))
            assert error is None
            assert events[-1].content[0].text == "x"


@pytest.mark.parametrize(
    "answer",
    [
        HEAD + b"content-length: 9\r\ntransfer-encoding: chunked\r\n\r\n" + chunk(SAID),
        HEAD + b"content-length: 9\r\ncontent-length: 99\r\n\r\n" + SAID,
        HEAD + b"content-length: -1\r\n\r\n" + SAID,
        HEAD + b"content-length: 99999999999999999999999999\r\n\r\n" + SAID,
        HEAD + b"transfer-encoding: gzip\r\n\r\n" + SAID,
        HEAD + b"transfer-encoding: chunked\r\n\r\nxyz\r\n" + SAID,
        HEAD + b"transfer-encoding: chunked\r\n\r\n-5\r\n" + SAID,
        HEAD + b"transfer-encoding: chunked\r\n\r\nfffffffffffffffffffff\r\n" + SAID,
        HEAD + b"transfer-encoding: chunked\r\n\r\n5;" + b"x" * 200_000,
        HEAD + b"transfer-encoding: chunked\r\n\r\n0\r\nx: " + b"x" * 200_000,
        HEAD + b"x: 1\r\n" * 20_000,
        b"HTTP/1.1 100 Continue\r\n\r\n" * 9_000,
        b"\r\n" * 90_000,
        b"HTTP/1.1 101 Switching\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n bad: x\r\n\r\n" + SAID,
    ],
)
def test_an_answer_without_one_sure_length_is_refused(answer):
    with Raw(answer, hold=True) as raw, client("openai", raw.url, idle_seconds=5) as made:
        _, error = run(made, ask(model_of("openai"), "hi"))
    assert isinstance(error, BadResponse)
    assert "not an HTTP answer" in str(error)


def test_a_head_that_drips_is_not_waited_for_longer_than_the_idle_limit():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        stop = threading.Event()

        def drip():
            sock, _ = listener.accept()
            with sock:
                while not stop.wait(0.05):
                    try:
                        sock.sendall(b"H" if stop.is_set() else b"\r\n")
                    except OSError:
                        return

        thread = threading.Thread(target=drip)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        start = time.monotonic()
        with client("openai", url, idle_seconds=0.4) as made:
            _, error = run(made, ask(model_of("openai"), "hi"))
        stop.set()
        thread.join(PATIENCE)
    assert isinstance(error, StreamIdle)
    assert time.monotonic() - start < patience(5)


def test_a_server_that_refuses_a_large_request_before_reading_it_is_heard():
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def refuse():
            sock, _ = listener.accept()
            with sock:
                sock.recv(100)
                sock.sendall(answer(413, b'{"error":"too large"}', connection="close"))
                sock.shutdown(socket.SHUT_WR)
                while sock.recv(1 << 20):
                    pass

        thread = threading.Thread(target=refuse)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with client("openai", url) as made:
            _, error = run(made, ask(model_of("openai"), "hi " * 3_000_000))
        thread.join(PATIENCE)
    assert error.status == 413


def test_a_stale_connection_that_sent_something_is_not_asked_twice():
    body = SAID
    first = answer(200, body, "text/event-stream")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        asked = []

        def serve():
            sock, _ = listener.accept()
            with sock:
                asked.append(sock.recv(1 << 20))
                sock.sendall(first)
                asked.append(sock.recv(1 << 20))
                sock.sendall(b"HTTP/1.1 2")

        thread = threading.Thread(target=serve)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with client("openai", url) as made:
            assert run(made, ask(model_of("openai"), "a"))[1] is None
            _, error = run(made, ask(model_of("openai"), "b"))
        thread.join(PATIENCE)
    assert isinstance(error, NetworkError)
    assert len(asked) == 2


def test_ipv6_is_spoken():
    try:
        listener = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("no IPv6 here")
    with listener:

        def serve():
            sock, _ = listener.accept()
            with sock:
                seen.append(sock.recv(1 << 20))
                sock.sendall(answer(200, SAID, "text/event-stream"))

        seen = []
        thread = threading.Thread(target=serve)
        thread.start()
        port = listener.getsockname()[1]
        with client("openai", f"http://[::1]:{port}") as made:
            _, error = run(made, ask(model_of("openai"), "hi"))
        thread.join(PATIENCE)
    assert error is None
    assert b"host: [::1]:%d\r\n" % port in seen[0]


def test_abort_during_the_tls_handshake(trusted):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        cancel = Cancel()
        url = f"https://127.0.0.1:{silent.getsockname()[1]}"

        def hear_and_abort():
            sock, _ = silent.accept()
            with sock:
                sock.recv(1)
                cancel.set()

        thread = threading.Thread(target=hear_and_abort)
        thread.start()
        start = time.monotonic()
        with client("openai", url) as made, pytest.raises(Cancelled):
            list(made.stream(ask(model_of("openai"), "hi"), cancel))
        assert time.monotonic() - start < patience(5)
        thread.join(PATIENCE)


def test_abort_while_a_large_request_is_being_sent():
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        cancel = Cancel()
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        threading.Timer(0.2, cancel.set).start()
        start = time.monotonic()
        with client("openai", url) as made, pytest.raises(Cancelled):
            list(made.stream(ask(model_of("openai"), "hi " * 5_000_000), cancel))
        assert time.monotonic() - start < patience(5)


def test_a_connection_closed_between_two_calls_is_opened_again():
    body = (
        b'data: {"choices":[{"delta":{"content":"x"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    )
    one = answer(200, body, "text/event-stream")
    with Raw(one, one) as raw, client("openai", raw.url) as made:
        for _ in range(2):
            _, error = run(made, ask(model_of("openai"), "hi"))
            assert error is None


def test_a_kept_connection_that_dies_with_the_request_on_its_way_is_tried_once_more(server):
    with client("openai", server.url) as made:
        assert run(made, ask(model_of("openai"), "say:a"))[1] is None
        kept = made._http._kept
        kept.is_reusable = lambda: True  # the server closes after the check, before the request
        socket.socket.shutdown(kept._sock, socket.SHUT_RDWR)
        assert run(made, ask(model_of("openai"), "say:b"))[1] is None
        made._http.close()
        made._http.close()


@pytest.mark.parametrize("last", [b"", b"data: x\n\n" * 9])
def test_a_connection_whose_last_answer_did_not_end_is_given_up(last):
    body = b'data: {"choices":[{"delta":{"content":"x"},"finish_reason":"stop"}]}\n\n'
    body += b"data: [DONE]\n\n"
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 9999\r\n\r\n"
    with Raw(head + body + last, head + body, hold=True) as raw, client("openai", raw.url) as made:
        for _ in range(2):
            assert run(made, ask(model_of("openai"), "hi"))[1] is None


def test_a_server_that_closes_after_each_answer(server):
    with client("openai", server.url) as made:
        for _ in range(2):
            assert run(made, ask(model_of("openai"), "close say:hi"))[1] is None


def test_an_old_connection_is_not_trusted(server, monkeypatch):
    monkeypatch.setattr(connection, "KEEP_SECONDS", -1.0)
    with client("openai", server.url) as made:
        for _ in range(2):
            assert run(made, ask(model_of("openai"), "say:hi"))[1] is None


def test_no_time_is_left_for_the_second_address(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        dead = ("127.0.0.1", closed.getsockname()[1])
    rows = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", dead)] * 2
    monkeypatch.setattr(_socket, "getaddrinfo", lambda *a, **k: rows)
    with client("openai", "http://two.invalid", connect_seconds=0) as made:
        _, error = run(made, ask(model_of("openai"), "hi"))
    assert isinstance(error, NetworkError)


@pytest.mark.parametrize("hold", [True, False])
def test_a_whole_answer_counts_though_the_server_never_closes_it(hold, monkeypatch):
    monkeypatch.setattr(client_module, "COMPLETE_SECONDS", 0.1)
    body = b'data: {"choices":[{"delta":{"content":"x"},"finish_reason":"stop"}]}\n\n'
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
    head += b"transfer-encoding: chunked\r\n\r\n"
    chunk = b"%x\r\n%s\r\n" % (len(body), body)
    with Raw(head + chunk, hold=hold) as raw, client("openai", raw.url) as made:
        events, error = run(made, ask(model_of("openai"), "hi"))
    assert error is None
    assert isinstance(events[-1], Finished)


def test_two_calls_at_once_use_two_connections(server):
    with client("openai", server.url) as made:
        results = []
        threads = [
            threading.Thread(
                target=lambda: results.append(run(made, ask(model_of("openai"), "delay:5 text:20")))
            )
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [error for _, error in results] == [None] * 4


def test_a_name_that_does_not_resolve_is_a_network_error():
    with client("openai", "http://no-such-host.invalid") as made:
        _, error = run(made, ask(model_of("openai"), "hi"))
    assert isinstance(error, NetworkError)
    assert "no-such-host.invalid" in str(error)


def test_a_slow_name_lookup_is_left_behind_at_abort(monkeypatch):
    asked, release = threading.Event(), threading.Event()

    def lookup(*args, **kwargs):
        asked.set()
        release.wait(20)
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(_socket, "getaddrinfo", lookup)
    cancel = Cancel()
    with client("openai", "http://slow.invalid") as made:
        threading.Thread(target=lambda: (asked.wait(10), cancel.set())).start()
        start = time.monotonic()
        with pytest.raises(Cancelled):
            list(made.stream(ask(model_of("openai"), "hi"), cancel))
        assert time.monotonic() - start < patience(5)
    release.set()


def test_a_lookup_that_never_ends_is_a_timeout(monkeypatch):
    release = threading.Event()
    monkeypatch.setattr(_socket, "getaddrinfo", lambda *a, **k: release.wait(20) and [])
    with client("openai", "http://slow.invalid", connect_seconds=-0.8) as made:
        _, error = run(made, ask(model_of("openai"), "hi"))
    release.set()
    assert isinstance(error, NetworkError)


def test_the_next_address_is_tried(server, monkeypatch):
    real = _socket.getaddrinfo
    with socket.create_server(("127.0.0.1", 0)) as closed:
        dead = closed.getsockname()[1]
    rows = [
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))
        for port in (dead, server.port)
    ]
    monkeypatch.setattr(_socket, "getaddrinfo", lambda *a, **k: rows)
    with client("openai", "http://two.invalid") as made:
        _, error = run(made, ask(model_of("openai"), "say:hi"))
    monkeypatch.setattr(_socket, "getaddrinfo", real)
    assert error is None


def test_a_silent_server_before_the_head_is_idle():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with client("openai", url, idle_seconds=0.2) as made:
            _, error = run(made, ask(model_of("openai"), "hi"))
    assert isinstance(error, StreamIdle)


def test_headers_that_cannot_travel():
    for value in ("a\nb", "ü", "\x7f"):
        with pytest.raises(ConfigError):
            check_header("x", value)
    check_header("x", "fine")


def test_a_short_secret_is_not_replaced_everywhere():
    assert Http("x", "http://x", secret="e").redact("here") == "here"


def test_thousands_of_deltas_leave_no_thread_behind(server):
    before = threading.active_count()
    with client("openai", server.url) as made:
        events, error = run(made, ask(model_of("openai"), "text:5000"))
    assert error is None
    server.close()
    assert threading.active_count() <= before


@pytest.mark.parametrize("key", ["k3y!", "sk-short", KEY])
def test_a_key_that_a_server_repeats_is_not_shown(key):
    said = b'{"error":{"message":"bad key %s, \\u0022%s"}}' % (key.encode(), key.encode())
    with Raw(answer(400, said)) as raw, client("openai", raw.url, key=key) as made:
        _, error = run(made, ask(model_of("openai"), "hi"))
    assert key not in str(error)
    assert "bad key [key]" in str(error)


def test_no_part_of_a_key_is_left_where_a_long_error_is_cut():
    said = b"x" * 1_990 + b" " + KEY.encode()
    with Raw(answer(400, said)) as raw, client("openai", raw.url) as made:
        _, error = run(made, ask(model_of("openai"), "hi"))
    assert KEY[:6] not in str(error)


def test_a_key_in_the_text_of_a_model_that_refuses_is_not_shown():
    refusal = b'data: {"choices":[{"delta":{"refusal":"not %s"}}]}\n\n' % KEY.encode()
    refusal += b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n'
    with Raw(answer(200, refusal, "text/event-stream")) as raw, client("openai", raw.url) as made:
        _, error = run(made, ask(model_of("openai"), "hi"))
    assert KEY not in str(error)
    assert "[key]" in str(error)


def test_a_server_of_this_machine_that_cannot_be_reached_is_told_with_the_reason(monkeypatch):
    refusing = type("Socket", (connection.socket.socket,), {})
    refusing.connect_ex = lambda self, where: errno.ENETUNREACH
    refusing.connect = Mock(side_effect=OSError(errno.ENETUNREACH, "Network is unreachable"))
    monkeypatch.setattr(connection.socket, "socket", refusing)
    http = Http("x", "http://127.0.0.1:9")
    with pytest.raises(NetworkError, match="cannot connect to 127.0.0.1:9: Network is unreachable"):
        http.exchange(http.head("GET", "/", {}), None, Cancel())
