import errno
import hashlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from tests.support.around import zot_home
from zot.core.session import Cleared, Compaction, ModelChange, Session, Title
from zot.errors import SessionError
from zot.provider.types import Message, Text
from zot.sessions import files
from zot.sessions.files import FileStore, load, open_to_append
from zot.sessions.open import (
    automatic_path,
    begin_session,
    open_session,
    resumed,
    session_paths,
    sessions_dir,
)
from zot.sessions.rows import Meta

META = Meta("id-1", "/w", "m", "p", "2026-01-02T03:04:05Z", "0.1")


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("ZOT_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("ZOT_FSYNC", raising=False)
    return tmp_path / "home"


def said(text: str) -> Message:
    return Message("user", (Text(text),), 1.0)


def texts(session: Session) -> list[str]:
    return [message.content[0].text for message in session.messages()]


def read_back(path: str | Path) -> list[str]:
    session, _ = reopened(path)
    session.close()
    return texts(session)


def reopened(path: str | Path) -> tuple[Session, list[str]]:
    notes: list[str] = []
    return open_session(str(path), "/w", warn=notes.append), notes


# --- the plain way ---------------------------------------------------------------------------


def test_a_new_session_leaves_no_trace_until_something_is_said(home):
    session = begin_session("/w", zot_home(), provider="p", model="m")
    assert not home.exists()
    session.sync()
    session.close()
    assert not home.exists()


def test_what_was_said_is_there_again(home):
    session = begin_session("/w", zot_home(), provider="p", model="m")
    for text in "abc":
        session.append(said(text))
    session.sync()
    session.close()
    again = resumed("", "/w", zot_home())
    assert (again.id, texts(again)) == (session.id, ["a", "b", "c"])
    assert again.entries == session.entries
    again.append(said("d"))
    again.close()
    latest = resumed("", "/w", zot_home())
    assert texts(latest) == ["a", "b", "c", "d"]
    latest.close()


def test_files_and_directories_are_for_the_user_alone(home):
    session = begin_session("/w", zot_home())
    session.append(said("a"))
    path = Path(session.store.path)
    assert path.stat().st_mode & 0o777 == 0o600
    for directory in (path.parent, path.parent.parent, home):
        assert directory.stat().st_mode & 0o777 == 0o700
    session.close()


def test_the_place_of_a_session_is_the_documented_one(home):
    place = sessions_dir("/w", str(home))
    name = Path(automatic_path(place, "01a1e0e2-8ea6-7aaf-887a-8548ee3e038a", 1_700_000_000.0))
    assert name.parent == home / "sessions" / hashlib.sha256(b"/w").hexdigest()[:16]
    assert name.name == "20231114-221320-ee3e038a.jsonl"


def test_continuing_where_there_is_nothing_goes_on_with_no_session():
    assert resumed("", "/elsewhere", zot_home()) is None


def test_the_latest_written_session_is_continued(home):
    paths = []
    for age, text in ((100, "old"), (50, "new"), (200, "oldest")):
        session = begin_session("/w", zot_home())
        session.append(said(text))
        session.close()
        os.utime(session.store.path, (time.time() - age,) * 2)
        paths.append(session.store.path)
    latest = resumed("", "/w", zot_home())
    assert texts(latest) == ["new"]
    latest.close()
    assert session_paths(sessions_dir("/w", zot_home())) == [paths[1], paths[0], paths[2]]


def test_a_session_at_a_given_path_is_made_at_once_and_dropped_if_nothing_was_said(tmp_path):
    path = tmp_path / "deep" / "s.jsonl"
    session = open_session(str(path), "/w")
    assert path.exists()
    session.append(Title("only a name"))
    session.close()
    assert not path.exists()
    with pytest.raises(SessionError, match="closed"):
        session.append(said("x"))
    session.close()


def test_an_empty_file_becomes_a_session(tmp_path):
    path = tmp_path / "s.jsonl"
    path.touch()
    session = open_session(str(path), "/w")
    session.append(said("a"))
    session.close()
    assert read_back(path) == ["a"]


def test_the_model_of_a_session_is_remembered(tmp_path):
    path = tmp_path / "s.jsonl"
    session = open_session(str(path), "/w", provider="anthropic", model="a")
    session.append(said("x"))
    assert session.last_model == ("anthropic", "a")
    session.append(ModelChange("openai", "b"))
    session.close()
    again, _ = reopened(path)
    assert again.last_model == ("openai", "b")
    again.close()
    assert Session().last_model is None


def test_a_branch_and_a_compaction_are_readable_without_following_the_tree(tmp_path):
    path = tmp_path / "s.jsonl"
    session = open_session(str(path), "/w")
    first = session.append(said("a"))
    second = session.append(said("b"))
    session.append(said("c"))
    session.append(Compaction("sum", second.id))
    session.move(first.id)
    session.append(said("other"))
    session.append(Cleared())
    session.append(said("fresh"))
    session.close()
    assert read_back(path) == ["fresh"]
    seen: list[list[str]] = []
    linear: list[str] = []
    for line in path.read_bytes().splitlines():  # as the Go program goes through it
        row = msgspec.json.decode(line)
        if row["type"] == "message":
            linear.append(row["message"]["content"][0]["text"])
        elif row["type"] == "compaction":
            seen.append(list(linear))
            linear = [message["content"][0]["text"] for message in row["messages"]]
    summary = "## Context Summary (compacted)\n\nsum"
    assert seen == [["a", "b", "c"], [summary, "b", "c"], ["a", "other"]]
    assert linear == ["fresh"]


# --- two processes ---------------------------------------------------------------------------


def test_a_second_process_is_refused_and_told_who_has_the_session(tmp_path):
    path = tmp_path / "s.jsonl"
    program = (
        "import sys; from zot.sessions.open import open_session;"
        f"s = open_session({str(path)!r}, '/w'); print('ready', flush=True); sys.stdin.read()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert child.stdout.readline() == b"ready\n"
        with pytest.raises(SessionError, match=f"in use by process {child.pid}"):
            reopened(path)
        child.kill()
        child.wait()
        session, _ = reopened(path)  # a killed process leaves no lock behind
        session.close()
    finally:
        child.kill()
        child.communicate()


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_one_who_waited_for_a_session_that_then_was_removed_begins_it_anew(tmp_path):
    path = str(tmp_path / "s.jsonl")
    first = open_session(path, "/w")
    opened = []
    waiter = threading.Thread(target=lambda: opened.append(open_session(path, "/w", wait=60)))
    waiter.start()
    links = Path("/proc/self/fd")
    while sum(os.path.realpath(link) == path for link in links.iterdir()) < 2:
        time.sleep(0.01)  # until it waits for the lock
    first.close()  # nothing was said: the file goes
    waiter.join()
    opened[0].append(Message("user", (Text("hello"),), 1.0))
    opened[0].close()
    assert "hello" in Path(path).read_text()


def test_a_child_process_does_not_inherit_the_lock(tmp_path):
    path = tmp_path / "s.jsonl"
    session = open_session(str(path), "/w")
    session.append(said("a"))
    child = subprocess.Popen(["sleep", "60"], close_fds=False)
    try:
        session.close()
        reopened(path)[0].close()
    finally:
        child.kill()
        child.wait()


def test_the_holder_is_unknown_where_the_system_does_not_tell(tmp_path):
    with (tmp_path / "free").open("wb") as file:
        assert files.holder(file.fileno()) is None


# --- damage ----------------------------------------------------------------------------------


def written(path: Path, count: int = 3) -> bytes:
    session = open_session(str(path), "/w")
    for number in range(count):
        session.append(said(f"message {number} é"))
    session.close()
    return path.read_bytes()


def test_cut_at_every_byte_of_the_last_record_only_that_record_can_be_lost(tmp_path):
    whole = written(tmp_path / "whole.jsonl")
    start = whole[:-1].rindex(b"\n") + 1
    for end in range(start, len(whole)):
        path = tmp_path / f"{end}.jsonl"
        path.write_bytes(whole[:end])
        path.chmod(0o600)
        session, notes = reopened(path)
        session.append(said("next"))
        session.close()
        kept = end == len(whole) - 1  # all but the line feed: nothing is missing
        expected = ["message 0 é", "message 1 é", *(["message 2 é"] if kept else []), "next"]
        assert read_back(path) == expected
        torn = path.with_name(path.name + ".torn")
        if kept or end == start:
            assert not torn.exists()
            assert notes == []
        else:
            assert torn.read_bytes() == whole[start:end] + b"\n"
            assert "cut short" in notes[0]


def test_cut_at_every_byte_of_the_first_record_the_session_starts_afresh(tmp_path):
    path = tmp_path / "s.jsonl"
    head = written(path, 1).split(b"\n")[0]
    for end in range(1, len(head)):
        path.write_bytes(head[:end])
        session, _ = reopened(path)
        session.append(said("a"))
        session.close()
        assert read_back(path) == ["a"]


def test_a_cut_last_line_is_kept_beside_the_file(tmp_path):
    tail = b'{"type":"message"'
    path = tmp_path / "s.jsonl"
    good = written(path)
    path.write_bytes(good + tail)
    session, notes = reopened(path)
    assert len(notes) == 1
    assert path.read_bytes() == good
    assert (tmp_path / "s.jsonl.torn").read_bytes() == tail + b"\n"
    assert (tmp_path / "s.jsonl.torn").stat().st_mode & 0o777 == 0o600
    session.close()


@pytest.mark.parametrize("tail", [b"\0" * 100, b"\0" * 99 + b"\n", b"garbage\n", b"\xff\xfe\n"])
def test_a_last_line_that_is_no_beginning_of_a_row_stays(tmp_path, tail):
    path = tmp_path / "s.jsonl"
    good = written(path)
    path.write_bytes(good + tail)
    for _ in range(2):  # the next reader knows of it, too
        session, notes = reopened(path)
        assert ["line 5 of" in note for note in notes] == [True]
        session.close()
    assert path.read_bytes() == good + tail.rstrip(b"\n") + b"\n"
    session, _ = reopened(path)
    session.append(said("next"))
    session.close()
    assert read_back(path)[-1] == "next"


def test_garbage_in_the_middle_is_named_and_left_where_it_is(tmp_path):
    path = tmp_path / "s.jsonl"
    lines = written(path).splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], b"garbage\n", b"\n", *lines[2:]]))
    before = path.read_bytes()
    session, notes = reopened(path)
    assert texts(session) == ["message 0 é", "message 1 é", "message 2 é"]
    assert len(notes) == 1
    assert "line 3 of" in notes[0]
    session.close()
    assert path.read_bytes() == before


