import socket
import threading

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.patience import PATIENCE

from zot.cancel import Cancel
from zot.errors import ProviderError
from zot.provider.connection import MAX_HEAD, ResponseParser
from zot.provider.http import Http

TOKEN = st.text("abcdefghijklmnopqrstuvwxyz-", min_size=1, max_size=12)
VALUE = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=20)
BODY = st.binary(max_size=400)
FRAMING = ("content-length", "transfer-encoding", "connection", "upgrade", "proxy-connection")


@st.composite
def answers(draw):
    """An answer as bytes, with its status, its headers and its body."""
    version = draw(st.sampled_from(["1.0", "1.1"]))
    status = draw(st.sampled_from([200, 201, 302, 400, 413, 429, 500, 529]))
    names = draw(st.lists(TOKEN, max_size=6, unique=True))
    headers = {name: draw(VALUE) for name in names if name not in FRAMING}
    body = draw(BODY)
    framing = draw(st.sampled_from(["length", "chunked", "close"]))
    lines = [f"{name}: {value}" for name, value in headers.items()]
    if framing == "length":
        lines.append(f"Content-Length: {len(body)}")
    elif framing == "chunked":
        lines.append("Transfer-Encoding: chunked")
    sent = body
    if framing == "chunked":
        cuts = sorted(draw(st.lists(st.integers(0, len(body)), max_size=5)))
        parts = [body[a:b] for a, b in zip([0, *cuts], [*cuts, len(body)], strict=True)]
        sent = b"".join(b"%X\r\n%s\r\n" % (len(part), part) for part in parts if part)
        sent += b"0\r\n" + draw(st.sampled_from([b"", b"X-Sum: 1\r\n"])) + b"\r\n"
    early = draw(st.sampled_from([b"", b"HTTP/1.1 100 Continue\r\nx: y\r\n\r\n"]))
    head = "\r\n".join([f"HTTP/{version} {status} Some Reason", *lines, "", ""]).encode()
    return early + head + sent, (status, headers, body, framing)


def read(pieces, parser=None):
    """What a parser makes of the pieces: everything that a caller can see."""
    parser = parser or ResponseParser()
    body = b""
    for piece in pieces:
        while piece and not parser.is_complete and not parser.error:
            size = parser.wanted
            body += parser.feed(piece[:size])
            piece = piece[size:]
    whole = parser.end()
    head = (parser.status, parser.reason, parser.headers) if parser.has_head else (0, "", {})
    return (*head, body, whole, bool(parser.error), parser.has_head)


def cut(data, cuts):
    marks = [0, *sorted(mark % (len(data) + 1) for mark in cuts), len(data)]
    return [data[a:b] for a, b in zip(marks, marks[1:], strict=False)]


@given(answers(), st.lists(st.integers(0, 10_000), max_size=12))
def test_any_cut_of_any_answer_gives_the_same(made, cuts):
    data, (status, headers, body, _) = made
    seen = read(cut(data, cuts))
    assert seen == read([data])
    assert seen[0] == status
    assert seen[1] == "Some Reason"
    assert seen[3:6] == (body, True, False)
    assert headers.items() <= seen[2].items()


@given(answers())
def test_byte_by_byte_gives_the_same(made):
    data, _ = made
    assert read([bytes([byte]) for byte in data]) == read([data])


@given(answers(), st.integers(0, 10_000))
def test_what_is_cut_short_is_never_taken_for_whole(made, at):
    data, (_, _, body, framing) = made
    part = data[: at % len(data)]
    seen = read([part])
    assert body.startswith(seen[3])
    if framing != "close" and body:
        assert not seen[4]


