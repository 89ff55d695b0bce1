"""`zot swarm`: many agents at once, each in its own worktree. Prints only."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from zot.bugs import complain
from zot.cli.output import Subcommands, say, say_either, say_json
from zot.cli.swarm_temporal import add_temporal_actions, change_config
from zot.errors import UsageError, ZotError
from zot.home import home_dir
from zot.observe import facts
from zot.observe.status import OpenQuestion
from zot.observe.tables import facts_of
from zot.settings.known import hide_keys
from zot.swarm import supervisor
from zot.swarm.agent import AgentSummary, by_need, shown_age
from zot.swarm.local import LocalSwarm, socket_path
from zot.swarm.log import OVER
from zot.swarm.rows import LogRow
from zot.swarm.task import SwarmTask
from zot.text import positive, size_text, whole_characters

EPILOG = """\
An agent works in a git worktree on a branch zot/ID: your checkout stays as it is until you merge.
Ids may be shortened. Everything goes on when the terminal is closed.

  zot swarm new "fix the flaky test in tests/net" --max-cost 2
  zot swarm list
  zot swarm logs fix -f
  zot swarm diff fix && zot swarm merge fix --squash
"""
Action = Callable[[LocalSwarm, argparse.Namespace], int | None]
SHOWN_RESULT = 400
"""Maximum characters of a tool's result in `logs`."""


def main(argv: Sequence[str]) -> int:
    if argv[1:2] == ["supervise"]:  # internal: must not appear in help or errors
        return _supervise()
    arguments = _parser().parse_args(argv[1:])
    swarm = LocalSwarm(Path(home_dir(os.environ)), os.environ)
    if arguments.address or arguments.namespace:
        change_config(address=arguments.address, namespace=arguments.namespace)
    try:
        return int(arguments.run(swarm, arguments) or 0)
    except ZotError as error:
        if arguments.json:
            say_json({"error": str(error), "code": error.code})
        raise


