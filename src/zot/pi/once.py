"""`zot --mode json`: answer one prompt, print pi's events as lines, exit. The first line is the
session's header."""

from __future__ import annotations

import time

from zot.build import Additions, build_runtime
from zot.cancel import Cancel
from zot.core import events
from zot.core.events import Event
from zot.core.session import Session
from zot.lines import encode_line
from zot.pi import actions as pi_actions
from zot.pi import replies as pi_replies
from zot.pi.commands import PiPeer, pinned
from zot.pi.events import Encoder
from zot.pi.format import PI
from zot.pi.sessions import PiSessions
from zot.runtime.client import RuntimeClient
from zot.runtime.run import Run
from zot.sessions.rows import Meta, rfc3339
from zot.settings.resolve import Plan
from zot.wire.once import answer_once
from zot.wire.serving import STOP_SECONDS, claim_stdout, ignore_signals
from zot.writer import LineWriter


def run(plan: Plan, prompt: str, generation: str) -> int:
    """Answer the prompt; return 0 on success, 1 on failure, 128 + N after signal N. Raises
    ZotError: it could not even begin."""
    setup, session = plan.setup, plan.session
    assert session is not None  # set by sessions.with_session
    sessions = PiSessions.of(setup)
    client = PiLines(generation, session)
    runtime = build_runtime(
        plan,
        client,
        Additions(sessions=lambda: sessions, check_extensions=False, owns_process=True),
    )
    runtime.models.change_settings(**pi_actions.COMPACTION)
    model = runtime.models.current
    client.encoder.use_model(model.provider, model.id, model.api)
    meta = Meta(session.id, setup.cwd, started=rfc3339(time.time()))
    client.writer.put(PI.writer(meta, None).head())
    try:
        return answer_once(runtime, prompt, client)
    finally:
        runtime.close()
        runtime.release()
        client.writer.close(STOP_SECONDS)
        ignore_signals()


class PiLines(RuntimeClient):
    """Writes every event as lines of pi's protocol."""

    def __init__(self, generation: str, session: Session) -> None:
        self.lost = False
        """Whether the reader of stdout is gone."""
        self.encoder = Encoder(PiPeer(pinned(generation or "c")))
        self.wire = claim_stdout()
        self.writer = LineWriter(self.wire, gone=self._reader_gone)
        self._session = session

    def _reader_gone(self) -> None:
        self.lost = True

    def nothing_runs(self) -> None:
        """Do nothing: the header was all the output."""

    def wait(self, cancel: Cancel) -> None:
        self.writer.wait(cancel)

    def listen(self, event: Event, run: Run | None) -> None:
        kind = run.kind if run is not None else None
        frames = [*self.encoder.encode(event, kind, time.monotonic())]
        if isinstance(event, events.CompactDone):
            result = pi_replies.compaction(event, self._session)
            frames.append(self.encoder.compacted(event, result))
        if isinstance(event, events.Done):
            frames += self.encoder.settled(aborted=event.stop == "aborted")
        for frame in frames:
            self.writer.put(encode_line(frame))
