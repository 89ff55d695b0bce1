"""Side questions: answered from the current conversation, but not added to it. The model may read
files; nothing else is run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from zot.cancel import Cancel
from zot.core.agent import Agent
from zot.core.answer import SideCalls
from zot.core.tool import failed
from zot.errors import ToolError
from zot.provider import types
from zot.provider.model import clamped
from zot.text import Frozen

NOTE = (
    "[This is a question on the side. Answer it from what you know and from the conversation, "
    "briefly; you may read files, and nothing else. Neither it nor your answer becomes part of "
    "the conversation.]"
)
READING = ("read", "glob", "grep")
"""Read-only tools, which need no approval."""
MAX_CALLS = 8
"""Maximum model calls for one question."""


class Aside(Frozen):
    """An answered side question."""

    answer: str
    messages: tuple[types.Message, ...]
    """Messages of the side chat so far; pass them as `earlier` with the next question."""
    usage: types.Usage


class SideQuestion:
    """A question. `show` gets the answer as it streams, `reads` each call that reads files."""

    def __init__(
        self,
        agent: Agent,
        provider: types.Provider,
        cancel: Cancel,
        *,
        show: Callable[[str], None],
        reads: Callable[[types.ToolCall], None],
    ) -> None:
        self._agent, self._cancel = agent, cancel
        self._calls = SideCalls(provider, agent.model, agent.settings.retry)
        self._show, self._reads = show, reads
        self._context = agent.messages()
        """Snapshot of the conversation; later messages appear with the next question."""

    def ask(self, question: str, earlier: Sequence[types.Message]) -> Aside:
        """Return the answer; `earlier`: messages of the side chat so far.

        Raises:
            ProviderError: the model failed.
            Cancelled: it was given up.
        """
        text = question if earlier else f"{question}\n\n{NOTE}"
        said = [*earlier, types.Message("user", (types.Text(text),), time.time())]
        answers: list[str] = []
        for step in range(MAX_CALLS):
            end = self._call(said)
            answers += types.texts_in(end.content)
            calls = [block for block in end.content if isinstance(block, types.ToolCall)]
            said.append(self._answered(end))
            if not calls:
                break
            last = step + 2 >= MAX_CALLS
            results = tuple(self._result(call, refused=last) for call in calls)
            said.append(types.Message("tool", results, time.time()))
        return Aside("\n\n".join(answers), tuple(said), self._calls.spent)

    def _call(self, said: Sequence[types.Message]) -> types.Finished:
        agent = self._agent
        request = types.Request(
            model=agent.model,
            system=agent.system(),
            messages=(*self._context, *said),
            # Providers refuse a transcript with tool calls if their tools are missing.
            tools=agent.toolbox.specs_for(agent.model),
            # Same level as the conversation: another one would miss the prompt cache.
            reasoning=clamped(agent.settings.reasoning, agent.model),
            cache_key=agent.session.id,
        )
        return self._calls.make(request, self._cancel, self._show)

    def _answered(self, end: types.Finished) -> types.Message:
        model = self._agent.model
        origin = types.Origin(model.provider, model.id, model.api, end.stop)
        return types.Message("assistant", end.content, time.time(), origin)

    def _result(self, call: types.ToolCall, *, refused: bool) -> types.ToolResult:
        if refused or call.name not in READING:
            reason = "answer now" if refused else f"only {', '.join(READING)} can be used"
            return failed(f"not run: this is a question on the side; {reason}").as_result(call)
        self._reads(call)
        try:
            output = self._agent.toolbox.call(
                call, self._cancel, lambda event: None, lambda *_: None
            )
        except ToolError as error:
            output = failed(str(error))
        return output.as_result(call)
