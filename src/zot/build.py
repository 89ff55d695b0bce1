"""Builds a runtime from a plan: provider, sources, hooks, session, prompt. Nothing else."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import asdict, replace

from zot.core.agent import Agent, AgentSettings, Limits
from zot.core.hook import Hook
from zot.core.session import Session
from zot.core.tool import Tool
from zot.errors import ConfigError
from zot.extensions.source import ExtensionOptions, Extensions, SharedHosts
from zot.home import RPC_TOKEN, SWARM_TOKEN
from zot.mcp.source import McpOptions, McpServers
from zot.provider.model import default_level
from zot.provider.retry import RetryPolicy
from zot.provider.types import Json, Model, Models
from zot.runtime.agents import MAX_TASK_DEPTH, TASK, AgentRequest, Agents
from zot.runtime.approval import EVERY_TOOL, SERVER_TOOLS, Approval, AskTerminal
from zot.runtime.client import RuntimeClient
from zot.runtime.prompt import system_prompt
from zot.runtime.redact import (
    RedactingModels,
    RedactingTool,
    Redactor,
    SecretFile,
    given_secrets,
    password_in,
    read_token,
)
from zot.runtime.runtime import Runtime, RuntimeParts
from zot.runtime.sessions import Sessions
from zot.runtime.sources import GivenTools
from zot.settings.options import Options, chosen
from zot.settings.resolve import HOLDER_SECONDS, AvailableModels, Plan, Setup, resumed_by
from zot.settings.skills import skills_here
from zot.settings.trust import ProjectRules, is_trusted, trust_path
from zot.skills.skill import Skill, SkillFolder, SkillTool, manifest
from zot.skills.source import PromptSource, SkillSource
from zot.text import Frozen
from zot.tools.registry import BACKGROUND, NAMES, SharedSupervisor
from zot.tools.source import BuiltinTools

if TYPE_CHECKING:
    from zot.runtime import task as task_tool
    from zot.runtime.durable import Durable
    from zot.swarm.task import Conversation
    from zot.swarm.tool import SwarmSource

PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")
SWARM = "swarm"
"""Name of the swarm's tool; its package is loaded only where it is used."""


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
    redactor = redactor_for(plan.setup, added.mcp_servers)
    supervisor = _supervisor(plan.setup, redactor, owns_process=added.owns_process)
    common = Common(plan, added, supervisor)
    return _build(plan, client, added, common, common.depth, redactor, is_first=True)


def _build(
    plan: Plan,
    client: RuntimeClient,
    added: Additions,
    common: Common,
    depth: int,
    redactor: Redactor,
    *,
    is_first: bool,
) -> Runtime:
    """Build one of a process's runtimes; `depth`: the levels of agents that it may open."""
    setup, approval = plan.setup, added.approval
    models = plan.wrapping.models(RedactingModels(AvailableModels(setup), redactor))
    task = _tasks(setup.options, common, depth)
    swarm = _swarm(setup) if is_first else ()
    wanted = _extension_options(setup, common.supervisor, added)
    if added.check_extensions:
        wanted.check()
    extensions = Extensions(wanted, common.extension_hosts)
    entries = added.mcp_servers or {}
    later = wanted.any() or _has_servers(setup, entries)
    builtin = _builtin(plan, common.supervisor, added.tools, later, owns_helper=is_first)
    servers = McpServers(_mcp_options(setup, common.supervisor, builtin, entries))
    if approval is not None:
        approval.use_project(setup.cwd, ProjectRules(setup.around.home, setup.cwd), builtin)
        approval.also_ask(servers.subject)
    skills = find_skills(setup)
    hooks: tuple[Hook, ...] = (*added.hooks, extensions, *_spend_guard(setup, lambda: agent.model))
    # The approval is last: a person is not prompted for a call that another guard refuses.
    hooks = hooks if approval is None else (*hooks, approval)
    agent = _agent(plan, models, redactor, hooks, skills, servers, keep=added.keep)
    offered = _allows(setup.options, SkillTool.name)
    texts = SkillSource(skills, offered=offered), PromptSource(_prompt_folders(setup))
    parts = RuntimeParts(
        models=models,
        cwd=setup.cwd,
        client=client,
        listeners=plan.wrapping.listeners,
        sources=(GivenTools(added.tools), builtin, *task, *swarm, *texts, extensions, servers),
        sessions=added.sessions or (lambda: kept_sessions(setup, keep=added.keep)),
        shell=builtin,
        files=builtin,
        approval=approval,
        durable=_durable(setup, agent),
        redactor=redactor,
        agents=common.agents,
        owns_agents=is_first,
    )
    runtime = Runtime(agent, parts)
    for source in task:
        source.use(runtime)
    for agents in swarm:
        agents.use(partial(conversation_of, runtime))
    if plan.session is not None:  # go on with its model and reasoning level, unless a flag sets one
        flags = setup.flags
        named = bool(flags.model or flags.provider)
        runtime.sessions.adopt(model=not named, level=flags.reasoning is None)
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


