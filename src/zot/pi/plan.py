"""The start plan of pi's modes: a plan with the session that pi's flags name."""

from __future__ import annotations

from msgspec.structs import replace

from zot.core.session import Session, Title
from zot.pi.sessions import PiSessions
from zot.settings.options import Options
from zot.settings.resolve import Plan


def with_session(plan: Plan) -> Plan:
    """Return the plan with its session. Raises SessionError: it cannot be used."""
    setup = plan.setup
    session = _first_session(setup.options, PiSessions.of(setup))
    if not setup.options.model and session.last_model is not None:
        # Keep the session's model: in pi, `--provider` alone does not select a model.
        setup = replace(setup, flags=replace(setup.flags, provider=""), notice="")
    return replace(plan, setup=setup, session=session)


def _first_session(options: Options, sessions: PiSessions) -> Session:
    if options.session:
        session = sessions.find(options.session)
    elif options.continue_ or options.resume:
        session = sessions.latest()
    elif options.fork:
        session = sessions.copy(options.fork, options.session_id)
    else:
        session = sessions.with_id(options.session_id)
    if options.session_name:
        session.append(Title(options.session_name))
    return session
