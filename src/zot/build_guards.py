"""Guards and observers that files and variables of the user ask for; build.py adds them to a
runtime. Each one is entered by an import in its function: few runs have any.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from zot import extras
from zot.core.hook import Hook
from zot.core.session import Session
from zot.core.tool import Tool
from zot.provider.types import Model, Models
from zot.settings.agents import trusts_project
from zot.settings.resolve import Setup, Wrapping
from zot.tools.source import BuiltinTools

if TYPE_CHECKING:
    from zot.hooks.guard import FileHooks
    from zot.telemetry.setup import Telemetry
    from zot.telemetry.trace import AgentTrace

OTEL_VARIABLES = (
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    *(f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT" for signal in ("TRACES", "METRICS", "LOGS")),
    *(f"OTEL_{signal}_EXPORTER" for signal in ("TRACES", "METRICS", "LOGS")),
)
"""Variables that turn OpenTelemetry on."""


class TracedWrapping(Wrapping):
    """A wrapping whose events and tools are traced, too."""

    def __init__(self, inner: Wrapping, watch: AgentTrace) -> None:
        self._inner, self._watch = inner, watch
        self.replays = inner.replays
        self.listeners = (*inner.listeners, watch.listen)

    def models(self, models: Models) -> Models:
        return self._inner.models(models)

    def tool(self, tool: Tool) -> Tool:
        return self._watch.tool(self._inner.tool(tool))


def spend_guard(setup: Setup, model: Callable[[], Model]) -> tuple[Hook, ...]:
    if not setup.options.spend_file:
        return ()
    from zot.ledger import Ledger
    from zot.runtime.spend import SpendGuard

    return (SpendGuard(Ledger(setup.around.absolute(setup.options.spend_file)), model),)


def start_telemetry(setup: Setup, warn: Callable[[str], None] | None) -> Telemetry | None:
    """Return the exporters that the standard variables ask for; None: none is set."""
    environ = setup.around.environ
    asks = any(environ.get(name) for name in OTEL_VARIABLES)
    if not asks or environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    try:
        from zot.telemetry import setup as telemetry
    except ImportError:
        if warn is not None:
            warn(extras.missing("OpenTelemetry", "opentelemetry-sdk", "otel"))
        return None
    return telemetry.start_telemetry(environ)


def file_hooks(
    setup: Setup,
    builtin: BuiltinTools,
    session: Callable[[], Session],
    warn: Callable[[str], None] | None,
    *,
    subagent: bool,
) -> tuple[FileHooks, ...]:
    """Return the guard of the hooks in files. They are read once: a tool that changes such a file
    changes nothing in this process."""
    home, cwd = setup.around.home, setup.cwd
    paths = (f"{home}/hooks.json", f"{cwd}/.zot/hooks.json", f"{cwd}/.claude")
    if not any(map(os.path.exists, paths)):
        return ()
    from zot.hooks.config import CommandHook, hook_files
    from zot.hooks.guard import FileHooks
    from zot.hooks.program import HookPlace
    from zot.sessions.open import path_of
    from zot.tools.bash import child_env

    tell = warn or (lambda text: None)
    hooks: list[CommandHook] = []
    for file in hook_files(home, cwd, trusted=trusts_project(setup)):
        if file.used:
            hooks += file.hooks
        elif not subagent:
            tell(
                f"{file.path} has {len(file.hooks)} hooks, and the project is not trusted; read "
                f"them, then: zot config trust {cwd} (or --trust for one run)"
            )
    if not hooks:
        return ()
    environ = child_env(setup.around.environ, setup.secret_names())
    place = HookPlace(cwd, environ, builtin.confined, tell)
    return (FileHooks(hooks, place, session, path_of, subagent=subagent),)