def _allows(options: Options, tool: str) -> bool:
    """Return whether the agent may have the tool of this name."""
    return not options.no_tools and (options.tools is None or tool in options.tools)


def _trusts_project(setup: Setup) -> bool:
    return setup.options.trust or is_trusted(setup.cwd, setup.around.home)


def _tasks(options: Options, common: Common, depth: int) -> tuple[task_tool.TaskSource, ...]:
    if depth <= 0 or not _allows(options, TASK):
        return ()
    from zot.runtime import task as task_tool

    return (task_tool.TaskSource(common.agents, depth, options.tools),)


def _swarm(setup: Setup) -> tuple[SwarmSource, ...]:
    """Return the source of the tool `swarm` if it is allowed. Agents opened by an agent lack it."""
    options = setup.options
    if not options.swarm_budget or not _allows(options, SWARM):
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
        runtime.shell.jailed,
    )


def agent_words(setup: Setup) -> tuple[str, ...]:
    """Return the arguments for the `zot rpc` of a swarm agent that no file or variable gives it."""
    options = setup.flags
    script = setup.around.absolute(options.script) if options.script else ""
    words: list[str] = []
    for flag, value in (("--base-url", options.base_url), ("--script", script)):
        if value:
            words += [flag, value]
    # Pass the guards, so that the agent may do no more than this one: its directory is not trusted.
    guards = (*map(setup.around.absolute, options.ext), *_project_extensions(setup))
    words += [word for folder in guards for word in ("--ext", folder)]
    if options.tools is not None:
        names = ",".join(name for name in options.tools if name != SWARM)
        words += ["--tools", names] if names else ["--no-tools"]
    switches = (("--no-ext", options.extensions), ("--no-mcp", options.mcp))
    return (*words, *(flag for flag, switch in switches if switch is False))


def _spend_guard(setup: Setup, model: Callable[[], Model]) -> tuple[Hook, ...]:
    if not setup.options.spend_file:
        return ()
    from zot.ledger import Ledger
    from zot.runtime.spend import SpendGuard

    return (SpendGuard(Ledger(setup.around.absolute(setup.options.spend_file)), model),)


class Common:
    """Parts that the agents of one process share: the helper process, the extensions of a
    directory, and the builder of further agents."""

    def __init__(self, plan: Plan, added: Additions, supervisor: SharedSupervisor) -> None:
        self._plan = plan
        # Other agents do not share the first one's sessions.
        self._added = replace(added, sessions=None, keep=False)
        self.supervisor = supervisor
        self.extension_hosts = SharedHosts()
        self.agents = Agents(self._build)
        tasks = plan.setup.options.tasks
        self.depth = MAX_TASK_DEPTH if (added.tasks if tasks is None else tasks) else 0
        """Levels of agents that the model may open below the first one."""

    def _build(self, request: AgentRequest, client: RuntimeClient) -> Runtime:
        own, names, first = self._added.tools, request.tools, self._added.approval
        if names is not None:
            own = [tool for tool in own if tool.name in names]
            kept = {tool.name for tool in own}
            request = replace(request, tools=tuple(name for name in names if name not in kept))
        plan = plan_for(self._plan, request)
        approval = None
        if first is not None:
            asks = request.approve
            if asks is None:  # require at least the approvals of the first agent
                asks = first.and_also(plan.setup.options.approve)
            approval = first.another(asks, client)
            if request.approve is None:  # the mode that the person has chosen applies here too
                approval.mode = first.mode
        elif request.approve:
            approval = approval_for(plan.setup.options, client, request.approve)
        added = replace(self._added, tools=own, approval=approval)
        depth = self.depth if request.depth is None else request.depth
        redactor = redactor_for(plan.setup, self._added.mcp_servers)
        return _build(plan, client, added, self, depth, redactor, is_first=False)


def plan_for(base: Plan, request: AgentRequest) -> Plan:
    """Return the plan of another agent: the first agent's, changed by the request."""
    setup = base.setup
    path = setup.around.absolute(request.session) if request.session else ""
    session = {"session": path, "continue_": False, "resume": False}
    options = replace(
        setup.flags,
        cwd=os.path.join(setup.cwd, request.cwd),
        no_session=not request.session,
        durable=request.durable,
        **session,
        **_model_changes(setup, request),
    )
    if setup.around.absolute(options.cwd) != setup.cwd:
        # Trust is for one directory; guards of the first agent also guard the other agents.
        options = replace(options, trust=False, ext=(*options.ext, *_project_extensions(setup)))
    if request.limits is not None:
        limits = asdict(request.limits)
        options = replace(options, **{name: value for name, value in limits.items() if value})
    if request.tools is not None:
        options = replace(options, tools=request.tools, no_tools=not request.tools)
    if request.approve is not None:
        options = replace(options, approve=request.approve)
    if request.jail is not None:
        options = replace(options, jail=request.jail)
    resumed = resumed_by(options, setup.around)
    try:
        last = resumed.last_model if resumed is not None else None
        return Plan(setup.derived(options, last), resumed, base.wrapping)
    except BaseException:
        if resumed is not None:
            resumed.close()
        raise


