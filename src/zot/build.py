"""Builds a runtime from a plan: provider, sources, hooks, session, prompt. Nothing else."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import asdict, replace

from zot.build_guards import TracedWrapping, file_hooks, spend_guard, start_telemetry
from zot.core.agent import Agent, AgentSettings, Limits
from zot.core.hook import Hook, Project
from zot.core.session import Session
from zot.core.tool import Tool
from zot.errors import ConfigError
from zot.extensions.source import ExtensionOptions, Extensions, SharedHosts
from zot.home import SWARM_TOKEN
from zot.mcp.source import McpOptions, McpServers
from zot.provider.model import default_level
from zot.provider.retry import RetryPolicy
from zot.provider.types import Json, Models
from zot.runtime.agents import MAX_TASK_DEPTH, TASK, AgentRequest, Agents
from zot.runtime.approval import AUTO, EVERY_TOOL, SERVER_TOOLS, Approval, AskTerminal
from zot.runtime.client import RuntimeClient
from zot.runtime.denials import Denials, deny_rule
from zot.runtime.prompt import system_prompt
from zot.runtime.redact import (
    RedactingModels,
    RedactingTool,
    Redactor,
    SecretFile,
    given_secrets,
    read_token,
)
from zot.runtime.runtime import Runtime, RuntimeParts
from zot.runtime.sessions import Sessions
from zot.runtime.sources import GivenTools
from zot.settings.agents import SWARM, agent_plan, trusts_project
from zot.settings.agents import agent_words as agent_words
from zot.settings.hiding import hidden_patterns
from zot.settings.options import Options, chosen
from zot.settings.policy import policy_of
from zot.settings.resolve import HOLDER_SECONDS, AvailableModels, Plan, Setup
from zot.settings.skills import skills_here
from zot.settings.trust import ProjectRules, trust_path
from zot.skills.skill import Skill, SkillFolder, SkillTool, manifest
from zot.skills.source import PromptSource, SkillSource
from zot.text import Frozen, url_passwords
from zot.tools.registry import BACKGROUND, NAMES, SharedSupervisor
from zot.tools.source import BuiltinTools

if TYPE_CHECKING:
    from zot.runtime import task as task_tool
    from zot.runtime.durable import Durable
    from zot.swarm.task import Conversation
    from zot.swarm.tool import SwarmSource

OWN_FILES = ("models.json", "oauth.json", "config.json", "mcp.json")
"""Files of the user's that may hold secrets, beside auth.json."""


class Additions(Frozen, kw_only=True):
    """Additions of an interface (cli, sdk, ...) to the plan."""

    sessions: Callable[[], Sessions] | None = None
    """Session store; None for zot's own files."""
    keep: bool = False
    """Whether to write a session even without a flag for it."""
    approval: Approval | None = None
    warn: Callable[[str], None] | None = None
    """Called with problems of extensions, which start with the first prompt or with
    `runtime.start()`."""
    tools: Sequence[Tool] = ()
    """The embedder's own tools, which come first: one replaces the built-in tool of its name."""
    hooks: Sequence[Hook] = ()
    owns_process: bool = False
    """Whether secrets may be wiped from this process's environment and command line."""
    check_extensions: bool = True
    """Whether a named extension must exist."""
    mcp_servers: Mapping[str, Json] | None = None
    """Entries by name, as in a file of MCP servers, in addition to those of the files."""
    tasks: bool = False
    """Whether the model may open agents, unless a setting decides otherwise."""


NOTHING = Additions()


def approval_for(
    options: Options,
    client: RuntimeClient,
    tools: Collection[str] | None = None,
    terminal: AskTerminal | None = None,
) -> Approval:
    """Return the approval of these tools (None: the settings'); the timeout is a setting."""
    return Approval(
        options.approve if tools is None else tools,
        client=client,
        terminal=terminal,
        seconds=chosen(options, "approval_timeout"),
    )


def build_runtime(plan: Plan, client: RuntimeClient, added: Additions = NOTHING) -> Runtime:
    """Build a runtime that is ready for its first prompt. Sends nothing and starts no process."""
    return Builder(plan, added).first(client)


