"""A spawned `zot rpc` for tests: lines in, frames out, and what must hold after every row.

`ZOT_TEST_COMMAND` swaps the program, so that the same tests run against another implementation.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path

from support.patience import PATIENCE

CANARIES = ("sk-canary-0123456789", "sk-canary-9876543210")


def command() -> list[str]:
    swapped = os.environ.get("ZOT_TEST_COMMAND")
    return shlex.split(swapped) if swapped else [sys.executable, "-m", "zot"]


def environment(folder: Path, mark: str = "", **changes: str | None) -> dict[str, str]:
    """A clean environment that lives in `folder`; with secrets that must not show up anywhere."""
    kept = ("PATH", "COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG")
    env: dict[str, str | None] = {name: os.environ[name] for name in kept if name in os.environ}
    env.update(
        HOME=str(folder / "home"),
        ZOT_HOME=str(folder / "zot-home"),
        LANG="C.UTF-8",
        ANTHROPIC_API_KEY=CANARIES[0],
        OPENAI_API_KEY=CANARIES[1],
        ZOT_TEST_MARK=mark,
    )
    env.update(changes)
    return {name: value for name, value in env.items() if value is not None}


def make_folder(folder: Path) -> Path:
    """The places a process needs; its working directory."""
    for name in ("home", "work"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    return folder / "work"


def write_script(folder: Path, turns: list) -> list[str]:
    """Flags that play these turns."""
    path = folder / f"script-{uuid.uuid4().hex[:8]}.json"
    turns = [{"text": turn} if isinstance(turn, str) else turn for turn in turns]
    path.write_text(json.dumps({"turns": turns}))
    return ["--provider", "scripted", "--script", str(path)]


def close_pipes(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        try:
            if pipe is not None:
                pipe.close()
        except BrokenPipeError:
            pass


class Zot:
    """One `zot rpc` process. `frames` holds everything it said, in order."""

    def __init__(
        self,
        folder: Path,
        turns: list | None = None,
        *,
        args: list[str] | tuple[str, ...] = (),
        env: dict[str, str | None] | None = None,
        features: list[str] | None = None,
        wrapper: list[str] | tuple[str, ...] = (),
        read: bool = True,
        stderr: int | None = None,
        prefix: list[str] | None = None,
    ) -> None:
        self.folder = folder
        self.cwd = make_folder(folder)
        self.mark = uuid.uuid4().hex
        flags = write_script(folder, turns) if turns is not None else []
        self._stderr_path = folder / f"stderr-{self.mark[:8]}.txt"
        words = prefix if prefix is not None else ["rpc"]
        with self._stderr_path.open("wb") as log:
            self.process = subprocess.Popen(
                [*wrapper, *command(), *words, *flags, *args],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log if stderr is None else stderr,
                cwd=self.cwd,
                env=environment(folder, self.mark, **(env or {})),
            )
        self.raw = bytearray()
        self.frames: list[dict] = []
        self.bad_lines: list[bytes] = []
        self.sent = 0
        """Lines that must be answered."""
        self._children: set[tuple[int, str]] = set()
        self._half = b""
        self._at = 0
        self._ids = 0
        self._ended = False
        self._news = threading.Condition()
        self._reader: threading.Thread | None = None
        if read:
            self.start_reading()
        if features is not None:
            try:
                assert self.data("hello", features=features)["features"] == sorted(features)
            except BaseException:
                self.kill()
                raise

    def __enter__(self) -> Zot:
        return self

    def __exit__(self, *exc: object) -> None:
        try:
            if exc[0] is None:
                self.close()
        finally:
            self.kill()

    # --- writing -----------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Bytes as they are; whole lines with something on them count as commands."""
        lines = (self._half + data).split(b"\n")
        self._half = lines.pop()
        self.sent += sum(bool(line.strip(b" \t\r")) for line in lines)
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def send(self, type: str | None = None, **fields: object) -> object:
        """A command, with a fresh id when none is given; the id."""
        if "id" not in fields:
            self._ids += 1
            fields["id"] = f"auto-{self._ids}"
        line = {"type": type, **fields} if type is not None else fields
        self.write(json.dumps(line).encode() + b"\n")
        return fields["id"]

    # --- reading -----------------------------------------------------------------------------

    def start_reading(self) -> None:
        self._reader = threading.Thread(target=self._read, name="test-stdout", daemon=True)
        self._reader.start()

    def wait(self, found, what: str = "frames", seconds: float = PATIENCE):
        """What `found()` gives, as soon as it gives something."""
        end = time.monotonic() + seconds
        with self._news:
            while not (result := found()):
                left = end - time.monotonic()
                if left <= 0 or self._ended:
                    raise AssertionError(self._report(f"waited for {what}"))
                self._news.wait(left)
            return result

    def until(self, type: str, **fields: object) -> list[dict]:
        """The frames from where the last one ended up to the next of this type."""

        def found():
            for at in range(self._at, len(self.frames)):
                frame = self.frames[at]
                if frame["type"] == type and all(
                    frame.get(name) == value for name, value in fields.items()
                ):
                    return at + 1
            return 0

        end = self.wait(found, f"{type} {fields or ''}")
        frames, self._at = self.frames[self._at : end], end
        return frames

    def answer(self, id: object) -> dict:
        def found():
            return [f for f in self.frames if f["type"] == "response" and f.get("id") == id]

        return self.wait(found, f"the answer to {id!r}")[0]

    def ask(self, type: str, **fields: object) -> dict:
        """Send a command and wait for its answer."""
        return self.answer(self.send(type, **fields))

    def data(self, type: str, **fields: object) -> dict:
        answer = self.ask(type, **fields)
        assert answer["success"], answer
        return answer.get("data")

    def prompt(self, message: str = "go", **fields: object) -> list[dict]:
        """Everything from the answer to the `done` of a prompt."""
        self._at = len(self.frames)
        self.send("prompt", message=message, **fields)
        return self.until("done")

    def answers(self) -> list[dict]:
        return [frame for frame in self.frames if frame["type"] == "response"]

    def events(self) -> list[dict]:
        return [frame for frame in self.frames if frame["type"] != "response"]

    def last_answer_to(self, line: bytes) -> dict:
        """The answer to a line that may not have an id: the one that comes next."""
        before = len(self.answers())
        self.write(line)
        return self.wait(lambda: self.answers()[before:], f"an answer to {line[:80]!r}")[0]

    def stderr(self) -> str:
        return self._stderr_path.read_text("utf-8", "replace")

    # --- the end -----------------------------------------------------------------------------

    def signal(self, number: int) -> None:
        self._children |= descendants(self.process.pid)
        self.process.send_signal(number)

    def close_input(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def close(self) -> tuple[int, str]:
        """End the input and wait for the end: exit code and stderr; nothing may be left."""
        if self.process.stdin is not None and not self.process.stdin.closed:
            try:
                self.close_input()
            except BrokenPipeError:
                pass
        return self.finish()

    def finish(self) -> tuple[int, str]:
        """Wait for the end, whoever caused it."""
        self._children |= descendants(self.process.pid)
        try:
            code = self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise AssertionError(self._report("waited for the exit")) from None
        if self._reader is not None:
            self._reader.join(PATIENCE)
        self.check_lines()
        self.check_secrets()
        assert marked(self.mark) == [], "processes were left behind"
        left = still_there(self._children)
        assert left == set(), f"helpers were left behind: {left}"
        return code, self.stderr()

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait()
        if self._reader is not None:
            self._reader.join(PATIENCE)
        close_pipes(self.process)

    # --- what must hold ----------------------------------------------------------------------

    def invariants(self) -> None:
        """After every row: alive, clean stdout, one answer a line, one done a run."""
        assert self.ask("ping")["data"] == {"pong": True}
        self.wait(lambda: self.done_count() >= self.run_count(), "every run's done")
        assert self.done_count() == self.run_count(), self._report("counted done")
        # Commands that wait for extensions are answered out of order.
        self.wait(lambda: len(self.answers()) >= self.sent, "every answer")
        assert len(self.answers()) == self.sent, self._report("counted answers")
        assert self.data("get_state")["busy"] is False
        self.check_lines()
        self.check_secrets()
        self.check_transcript()
        check_turns(self.events())
        self._children |= descendants(self.process.pid)
        self._at = len(self.frames)

    def run_count(self) -> int:
        return sum("started" in (frame.get("data") or {}) for frame in self.answers())

    def done_count(self) -> int:
        return sum(frame["type"] == "done" for frame in self.frames)

    def check_lines(self) -> None:
        assert self.bad_lines == [], self.bad_lines[:3]
        if self._ended:
            assert self.raw.endswith(b"\n") or not self.raw
        for mark in ("\u2028", "\u2029", "\u0085"):
            assert mark.encode() not in self.raw

    def check_secrets(self) -> None:
        for canary in CANARIES:
            assert canary.encode() not in self.raw
            assert canary not in self.stderr()

    def check_transcript(self) -> None:
        """No result without its call, and no call with two."""
        open_calls: list[str] = []
        for message in self.data("get_messages")["messages"]:
            blocks = message["content"]
            if message["role"] == "tool":
                results = [block["call_id"] for block in blocks]
                assert all(result in open_calls for result in results), (open_calls, results)
                assert len(set(results)) == len(results)
            open_calls = [block["id"] for block in blocks if block["type"] == "tool_call"]

    # --- inside ------------------------------------------------------------------------------

    def _read(self) -> None:
        assert self.process.stdout is not None
        rest = bytearray()
        while data := os.read(self.process.stdout.fileno(), 1 << 20):
            first, *lines = data.split(b"\n")
            rest += first
            with self._news:
                self.raw += data
                for line in lines:
                    self._take(bytes(rest))
                    rest = bytearray(line)
                if lines:
                    self._news.notify_all()
        with self._news:
            if rest:
                self.bad_lines.append(bytes(rest))
            self._ended = True
            self._news.notify_all()

    def _take(self, line: bytes) -> None:
        try:
            frame = json.loads(line.decode())
        except ValueError:
            frame = None
        if isinstance(frame, dict) and isinstance(frame.get("type"), str):
            self.frames.append(frame)
        else:
            self.bad_lines.append(line)

    def _report(self, what: str) -> str:
        shown = "\n".join(json.dumps(frame)[:300] for frame in self.frames[-25:])
        return (
            f"{what}; exit code {self.process.poll()}; sent {self.sent}, answered "
            f"{len(self.answers())}; the last frames:\n{shown}\nbad lines: {self.bad_lines[:3]}"
            f"\nstderr:\n{self.stderr()[-3000:]}"
        )


def check_turns(events: list[dict]) -> None:
    """Every turn_start has its turn_end before the next one, and nothing of a run follows its done.

    An abort between turns, or in a tool, adds one `turn_end` of its own.
    """
    open_turn = False
    for event in events:
        kind = event["type"]
        if kind == "turn_start":
            assert not open_turn, "two turns at once"
            open_turn = True
        elif kind == "turn_end":
            assert open_turn or event["stop"] == "aborted", event
            assert ("error" in event) == (event["stop"] in ("error", "aborted")), event
            open_turn = False
        elif kind == "done":
            assert not open_turn, "done inside a turn"


def marked(mark: str) -> list[tuple[int, str]]:
    """Processes with this mark in their environment: children too, wherever they went."""
    found = []
    needle = f"ZOT_TEST_MARK={mark}".encode()
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            if needle in (folder / "environ").read_bytes():
                state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
                if state != "Z":
                    found.append((int(folder.name), (folder / "cmdline").read_text()))
        except OSError:
            continue
    return found


def descendants(pid: int) -> set[tuple[int, str]]:
    """Children and theirs, each as number and start time: numbers are used again."""
    found: set[tuple[int, str]] = set()
    try:
        tasks = list(Path(f"/proc/{pid}/task").glob("*/children"))
    except FileNotFoundError:
        return found  # it has just ended
    for task in tasks:
        try:
            children = [int(word) for word in task.read_text().split()]
        except OSError:
            continue
        for child in children:
            if started := start_time(child):
                found |= {(child, started), *descendants(child)}
    return found


def start_time(pid: int) -> str:
    """When a process started; empty when it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else fields[19]


def still_there(processes: set[tuple[int, str]]) -> set[tuple[int, str]]:
    """Those that have not ended after a moment; nothing tells when somebody else's child ends."""
    end = time.monotonic() + PATIENCE
    while left := {each for each in processes if start_time(each[0]) == each[1]}:
        if time.monotonic() > end:
            return left
        time.sleep(0.02)
    return set()


def types(frames: list[dict]) -> list[str]:
    return [frame["type"] for frame in frames]


def texts(frames: list[dict]) -> str:
    return "".join(frame["delta"] for frame in frames if frame["type"] == "text_delta")


def rss_megabytes(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return 0.0


def run_zot(
    folder: Path,
    args: list[str],
    *,
    turns: list | None = None,
    stdin: bytes | None = None,
    env: dict[str, str | None] | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """`zot` with these arguments, to its end; stdin is closed unless given."""
    cwd = make_folder(folder)
    flags = write_script(folder, turns) if turns is not None else []
    return subprocess.run(
        [*command(), *flags, *args],
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        cwd=cwd,
        env=environment(folder, **(env or {})),
        timeout=PATIENCE,
    )
