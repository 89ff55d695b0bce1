"""`zot --mode json`: one prompt, pi's events as lines, then the end. The first line is the
session's header.
"""

from __future__ import annotations

import os
import sys
import time

from zot.build import build_runtime
from zot.core import events
from zot.core.events import Event
from zot.lines import LineWriter, encode_line
from zot.pi import actions as pi_actions
from zot.pi import replies as pi_replies
from zot.pi.dialect import Peer, pinned
from zot.pi.format import PI
from zot.pi.generations import Encoders
from zot.pi.sessions import PiSessions, sessions_directory
from zot.runtime.run import Run
from zot.sessions.rows import Meta, rfc3339
from zot.settings.resolve import Setup
from zot.wire.serving import STOP_SECONDS, finish, note_signals
from zot.wire.standard import claim_stdout, ignore_signals


def run(setup: Setup, prompt: str, generation: str) -> int:
    """Answer the prompt; 0 when it went well, 1 when it failed, 128 + N after signal N."""
    options = setup.options
    directory = sessions_directory(setup.cwd, os.environ, options.session_dir)
    sessions = PiSessions(setup.cwd, None if options.no_session else directory)
    session = pi_actions.first_session(options, sessions)
    runtime = build_runtime(setup, session=session, owns_process=True)
    runtime.agent.settings = pi_actions.compacting_as_pi(runtime.agent.settings)

    def reader_gone() -> None:
        runtime.abort()

    wire = claim_stdout()
    writer = LineWriter(wire, gone=reader_gone)
    encoder = Encoders(Peer(pinned(generation or "c"))).current
    model = runtime.agent.model
    encoder.use_model(model.provider, model.id, model.api)

    def listen(event: Event, run: Run | None) -> None:
        kind = run.kind if run is not None else None
        frames = [*encoder.encode(event, kind, time.monotonic())]
        if isinstance(event, events.CompactDone):
            frames.append(encoder.compacted(event, pi_replies.compaction(event, session)))
        if isinstance(event, events.Done):
            frames += encoder.settled(aborted=event.stop == "aborted")
        for frame in frames:
            writer.put(encode_line(frame))

    stopped_by = note_signals()
    meta = Meta(session.id, setup.cwd, started=rfc3339(time.time()))
    writer.put(PI.writer(meta, None).head())
    runtime.wait_for_listeners = writer.wait
    runtime.listeners.append(listen)
    running = runtime.prompt(prompt)
    finish(running, runtime, stopped_by, wire)
    runtime.close()
    runtime.release()
    writer.close(STOP_SECONDS)
    ignore_signals()
    if stopped_by:
        return 128 + stopped_by[0]
    if running.error is not None:
        sys.stderr.write(f"zot: {running.error}\n")
    return 0 if running.stop == "end" else 1
