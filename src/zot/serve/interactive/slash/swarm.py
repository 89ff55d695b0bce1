"""`/swarm`: agents beside this conversation. Subcommands as in `zot swarm`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from zot.build import conversation_of
from zot.errors import CommandError
from zot.serve.interactive.swarm_feed import AgentTranscript, diff_block, the_swarm
from zot.serve.interactive.swarm_screen import SwarmScreen
from zot.swarm.task import inherited
from zot.tui.blocks import LinesBlock

if TYPE_CHECKING:
    from zot.serve.interactive.app import App

WORDS = {
    "ls": "list",
    "ps": "list",
    "spawn": "new",
    "kill": "cancel",
    "stop": "cancel",
    "rm": "remove",
    "log": "logs",
    "view": "logs",
    "attach": "logs",
    "show": "logs",
    "msg": "send",
    "prompt": "send",
    "resume": "retry",
    "reattach": "retry",
    "reopen": "retry",
}
USAGE = (
    "/swarm opens the dashboard; /swarm new [--model M] [--provider P] TASK, logs ID, "
    "send ID TEXT, steer ID TEXT, cancel ID, retry ID, diff ID, merge ID, remove ID"
)


def swarm(app: App, args: str) -> None:
    word, _, rest = args.partition(" ")
    word, rest = WORDS.get(word, word), rest.strip()
    if word in ("", "list") or (word == "retry" and not rest):
        _dashboard(app)
    elif word == "logs":
        _logs(app, rest)
    elif word == "new":
        text, options = _leading_flags(rest)
        start = _starter(app)
        begins = "begins; its answer comes back here, /swarm shows it"
        app.work(lambda: start(text, **options), lambda id: _done(app, f"{id} {begins}"))
    elif word in ("send", "steer"):
        id, _, text = rest.partition(" ")
        if not text.strip():
            raise CommandError(f"say what: /swarm {word} ID TEXT")
        engine = the_swarm(app)
        app.work(
            lambda: (engine.send if word == "send" else engine.steer)(id, text.strip()),
            lambda _: _done(app, f"{word}: {id}"),
        )
    elif word in ("cancel", "retry", "remove", "merge", "diff") and rest:
        _on_agent(app, word, rest)
    else:
        raise CommandError(USAGE)


def _on_agent(app: App, word: str, id: str) -> None:
    engine = the_swarm(app)
    if word == "diff":
        app.work(lambda: engine.diff(id), lambda text: app.show(diff_block(text)))
        return
    action = getattr(engine, word)
    past = {"cancel": "stopped", "retry": "goes on", "remove": "removed", "merge": "merged"}[word]
    app.work(lambda: action(id), lambda _: _done(app, f"{id}: {past}"))


def _done(app: App, text: str) -> None:
    app.note(text)
    app.chat.watch_agents()


def _starter(app: App) -> Callable[..., str]:
    """Return a function that starts an agent with this conversation's settings (returns its id)."""
    options, engine = (
        inherited(conversation_of(app.runtime), app.chat.agent_words),
        the_swarm(app),
    )

    def start(text: str, **more: str) -> str:
        return engine.submit(text, **{**options, **more})

    return start


def _leading_flags(text: str) -> tuple[str, dict[str, str]]:
    """Parse `--model M --provider P TASK`; flags count only before the task."""
    options: dict[str, str] = {}
    while text.startswith(("--model ", "--provider ")):
        flag, _, rest = text.partition(" ")
        options[flag[2:]], _, text = rest.strip().partition(" ")
        text = text.strip()
    if not text:
        raise CommandError("say what is to be done: /swarm new [--model M] [--provider P] TASK")
    return text, options


def _dashboard(app: App, wanted: str = "") -> None:
    SwarmScreen(app, the_swarm(app), _starter(app)).open(wanted)


def _logs(app: App, id: str) -> None:
    engine = the_swarm(app)
    if not id:
        raise CommandError("say whose: /swarm logs ID")
    chosen = engine.pick(id)
    if not app.spoken:
        _dashboard(app, chosen)
        return
    transcript = AgentTranscript()
    for _, row in engine.events(chosen):
        transcript.take(row)
    for block in transcript.record:
        app.show(LinesBlock(block.lines(10_000)))
