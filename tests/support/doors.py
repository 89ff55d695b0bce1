"""Every door to a runtime behind the same few words, so that one test file can go through them all.

A door that has no word for something says so in `LACKS`, and why.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, ClassVar

from support.jsonrpc import JsonRpcProcess
from support.patience import PATIENCE
from support.pi import PiProcess
from support.terminal import AtTerminal, Emulator, Shown, zot

from zot import events
from zot.client import Client
from zot.sdk import AsyncRuntime, Runtime
from zot.sessions.open import resumed

MODEL = {"provider": "anthropic", "model": "claude-sonnet-5-5"}


class Place:
    """Where a door works: a folder of its own, with a home beside it."""

    def __init__(self, root: Path, screen: Callable[[], Emulator]) -> None:
        self.screen = screen
        """For the door that has one."""
        self.work = root / "work"
        self.home = root / "zot-home"
        self.session = root / "kept" / "s.jsonl"
        self.agent = root / "agent"
        for folder in (self.work, self.home, self.session.parent):
            folder.mkdir(parents=True)


class Wishes:
    """How a door is to be opened."""

    def __init__(
        self,
        *,
        keep: bool = False,
        durable: bool = False,
        ext: Path | None = None,
        decide: str = "",
        answer: str = "",
    ) -> None:
        self.keep = keep or durable
        """Write a session file."""
        self.durable = durable
        self.ext = ext
        self.decide = decide
        """What to say to every approval: allow, deny; empty: nothing is asked."""
        self.answer = answer
        """What to say to every question of an extension."""

    @property
    def features(self) -> list[str]:
        return ["approvals"] * bool(self.decide) + ["dialogs"] * bool(self.answer)


def ext_flags(wishes: Wishes) -> list[str]:
    return ["--ext", str(wishes.ext)] if wishes.ext else ["--no-ext"]


def model_flags(wishes: Wishes) -> list[str]:
    return ["--provider", MODEL["provider"], "--model", MODEL["model"], *ext_flags(wishes)]


def own_keys() -> dict[str, str]:
    """The keys and addresses that the test has set."""
    return {name: os.environ[name] for name in os.environ if name.endswith(("_KEY", "_URL"))}


class Door:
    """A prompt is begun, and read by a thread until its end."""

    LACKS: Mapping[str, str] = {}
    """What it has no word for, and why."""
    runtime: Any

    def __init__(self, place: Place, wishes: Wishes) -> None:
        self.place = place
        self.wishes = wishes
        self._texts: list[str] = []
        self._stop = ""
        self._ended = threading.Event()

    def ask(self, text: str) -> str:
        """A prompt to its end; the last text of the model."""
        self.begin(text)
        return self.end()

    def begin(self, text: str, **more: Any) -> None:
        self._texts, self._stop = [], ""
        self._ended.clear()
        stream = self.runtime.prompt(text, **more)
        threading.Thread(target=self._read, args=(stream,), daemon=True).start()

    def end(self) -> str:
        """The last text of the run, or why it stopped where that is not its own end."""
        assert self._ended.wait(PATIENCE)
        if self._stop in ("aborted", "error"):
            return self._stop
        return self._texts[-1] if self._texts else ""

    def _read(self, stream: Any) -> None:
        for event in stream:
            self._take(event)
        self._ended.set()

    def _take(self, event: Any) -> None:
        match event:
            case events.AssistantMessage(content):
                self._texts.append("".join(getattr(block, "text", "") for block in content))
            case events.TurnEnd(stop):
                self._stop = stop
            case events.ApprovalRequest(request_id):
                self.runtime.approve(request_id, self.wishes.decide, "no")
            case events.ExtAsk(request_id):
                self.runtime.answer(request_id, self.wishes.answer)
            case _:
                pass

    # The rest has the same names in the SDK and in the client.

    def ask_once(self, text: str, run: str) -> str:
        """A durable prompt under a name, to its end; its last text, told now or before."""
        self._texts, self._stop = [], ""
        self._ended.clear()
        stream = self.runtime.prompt(text, run=run)
        self._read(stream)
        return stream.end.text if stream.end is not None else self.end()

    def told(self, after: int = 0) -> tuple[list[str], int]:
        """The kinds of events that were told behind a number, also before; and the last number."""
        page = self.runtime.events(after)
        return [event["type"] for event in page.events], page.last

    def abort(self) -> None:
        self.runtime.cancel()

    def steer(self, text: str) -> None:
        self.runtime.steer(text)

    def follow(self, text: str) -> None:
        self.runtime.follow_up(text)

    def compact(self) -> str:
        return self.runtime.compact().summary

    def clear(self) -> None:
        self.runtime.clear()

    def set_model(self, name: str, provider: str = "") -> None:
        self.runtime.set_model(name, provider)

    def set_reasoning(self, level: str) -> None:
        self.runtime.set_reasoning(level)

    def set_jail(self, on: bool) -> None:
        self.runtime.set_jail(on)

    def set_mode(self, mode: str) -> None:
        self.runtime.set_mode(mode)

    def state(self) -> tuple[str, str, int, bool]:
        state = self.runtime.state()
        return state.provider, state.model, state.message_count, state.busy

    def said(self) -> str:
        """All texts of the transcript."""
        return "\n".join(
            getattr(block, "text", "")
            for message in self.runtime.messages()
            for block in message.content
        )

    def load(self, session: str) -> None:
        self.runtime.load_session(session)

    def path(self) -> str:
        return self.runtime.session().path

    def fork(self, at: int) -> str:
        return self.runtime.fork_session("", at).path

    def sessions(self) -> list[str]:
        return [info.path for info in self.runtime.sessions()]

    def retry(self) -> str:
        self._texts, self._stop = [], ""
        self._ended.clear()
        stream = self.runtime.retry()
        threading.Thread(target=self._read, args=(stream,), daemon=True).start()
        return self.end()

    def approvals(self) -> list[str]:
        return [f"{rule.tool} {rule.pattern}" for rule in self.runtime.approvals()]

    def remove_approval(self, tool: str, pattern: str) -> None:
        self.runtime.remove_approval(tool, pattern)

    def checkpoints(self) -> list[str]:
        return [moment.id for moment in self.runtime.checkpoints()]

    def rewind(self, to: str) -> str:
        """What it did to the files."""
        files = self.runtime.rewind(to).files
        return ", ".join(f"{file.action} {Path(file.path).name}" for file in files)

    def changed_files(self) -> list[str]:
        return [Path(file.path).name for file in self.runtime.changed_files()]

    def commands(self) -> list[str]:
        return [command.name for command in self.runtime.commands()]

    def type(self, name: str, args: str) -> str:
        """Run a command as a person would, and the prompt it makes, if any."""
        result = self.runtime.run_command(name, args)
        if result.action != "prompt":
            return result.text
        self.begin(result.text, call=result.call)
        return self.end()

    def shell(self, command: str, *, hidden: bool = False) -> str:
        return self.runtime.run_shell(command, hidden=hidden).output

    def ask_another(self, agent: str, text: str, **options: Any) -> str:
        """One more agent beside this one, asked something to its end; the last text of it."""
        other = self.runtime.open_agent(agent, **options)
        texts: list[str] = []
        for event in other.prompt(text):
            if isinstance(event, events.AssistantMessage):
                texts.append("".join(getattr(block, "text", "") for block in event.content))
        return texts[-1]

    def agents(self) -> list[tuple[str, str]]:
        return [(info.agent, info.state) for info in self.runtime.list_agents()]

    def close_agent(self, agent: str) -> None:
        self.runtime.close_agent(agent)

    def close(self) -> None:
        self.runtime.close()


def settings_of(place: Place, wishes: Wishes) -> dict[str, Any]:
    return {
        **MODEL,
        "cwd": place.work,
        "features": wishes.features,
        "extensions": [wishes.ext] if wishes.ext else [],
        "session": place.session if wishes.keep else None,
        "durable": wishes.durable,
    }


class Sdk(Door):
    def __init__(self, place: Place, wishes: Wishes) -> None:
        super().__init__(place, wishes)
        self.runtime = Runtime(**settings_of(place, wishes))


class Aio(Door):
    """AsyncRuntime in a loop of its own; every coroutine is waited for."""

    def __init__(self, place: Place, wishes: Wishes) -> None:
        super().__init__(place, wishes)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._inner = AsyncRuntime(**settings_of(place, wishes))
        self.runtime = Waiting(self._inner, self._wait)

    def begin(self, text: str, **more: Any) -> None:
        self._read_in_loop(lambda: self._inner.prompt(text, **more))

    def retry(self) -> str:
        self._read_in_loop(self._inner.retry)
        return self.end()

    def ask_once(self, text: str, run: str) -> str:
        streams: list[Any] = []

        def start() -> Any:
            streams.append(self._inner.prompt(text, run=run))
            return streams[0]

        self._read_in_loop(start)
        answer = self.end()
        return streams[0].end.text if streams[0].end is not None else answer

    def _read_in_loop(self, start: Callable[[], Any]) -> None:
        self._texts, self._stop = [], ""
        self._ended.clear()
        started = threading.Event()

        async def read() -> None:
            stream = start()
            started.set()
            async for event in stream:
                self._take(event)
            self._ended.set()

        asyncio.run_coroutine_threadsafe(read(), self._loop)
        assert started.wait(PATIENCE)

    def ask_another(self, agent: str, text: str, **options: Any) -> str:
        async def ask() -> str:
            other = await self._inner.open_agent(agent, **options)
            said = ""
            async for event in other.prompt(text):
                if isinstance(event, events.AssistantMessage):
                    said = "".join(getattr(block, "text", "") for block in event.content)
            return said

        return self._wait(ask())

    def close(self) -> None:
        if self._loop.is_closed():
            return
        self.runtime.close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)
        self._loop.close()

    def _wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE)


class Waiting:
    """An object whose methods are called in a loop, and awaited there."""

    def __init__(self, inner: Any, wait: Callable[[Any], Any]) -> None:
        self._inner = inner
        self._wait = wait

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)

        def call(*args: Any, **more: Any) -> Any:
            async def in_loop() -> Any:
                result = method(*args, **more)
                return await result if inspect.isawaitable(result) else result

            work = in_loop()
            try:
                asyncio.get_running_loop()
            except RuntimeError:
                return self._wait(work)
            return asyncio.ensure_future(work)  # called by what the loop itself runs

        return call


class Wire(Door):
    def __init__(self, place: Place, wishes: Wishes) -> None:
        super().__init__(place, wishes)
        flags = model_flags(wishes)
        flags += ["--session", str(place.session)] if wishes.keep else []
        flags += ["--durable"] if wishes.durable else []
        self.runtime = Client(
            [sys.executable, "-m", "zot", "rpc", *flags],
            cwd=place.work,
            env=dict(os.environ),
            features=[*wishes.features, "agents", "sessions"],
            on_event=self._take,
        )

    def abort(self) -> None:
        self.runtime.abort()

    def compact(self) -> str:
        return next(e.summary for e in self.runtime.compact() if isinstance(e, events.CompactDone))

    def path(self) -> str:
        return self.runtime.state().session.path

    def type(self, name: str, args: str) -> str:
        self._texts, self._stop = [], ""
        self._ended.clear()
        stream = self.runtime.submit_command(name, args)
        self._read(stream)
        return self.end() if stream.ran.started else stream.ran.display


class Pi(Door):
    """pi's words for the same."""

    LACKS: ClassVar = {
        **dict.fromkeys(
            ("agents", "approvals", "durable", "retry", "rewind", "set_jail", "set_mode"),
            "pi's interface knows nothing of it",
        ),
        "clear": "pi begins a new session instead",
        "sessions": "pi's clients look into its directory themselves",
    }

    def __init__(self, place: Place, wishes: Wishes) -> None:
        super().__init__(place, wishes)
        flags = ["--mode", "rpc", "--pi-protocol", "b", *self._model_flags()]
        flags += ext_flags(wishes)
        flags += [] if wishes.keep else ["--no-session"]
        flags += ["--approve=bash,write,edit"] if wishes.decide else []
        process = subprocess.Popen(
            [sys.executable, "-m", "zot", *flags],
            cwd=place.work,
            env={**os.environ, "PI_CODING_AGENT_DIR": str(place.agent)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.pi = PiProcess(process)

    def _model_flags(self) -> list[str]:
        return ["--provider", MODEL["provider"], "--model", MODEL["model"]]

    def begin(self, text: str, **more: Any) -> None:
        self._texts, self._stop = [], ""
        self.pi.send("prompt", message=text, id="p")

    def end(self) -> str:
        while (frame := self.pi.frame())["type"] != "agent_settled":
            self._take_frame(frame)
        if self._stop in ("aborted", "error"):
            return self._stop
        return self._texts[-1] if self._texts else ""

    def _take_frame(self, frame: dict[str, Any]) -> None:
        if frame["type"] == "extension_ui_request":
            reply: dict[str, Any] = {"confirmed": self.wishes.decide == "allow"}
            if frame["method"] == "input":
                reply = {"value": self.wishes.answer}
            self.pi.send("extension_ui_response", id=frame["id"], **reply)
        elif frame["type"] == "message_end" and frame["message"]["role"] == "assistant":
            texts = (b["text"] for b in frame["message"]["content"] if b["type"] == "text")
            self._texts.append("".join(texts))
            self._stop = frame["message"]["stopReason"]

    def abort(self) -> None:
        self.pi.send("abort")

    def steer(self, text: str) -> None:
        self.pi.data("steer", message=text)  # heard before the tool ends

    def follow(self, text: str) -> None:
        self.pi.data("follow_up", message=text)

    def compact(self) -> str:
        return self.pi.data("compact")["summary"]

    def set_model(self, name: str, provider: str = "") -> None:
        if not provider:
            provider, _, name = name.partition("/")
        answer = self.pi.ask("set_model", provider=provider, modelId=name)
        if not answer["success"]:
            raise LookupError(answer["error"])

    def set_reasoning(self, level: str) -> None:
        self.pi.data("set_thinking_level", level=level)

    def state(self) -> tuple[str, str, int, bool]:
        state = self.pi.data("get_state")
        model = state["model"]
        return model["provider"], model["id"], state["messageCount"], state["isStreaming"]

    def said(self) -> str:
        return json.dumps(self.pi.data("get_messages"))

    def load(self, session: str) -> None:
        self.pi.data("switch_session", sessionPath=session)

    def path(self) -> str:
        return self.pi.data("get_state")["sessionFile"]

    def fork(self, at: int) -> str:
        listed = self.pi.data("get_fork_messages")["messages"]
        self.pi.data("fork", entryId=listed[at // 2]["entryId"])
        return self.path()

    def commands(self) -> list[str]:
        return [command["name"] for command in self.pi.data("get_commands")["commands"]]

    def type(self, name: str, args: str) -> str:
        self.pi.send("prompt", message=f"/{name} {args}", id="typed")
        while True:
            frame = self.pi.frame()
            if frame["type"] == "agent_start":
                return self.end()
            if frame["type"] == "extension_ui_request" and frame["method"] == "notify":
                return frame["message"]
            self._take_frame(frame)

    def shell(self, command: str, *, hidden: bool = False) -> str:
        return self.pi.data("bash", command=command, excludeFromContext=hidden)["output"]

    def close(self) -> None:
        self.pi.close()


class Acp(Door):
    """An editor that speaks ACP: a session of its agent, which it can set and cancel."""

    LACKS: ClassVar = {
        **dict.fromkeys(
            ("agents", "approvals", "clear", "durable", "fork", "messages", "retry", "rewind"),
            "ACP has no such request",
        ),
        "count": "ACP tells tokens, not messages",
        "provider": "a model is one of the list that ACP shows",
        "sessions": "its list is told in pages: tests/acp",
        "shell": "an editor has a terminal of its own",
        "steer": "ACP has one prompt at a time; others wait",
    }
    DECISIONS: ClassVar = {"allow": "allow_once", "deny": "reject_once"}

    def __init__(self, place: Place, wishes: Wishes) -> None:
        super().__init__(place, wishes)
        flags = model_flags(wishes)
        self._process = JsonRpcProcess(place.home.parent, "acp", (), args=flags, env=own_keys())
        self._process.on_request = self._take_request
        can = {"elicitation": {"form": {}}}
        self._process.ok("initialize", protocolVersion=1, clientCapabilities=can)
        self._where = {"cwd": str(place.work), "mcpServers": []}
        self._use(self._process.ok("session/new", **self._where))

    def _use(self, opened: dict[str, Any]) -> None:
        self._session = opened.get("sessionId") or self._session
        self._options = {option["id"]: option for option in opened["configOptions"]}
        if not self.wishes.decide:
            self._set("mode", "yolo")

    def _ask(self, method: str, **params: Any) -> Any:
        answer = self._process.ask(method, sessionId=self._session, **params)
        if "error" in answer:
            raise LookupError(answer["error"]["message"])
        return answer["result"]

    def _set(self, option: str, value: str | bool) -> None:
        answer = self._ask("session/set_config_option", configId=option, value=value)
        self._options = {option["id"]: option for option in answer["configOptions"]}

    def _take_request(self, frame: dict[str, Any]) -> dict[str, Any]:
        """What the editor's user says to a question."""
        if frame["method"] == "elicitation/create":
            return {"action": "accept", "content": {"value": self.wishes.answer}}
        option = self.DECISIONS[self.wishes.decide]
        return {"outcome": {"outcome": "selected", "optionId": option}}

    def begin(self, text: str, **more: Any) -> None:
        self._from = len(self._process.frames)
        prompt = [{"type": "text", "text": text}]
        self._prompt = self._process.start("session/prompt", sessionId=self._session, prompt=prompt)

    def end(self) -> str:
        answer = self._process.answer(self._prompt)
        stop = answer["result"]["stopReason"] if "result" in answer else "error"
        if stop != "end_turn":
            return {"cancelled": "aborted"}.get(stop, stop)
        said: dict[str, str] = {}
        for update in self._updates("agent_message_chunk"):
            id, text = update.get("messageId", ""), update["content"]["text"]
            said[id] = said.get(id, "") + text
        return list(said.values())[-1] if said else ""

    def _updates(self, kind: str) -> list[dict[str, Any]]:
        frames = self._process.frames[self._from :]
        updates = [f["params"]["update"] for f in frames if f.get("method") == "session/update"]
        return [update for update in updates if update["sessionUpdate"] == kind]

    def abort(self) -> None:
        self._process.notify("session/cancel", sessionId=self._session)

    def compact(self) -> str:
        """A command of the agent, as an editor's user types it."""
        return self.ask("/compact")

    def set_model(self, name: str, provider: str = "") -> None:
        self._set("model", f"{provider}/{name}" if provider else name)

    def set_reasoning(self, level: str) -> None:
        self._set("reasoning", level)

    def set_jail(self, on: bool) -> None:
        self._set("jail", "on" if on else "off")

    def set_mode(self, mode: str) -> None:
        self._set("mode", mode)

    def state(self) -> tuple[str, str, int, bool]:
        provider, _, model = self._options["model"]["currentValue"].partition("/")
        return provider, model, -1, False

    def path(self) -> str:
        return self._session

    def load(self, session: str) -> None:
        self._session = session
        self._use(self._ask("session/load", **self._where))

    def commands(self) -> list[str]:
        self._from = 0
        shown = self._process.wait(lambda: self._updates("available_commands_update"))
        return [command["name"] for command in shown[-1]["availableCommands"]]

    def type(self, name: str, args: str) -> str:
        return self.ask(f"/{name} {args}".strip())

    def close(self) -> None:
        try:
            self._process.close()
        finally:
            self._process.kill()


class Terminal(Door):
    """A person: keys, and what stands on the screen."""

    LACKS: ClassVar = {
        "agents": "a person has a swarm: tests/serve/interactive/test_swarm.py",
        "count": "the screen tells tokens, not messages",
        "durable": "a person gives prompts no names",
        "messages": "all that was said stands on the screen, also what is no longer in the session",
        "provider": "what stands before a slash may be a part of the model's name",
    }
    SIZE = (160, 50)
    KEYS: ClassVar = {"allow": "y", "deny": "n", "allow_project": "p\r"}
    PAUSE = 0.7
    """Who has typed a moment ago answers nothing by accident."""

    def __init__(self, place: Place, wishes: Wishes) -> None:
        super().__init__(place, wishes)
        flags = model_flags(wishes)
        flags += ["--session", str(place.session)] if wishes.keep else ["--no-session"]
        flags += [] if wishes.decide else ["--yolo"]
        self._path = str(place.session)
        environ = {**os.environ, "TERM": "xterm-256color"}
        self._zot = AtTerminal(place.screen(), zot(*flags), environ, place.work, self.SIZE)
        self._typed_at = 0.0
        self._seen = 0
        self._zot.until(MODEL["model"])

    # --- keys and the screen -----------------------------------------------------------------

    def _keys(self, keys: str) -> None:
        """Type, in pieces that a terminal takes at once; a new line is Ctrl+J."""
        for start in range(0, len(keys), 1000):
            self._zot.type(keys[start : start + 1000])
            self._zot.pump(0)
        self._typed_at = time.monotonic()

    def _said(self) -> list[str]:
        """What stands above the editor since the last line was sent."""
        lines = self._zot.shown.whole_lines
        last = max((at for at, line in enumerate(lines) if line.startswith("❯")), default=0)
        return lines[self._seen : last]

    def _send(self, line: str) -> None:
        self._zot.pump(0)
        self._seen = 0
        self._seen = len("\n".join(self._said()).rstrip().split("\n"))
        self._keys(f"{line}\r")

    def _run(self, line: str) -> str:
        """A line that is answered by a note."""
        self._send(line)
        self._zot.until(lambda shown: "".join(self._said()).strip())
        return "\n".join(self._said()).strip()

    def _menu(self, line: str, title: str) -> list[str]:
        """A line that opens a menu; its rows. Or a note: then there are none."""
        self._send(line)
        self._zot.until(lambda shown: title in shown.text or "".join(self._said()).strip())
        lines = self._zot.shown.text.split("\n")
        rows = [at for at, line in enumerate(lines) if line.startswith(title)]
        return [line[2:] for line in lines[rows[-1] + 1 : -2]] if rows else []  # hint, status

    def _leave(self, title: str) -> None:
        self._zot.type("\x1b")
        self._zot.until(lambda shown: title not in shown.text)

    # --- runs --------------------------------------------------------------------------------

    def begin(self, text: str, **more: Any) -> None:
        self._send(text)

    def end(self) -> str:
        self._zot.until(self._has_ended)
        if "Go on:" in self._zot.shown.text:
            self._leave("Go on:")
            return "error"
        paragraphs = "\n".join(line.rstrip() for line in self._said()).strip().split("\n\n")
        return {"stopped": "aborted"}.get(paragraphs[-1], paragraphs[-1])

    def _has_ended(self, shown: Shown) -> bool:
        """Whether there is something below the prompt, and nothing is going on any more."""
        if "Go on:" in shown.text:
            return True
        if "esc stops" in shown.text:
            self._answer(shown)
            return False
        said = self._said()
        asked = [at for at, line in enumerate(said) if line.startswith("❯")]
        return any(line and line[0] not in "❯ " for line in said[max(asked, default=-1) + 1 :])

    def _answer(self, shown: Shown) -> None:
        keys = ""
        if "May zot use" in shown.text:
            keys = self.KEYS[self.wishes.decide]
        elif "which colour?" in shown.text:
            keys = f"{self.wishes.answer}\r"
        if keys and time.monotonic() > self._typed_at + self.PAUSE:
            for key in keys:
                self._keys(key)
                self._zot.pump(0.1)

    def abort(self) -> None:
        self._zot.until("esc stops")
        self._zot.type("\x1b")

    def steer(self, text: str) -> None:
        self._wait_with(text, "\x13")

    def follow(self, text: str) -> None:
        self._wait_with(text, "\r")

    def _wait_with(self, text: str, key: str) -> None:
        self._keys(text + key)
        self._zot.until(f"next: {text}")

    def retry(self) -> str:
        self._send("/retry")
        return self.end()

    def compact(self) -> str:
        self._send("/compact")
        self._zot.until("compacted: ")
        return "\n".join(self._said())

    def clear(self) -> None:
        self._run("/clear")

    # --- settings ----------------------------------------------------------------------------

    def set_model(self, name: str, provider: str = "") -> None:
        name = f"{provider}/{name}" if provider else name
        said = self._run(f"/model {name}")
        if said != f"model: {name}":
            raise LookupError(said)

    def set_reasoning(self, level: str) -> None:
        assert self._run(f"/reasoning {level}") == f"reasoning: {level}"

    def set_jail(self, on: bool) -> None:
        self._run("/jail" if on else "/unjail")

    def set_mode(self, mode: str) -> None:
        self._run(f"/mode {mode}")

    def state(self) -> tuple[str, str, int, bool]:
        provider, _, model = self._run("/cost").partition(",")[0].partition("/")
        return provider, model, -1, "esc stops" in self._zot.shown.text

    # --- sessions ----------------------------------------------------------------------------

    def path(self) -> str:
        return self._path

    def load(self, session: str) -> None:
        assert self._run(f"/session import {session}").startswith("session: ")

    def fork(self, at: int) -> str:
        """A copy, and then back in it to after an earlier answer."""
        said = self._run("/session fork")
        rows = self._menu("/session tree", "Branches")
        self._keys("\x1b[B" * (at // 2 - 1) + "\r")
        self._zot.until(lambda shown: "going on from there" in "\n".join(self._said()))
        assert rows
        return said.partition(": ")[2].partition(";")[0]

    def sessions(self) -> list[str]:
        rows = self._menu("/sessions", "Sessions")
        if rows:
            self._leave("Sessions")
        return rows

    def checkpoints(self) -> list[str]:
        rows = self._menu("/rewind", "Go back to before")
        self._leave("Go back to before")
        return [row.partition("  ")[0] for row in rows[::-1]]

    def rewind(self, to: str) -> str:
        rows = self._menu("/rewind", "Go back to before")
        self._keys("\x1b[B" * next(at for at, row in enumerate(rows) if row.startswith(to)) + "\r")
        question = self._zot.until("Back to before").text.rpartition("Back to before")[2]
        self._keys("b")
        self._zot.until(lambda shown: "went back by" in "\n".join(self._said()))
        self._keys("\x03")  # the prompt stands in the editor again
        path, *diff = question.splitlines()[1:]
        action = "restore" if any(" + " in line for line in diff) else "remove"
        return f"{action} {Path(path.split('  ')[0]).name}"

    def changed_files(self) -> list[str]:
        said = self._run("/diff").splitlines()
        return [Path(line.split("  ")[0]).name for line in said if line and line[0] not in " +-@"]

    # --- commands, questions, the shell ------------------------------------------------------

    def approvals(self) -> list[str]:
        rows = self._menu("/approvals", "Allowed without a question")
        if rows:
            self._leave("Allowed without a question")
        return [" ".join(row.split()) for row in rows]

    def remove_approval(self, tool: str, pattern: str) -> None:
        rows = self._menu("/approvals", "Allowed without a question")
        assert rows[0].split() == [tool, *pattern.split()]
        self._keys("\r")
        self._zot.until("zot asks again before")

    def commands(self) -> list[str]:
        self._send("/help")
        self._zot.until("From extensions, skills and prompt files")
        return [line.split()[0][1:] for line in self._said() if line.startswith("  /")]

    def type(self, name: str, args: str) -> str:
        return self.ask(f"/{name} {args}".strip())

    def shell(self, command: str, *, hidden: bool = False) -> str:
        self._send(f"{'!!' if hidden else '!'}{command}")
        self._zot.until(lambda shown: "✓" in "".join(self._said()))
        return "\n".join(self._said())

    def close(self) -> None:
        if self._zot.process.poll() is None:
            self._zot.close()


class Mcp(Door):
    """Another agent, which calls tools: each call has all that is to be said."""

    LACKS: ClassVar = {
        **dict.fromkeys(
            ("agents", "approvals", "clear", "compact", "durable", "fork", "retry", "rewind"),
            "a call is a task or a reply; it has no word for it",
        ),
        **dict.fromkeys(
            ("commands", "count", "messages", "sessions"), "a result tells of its task alone"
        ),
        "provider": "what stands before a slash may be a part of the model's name",
        "set_jail": "a flag of the server: a caller may not open it",
        "set_mode": "the caller's own program decides",
        "shell": "callers have a shell of their own",
        "state": "told with the result of a call",
        "steer": "a call that runs can only be cancelled",
    }
    DECISIONS: ClassVar = {"allow": "Allow", "deny": "Deny"}

    def __init__(self, place: Place, wishes: Wishes) -> None:
        super().__init__(place, wishes)
        flags = model_flags(wishes)
        flags += ["--cwd", str(place.work)] + ([] if wishes.decide else ["--yolo"])
        self._process = JsonRpcProcess(
            place.home.parent, "mcp-server", (), args=flags, env=own_keys()
        )
        self._process.on_request = self._take_request
        who = {"clientInfo": {"name": "test", "version": "1"}}
        can = {"elicitation": {"form": {}}}
        self._process.ok("initialize", protocolVersion="2025-11-25", capabilities=can, **who)
        self._session = ""
        self._wanted: dict[str, str] = {}
        """What the next call says beside its prompt."""
        self._model = f"{MODEL['provider']}/{MODEL['model']}"

    def _take_request(self, frame: dict[str, Any]) -> dict[str, Any]:
        """What the user of the other agent says to a question."""
        name = next(iter(frame["params"]["requestedSchema"]["properties"]))
        said = self.DECISIONS[self.wishes.decide] if name == "decision" else self.wishes.answer
        return {"action": "accept", "content": {name: said}}

    def begin(self, text: str, **more: Any) -> None:
        arguments = {"prompt": text, **self._wanted}
        if self._session:
            arguments["session_id"] = self._session
        tool = "zot_reply" if self._session else "zot"
        self._call = self._process.start("tools/call", name=tool, arguments=arguments)
        self._aborted = False

    def end(self) -> str:
        if self._aborted:
            return "aborted"
        result = self._process.answer(self._call)["result"]
        facts = result["structuredContent"]
        wanted, self._wanted = self._wanted, {}
        if result["isError"] and wanted:
            raise LookupError(facts["text"])
        self._session, self._model = facts["session_id"], facts["model"]
        assert self._model.endswith(wanted.get("model", ""))
        return "error" if result["isError"] else facts["text"]

    def abort(self) -> None:
        self._process.unanswered.add(self._call)  # what was cancelled has no answer
        self._process.notify("notifications/cancelled", requestId=self._call)
        self._aborted = True

    def set_model(self, name: str, provider: str = "") -> None:
        self._wanted["model"] = f"{provider}/{name}" if provider else name

    def set_reasoning(self, level: str) -> None:
        self._wanted["reasoning"] = level

    def state(self) -> tuple[str, str, int, bool]:
        provider, _, model = self._wanted.get("model", self._model).partition("/")
        return provider, model, -1, False

    def path(self) -> str:
        return self._session

    def load(self, session: str) -> None:
        self._session = session

    def type(self, name: str, args: str) -> str:
        return self.ask(f"/{name} {args}".strip())

    def close(self) -> None:
        try:
            self._process.close()
        finally:
            self._process.kill()


class Once(Door):
    """One prompt for each process: `-p`. The conversation is in the session between them, and so
    are the model and the level, once they were said."""

    LACKS: ClassVar = {
        **dict.fromkeys(
            ("agents", "approvals", "clear", "compact", "durable", "fork", "retry", "rewind"),
            "a process answers one prompt; subcommands do the rest",
        ),
        **dict.fromkeys(("commands", "count", "messages", "sessions"), "it tells the answer alone"),
        **dict.fromkeys(("decide", "dialogs"), "nobody is there to answer"),
        "set_jail": "a flag: --jail",
        "set_mode": "flags: --tools, --approve, --yolo",
        "shell": "there is one around it",
        "state": "the session says it afterwards",
        "steer": "nobody is there to say more",
    }
    MODE: tuple[str, ...] = ("-p",)
    LEVEL = "--reasoning"

    def __init__(self, place: Place, wishes: Wishes) -> None:
        super().__init__(place, wishes)
        self._first = model_flags(Wishes())[:4]
        """What has to be said until a session says it."""
        self._wanted = self._first
        """What the next process is told beside its prompt."""
        self._session = self._first_session()
        self._process: subprocess.Popen[str] | None = None

    def _first_session(self) -> list[str]:
        return ["--session", str(self.place.session)]

    def begin(self, text: str, **more: Any) -> None:
        flags = [*self._session, *self._wanted, *ext_flags(self.wishes)]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "zot", *self.MODE, *flags, text],
            cwd=self.place.work,
            env={**os.environ, "PI_CODING_AGENT_DIR": str(self.place.agent)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def end(self) -> str:
        assert self._process is not None
        out, err = self._process.communicate(timeout=PATIENCE)
        code, wanted = self._process.returncode, self._wanted
        if code == 128 + signal.SIGINT:
            return "aborted"
        if code and wanted != self._first:  # what it was told is not taken up
            self._wanted = self._first
            raise LookupError(err)
        self._wanted = self._first = []
        self._session = ["--session", self.path()]
        return "error" if code else self._shown(out)

    def _shown(self, out: str) -> str:
        return out.strip()

    def abort(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGINT)

    def set_model(self, name: str, provider: str = "") -> None:
        model = ["--provider", provider] if provider else []
        self._wanted = [*model, "--model", name]

    def set_reasoning(self, level: str) -> None:
        self._wanted = [*self._wanted, self.LEVEL, level]

    def state(self) -> tuple[str, str, int, bool]:
        if "--model" in self._wanted:  # not said yet
            at = self._wanted.index("--model") + 1
            provider, _, model = "/".join(self._wanted[1 : at + 1 : 2]).partition("/")
            return provider, model, -1, False
        session = resumed(self.path(), str(self.place.work), str(self.place.home))
        assert session is not None and session.last_model is not None
        session.close()
        return *session.last_model, -1, False

    def path(self) -> str:
        return self._session[1]

    def load(self, session: str) -> None:
        self._session = ["--session", session]

    def type(self, name: str, args: str) -> str:
        return self.ask(f"/{name} {args}".strip())

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()


class OnceJson(Once):
    """`--json`: the same in frames."""

    MODE = ("--json",)
    WORD = "assistant_message"

    def _shown(self, out: str) -> str:
        frames = [json.loads(line) for line in out.splitlines()]
        said = [self._content(frame) for frame in frames if frame["type"] == self.WORD]
        texts = ["".join(b["text"] for b in blocks if b["type"] == "text") for blocks in said]
        return texts[-1] if texts else out

    def _content(self, frame: dict[str, Any]) -> list[dict[str, Any]]:
        return frame["content"]


class OncePi(OnceJson):
    """`--mode json`: the same in pi's frames, with a session where pi keeps them."""

    MODE = ("--mode", "json")
    WORD = "message_end"
    LEVEL = "--thinking"

    def _first_session(self) -> list[str]:
        return []

    def _content(self, frame: dict[str, Any]) -> list[dict[str, Any]]:
        message = frame["message"]
        return message["content"] if message["role"] == "assistant" else []

    def path(self) -> str:
        written = self.place.agent.rglob("*.jsonl")
        return max(written, key=lambda file: file.stat().st_mtime_ns).as_posix()


class OncePiText(OncePi):
    """`--mode text`: the answer alone, and the same session."""

    MODE = ("--mode", "text")

    def _shown(self, out: str) -> str:
        return out.strip()


DOORS = {
    **{"sdk": Sdk, "asyncio": Aio, "wire": Wire, "pi": Pi, "acp": Acp},
    **{"terminal": Terminal, "mcp": Mcp},
    **{"once": Once, "once-json": OnceJson, "once-pi": OncePi, "once-pi-text": OncePiText},
}