@pytest.mark.untraced
@settings(max_examples=300)
@given(
    answers(),
    st.lists(st.tuples(st.integers(0, 10_000), st.binary(max_size=6)), max_size=4),
    st.lists(st.integers(0, 10_000), max_size=6),
)
def test_damage_is_an_error_or_another_answer_and_the_same_for_every_cut(made, damage, cuts):
    data, _ = made
    for at, replacement in damage:
        at %= len(data)
        data = data[:at] + replacement + data[at + len(replacement) :]
    assert read(cut(data, cuts)) == read([data])


@given(st.binary(max_size=2_000), st.lists(st.integers(0, 3_000), max_size=6))
def test_noise_never_raises_and_is_the_same_for_every_cut(data, cuts):
    for start in (
        b"",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
    ):
        assert read(cut(start + data, cuts)) == read([start + data])


@pytest.mark.parametrize("step", [1_000, 60_000, 1 << 20])
def test_a_head_may_have_its_limit_and_no_more(step):
    start = b"HTTP/1.1 200 OK\r\nx: "
    fits = start + b"y" * (MAX_HEAD - len(start) - 4) + b"\r\n\r\n"
    for data, is_good in ((fits, True), (fits.replace(b"y", b"yy", 1), False)):
        pieces = [data[at : at + step] for at in range(0, len(data), step)]
        assert read(pieces)[6] is is_good


def test_a_second_answer_is_not_read_and_the_connection_not_kept():
    one = b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n"
    parser = ResponseParser()
    assert parser.feed(one + b"a" + one + b"b") == b"a"
    assert (parser.is_complete, parser.keeps_alive, parser.error) == (True, False, "")


def test_what_follows_an_answer_and_is_none_is_not_read_and_the_connection_not_kept():
    parser = ResponseParser()
    assert parser.feed(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nanoise") == b"a"
    assert (parser.is_complete, parser.keeps_alive, parser.error) == (True, False, "")


@given(st.lists(st.tuples(answers(), st.lists(st.integers(0, 10_000), max_size=6)), max_size=5))
def test_the_answers_of_a_connection_are_read_as_each_by_itself(story):
    parser = ResponseParser()
    for (data, _), cuts in story:
        assert read(cut(data, cuts), parser) == read([data])
        if not parser.keeps_alive:
            break
        parser.begin()


def test_headers_sent_twice_are_joined():
    parser = ResponseParser()
    parser.feed(b"HTTP/1.1 200 OK\r\nX-A: 1\r\nx-a: 2\r\ncontent-length: 0\r\n\r\n")
    assert parser.headers["x-a"] == "1, 2"
    assert parser.keeps_alive


# --- the same over a socket ------------------------------------------------------------------


class Player:
    """A server that answers each connection with the next list of pieces."""

    def __init__(self):
        self.pieces = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def serve(self):
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            with sock:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sock.recv(65536)
                try:
                    for piece in self.pieces:
                        sock.sendall(piece)
                except OSError:
                    pass  # the client has seen enough

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join(PATIENCE)


@pytest.fixture(scope="module")
def player():
    made = Player()
    yield made
    made.close()


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    answers(),
    st.lists(st.tuples(st.integers(0, 10_000), st.binary(max_size=6)), max_size=2),
    st.lists(st.integers(0, 10_000), max_size=6),
)
def test_a_client_makes_the_same_of_it_or_raises_one_of_its_errors(player, made, damage, cuts):
    sent, _ = made
    for at, replacement in damage:
        at %= len(sent)
        sent = sent[:at] + replacement + sent[at + len(replacement) :]
    player.pieces = cut(sent, cuts)
    status, reason, headers, body, is_whole, is_bad, has_head = read([sent])
    http = Http("x", player.url, idle_seconds=5)
    seen = b""
    try:
        with http.exchange(http.head("GET", "/", {}), None, Cancel()) as answer:
            assert (answer.status, dict(answer.headers)) == (status, headers)
            while piece := answer.read():
                seen += piece
        assert is_whole
        assert seen == body
    except ProviderError:
        assert is_bad or not is_whole
        assert body.startswith(seen)
    finally:
        http.close()