def _project_extensions(setup: Setup) -> list[str]:
    """Return the folders of a trusted project's extensions."""
    folder = f"{setup.cwd}/.zot/extensions"
    if setup.options.extensions is False or not os.path.isdir(folder):
        return []
    if not _trusts_project(setup):
        return []
    paths = (f"{folder}/{name}" for name in sorted(os.listdir(folder)))
    return [path for path in paths if os.path.isfile(f"{path}/extension.json")]


def _model_changes(setup: Setup, request: AgentRequest) -> dict[str, str]:
    """Return the flags of the requested model. By default the model is that of the session, or of
    the first agent."""
    if request.session and not (request.provider or request.model):
        return {}
    wanted = request.provider
    if wanted and wanted != setup.info.name:
        wanted = setup.known.provider(wanted).name
    if wanted and wanted != setup.info.name:
        # A key and an address from the command line are only for the provider named there.
        alone = {"api_key": "", "base_url": "", "script": ""}
        return {"provider": wanted, "model": request.model, **alone}
    return {
        "provider": setup.info.name,
        "model": request.model or setup.model.id,
        "base_url": setup.base_url,
    }


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


def _supervisor(setup: Setup, redactor: Redactor, *, owns_process: bool) -> SharedSupervisor:
    if not owns_process:
        return SharedSupervisor(redactor.secrets)
    key = setup.options.api_key
    return SharedSupervisor(redactor.secrets, secret_names(setup), (key,) if key else ())


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
    return BuiltinTools(
        setup.cwd,
        setup.around,
        names,
        secret_names(setup),
        supervisor,
        jail=options.jail,
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
        trusted=lambda: _trusts_project(setup),
        names=() if options.no_tools else options.tools,
        secrets=secret_names(setup),
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
        trusted=lambda: _trusts_project(setup),
        names=() if options.no_tools else options.tools,
        keys=secret_names(setup),
        shorten=builtin.shorten,
        hide=supervisor.hide,
        secrets=supervisor.secrets,
        jailed=lambda: builtin.jailed,
        confine=builtin.confined,
    )


def _has_servers(setup: Setup, entries: Mapping[str, Json]) -> bool:
    """Return whether there can be tools of MCP servers, whose names are not known yet."""
    files = (f"{setup.cwd}/.mcp.json", f"{setup.around.home}/mcp.json")
    return bool(entries) or (setup.options.mcp is not False and any(map(os.path.exists, files)))


def _check_approve(options: Options, known: Sequence[str]) -> None:
    """Raise ConfigError for an unknown tool name, since a typo would let a tool run unapproved."""
    for name in options.approve or ():
        if name not in (*known, SkillTool.name, TASK, SWARM, SERVER_TOOLS, EVERY_TOOL):
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
    if os.path.isdir(project) and _trusts_project(setup):
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
        retry=RetryPolicy(max_attempts=chosen(options, "max_tries")),
        compact_at=compact_at / 100 if compact_at else None,
        fallbacks=tuple((models.connect(model), model) for model in fallbacks),
    )


def prompt_for(setup: Setup, skills: Sequence[Skill] = (), servers: str = "") -> str:
    options = setup.options
    return system_prompt(
        cwd=setup.cwd,
        home=setup.around.home,
        replacement=options.system_prompt,
        appended=options.append_system_prompt,
        context_files=options.context_files is not False,
        skills=manifest(skills) if _allows(options, SkillTool.name) else "",
        servers=servers,
    )


def redactor_for(setup: Setup, entries: Mapping[str, Json] | None = None) -> Redactor:
    """Return a redactor that knows all keys of this user, not only the one in use, and the secrets
    of MCP servers (`entries`: those of an embedding program), of the swarm and of the page."""
    environ, home = setup.around.environ, setup.around.home
    secrets = given_secrets(setup.key, (*secret_names(setup), SWARM_TOKEN), environ)
    secrets |= setup.known.written_keys(environ)
    secrets |= {password_in(environ.get(name, "")) for name in PROXIES}
    secrets |= {password_in(setup.base_url)}
    if entries:
        secrets |= _server_secrets(setup, entries)
    files = (f"{home}/mcp.json", f"{setup.cwd}/.mcp.json", trust_path(home))
    token = f"{home}/swarm/hub.token"
    return Redactor(
        secrets,
        home,
        (
            SecretFile(files, lambda: _server_secrets(setup, {})),
            SecretFile((token,), partial(read_token, token)),
        ),
    )


def _server_secrets(setup: Setup, entries: Mapping[str, Json]) -> set[str]:
    around = setup.around
    paths = (f"{around.home}/mcp.json", f"{setup.cwd}/.mcp.json")
    if not entries and not any(map(os.path.exists, paths)):
        return set()
    from zot.mcp.config import configured_secrets

    return configured_secrets(
        setup.cwd, around.home, around.environ, entries, trusted=_trusts_project(setup)
    )


def secret_names(setup: Setup) -> frozenset[str]:
    """Return the names of variables that no child process may see."""
    return setup.known.key_variables(setup.around.environ) | {RPC_TOKEN}