def _parser() -> argparse.ArgumentParser:
    actions = Subcommands(
        "swarm",
        "Many agents at once, each in a tree of its own.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser = actions.parser
    parser.add_argument(
        "--engine", choices=("local", "temporal"), default="local", help="who runs what `new` gives"
    )
    parser.add_argument("--address", help="of Temporal; it is remembered")
    parser.add_argument("--namespace", help="in Temporal; it is remembered")

    def action(name: str, run: Action, help: str, *aliases: str) -> argparse.ArgumentParser:
        return actions.add(name, run, help, *aliases, json="answer as JSON")

    def on_agent(name: str, run: Action, help: str, *aliases: str) -> argparse.ArgumentParser:
        made = action(name, run, help, *aliases)
        made.add_argument("agent", help="its id, or the beginning of it")
        return made

    _add_new(action("new", _new, "give a task to a new agent", "spawn"))
    action("list", _list, "all agents, those that need you first", "ls", "ps")
    on_agent("show", _show, "one agent in full")
    logs = on_agent("logs", _logs, "what it said and did", "log", "view", "attach")
    logs.add_argument("-f", "--follow", action="store_true", help="go on until it has ended")
    on_agent("send", _send, "a further message", "msg", "prompt").add_argument("text")
    on_agent("steer", _steer, "a message in the middle of its work").add_argument("text")
    _add_answer(on_agent("answer", _answer, "answer what it asks, or approve a tool"))
    on_agent("cancel", _just(LocalSwarm.cancel), "stop it; its work stays", "kill")
    on_agent("retry", _just(LocalSwarm.retry), "go on after a failure, a cancel or crashes")
    again = action("resume", _resume, "go on with all that was cut, or one", "reattach", "reopen")
    again.add_argument("agent", nargs="?", help="one that failed, was stopped or is lost")
    on_agent("diff", _diff, "what it changed")
    merge = on_agent("merge", _merge, "bring its work into your checkout")
    merge.add_argument("--squash", action="store_true", help="as one commit")
    on_agent("remove", _just(LocalSwarm.remove), "take it away, unless work would be lost", "rm")
    gc = action("gc", _gc, "remove agents that left nothing to lose")
    gc.add_argument("-n", "--dry-run", action="store_true", help="only name them")
    budget = action("budget", _budget, "what all agents together have spent, and may")
    budget.add_argument("--max-cost", type=_amount, metavar="USD")
    budget.add_argument("--max-tokens", type=_whole, metavar="N")
    budget.add_argument("--max-minutes", type=_amount, metavar="N", help="of all agents, added up")
    budget.add_argument("--none", action="store_true", help="no limit")
    action("stop", _stop, "end the supervisor; `resume` goes on")
    add_temporal_actions(action)
    return parser


def _add_new(new: argparse.ArgumentParser) -> None:
    """Add flags whose destinations are fields of SwarmTask."""
    new.add_argument("task", nargs="*", help="what is to be done")
    new.add_argument("--file", help="a task a line, or a JSON object a line with its options")
    new.add_argument(
        "--cwd", dest="directory", default=".", help="what it is about (default: here)"
    )
    new.add_argument("--provider", default="", help="as for zot (default: as configured)")
    new.add_argument("--model", default="", help="the same")
    new.add_argument("--base", default="", help="branch or commit to begin with")
    new.add_argument("--here", action="store_true", help="work in the directory itself")
    new.add_argument(
        "--approve", type=_words, default=[], metavar="a,b", help="ask before these tools run"
    )
    new.add_argument("--jail", action="store_true", help="keep its tools in its directory")
    new.add_argument("--max-cost", type=_amount, metavar="USD", help="of all its messages")
    new.add_argument("--max-tokens", type=_whole, metavar="N", help="the same")
    new.add_argument(
        "--max-minutes", dest="max_seconds", type=_minutes, metavar="N", help="at work"
    )
    new.add_argument("--max-steps", type=_whole, metavar="N", help="model calls of one message")
    new.add_argument("--priority", type=int, default=0, metavar="N", help="higher begins earlier")
    new.add_argument("--after", action="append", default=[], metavar="ID", help="when it is done")
    new.add_argument(
        "--wait", action="store_true", help="until it has ended; exit code 1 if it failed"
    )
    new.add_argument(
        "--rpc", dest="words", action="append", default=[], metavar="WORD", help="for `zot rpc`"
    )


def _amount(text: str) -> float:
    value = positive(text)
    if not value:
        raise argparse.ArgumentTypeError(f"must be a number above 0, not {text!r}")
    return value


def _minutes(text: str) -> float:
    return _amount(text) * 60


def _words(text: str) -> list[str]:
    return [word for word in text.split(",") if word]


def _whole(text: str) -> int:
    value = _amount(text)
    if value != int(value):
        raise argparse.ArgumentTypeError(f"must be a whole number, not {text!r}")
    return int(value)


def _add_answer(answer: argparse.ArgumentParser) -> None:
    answer.add_argument("value", nargs="?", help="a text, yes or no, or one of the options")
    how = answer.add_mutually_exclusive_group()
    how.add_argument("--allow", action="store_true", help="let the tool run")
    how.add_argument("--always", action="store_true", help="and do not ask again for it")
    how.add_argument("--deny", metavar="REASON", nargs="?", const="", help="do not let it run")
    answer.add_argument("--question", default="", help="its id, if more than one is open")


# --- giving tasks ------------------------------------------------------------------------------


def _new(swarm: LocalSwarm, arguments: argparse.Namespace) -> int:
    ids = [swarm.submit(**task) for task in _tasks(arguments)]
    for id in ids:
        say_either(arguments, {"id": id}, id)
    if not arguments.wait:
        return 0
    while True:
        left = [s for s in swarm.agents() if s.id in ids]
        if all(s.stage in OVER for s in left):
            break
        time.sleep(0.2)
    for summary in left:
        say_either(arguments, summary, _line(summary))
    return 0 if all(summary.stage == "done" for summary in left) else 1


def _tasks(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    fields = SwarmTask.__struct_fields__
    options = {name: value for name, value in vars(arguments).items() if name in fields}
    tasks = [{"prompt": " ".join(arguments.task)}] if arguments.task else []
    if arguments.file:
        tasks += _tasks_of(arguments.file)
    if not tasks:
        raise UsageError('zot swarm new: say what is to be done: zot swarm new "fix the test"')
    if arguments.engine == "local":
        options["engine"] = ""
    return [{**options, **task} for task in tasks]


def _tasks_of(path: str) -> list[dict[str, Any]]:
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeError) as error:
        raise UsageError(f"cannot read the tasks in {path!r}: {error}") from error
    tasks: list[dict[str, Any]] = []
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        if not line.startswith("{"):
            tasks.append({"prompt": line.strip()})
            continue
        try:
            tasks.append(_fields(msgspec.json.decode(line, type=dict[str, Any])))
        except (msgspec.DecodeError, ValueError) as error:
            raise UsageError(f"line {number} of {path!r} is not a task: {error}") from error
    return tasks


def _fields(task: dict[str, Any]) -> dict[str, Any]:
    """Convert an object of a task file to fields of SwarmTask; it may use the flags' names too."""
    fields = dict(task)
    if "cwd" in fields:
        fields["directory"] = fields.pop("cwd")
    if "max_minutes" in fields:
        fields["max_seconds"] = float(fields.pop("max_minutes")) * 60
    for name in ("approve", "after"):
        if isinstance(fields.get(name), str):
            fields[name] = _words(fields[name])
    return fields


# --- looking -----------------------------------------------------------------------------------


def _list(swarm: LocalSwarm, arguments: argparse.Namespace) -> None:
    agents = by_need(swarm.agents())
    for summary in agents:
        say_either(arguments, summary, _line(summary))
    for problem in swarm.unreadable():
        complain(problem)
    if not agents and not arguments.json:
        complain('no agents; begin one: zot swarm new "what is to be done"')


def _line(summary: AgentSummary) -> str:
    age = shown_age(time.time() - summary.since)
    parts = [f"{summary.id:32} {summary.stage.replace('_', ' '):9} {age:>4}"]
    if summary.doing:
        about = f" {_cut(summary.about, 60)}" if summary.about else ""
        parts.append(_cut(summary.doing, 80) + about + (" (stalled)" if summary.stalled else ""))
    if summary.diff.files:
        parts.append(f"+{summary.diff.added} -{summary.diff.removed} in {summary.diff.files}")
    if summary.cost_usd or not summary.cost_known:
        parts.append(f"{'' if summary.cost_known else '>= '}${summary.cost_usd:.2f}")
    if summary.merged:
        parts.append("merged")
    return "  ".join(parts)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."


def _show(swarm: LocalSwarm, arguments: argparse.Namespace) -> None:
    summary = swarm.show(arguments.agent)
    if arguments.json:
        say_json(summary)
        return
    say(_line(summary))
    names = ("task", "directory", "machine", "branch", "model", "turns", "tool_calls", "outcome")
    for name in (*names, "doing"):
        value = str(getattr(summary, name)).replace("\n", "\n" + " " * 14)
        if name in ("machine", "doing") and not value:
            continue
        say(f"  {name.replace('_', ' '):11} {value}".rstrip())
    for question in summary.questions:
        say(f"  asks        {question.title} ({question.id}) {question.preview}")
        say(f"              zot swarm answer {summary.id} {_ways(question)}")


def _ways(question: OpenQuestion) -> str:
    if question.kind == "approval":
        return "--allow | --always | --deny [WHY]"
    return "yes | no" if question.method == "confirm" else "TEXT"


def _logs(swarm: LocalSwarm, arguments: argparse.Namespace) -> None:
    follow = arguments.follow or arguments.action == "attach"
    for _, row in swarm.events(arguments.agent, follow=follow):
        if arguments.json:
            say_json(row)
        else:
            for line in _lines_of(row):
                say(line)
        if follow:
            sys.stdout.flush()


def _lines_of(row: LogRow) -> list[str]:
    if row.frame.get("type") == "swarm_run_over":
        return [f"-- {row.frame.get('outcome')} {row.frame.get('error', '')}".rstrip()]
    return [line for fact in facts_of(row.frame) for line in _fact(fact)]


def _fact(fact: facts.Fact) -> list[str]:
    match fact:
        case facts.UserSaid(text):
            return [f"> {line}" for line in text.splitlines()]
        case facts.MessageEnded(text):
            return (text or "").splitlines()
        case facts.ToolWritten(name=name, args=args) if args is not None:
            return [f"$ {name} {msgspec.json.encode(args).decode()[:SHOWN_RESULT]}"]
        case facts.ToolEnded(failed=failed, text=text):
            shown = _cut(text, SHOWN_RESULT)
            return [f"  {'! ' if failed else ''}{line}" for line in shown.splitlines()]
        case facts.Asked(title=title, preview=preview):
            return [f"? {title} {preview}"]
        case facts.Failed(message):
            return [f"! {message}"]
        case facts.Noted(text):
            return [f"* {line}" for line in text.splitlines()]
    return []


def _just(ask: Callable[[LocalSwarm, str], None]) -> Action:
    """Return an action that calls `ask` for one agent and prints only success."""

    def run(swarm: LocalSwarm, arguments: argparse.Namespace) -> None:
        ask(swarm, arguments.agent)
        _done(arguments)

    return run


# --- steering ----------------------------------------------------------------------------------


def _send(swarm: LocalSwarm, arguments: argparse.Namespace) -> None:
    run = swarm.send(arguments.agent, arguments.text)
    say_either(arguments, {"run": run}, f"taken as {run}")


def _steer(swarm: LocalSwarm, arguments: argparse.Namespace) -> None:
    swarm.steer(arguments.agent, arguments.text)
    _done(arguments)


def _answer(swarm: LocalSwarm, arguments: argparse.Namespace) -> None:
    summary = swarm.show(arguments.agent)
    wanted = [q for q in summary.questions if q.id.startswith(arguments.question)]
    if not wanted:
        ids = ", ".join(question.id for question in summary.questions)
        text = f"has no question {arguments.question!r}; open: {ids}" if ids else "asks nothing"
        raise UsageError(f"{summary.id} {text}")
    if len(wanted) > 1:
        raise UsageError(f"it asks {len(wanted)} things: say which with --question ID")
    (question,) = wanted
    if question.kind == "approval":
        if arguments.deny is None and not (arguments.allow or arguments.always):
            raise UsageError(f"it asks for {question.title}: say --allow, --always or --deny")
        decision: Any = "allow_session" if arguments.always else "allow"
        decision = "deny" if arguments.deny is not None else decision
        swarm.approve(summary.id, question.id, decision, arguments.deny or "")
    elif question.method == "confirm":
        yes = arguments.allow or (arguments.value or "").lower() in ("y", "yes", "true", "1")
        swarm.answer(summary.id, question.id, confirmed=yes)
    elif arguments.value is None:
        swarm.answer(summary.id, question.id, cancelled=True)
    else:
        swarm.answer(summary.id, question.id, value=arguments.value)
    _done(arguments)


def _resume(swarm: LocalSwarm, arguments: argparse.Namespace) -> None:
    if arguments.agent:
        summary = swarm.show(arguments.agent)
        if summary.stage in ("failed", "cancelled", "lost"):
            swarm.retry(summary.id)
            _done(arguments)
        else:  # an interrupted agent continues once it was shown
            said = f"{summary.id} is {summary.stage.replace('_', ' ')}"
            say_either(arguments, {"ok": True}, said)
    else:
        _list(swarm, arguments)  # looking starts the supervisor when there is work


# --- the work it did ---------------------------------------------------------------------------


def _diff(swarm: LocalSwarm, arguments: argparse.Namespace) -> None:
    diff = swarm.diff(arguments.agent)
    if arguments.json:
        say_json({"diff": diff})
    elif sys.stdout.isatty():
        say(diff)
    else:
        sys.stdout.write(whole_characters(diff))


def _merge(swarm: LocalSwarm, arguments: argparse.Namespace) -> None:
    commit = swarm.merge(arguments.agent, squash=arguments.squash)
    say_either(arguments, {"merged": commit}, f"merged {commit[:12]}")


def _gc(swarm: LocalSwarm, arguments: argparse.Namespace) -> None:
    done = "would remove" if arguments.dry_run else "removed"
    freed = swarm.gc(try_only=arguments.dry_run)
    for agent in freed:
        say_either(arguments, agent, f"{done} {agent.id}  {size_text(agent.bytes)}")
    if not arguments.json:
        total = size_text(sum(agent.bytes for agent in freed))
        say(f"{len(freed)} in all, {total}" if freed else "nothing to remove")


def _budget(swarm: LocalSwarm, arguments: argparse.Namespace) -> None:
    cost, tokens, minutes = arguments.max_cost, arguments.max_tokens, arguments.max_minutes
    if arguments.none:
        swarm.budget()
    elif (cost, tokens, minutes) != (None, None, None):
        before = swarm.spending()  # limits that are not given stay
        swarm.budget(
            before.max_usd if cost is None else cost,
            before.max_tokens if tokens is None else tokens,
            before.max_minutes if minutes is None else minutes,
        )
    spending = swarm.spending()
    total = spending.total()
    used = f"${total.usd:.4f}, {total.tokens} tokens and {total.seconds / 60:.1f} minutes"
    limit = spending.said() or f"{used}, without a limit"
    say_either(arguments, {"spent": total, "limits": spending}, f"spent {limit}")


def _stop(swarm: LocalSwarm, arguments: argparse.Namespace) -> None:
    swarm.stop()
    _done(arguments)


def _supervise() -> int:
    folder = Path(home_dir(os.environ)) / "swarm"
    hide_keys(home_dir(os.environ), os.environ)
    slots = int(os.environ.get("ZOT_SWARM_SLOTS") or supervisor.SLOTS)
    return supervisor.supervise(folder, socket_path(folder), os.environ, slots)


# --- printing ----------------------------------------------------------------------------------


def _done(arguments: argparse.Namespace) -> None:
    if arguments.json:
        say_json({"ok": True})