def test_reading_alone_changes_nothing(tmp_path):
    path = tmp_path / "s.jsonl"
    good = written(path)
    path.write_bytes(good + b'{"type":"mess')
    loaded = load(str(path))
    assert len(loaded.entries) == 3
    assert "cut short" in loaded.notes[0]
    assert path.read_bytes() == good + b'{"type":"mess'
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("content", [b"hello\nworld\n", b"one line", b"\0\0\0", b"{}\n[]\n"])
def test_a_file_that_is_no_session_is_refused_and_left_alone(tmp_path, content):
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    with pytest.raises(SessionError, match="not a session file"):
        reopened(path)
    assert path.read_bytes() == content


def test_a_file_whose_head_is_lost_still_opens(tmp_path):
    path = tmp_path / "s.jsonl"
    lines = written(path).splitlines(keepends=True)
    path.write_bytes(b"garbage\n" + b"".join(lines[1:]))
    session, notes = reopened(path)
    assert "line 1 of" in notes[0]
    assert len(texts(session)) == 3
    session.close()
    again, _ = reopened(path)
    assert again.id == session.id
    again.close()


def test_links_pipes_and_files_of_others_are_refused(tmp_path):
    path = tmp_path / "s.jsonl"
    written(path)
    link = tmp_path / "link.jsonl"
    link.symlink_to(path)
    with pytest.raises(SessionError, match="symbolic link"):
        reopened(link)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(SessionError, match="not a regular file"):
        reopened(tmp_path / "pipe")
    with pytest.raises(SessionError, match="directory"):
        reopened(tmp_path)
    path.chmod(0o666)
    with pytest.raises(SessionError, match="chmod 600"):
        reopened(path)
    if os.geteuid() == 0:
        path.chmod(0o600)
        os.chown(path, 12345, 12345)
        with pytest.raises(SessionError, match="another user"):
            reopened(path)


