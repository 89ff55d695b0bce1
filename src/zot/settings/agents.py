"""Settings of further agents: those that an agent opens in its process, and those of the swarm."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from msgspec.structs import asdict, replace

from zot.core.agent import Limits
from zot.core.confinement import JailWords
from zot.settings.options import Options
from zot.settings.resolve import Plan, Setup, resumed_by
from zot.settings.trust import is_trusted

SWARM = "swarm"
"""Name of the swarm's tool; its package is loaded only where it is used."""


def agent_plan(
    base: Plan,
    *,
    cwd: str,
    provider: str,
    model: str,
    session: str,
    durable: bool,
    tools: Sequence[str] | None,
    limits: Limits | None,
    approve: Sequence[str] | None,
    jail: JailWords | None,
) -> Plan:
    """Return the plan of another agent in this process: the first agent's, changed by these. Empty
    texts and None: as the first agent, but without its session.

    Raises:
        ConfigError, AuthError, SessionError: as `plan`.
    """
    setup = base.setup
    changes: dict[str, Any] = {
        "cwd": os.path.join(setup.cwd, cwd),
        "session": setup.around.absolute(session) if session else "",
        "no_session": not session,
        "continue_": False,
        "resume": False,
        "durable": durable,
        **({name: value for name, value in asdict(limits).items() if value} if limits else {}),
    }
    if provider or model or not session:  # else the model is that of the session
        changes |= _model_changes(setup, provider, model)
    if setup.around.absolute(changes["cwd"]) != setup.cwd:
        # Trust is for one directory; guards of the first agent also guard the other agents.
        changes |= {"trust": False, "ext": (*setup.flags.ext, *project_extensions(setup))}
    if tools is not None:
        changes |= {"tools": tuple(tools), "no_tools": not tools}
    if approve is not None:
        changes["approve"] = tuple(approve)
    if jail is not None:
        changes["jail"] = jail
    return _planned(base, replace(setup.flags, **changes))


def _planned(base: Plan, options: Options) -> Plan:
    resumed = resumed_by(options, base.setup.around)
    try:
        last = resumed.last_model if resumed is not None else None
        return Plan(base.setup.derived(options, last), resumed, base.wrapping)
    except BaseException:
        if resumed is not None:
            resumed.close()
        raise


def _model_changes(setup: Setup, provider: str, model: str) -> dict[str, str]:
    """Return the flags of the requested model; by default that of the first agent."""
    if provider and provider != setup.info.name:
        provider = setup.known.provider(provider).name
    if provider and provider != setup.info.name:
        # A key and an address from the command line are only for the provider named there.
        alone = {"api_key": "", "base_url": "", "script": ""}
        return {"provider": provider, "model": model, **alone}
    return {
        "provider": setup.info.name,
        "model": model or setup.model.id,
        "base_url": setup.base_url,
    }


def trusts_project(setup: Setup) -> bool:
    """Return whether extensions, servers and prompt files of the project may be used."""
    return setup.options.trust or is_trusted(setup.cwd, setup.around.home)


def project_extensions(setup: Setup) -> list[str]:
    """Return the folders of a trusted project's extensions."""
    folder = f"{setup.cwd}/.zot/extensions"
    if setup.options.extensions is False or not os.path.isdir(folder):
        return []
    if not trusts_project(setup):
        return []
    paths = (f"{folder}/{name}" for name in sorted(os.listdir(folder)))
    return [path for path in paths if os.path.isfile(f"{path}/extension.json")]


def agent_words(setup: Setup) -> tuple[str, ...]:
    """Return the arguments for the `zot rpc` of a swarm agent that no file or variable gives it."""
    options = setup.flags
    script = setup.around.absolute(options.script) if options.script else ""
    words: list[str] = []
    for flag, value in (("--base-url", options.base_url), ("--script", script)):
        if value:
            words += [flag, value]
    # Pass the guards, so that the agent may do no more than this one: its directory is not trusted.
    guards = (*map(setup.around.absolute, options.ext), *project_extensions(setup))
    words += [word for folder in guards for word in ("--ext", folder)]
    words += [word for pattern in options.deny_read for word in ("--deny-read", pattern)]
    words += ["--jail-read", options.jail_read] if options.jail_read else []
    if options.tools is not None:
        names = ",".join(name for name in options.tools if name != SWARM)
        words += ["--tools", names] if names else ["--no-tools"]
    switches = (("--no-ext", options.extensions), ("--no-mcp", options.mcp))
    return (*words, *(flag for flag, switch in switches if switch is False))
