"""The tool `swarm`: the model starts agents beside its conversation, looks at them, waits for them
and collects their answers. Off unless a setting allows it; everything it starts shares one budget.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from zot.core.source import ReadySource
from zot.core.tool import Tool, ToolContext
from zot.errors import ToolError, ZotError
from zot.provider.types import Json
from zot.swarm.agent import AgentSummary, by_need
from zot.swarm.local import LocalSwarm
from zot.swarm.log import OVER, FollowedAgent, Roster, answer_of
from zot.swarm.task import Conversation, inherited, pick

NAME = "swarm"
MAX_AGENTS = 50
"""Maximum number of unfinished agents per conversation."""
LOOK_SECONDS = 0.2
WAIT_SECONDS = 600.0
MAX_DIFF = 20_000
"""Maximum length of a diff for the model, in characters."""
DESCRIPTION = (
    "Agents that work beside this conversation, each in a git worktree and on a branch of its own, "
    "from the last commit on. They see nothing of this conversation: say all they must know. "
    "start: begin one for each task (at once; they run side by side). look: how they stand. wait: "
    "until they have ended, with their answers. collect: the answer and the diff of one; its work "
    "is on its branch, to be merged with git. All of them together may cost ${budget:g}."
)
SCHEMA: dict[str, Json] = {
    "type": "object",
    "properties": {
        "action": {"type": "string", "enum": ["start", "look", "wait", "collect"]},
        "tasks": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "prompt": {"type": "string", "description": "the whole task"},
                    "max_cost": {
                        "type": "number",
                        "exclusiveMinimum": 0,
                        "description": "US dollars; default: an equal share of what is left",
                    },
                    "model": {"type": "string", "description": "another model of this provider"},
                    "after": {
                        "type": "array",
                        "items": {"type": "string"},
                        "description": "ids of agents that must be done first",
                    },
                },
                "required": ["prompt"],
            },
            "description": "for start",
        },
        "ids": {
            "type": "array",
            "items": {"type": "string"},
            "description": "for look, wait and collect; default: all that were started here",
        },
        "seconds": {
            "type": "number",
            "exclusiveMinimum": 0,
            "description": f"for wait: at most so long (default {WAIT_SECONDS:.0f})",
        },
    },
    "required": ["action"],
}


class WantedTask(Struct, frozen=True, forbid_unknown_fields=True):
    prompt: str
    max_cost: float | None = None
    model: str = ""
    after: tuple[str, ...] = ()


class SwarmSource(ReadySource):
    """Source of the tool for one runtime."""

    name = "swarm"

    def __init__(
        self, home: str, environment: Mapping[str, str], budget: float, words: tuple[str, ...]
    ) -> None:
        """`budget`: US dollars that all agents of one conversation may cost together."""
        self._tool = SwarmTool(LocalSwarm(Path(home), environment), budget, words)
        self._tools: tuple[Tool, ...] = (self._tool,)

    def use(self, conversation: Callable[[], Conversation]) -> None:
        self._tool.conversation = conversation

    def tools(self) -> Sequence[Tool]:
        return self._tools


class SwarmTool:
    name = NAME
    schema = SCHEMA

    def __init__(self, swarm: LocalSwarm, budget: float, words: tuple[str, ...]) -> None:
        self._swarm = swarm
        self._budget = budget
        self._words = words
        self.description = DESCRIPTION.format(budget=budget)
        self.conversation: Callable[[], Conversation] | None = None
        """Describes the conversation that the tool belongs to."""

    def run(self, args: dict[str, Json], context: ToolContext) -> str:
        try:
            match args["action"]:
                case "start":
                    return self._start(_tasks(args))
                case "look":
                    return self._look(self._wanted(args))
                case "wait":
                    return self._wait(args, context)
                case _:
                    return self._collect(self._wanted(args))
        except ZotError as error:
            if isinstance(error, ToolError) or context.cancel.is_set():
                raise
            raise ToolError(str(error)) from error

    # --- the agents of this conversation -----------------------------------------------------

    @property
    def _parent(self) -> Conversation:
        assert self.conversation is not None  # set by use() before any tool runs
        return self.conversation()

    def _roster(self) -> Roster:
        roster = Roster(self._swarm.folder, self._parent.session_id)
        roster.refresh()
        self._swarm.keep_going(roster)
        return roster

    def _wanted(self, args: dict[str, Json]) -> tuple[Roster, list[str]]:
        roster = self._roster()
        own = list(roster.agents)
        if not own:
            raise ToolError("no agent was started here yet: action start begins some")
        ids = args.get("ids")
        wanted = [pick(own, str(id)) for id in ids] if isinstance(ids, list) and ids else own
        return roster, wanted

    def _left(self, agents: Iterable[FollowedAgent]) -> float:
        """Return US dollars left for new agents; an unfinished agent reserves its whole budget."""
        used = 0.0
        for followed in agents:
            spent = followed.agent.spent().usd
            is_over = followed.agent.stage in OVER
            used += spent if is_over else max(spent, followed.agent.task.max_cost or 0.0)
        return self._budget - used

    # --- actions -----------------------------------------------------------------------------

    def _start(self, tasks: Sequence[WantedTask]) -> str:
        roster = self._roster()
        agents = roster.agents.values()
        busy = sum(followed.agent.stage not in OVER for followed in agents)
        if busy + len(tasks) > MAX_AGENTS:
            raise ToolError(f"{busy} agents are at work; {MAX_AGENTS} are the most at a time")
        left = self._left(agents)
        reserved = sum(task.max_cost or 0.0 for task in tasks)
        open_ended = sum(task.max_cost is None for task in tasks)
        share = (left - reserved) / open_ended if open_ended else 0.0
        if reserved > left or (open_ended and share <= 0):
            raise ToolError(
                f"the budget is not enough: ${max(0.0, left):.4f} of ${self._budget:g} are left"
            )
        options = inherited(self._parent, self._words)
        lines = []
        for task in tasks:
            cost = share if task.max_cost is None else task.max_cost
            after = [pick(list(roster.agents), id) for id in task.after]
            own: dict[str, Any] = {"max_cost": cost, "after": after}
            if task.model:
                own["model"] = task.model
            id = self._swarm.submit(task.prompt, **{**options, **own})
            lines.append(f"{id} (at most ${cost:.4f})")
        return "started:\n" + "\n".join(lines)

    def _look(self, wanted: tuple[Roster, list[str]]) -> str:
        roster, ids = wanted
        summaries = by_need(roster.agents[id].summary() for id in ids)
        left = self._left(roster.agents.values())
        lines = [_line(summary) for summary in summaries]
        return "\n".join([*lines, f"${max(0.0, left):.4f} of ${self._budget:g} are left"])

    def _wait(self, args: dict[str, Json], context: ToolContext) -> str:
        roster, ids = self._wanted(args)
        seconds = args.get("seconds", WAIT_SECONDS)
        assert isinstance(seconds, int | float)  # checked by the schema
        shown, waited = "", 0.0
        while True:
            standing = [roster.agents[id] for id in ids if id in roster.agents]
            # An agent with an open question counts as ended: only a person can continue it.
            ended = all(followed.agent.stage in (*OVER, "needs_you") for followed in standing)
            if ended or waited >= seconds:
                return "\n\n".join(self._answer(followed) for followed in standing)
            state = ", ".join(f"{followed.id} {followed.agent.stage}" for followed in standing)
            if state != shown:
                context.progress(f"{state}\n")
                shown = state
            context.cancel.sleep(LOOK_SECONDS)
            waited += LOOK_SECONDS
            roster.refresh()
            if waited % 2 < LOOK_SECONDS:
                self._swarm.keep_going(roster)

    def _collect(self, wanted: tuple[Roster, list[str]]) -> str:
        roster, ids = wanted
        parts = []
        for id in ids:
            followed = roster.agents[id]
            text = self._answer(followed)
            summary = followed.summary()
            if summary.diff.files:
                diff = self._swarm.diff(id)
                cut = f"\n[cut: it has {len(diff)} characters]" if len(diff) > MAX_DIFF else ""
                text += f"\n\nits diff, on branch {summary.branch}:\n{diff[:MAX_DIFF]}{cut}"
            parts.append(text)
        return "\n\n".join(parts)

    def _answer(self, followed: FollowedAgent) -> str:
        """Return the agent's state, with its answer once it is over; marks that as collected."""
        summary = followed.summary()
        answer = answer_of(followed)
        if answer is not None:
            self._swarm.collected(answer.id, answer.run)
            return answer.message()
        if summary.stage in OVER:
            return f"{_line(summary)}\n\n{followed.answer}"
        return _line(summary)


def _tasks(args: dict[str, Json]) -> list[WantedTask]:
    tasks = args.get("tasks")
    if not tasks:
        raise ToolError("start needs `tasks`: a list of objects with a `prompt`")
    try:
        return msgspec.convert(tasks, list[WantedTask])
    except msgspec.ValidationError as error:
        raise ToolError(f"`tasks` cannot be used: {error}") from error


def _line(summary: AgentSummary) -> str:
    parts = [f"{summary.id}: {summary.stage.replace('_', ' ')}"]
    if summary.stage == "needs_you":
        parts[0] = f"{summary.id}: waits for the user"
    if summary.doing:
        parts.append(summary.doing[:200])
    if summary.diff.files:
        parts.append(f"+{summary.diff.added} -{summary.diff.removed} in {summary.diff.files} files")
    parts.append(f"${summary.cost_usd:.4f}")
    return ", ".join(parts)