class Builder:
    """Builds the runtimes of one process: the first, and further agents. They share the helper
    process and the extensions of a directory."""

    def __init__(self, plan: Plan, added: Additions) -> None:
        self._plan = plan
        self._added = added
        self._telemetry = start_telemetry(plan.setup, added.warn)  # before its secrets are wiped
        self._redactor = redactor_for(plan.setup, added.mcp_servers)
        self._supervisor = SharedSupervisor(self._redactor.secrets)
        if added.owns_process:
            key, names = plan.setup.options.api_key, plan.setup.secret_names()
            self._supervisor = SharedSupervisor(
                self._redactor.secrets, names, (key,) if key else ()
            )
        self._extension_hosts = SharedHosts()
        self._agents = Agents(self.another)
        tasks = plan.setup.options.tasks
        self._depth = MAX_TASK_DEPTH if (added.tasks if tasks is None else tasks) else 0
        """Levels of agents that the model may open below the first one."""

    def first(self, client: RuntimeClient) -> Runtime:
        return self._traced(
            self._plan, client, self._added, self._depth, self._redactor, is_first=True
        )

    def another(self, request: AgentRequest, client: RuntimeClient) -> Runtime:
        """Build an agent that an agent or a client opens; it does not share the first one's
        sessions. Raises as `agent_plan`."""
        own, names, guard = self._added.tools, request.tools, self._added.approval
        if names is not None:
            own = [tool for tool in own if tool.name in names]
            own_names = {tool.name for tool in own}
            request = replace(request, tools=tuple(name for name in names if name not in own_names))
        changes = asdict(request)
        depth, trace = changes.pop("depth"), changes.pop("trace")
        plan = agent_plan(self._plan, **changes)
        approval = None
        if guard is not None:
            asks = request.approve
            if asks is None:  # require at least the approvals of the first agent
                asks = guard.and_also(plan.setup.options.approve)
            approval = guard.another(asks, client)
            if request.approve is None:  # the mode that the person has chosen applies here too
                approval.mode = guard.mode
        elif request.approve:
            approval = approval_for(plan.setup.options, client, request.approve)
        added = replace(self._added, sessions=None, keep=False, tools=own, approval=approval)
        redactor = redactor_for(plan.setup, added.mcp_servers)
        depth = self._depth if depth is None else depth
        return self._traced(plan, client, added, depth, redactor, is_first=False, trace=trace)

    def _traced(
        self,
        plan: Plan,
        client: RuntimeClient,
        added: Additions,
        depth: int,
        redactor: Redactor,
        *,
        is_first: bool,
        trace: str = "",
    ) -> Runtime:
        """Build one runtime, with spans of its work if OpenTelemetry is set up. `trace`: W3C
        traceparent of the call that opens it."""
        if self._telemetry is None:
            return self._build(plan, client, added, depth, redactor, is_first=is_first)
        from zot.telemetry.trace import AgentTrace

        watch = AgentTrace(self._telemetry, redactor.text, trace, owns=is_first)
        plan = replace(plan, wrapping=TracedWrapping(plan.wrapping, watch))
        added = replace(added, hooks=(watch, *added.hooks))
        runtime = self._build(plan, client, added, depth, redactor, is_first=is_first)
        watch.session = lambda: runtime.session.id
        return runtime

    def _build(
        self,
        plan: Plan,
        client: RuntimeClient,
        added: Additions,
        depth: int,
        redactor: Redactor,
        *,
        is_first: bool,
    ) -> Runtime:
        """Build one runtime; `depth`: the levels of agents that it may open."""
        setup, approval = plan.setup, added.approval or Approval(off=True)
        models = plan.wrapping.models(RedactingModels(AvailableModels(setup), redactor))
        wanted = _extension_options(setup, self._supervisor, added)
        if added.check_extensions:
            wanted.check()
        extensions = Extensions(wanted, self._extension_hosts)
        entries = added.mcp_servers or {}
        unknown_names = wanted.any() or _has_servers(setup, entries)
        builtin = _builtin(plan, self._supervisor, added.tools, unknown_names, owns_helper=is_first)
        servers = McpServers(_mcp_options(setup, self._supervisor, builtin, entries))
        guards = _guards(setup, approval, builtin, servers)
        skills = find_skills(setup)
        is_task = depth < self._depth
        files = file_hooks(setup, builtin, lambda: agent.session, added.warn, subagent=is_task)
        spend = spend_guard(setup, lambda: agent.model)
        hooks = (*added.hooks, *files, extensions, *spend, *guards)
        _use_reviewer(setup, approval, models, lambda: agent)
        agent = _agent(plan, models, redactor, hooks, skills, servers, keep=added.keep)
        task = _tasks(setup.options, self._agents, depth)
        swarm = _swarm(setup) if is_first else ()
        offered = setup.options.allows(SkillTool.name)
        texts = (SkillSource(skills, offered=offered), PromptSource(_prompt_folders(setup)))
        parts = RuntimeParts(
            models=models,
            cwd=setup.cwd,
            client=client,
            listeners=(*plan.wrapping.listeners, *(hook.listen for hook in files)),
            sources=(GivenTools(added.tools), builtin, *task, *swarm, *texts, extensions, servers),
            sessions=added.sessions or (lambda: kept_sessions(setup, keep=added.keep)),
            shell=builtin,
            files=builtin,
            approval=approval,
            durable=_durable(setup, agent),
            redactor=redactor,
            agents=self._agents,
            owns_agents=is_first,
        )
        runtime = Runtime(agent, parts)
        for source in task:
            source.use(runtime)
        for agents in swarm:
            agents.use(partial(conversation_of, runtime))
        if plan.session is not None:  # go on with its model and level, unless a flag sets one
            named = bool(setup.flags.model or setup.flags.provider)
            runtime.sessions.adopt(model=not named, level=setup.flags.reasoning is None)
        return runtime