def test_a_home_that_cannot_be_used_is_a_clear_error(tmp_path, monkeypatch):
    blocker = tmp_path / "file"
    blocker.write_text("x")
    monkeypatch.setenv("ZOT_HOME", str(blocker))
    session = begin_session("/w", zot_home())
    with pytest.raises(SessionError, match="cannot create the session"):
        session.append(said("a"))
    assert session.message_count() == 0


def test_an_existing_file_is_not_overwritten(tmp_path):
    path = tmp_path / "s.jsonl"
    written(path)
    with pytest.raises(SessionError, match="exists"):
        FileStore.create(str(path), META)


# --- a disk that fails -----------------------------------------------------------------------

FULL_DISK = """
import resource, signal, sys
from zot.sessions.open import open_session
from zot.errors import SessionError
from zot.provider.types import Message, Text
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
session = open_session(sys.argv[1], "/w")
limit = int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
failed = 0
for number in range(40):
    if number == 30:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    try:
        session.append(Message("user", (Text(f"{number} " + "x" * 100),), 1.0))
        print(number, flush=True)
    except SessionError as error:
        failed += 1
        assert "cannot write to the session" in str(error), error
assert failed, "the disk never filled"
"""


@pytest.mark.parametrize("limit", [2000, 2049, 2100, 2177])
def test_a_full_disk_loses_nothing_that_was_acknowledged(tmp_path, limit):
    path = tmp_path / "s.jsonl"
    child = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(path), str(limit)], capture_output=True, text=True
    )
    assert child.returncode == 0, child.stderr
    acknowledged = child.stdout.split()
    assert acknowledged[-1] == "39"
    session, notes = reopened(path)
    assert notes == []
    assert [text.split()[0] for text in texts(session)] == acknowledged
    session.close()


