"""Answers a client that asks `ping` first, before the program is loaded: loading takes many times
as long. It understands this one command, written as JSON libraries write it, and touches nothing
else: the server reads every other line as if nobody had been here.
"""

import _signal as signal  # type: ignore[import-not-found]  # without enum: starts faster
import os
import select
import stat

RPC_TOKEN = "ZOTCORE_RPC_TOKEN"
"""The variable with the token that a client must say first; it is kept from every child."""
PLAIN_FLAGS = ("--provider", "--model", "--api-key", "--base-url", "--reasoning", "--cwd")
"""Each with a value. With others it may turn out that nothing is to be served."""
SIGNALS = tuple(
    getattr(signal, f"SIG{name}")
    for name in ("TERM", "INT", "HUP", "QUIT", "USR1", "USR2", "ALRM", "VTALRM", "PROF", "XCPU")
    + ("POLL", "PWR", "STKFLT")
    if hasattr(signal, f"SIG{name}")
)
"""What ends the process in an orderly way: all that would end it otherwise, but for SIGKILL and
those that say that the process itself is broken (SIGSEGV, SIGABRT)."""


class FirstLines:
    """What was read of stdin before the server could."""

    def __init__(self) -> None:
        self.answered = False
        """Whether a ping was answered: the client will want the rest of the program soon."""
        self._unread = b""

    def answer(self, words: list[str]) -> None:
        """Answer the first line if it is there already and a plain `ping`; `words` are those of
        the command line."""
        if not (_is_plain(words) and _can_answer()):
            return
        data = os.read(0, 65536)
        line, end, rest = data.partition(b"\n")
        self._unread = data
        if end and (reply := pong(line.strip(b" \t\r"))):
            # Whoever was answered relies on how a signal ends the process. Nothing is begun yet.
            for number in SIGNALS:
                signal.signal(number, lambda number, _: os._exit(128 + number))
            self.answered = _write(reply)
        if self.answered:
            self._unread = end + rest  # an empty line is none, and the first one is over

    def take(self) -> bytes:
        """What is still to be read; once."""
        data, self._unread = self._unread, b""
        return data


FIRST_LINES = FirstLines()
"""Those of this process."""


def pong(line: bytes) -> bytes | None:
    """The answer to a line; None where it is anything but a plain ping."""
    pieces = line.split(b'"')
    between = [piece.strip(b" \t\r") for piece in pieces[::2]]
    texts = pieces[1::2]
    if between == [b"{", b":", b"}"]:
        return _pong(b"") if texts == [b"type", b"ping"] else None
    if between != [b"{", b":", b",", b":", b"}"]:
        return None
    fields = {texts[0]: texts[1], texts[2]: texts[3]}
    id = fields.get(b"id", b"")
    if fields.get(b"type") != b"ping" or not id.isalnum() or len(id) > 64:
        return None  # bytes that are letters and digits are ASCII
    return _pong(b',"id":"%s"' % id)


def _pong(id: bytes) -> bytes:
    return b'{"type":"response","command":"ping","success":true%s,"data":{"pong":true}}\n' % id


def _is_plain(words: list[str]) -> bool:
    values = words[2::2]
    return (
        words[:1] == ["rpc"]
        and len(words) % 2 == 1
        and all(flag in PLAIN_FLAGS for flag in words[1::2])
        and not any(value.startswith("-") for value in values)
        and not os.environ.get(RPC_TOKEN)
    )


def _can_answer() -> bool:
    """Whether both pipes are there, and neither makes anyone wait."""
    try:
        if not (stat.S_ISFIFO(os.fstat(1).st_mode) and stat.S_ISFIFO(os.fstat(0).st_mode)):
            return False
    except OSError:
        return False
    poll = select.poll()
    poll.register(0, select.POLLIN)
    poll.register(1, select.POLLOUT)
    events = dict(poll.poll(0))
    return bool(events.get(0, 0) & select.POLLIN) and events.get(1) == select.POLLOUT


def _write(reply: bytes) -> bool:
    try:
        return os.write(1, reply) == len(reply)
    except OSError:
        return False  # the server meets it too, and knows what to do