def _agent(
    plan: Plan,
    models: Models,
    redactor: Redactor,
    hooks: tuple[Hook, ...],
    skills: list[Skill],
    servers: McpServers,
    *,
    keep: bool,
) -> Agent:
    setup, wrap = plan.setup, plan.wrapping.tool
    agent = Agent(
        provider=models.connect(setup.model),
        model=setup.model,
        session=plan.session or first_session(setup, keep=keep),
        hooks=hooks,
        system=lambda: redactor.text(prompt_for(setup, skills, servers.instructions())),
        settings=agent_settings(setup, models),
        wrap_tool=lambda tool: wrap(RedactingTool(tool, redactor)),
        dated=True,
    )
    agent.resume()
    return agent


def _tasks(options: Options, agents: Agents, depth: int) -> tuple[task_tool.TaskSource, ...]:
    if depth <= 0 or not options.allows(TASK):
        return ()
    from zot.runtime import task as task_tool

    return (task_tool.TaskSource(agents, depth, options.tools),)


def _swarm(setup: Setup) -> tuple[SwarmSource, ...]:
    """Return the source of the tool `swarm` if it is allowed. Agents opened by an agent lack it."""
    options = setup.options
    if not options.swarm_budget or not options.allows(SWARM):
        return ()
    around = setup.around
    from zot.swarm import tool as swarm_tool

    return (
        swarm_tool.SwarmSource(
            around.home, around.environ, options.swarm_budget, agent_words(setup)
        ),
    )


def conversation_of(runtime: Runtime) -> Conversation:
    """Return what swarm agents that are started from a runtime have in common with it."""
    from zot.swarm.task import Conversation

    return Conversation(
        runtime.models.current,
        runtime.cwd,
        runtime.session.id,
        runtime.approvals.asked_tools(),
        runtime.shell.jail_words,
    )


def _durable(setup: Setup, agent: Agent) -> Durable | None:
    options = setup.options
    if not options.durable:
        return None
    if not options.session or options.no_session:
        raise ConfigError("--durable needs a session file to keep the run in: add --session PATH")
    from zot.runtime.durable import Durable
    from zot.sessions.files import FileStore

    store = agent.session.store
    if isinstance(store, FileStore) and store.format != "zot":
        raise ConfigError(
            f"the session {options.session!r} has {store.format}'s format, which cannot hold a "
            "durable run: copy it with `zot sessions import`, or begin another one"
        )
    return Durable(agent, on_crash=chosen(options, "on_crash"))


# --- tools -----------------------------------------------------------------------------------