NO_ROOM_FOR_REPAIR = """
import resource, signal, sys
from zot.sessions.open import open_session
from zot.errors import SessionError
from zot.provider.types import Message, Text
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
notes = []
session = open_session(sys.argv[1], "/w", warn=notes.append)
print(len(session.messages()), notes[-1], flush=True)
try:
    session.append(Message("user", (Text("x"),), 1.0))
except SessionError as error:
    print(error)
session.close()
"""


@pytest.mark.parametrize("tail", [b'{"type":"message","mess', b""])
def test_a_session_that_cannot_be_repaired_on_a_full_disk_is_read_only(tmp_path, tail):
    path = tmp_path / "s.jsonl"
    data = written(path) + tail if tail else written(path)[:-1]
    path.write_bytes(data)
    child = subprocess.run(
        [sys.executable, "-c", NO_ROOM_FOR_REPAIR, str(path), "10"], capture_output=True, text=True
    )
    assert child.returncode == 0, child.stderr
    opened, refused = child.stdout.splitlines()
    assert opened.startswith("3 ")
    for text in (opened, refused):
        assert "reading only" in text
        assert "open it again" in text
    assert path.read_bytes() == data
    assert not path.with_name("s.jsonl.torn").exists()
    session, _ = reopened(path)
    session.append(said("there is room again"))
    session.close()
    assert read_back(path)[-1] == "there is room again"


def test_a_file_that_could_not_be_begun_is_begun_again(home, monkeypatch):
    session = begin_session("/w", zot_home())
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, data[:5]))
    with pytest.raises(SessionError, match="no space left"):
        session.append(said("a"))
    assert session_paths(sessions_dir("/w", zot_home())) == []
    monkeypatch.undo()
    monkeypatch.setenv("ZOT_HOME", str(home))
    session.append(said("b"))
    session.close()
    assert read_back(session.store.path) == ["b"]


