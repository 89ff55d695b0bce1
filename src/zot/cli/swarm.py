"""`zot swarm`: many agents at once, each in its own worktree, here or on many machines."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import msgspec
from msgspec.structs import asdict, replace

from zot.bugs import complain
from zot.cli.output import (
    Argument,
    PlainParser,
    Subcommands,
    arg,
    flag,
    json_flag,
    say,
    say_either,
    say_json,
)
from zot.errors import ConfigError, UsageError, ZotError
from zot.files import ensure_dir
from zot.home import home_dir
from zot.observe import facts
from zot.observe.status import OpenQuestion
from zot.observe.tables import facts_of
from zot.provider.providers import without_keys
from zot.settings.known import hide_keys
from zot.swarm import supervisor
from zot.swarm.agent import AgentSummary, by_need, shown_age
from zot.swarm.local import LocalSwarm, socket_path
from zot.swarm.log import OVER
from zot.swarm.rows import LogRow
from zot.swarm.task import SwarmTask
from zot.swarm.temporal.config import (
    TemporalConfig,
    WorkerPlace,
    check_installed,
    hub_token,
    load_config,
    run_worker,
    save_config,
    server_command,
)
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
SERVER_PORT = 7233
"""Default port of Temporal."""
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
        "Run many agents at once, each in its own git worktree.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    # fmt: off
    actions.parser.add(
        arg("--engine", choices=("local", "temporal"), default="local",
            help="where `new` runs agents"),
        arg("--address", help="address of Temporal; it is remembered"),
        arg("--namespace", help="namespace in Temporal; it is remembered"),
    )
    # fmt: on

    def add(
        word: str, run: Action, help: str, *arguments: Argument, aliases: Sequence[str] = ()
    ) -> PlainParser:
        return actions.add(word, run, help, *arguments, json_flag("print JSON"), aliases=aliases)

    # fmt: off
    agent = arg("agent", help="its id, or the beginning of it")
    add("new", _new, "give a task to a new agent", *NEW, aliases=("spawn",))
    add("list", _list, "list all agents, those that need you first", aliases=("ls", "ps"))
    add("show", _show, "show one agent in full", agent)
    add("logs", _logs, "show what an agent said and did", agent,
        flag("-f", "--follow", help="go on until it has ended"), aliases=("log", "view", "attach"))
    add("send", _send, "send a further message", agent, arg("text"), aliases=("msg", "prompt"))
    add("steer", _steer, "send a message in the middle of its work", agent, arg("text"))
    _add_answer(add("answer", _answer, "answer its question, or approve a tool", agent))
    add("cancel", _just(LocalSwarm.cancel), "stop it; its work stays", agent, aliases=("kill",))
    add("retry", _just(LocalSwarm.retry), "go on after a failure, a cancel or crashes", agent)
    add("resume", _resume, "go on with all interrupted agents, or one",
        arg("agent", nargs="?", help="an agent that failed, was stopped or is lost"),
        aliases=("reattach", "reopen"))
    add("diff", _diff, "show its changes", agent)
    add("merge", _merge, "merge its work into your checkout", agent,
        flag("--squash", help="as one commit"))
    add("remove", _just(LocalSwarm.remove), "remove it, unless work would be lost", agent,
        aliases=("rm",))
    add("gc", _gc, "remove agents that left nothing to lose",
        flag("-n", "--dry-run", help="only list them"))
    add("budget", _budget, "show or set the shared budget of all agents",
        arg("--max-cost", type=_amount, metavar="USD"),
        arg("--max-tokens", type=_whole, metavar="N"),
        arg("--max-minutes", type=_amount, metavar="N", help="sum over all agents"),
        flag("--none", help="remove the limits"))
    add("stop", _stop, "stop the supervisor; `resume` goes on")
    add("worker", _worker, "run tasks of `--engine temporal` on this machine", *WORKER)
    add("temporal", _temporal,
        "start a server for trying it (dev); show or change settings (config)", *TEMPORAL)
    # fmt: on
    return actions.parser


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


def _absolute(path: str) -> str:
    return str(Path(path).absolute()) if path else ""


# fmt: off
NEW = (
    arg("task", nargs="*", help="the task"),
    arg("--file", help="a task a line, or a JSON object a line with its options"),
    arg("--cwd", dest="directory", default=".", help="directory of the task (default: here)"),
    arg("--provider", default="", help="as for zot (default: as configured)"),
    arg("--model", default="", help="as for zot (default: as configured)"),
    arg("--base", default="", help="branch or commit to begin with"),
    flag("--here", help="work in the directory itself"),
    arg("--approve", type=_words, default=[], metavar="a,b", help="ask before these tools run"),
    flag("--jail", help="keep its tools in its directory"),
    arg("--max-cost", type=_amount, metavar="USD", help="limit of all its messages"),
    arg("--max-tokens", type=_whole, metavar="N", help="limit of all its messages"),
    arg("--max-minutes", dest="max_seconds", type=_minutes, metavar="N", help="limit of its work"),
    arg("--max-steps", type=_whole, metavar="N", help="model calls of one message"),
    arg("--priority", type=int, default=0, metavar="N", help="higher begins earlier"),
    arg("--after", action="append", default=[], metavar="ID", help="begin when this one is done"),
    flag("--wait", help="wait until it has ended; exit code 1 if it failed"),
    arg("--rpc", dest="words", action="append", default=[], metavar="WORD",
        help="pass to `zot rpc`"),
)
"""Arguments of `new`; their destinations are fields of SwarmTask."""
WORKER = (
    arg("--hub", default="", help="address of the machine that submitted the tasks"),
    arg("--slots", type=int, default=8, help="tasks at once (default 8)"),
    arg("--queue", default="", help="name of the queue"),
    arg("--repository", default="", help="a clone or an address to fetch from"),
    arg("--folder", default="", help="directory to work in"),
    arg("--ca-file", default="", help="certificate to check the hub's with"),
)
TEMPORAL = (
    arg("what", choices=("dev", "config")),
    arg("--port", type=int, default=SERVER_PORT, help="port of the server"),
    flag("--forget", help="keep the server's data in memory"),
    arg("--queue", help="name of the queue"),
    arg("--lease", dest="lease_seconds", type=float, metavar="SECONDS",
        help="limit of a silent worker"),
    arg("--hub-host", help="address where workers reach this machine"),
    arg("--hub-port", type=int),
    arg("--hub-name", help="host name that workers use"),
    arg("--hub-cert", dest="tls_cert", type=_absolute, help="certificate (for other machines)"),
    arg("--hub-key", dest="tls_key", type=_absolute, help="key of the certificate"),
)
# fmt: on


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
        raise UsageError('zot swarm new needs a task, for example: zot swarm new "fix the test"')
    if arguments.engine == "local":
        options["engine"] = ""
    else:
        check_installed()  # before a supervisor is started for it
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
        complain('no agents; start one: zot swarm new "fix the test"')


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
        raise UsageError(f"it has {len(wanted)} open questions: choose one with --question ID")
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
    limit = spending.summary() or f"{used}, without a limit"
    say_either(arguments, {"spent": total, "limits": spending}, f"spent {limit}")


def _stop(swarm: LocalSwarm, arguments: argparse.Namespace) -> None:
    swarm.stop()
    _done(arguments)


def _supervise() -> int:
    folder = Path(home_dir(os.environ)) / "swarm"
    hide_keys(home_dir(os.environ), os.environ)
    slots = int(os.environ.get("ZOT_SWARM_SLOTS") or supervisor.SLOTS)
    return supervisor.supervise(folder, socket_path(folder), os.environ, slots)


# --- many machines -----------------------------------------------------------------------------


def _swarm() -> Path:
    return Path(home_dir(os.environ)) / "swarm"


def change_config(**changes: Any) -> TemporalConfig:
    """Save the values that are not None; return the resulting settings."""
    config = load_config(_swarm())
    named = {name: value for name, value in changes.items() if value is not None}
    if named:
        config = replace(config, **named)
        save_config(_swarm(), config)
    return config


def _temporal(swarm: object, arguments: argparse.Namespace) -> None:
    if arguments.what == "dev":
        _dev(arguments)
    fields = TemporalConfig.__struct_fields__
    config = change_config(**{n: value for n, value in vars(arguments).items() if n in fields})
    if arguments.json:
        say_json(config)
        return
    for name, value in asdict(config).items():
        say(f"{name.replace('_', ' '):14} {value}")
    say(f"{'workers use':14} {config.hub_url} with the token in {_swarm() / 'hub.token'}")
    hub_token(_swarm())


def _dev(arguments: argparse.Namespace) -> NoReturn:
    database = "" if arguments.forget else str(ensure_dir(_swarm()) / "temporal.db")
    command = server_command(database, arguments.port)
    say(
        f"Temporal at 127.0.0.1:{arguments.port}, its page at http://127.0.0.1:"
        f"{arguments.port + 1000}; end it with Ctrl-C"
    )
    os.execve(command[0], command, without_keys(os.environ))


def _worker(swarm: object, arguments: argparse.Namespace) -> None:
    config = load_config(_swarm())
    if arguments.queue:
        config = replace(config, queue=arguments.queue)
    token = os.environ.get("ZOT_SWARM_TOKEN", "")
    if not token and not arguments.hub:
        token = hub_token(_swarm())  # the tasks are submitted on this machine, too
    if not token:
        raise ConfigError(
            "a worker on another machine needs ZOT_SWARM_TOKEN: the content of hub.token on the "
            "machine that submits tasks (`zot swarm temporal config` shows its path)"
        )
    if arguments.slots < 1:
        raise ConfigError(f"--slots must be at least 1, not {arguments.slots}")
    folder = Path(arguments.folder or Path(home_dir(os.environ)) / "worker")
    place = WorkerPlace(
        folder=folder.absolute(),
        hub=arguments.hub or config.hub_url,
        token=token,
        slots=arguments.slots,
        repository=arguments.repository,
        ca_file=arguments.ca_file,
    )
    hidden = ("ZOT_SWARM_TOKEN", "TEMPORAL_API_KEY")  # not for programs that agents run
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    hide_keys(home_dir(os.environ), os.environ, hidden)
    run_worker(config, place, environment)


# --- printing ----------------------------------------------------------------------------------


def _done(arguments: argparse.Namespace) -> None:
    if arguments.json:
        say_json({"ok": True})