def _builtin(
    plan: Plan,
    supervisor: SharedSupervisor,
    own: Sequence[Tool],
    extensions: bool,
    *,
    owns_helper: bool,
) -> BuiltinTools:
    """Return the built-in tools that the flags allow."""
    setup, options = plan.setup, plan.setup.options
    names: Sequence[str] | None = () if options.no_tools else options.tools
    if extensions:
        # An unknown name may be a tool of an extension or MCP server, which is not known yet.
        names = None if names is None else [name for name in names if name in NAMES]
    else:
        _check_approve(options, [*(tool.name for tool in own), *NAMES])
        others = (SkillTool.name, TASK, SWARM)
        names = None if names is None else [name for name in names if name not in others]
    hiding = replace(options, deny_read=hidden_patterns(setup.cwd, options.deny_read))
    return BuiltinTools(
        setup.cwd,
        setup.around,
        names,
        setup.secret_names(),
        supervisor,
        policy=policy_of(hiding, setup.around),
        owns_helper=owns_helper,
        every=plan.wrapping.replays,
    )


def _extension_options(
    setup: Setup, supervisor: SharedSupervisor, added: Additions
) -> ExtensionOptions:
    options = setup.options
    return ExtensionOptions(
        cwd=setup.cwd,
        around=setup.around,
        explicit=options.ext,
        search=options.extensions is not False,
        trusted=partial(trusts_project, setup),
        names=() if options.no_tools else options.tools,
        secrets=setup.secret_names(),
        reserved=frozenset(
            (*(tool.name for tool in added.tools), *NAMES, *BACKGROUND, SkillTool.name, TASK, SWARM)
        ),
        warn=added.warn,
        hide=supervisor.hide,
    )


def _mcp_options(
    setup: Setup,
    supervisor: SharedSupervisor,
    builtin: BuiltinTools,
    entries: Mapping[str, Json],
) -> McpOptions:
    options = setup.options
    return McpOptions(
        cwd=setup.cwd,
        home=setup.around.home,
        environ=setup.around.environ,
        entries=entries,
        files=options.mcp is not False,
        trusted=partial(trusts_project, setup),
        names=() if options.no_tools else options.tools,
        keys=setup.secret_names(),
        shorten=builtin.shorten,
        hide=supervisor.hide,
        secrets=supervisor.secrets,
        jail=lambda: builtin.jail_words,
        confine=builtin.confined,
    )


def _server_files(setup: Setup) -> tuple[str, str]:
    return f"{setup.around.home}/mcp.json", f"{setup.cwd}/.mcp.json"


def _has_servers(setup: Setup, entries: Mapping[str, Json]) -> bool:
    """Return whether there can be tools of MCP servers, whose names are not known yet."""
    reads_files = setup.options.mcp is not False
    return bool(entries) or (reads_files and any(map(os.path.exists, _server_files(setup))))


def _guards(
    setup: Setup, approval: Approval | None, files: BuiltinTools, servers: McpServers
) -> tuple[Hook, ...]:
    """Return the guards by rules. The approval is last: a person is not prompted for a call that
    another guard refuses."""
    project = Project(setup.cwd, setup.around.environ)
    if patterns := hidden_patterns(setup.cwd, setup.options.deny_read):
        from zot.tools.place import hidden_paths

        hidden = hidden_paths(patterns, setup.cwd, setup.around.environ)
        project = replace(project, hidden=hidden.covers)
    rules = ProjectRules(setup.around.home, setup.cwd)
    denials = Denials([deny_rule(text) for text in setup.options.deny], rules, project)
    if approval is None:
        return (denials,)
    approval.use_project(project, rules, files)
    approval.also_ask(servers.subject)
    return (denials, approval)


def _use_reviewer(
    setup: Setup, approval: Approval | None, models: Models, agent: Callable[[], Agent]
) -> None:
    """Let a model review calls, if the settings want that."""
    if approval is not None and AUTO in (setup.options.approve or ()):
        from zot.runtime.reviewer import Reviewer

        name = setup.options.reviewer_model
        approval.use_reviewer(Reviewer(agent, models, name, setup.info.name))


def _check_approve(options: Options, known: Sequence[str]) -> None:
    """Raise ConfigError for an unknown tool name, since a typo would let a tool run unapproved."""
    for name in options.approve or ():
        if name not in (*known, SkillTool.name, TASK, SWARM, SERVER_TOOLS, EVERY_TOOL, AUTO):
            raise ConfigError(f"--approve: unknown tool {name!r}; there is: {', '.join(known)}")


# --- skills and prompt files -----------------------------------------------------------------


def find_skills(setup: Setup) -> list[Skill]:
    options = setup.options
    if options.skills is False:
        return []
    search = options.extensions is not False
    return skills_here(
        setup.cwd, setup.around, options.ext, extensions=search, trusted=options.trust
    )