def test_a_sync_that_fails_ends_the_trust_in_the_file(tmp_path, monkeypatch):
    session = open_session(str(tmp_path / "s.jsonl"), "/w")
    session.append(said("a"))

    def broken(fd):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", broken)
    with pytest.raises(SessionError, match="cannot sync"):
        session.sync()
    monkeypatch.undo()
    with pytest.raises(SessionError, match="cannot sync"):
        session.append(said("b"))
    session.sync()
    session.close()


def test_half_a_line_that_cannot_be_taken_back_ends_the_trust_in_the_file(tmp_path, monkeypatch):
    session = open_session(str(tmp_path / "s.jsonl"), "/w")
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, data[:5]))

    def broken(fd, length):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "ftruncate", broken)
    with pytest.raises(SessionError, match="cannot write to"):
        session.append(said("a"))
    with pytest.raises(SessionError, match="cannot repair"):
        session.append(said("a"))
    session.close()


@pytest.mark.parametrize(
    ("word", "per_event", "per_turn"), [("event", 3, 0), ("turn", 0, 1), ("off", 0, 0)]
)
def test_when_the_disk_is_asked_to_keep_it(tmp_path, monkeypatch, word, per_event, per_turn):
    monkeypatch.setenv("ZOT_FSYNC", word)
    session = open_session(str(tmp_path / "s.jsonl"), "/w")
    calls = []
    monkeypatch.setattr(os, "fdatasync", calls.append)
    for text in "abc":
        session.append(said(text))
    assert len(calls) == per_event
    session.sync()
    assert len(calls) - per_event == per_turn
    session.close()


def test_an_unknown_word_for_syncing_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("ZOT_FSYNC", "often")
    with pytest.raises(SessionError, match="event, turn or off"):
        open_session(str(tmp_path / "s.jsonl"), "/w")


# --- kill -9 ---------------------------------------------------------------------------------

WRITER = """
import os, sys
from zot.sessions.open import open_session
from zot.provider.types import Message, Text
session = open_session(sys.argv[1], "/w", warn=lambda text: None)
number = session.message_count()
sizes = (10, 400, 5000, 300_000)
while True:
    session.append(Message("user", (Text(f"{number} " + "x" * sizes[number % 4]),), 1.0))
    os.write(1, b"%d\\n" % number)
    number += 1
"""

FORKING = """
import os, random, select, signal, sys, time
from zot.sessions.open import open_session
from zot.provider.types import Message, Text
random.seed(int(sys.argv[2]))
kills = int(sys.argv[3])
acknowledged = 0
enough = time.monotonic() + 8  # a busy machine does not get to all of them
for kill in range(kills):
    if kill >= 100 and time.monotonic() > enough:
        break
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.dup2(write, 1)
        sys.argv = ["-", sys.argv[1]]
        exec(WRITER)
    os.close(write)
    deadline = time.monotonic() + random.random() * 0.012
    data = b""
    while (left := deadline - time.monotonic()) > 0:
        if select.select([read], [], [], left)[0]:
            data += os.read(read, 65536)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    while more := os.read(read, 65536):
        data += more
    os.close(read)
    numbers = [int(each) for each in data.split()]
    if numbers:
        acknowledged = numbers[-1] + 1
    session = open_session(sys.argv[1], "/w", warn=lambda text: None)
    found = [int(m.content[0].text.split()[0]) for m in session.messages()]
    assert found == list(range(len(found))), "out of order, or twice"
    assert len(found) >= acknowledged, (kill, acknowledged, len(found))
    acknowledged = len(found)
    session.close()
    if len(found) > 60:
        os.unlink(sys.argv[1])
        acknowledged = 0
print("ok")
"""


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_in_hundreds_of_kills(tmp_path):
    # One process forks the writers, so that a kill costs milliseconds and not a start-up.
    program = f"WRITER = {WRITER!r}\n" + FORKING
    path = tmp_path / "s.jsonl"
    child = subprocess.run(
        [sys.executable, "-c", program, str(path), "7", "200"],
        capture_output=True,
        text=True,
        env={**os.environ, "ZOT_FSYNC": "off"},
    )
    assert child.stdout.endswith("ok\n"), child.stderr


