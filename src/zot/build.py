"""Puts a runtime together from a setup: provider, tools, hooks, session, prompt."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from zot.core.agent import Agent, AgentSettings, Limits
from zot.core.hook import Hook
from zot.core.session import Session
from zot.core.tool import Tool
from zot.errors import ConfigError
from zot.extensions.source import ExtensionOptions, Extensions
from zot.home import RPC_TOKEN, home, home_dir
from zot.provider.providers import env_secret_names
from zot.runtime.approval import EVERY_TOOL, Approval
from zot.runtime.prompt import system_prompt
from zot.runtime.redact import RedactingTool, Redactor, given_secrets
from zot.runtime.runtime import Runtime
from zot.settings.fallback import connect_fallback
from zot.settings.flags import Options
from zot.settings.resolve import Setup
from zot.skills.search import skills_here
from zot.skills.skill import Skill, SkillTool, expand, manifest
from zot.tools.registry import SharedSupervisor, builtin_tools


def build_runtime(
    setup: Setup,
    *,
    session: Session | None = None,
    keep: bool = False,
    approval: Approval | None = None,
    warn: Callable[[str], None] | None = None,
    own_tools: Sequence[Tool] = (),
    own_hooks: Sequence[Hook] = (),
    owns_process: bool = False,
) -> Runtime:
    """A runtime that is ready for its first prompt. Nothing is sent and no process is started.

    `keep` writes a session file also where no flag asked for one; `warn` hears what is wrong with
    extensions. They start with the first prompt, or with `runtime.extensions.start()`. An
    embedder's own tools and hooks come first: such a tool replaces the built-in one of its name.
    `owns_process`: secrets may be wiped from what the system shows of this process.
    """
    wrap_tool: Callable[[Tool], Tool] = _plain_tool
    attach: Callable[[Runtime], None] = _nothing
    if setup.options.record or setup.options.replay:
        from zot.testing.record import taped  # only for tests of an embedder's own

        setup, wrap_tool, attach = taped(setup)
    session = session or session_for(setup, keep=keep)
    supervisor = SharedSupervisor()
    if owns_process:
        supervisor.hidden_names = secret_names()
        supervisor.hidden_values = (setup.options.api_key,) if setup.options.api_key else ()
    skills = find_skills(setup)
    extensions, tools = tools_for(setup, supervisor, skills, warn, own_tools)
    hooks: tuple[Hook, ...] = (*own_hooks, extensions)
    redactor = Redactor(given_secrets(setup.key, secret_names(), os.environ), home_dir())
    supervisor.secrets = redactor.secrets
    agent = Agent(
        provider=setup.connect(setup.model),
        model=setup.model,
        session=session,
        tools=tools,
        # Last: a person is not asked about a call that another guard refuses.
        hooks=hooks if approval is None else (*hooks, approval),
        system=lambda: prompt_for(setup, skills),
        settings=agent_settings(setup),
        wrap_tool=lambda tool: RedactingTool(wrap_tool(tool), redactor),
    )
    agent.resume()
    runtime = Runtime(agent, setup, cwd=setup.cwd, supervisor=supervisor, extensions=extensions)
    runtime.expand = lambda text: expand(text, skills)
    attach(runtime)
    return runtime


def _plain_tool(tool: Tool) -> Tool:
    return tool


def _nothing(runtime: Runtime) -> None:
    """A run that is not recorded needs nothing more."""


def tools_for(
    setup: Setup,
    supervisor: SharedSupervisor,
    skills: Sequence[Skill],
    warn: Callable[[str], None] | None,
    own: Sequence[Tool] = (),
) -> tuple[Extensions, list[Tool]]:
    """The extensions, and the tools that are there without them; within what the flags allow."""
    options = setup.options
    jail = home_dir() if options.jail else ""
    builtin = builtin_tools(setup.cwd, None, secret_names(), supervisor, jail)
    wanted = () if options.no_tools else options.tools
    found = ExtensionOptions(
        setup.cwd,
        home_dir(),
        explicit=options.ext,
        search=not options.no_ext,
        trusted=options.trust,
        names=wanted,
        secrets=secret_names(),
        reserved=frozenset((*(tool.name for tool in (*own, *builtin)), SkillTool.name)),
        warn=warn,
        hide=supervisor.hide,
    )
    if not options.mode:  # clients of pi pass extensions of pi's, which are told of and left out
        found.check()
    if not found.any():
        _check_approve(options, [tool.name for tool in (*own, *builtin)])
    if wanted is not None and found.any():
        # A name that is not built in may be that of an extension's tool: nobody knows yet.
        tools = [tool for tool in builtin if tool.name in wanted]
    elif wanted is not None:
        files = tuple(name for name in wanted if name != SkillTool.name)
        tools = builtin_tools(setup.cwd, files, secret_names(), supervisor, jail)
    else:
        tools = builtin
    if skills and _offers_skills(options):
        tools.append(SkillTool(skills))
    tools = [*own, *tools]
    return Extensions(found, tools), tools


def _check_approve(options: Options, known: Sequence[str]) -> None:
    """A slip here would let a tool run unasked.

    Raises:
        ConfigError: a name that is no tool's.
    """
    for name in options.approve or ():
        if name not in (*known, SkillTool.name, EVERY_TOOL):
            raise ConfigError(f"--approve: unknown tool {name!r}; there is: {', '.join(known)}")


def find_skills(setup: Setup) -> list[Skill]:
    options = setup.options
    if options.no_skills:
        return []
    return skills_here(setup.cwd, options.ext, extensions=not options.no_ext, trusted=options.trust)


def _offers_skills(options: Options) -> bool:
    return not options.no_tools and (options.tools is None or SkillTool.name in options.tools)


def session_for(setup: Setup, *, keep: bool) -> Session:
    """The session the flags ask for; one in memory where none is kept."""
    options = setup.options
    wanted = options.session or options.continue_
    if options.no_session or not (keep or wanted):
        return Session()
    from zot.sessions.open import continue_latest, open_session  # only where one is kept

    provider, model = setup.info.name, setup.model.id
    if options.continue_ and not options.session:
        return continue_latest(setup.cwd, provider=provider, model=model)
    return open_session(options.session or None, setup.cwd, provider=provider, model=model)


def agent_settings(setup: Setup) -> AgentSettings:
    options = setup.options
    compact_at = (options.compact_at or 85.0) / 100
    return AgentSettings(
        reasoning=options.reasoning or "off",
        limits=Limits(options.max_steps, options.max_cost, options.max_tokens, options.max_seconds),
        compact_at=None if options.no_auto_compact else compact_at,
        fallbacks=tuple(
            connect_fallback(setup, name, os.environ) for name in options.fallback_model
        ),
    )


def prompt_for(setup: Setup, skills: Sequence[Skill] = ()) -> str:
    options = setup.options
    return system_prompt(
        cwd=setup.cwd,
        home=home(),
        replacement=options.system_prompt,
        appended=options.append_system_prompt,
        context_files=not options.no_context_files,
        skills=manifest(skills) if _offers_skills(options) else "",
    )


def secret_names() -> frozenset[str]:
    """Variables that no child process may see."""
    return env_secret_names() | {RPC_TOKEN}