def _prompt_folders(setup: Setup) -> list[SkillFolder]:
    """Return the folders of prompt files; the project's only if it is trusted."""
    project = os.path.join(setup.cwd, ".zot", "prompts")
    folders = [SkillFolder(os.path.join(setup.around.home, "prompts"))]
    if os.path.isdir(project) and trusts_project(setup):
        folders.insert(0, SkillFolder(project, inside=setup.cwd))
    return folders


# --- sessions, settings, the prompt ----------------------------------------------------------


def first_session(setup: Setup, *, keep: bool) -> Session:
    """Return a session for a run that resumes none; in memory if it is not to be stored."""
    options = setup.options
    provider, model = setup.info.name, setup.model.id
    if options.no_session or not (keep or options.session or options.continue_):
        return Session(model=(provider, model))
    from zot.sessions.open import begin_session, open_session

    if options.session:
        wait = HOLDER_SECONDS if options.durable else 0.0
        return open_session(options.session, setup.cwd, provider=provider, model=model, wait=wait)
    return begin_session(setup.cwd, setup.around.home, provider=provider, model=model)


def kept_sessions(setup: Setup, *, keep: bool) -> Sessions:
    options = setup.options
    keep = not options.no_session and bool(keep or options.session or options.continue_)
    provider, model = setup.info.name, setup.model.id
    from zot.sessions.directory import DirectorySessions

    return DirectorySessions(
        setup.cwd, setup.around.home, keep=keep, provider=provider, model=model
    )


def agent_settings(setup: Setup, models: Models) -> AgentSettings:
    options = setup.options
    compact_at = chosen(options, "compact_at")
    fallbacks = [models.find(name, setup.info.name) for name in options.fallback_models]
    return AgentSettings(
        reasoning=options.reasoning or default_level(setup.info.name),
        limits=Limits(options.max_steps, options.max_cost, options.max_tokens, options.max_seconds),
        retry=RetryPolicy(
            max_attempts=chosen(options, "max_tries"),
            wait_for_limit=options.durable or chosen(options, "wait_for_limit"),
        ),
        compact_at=compact_at / 100 if compact_at else None,
        fallbacks=tuple((models.connect(model), model) for model in fallbacks),
        cache=chosen(options, "cache"),
    )


def prompt_for(setup: Setup, skills: Sequence[Skill] = (), servers: str = "") -> str:
    options = setup.options
    return system_prompt(
        cwd=setup.cwd,
        home=setup.around.home,
        replacement=options.system_prompt,
        appended=options.append_system_prompt,
        context_files=options.context_files is not False,
        skills=manifest(skills) if options.allows(SkillTool.name) else "",
        servers=servers,
    )


def redactor_for(setup: Setup, entries: Mapping[str, Json] | None = None) -> Redactor:
    """Return a redactor that knows all keys of this user, not only the one in use, and the secrets
    of MCP servers (`entries`: those of an embedding program), of the swarm and of the page."""
    environ, home = setup.around.environ, setup.around.home
    secrets = given_secrets(setup.key, (*setup.secret_names(), SWARM_TOKEN), environ)
    secrets |= setup.known.written_keys(environ)
    secrets |= set(url_passwords(setup.base_url))
    if entries:
        secrets |= _server_secrets(setup, entries)
    paths, token = (*_server_files(setup), trust_path(home)), f"{home}/swarm/hub.token"
    servers = SecretFile(paths, lambda: _server_secrets(setup, {}))
    own = SecretFile(tuple(f"{home}/{name}" for name in OWN_FILES), partial(_own_secrets, home))
    hub = SecretFile((token,), partial(read_token, token))
    return Redactor(secrets, home, (servers, own, hub))


def _own_secrets(home: str) -> set[str]:
    from zot.settings.secrets import file_secrets  # few users have one of the files

    return file_secrets(home, OWN_FILES)


def _server_secrets(setup: Setup, entries: Mapping[str, Json]) -> set[str]:
    if not entries and not any(map(os.path.exists, _server_files(setup))):
        return set()
    from zot.mcp.config import configured_secrets

    home, environ = setup.around.home, setup.around.environ
    trusted = trusts_project(setup)
    return configured_secrets(setup.cwd, home, environ, entries, trusted=trusted)