def test_reading_and_opening_give_the_same_entries(tmp_path):
    path = tmp_path / "s.jsonl"
    written(path, 500)
    loaded = load(str(path))
    store, again = open_to_append(str(path))
    store.close()
    assert len(loaded.entries) == 500
    assert again.entries == loaded.entries


EIGHT = """
import os, sys
from zot.sessions.open import open_session
from zot.errors import SessionError
from zot.provider.types import Message, Text
session = open_session(sys.argv[1], "/w")
for number in range(8):
    try:
        session.append(Message("user", (Text(f"{number} "),), 1.0))
    except SessionError as error:
        assert "cannot write to the session" in str(error)
    else:
        print(number, flush=True)
"""


@pytest.fixture(scope="module")
def strace(tmp_path_factory):
    program = shutil.which("strace")
    if program is None:
        pytest.skip("strace is not installed")
    command = [program, "-o", os.devnull, "-e", "inject=write:error=EIO:when=99", "true"]
    if subprocess.run(command, capture_output=True).returncode:
        pytest.skip("strace may not trace here")
    return program


@pytest.mark.parametrize("fault", ["signal=SIGKILL", "error=ENOSPC", "error=EIO"])
@pytest.mark.slow
def test_a_fault_at_each_write_loses_nothing_that_was_acknowledged(tmp_path, strace, fault):
    for when in range(1, 10, 2):
        path = tmp_path / f"{when}.jsonl"
        inject = f"inject=write:{fault}:when={when}"
        words = [strace, "-f", "-o", os.devnull, "-P", str(path), "-e", inject]
        child = subprocess.run(
            [*words, sys.executable, "-c", EIGHT, str(path)], capture_output=True, text=True
        )
        if when == 1:  # the head of the file: there is no session yet
            assert child.stdout == ""
            continue
        acknowledged = child.stdout.split()
        assert len(acknowledged) == (when - 2 if "KILL" in fault else 7), child.stderr
        assert [text.strip() for text in read_back(path)][: len(acknowledged)] == acknowledged


# --- a witness -------------------------------------------------------------------------------


@contextmanager
def witness_that_says(answer):
    """A program at a socket, and what it was asked."""
    with tempfile.TemporaryDirectory(prefix="zot-") as folder, socket.socket(socket.AF_UNIX) as at:
        name = f"{folder}/w"
        at.bind(name)
        at.listen()
        asked = []

        def serve():
            while True:
                try:
                    connection, _ = at.accept()
                except OSError:
                    return
                with connection:
                    asked.append(connection.makefile().readline())
                    connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield name, asked
        finally:
            at.shutdown(socket.SHUT_RDWR)
            thread.join()


def test_a_witness_is_asked_at_every_sync(tmp_path, monkeypatch):
    path = tmp_path / "s.jsonl"
    with witness_that_says(b"ok\n") as (name, asked):
        monkeypatch.setenv("ZOT_WITNESS", name)
        session = open_session(str(path), "/w")
        session.append(said("hello"))
        session.sync()
        session.close()
    assert asked
    assert set(asked) == {f"{path}\n"}


@pytest.mark.parametrize("answer", [b"", b"no\n"])
def test_a_witness_that_does_not_agree_is_a_write_that_failed(tmp_path, monkeypatch, answer):
    with witness_that_says(answer) as (name, _):
        monkeypatch.setenv("ZOT_WITNESS", name)
        with pytest.raises(SessionError, match="does not let this session go on"):
            open_session(str(tmp_path / "s.jsonl"), "/w").append(said("x"))
    monkeypatch.setenv("ZOT_WITNESS", "/no/such/socket")
    with pytest.raises(SessionError, match="is gone"):
        open_session(str(tmp_path / "t.jsonl"), "/w").append(said("x"))
