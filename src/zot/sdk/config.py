"""Settings of an embedded runtime, and their conversion to the setup that every mode uses."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    ParamSpec,
    TypedDict,
    TypeGuard,
    Unpack,
    get_type_hints,
)

from msgspec import defstruct
from msgspec.structs import replace

from zot.cancel import Cancel
from zot.core.hook import Hook
from zot.core.tool import Tool
from zot.errors import ConfigError, ZotError
from zot.home import of_process
from zot.provider.providers import ProviderInfo
from zot.provider.types import LEVELS, Json, Level, Model, Provider, Request, StreamEvent
from zot.sdk.function import Guard, function_tool, guard
from zot.sdk.stream import AgentEvent
from zot.settings.known import Known
from zot.settings.options import SETTINGS, Options, Setting, checked
from zot.settings.resolve import Plan, Setup, plan, resumed_by, working_directory
from zot.text import Frozen

Keywords = ParamSpec("Keywords")
AnyTool = str | Tool | Callable[..., Any]
Tools = Sequence[AnyTool]
FEATURES = ("approvals", "codes", "dialogs", "mcp", "queue", "retries", "thinking", "tools")
"""Features of the wire that make sense in one process. With `approvals` and `dialogs` the embedder
promises to answer with `Runtime.approve` and `Runtime.answer`."""


class Settings(TypedDict, total=False):
    """Keyword arguments of Runtime and AsyncRuntime, and fields of Config. Type checkers read them
    here; the signatures and Config are made from this list. A test compares it with the settings
    table, which explains each of them.
    """

    provider: str | Provider
    model: str | Model
    cwd: str | os.PathLike[str]
    system_prompt: str | None
    append_system_prompt: str | Sequence[str]
    context_files: bool
    reasoning: Level | None
    api_key: str
    base_url: str
    fallback_models: Sequence[str]
    script: str | os.PathLike[str]
    tools: Tools | None
    no_tools: bool
    tasks: bool
    swarm_budget: float | None
    reviewer_model: str
    deny: Sequence[str]
    jail: bool | str | None
    jail_read: Literal["all", "project"] | None
    allow_write: Sequence[str | os.PathLike[str]]
    deny_read: Sequence[str]
    hooks: Sequence[Hook | Guard]
    extensions: Sequence[str | os.PathLike[str]]
    mcp_servers: Mapping[str, Mapping[str, Json]]
    session: str | os.PathLike[str] | None
    durable: bool
    on_crash: Literal["continue", "hold", "fail"] | None
    max_steps: int | None
    max_cost: float | None
    max_tokens: int | None
    max_seconds: float | None
    idle_timeout: float | None
    max_tries: int | None
    wait_for_limit: bool | None
    cache: Literal["auto", "short", "long", "off"] | None
    approval_timeout: float | None
    compact_at: float | None
    record: str | os.PathLike[str]
    replay: str | os.PathLike[str]
    features: Sequence[str]
    on_agent_event: Callable[[AgentEvent], None] | None


_OWN_HELP = {
    "hooks": "guards, in order; a plain function is asked before each tool call (see `guard`)",
    "features": "more kinds of events, as a client of `zot rpc` asks for them in `hello`",
    "on_agent_event": "hears what the agents do that the tool `task` opens, in their threads",
    "provider": "a provider's name, or an object that is one",
    "tools": "exactly these: names of built-in tools, Tool objects, typed functions",
    "extensions": "directories of extensions to load; none are searched for",
    "mcp_servers": "MCP servers by name, each as in the `mcpServers` of a file; none of files",
    "session": "a session file to go on with, or to begin; None: the transcript lives in memory",
    "api_key": "default: the provider's variable, or what `zot login` stored",
}
"""Help for settings that mean more than on the command line, or are not there."""
_ROWS = {setting.keyword or name: setting for name, setting in SETTINGS.items() if setting.sdk}
_DEFAULTS: dict[str, Any] = {
    **{word: getattr(Options(), row.name) for word, row in _ROWS.items() if row.kind != "switch"},
    **{word: bool(row.default) for word, row in _ROWS.items() if row.kind == "switch"},
    **{"hooks": (), "features": (), "mcp_servers": {}, "session": None},
    "on_agent_event": None,
}
_FLAG = re.compile(r"--([a-z][a-z-]*)(?: (?=')| (?=[A-Z]+\b))?")
_KEYWORDS = {flag: (word, row) for word, row in _ROWS.items() for flag in row.words}
_TYPES = get_type_hints(Settings)
_HELP = "".join(f"{word}: {_OWN_HELP.get(word) or _ROWS[word].help}\n" for word in _TYPES)
if TYPE_CHECKING:

    class Config(Frozen):
        def __init__(self, **settings: Unpack[Settings]) -> None: ...
        def __getattr__(self, name: str) -> Any: ...

else:
    Config = defstruct(
        "Config",
        [(word, kind, _DEFAULTS[word]) for word, kind in _TYPES.items()],
        frozen=True,
        kw_only=True,
        module=__name__,
        namespace={"__doc__": f"Settings of a Runtime; the default is `zot rpc`.\n\n{_HELP}"},
    )


def shows_settings(init: Callable[Keywords, None]) -> Callable[Keywords, None]:
    """Give an `__init__(self, config=None, **settings)` the signature and the help of all settings,
    so that help() and completion show them."""
    parameters = [*inspect.signature(init).parameters.values()][:-1]
    for word, kind in _TYPES.items():
        parameter = inspect.Parameter(
            word, inspect.Parameter.KEYWORD_ONLY, default=_DEFAULTS[word], annotation=kind
        )
        parameters.append(parameter)
    vars(init)["__signature__"] = inspect.Signature(parameters, return_annotation=None)
    init.__doc__ = f"{inspect.getdoc(init)}\n\nSettings:\n{_HELP}"
    return init


@contextmanager
def python_words() -> Iterator[None]:
    """Name keywords instead of flags in errors: `session=PATH` for `--session PATH`."""
    try:
        yield
    except ZotError as error:
        error.args = (_FLAG.sub(_keyword, str(error)), *error.args[1:])
        raise


def _keyword(flag: re.Match[str]) -> str:
    word, row = _KEYWORDS.get(f"--{flag[1]}", ("", None))
    if row is None:
        return flag[0]
    if row.kind == "switch":
        return f"{word}={bool(row.default) is False}" + flag[0][len(flag[1]) + 2 :]
    is_followed = flag[0].endswith(" ")
    return (
        f"{word}="
        if is_followed and row.kind not in ("list", "words")
        else word + " " * is_followed
    )


def config_of(config: Config | None, settings: Settings) -> Config:
    """Return the Config, or make one of the keyword arguments. Raises TypeError for both."""
    if config is not None and settings:
        raise TypeError("give a Config or keyword arguments, not both")
    return config or Config(**settings)


def plan_of(config: Config) -> Plan:
    """Resolve the settings. Raises ConfigError: unknown provider, model or feature, bad directory
    (the text says what to do); AuthError: no key; SessionError: the session cannot be used."""
    options = _options(config)
    if not (options.replay or options.record):
        return _plan(config, options)
    from zot.testing import record

    if options.replay:
        return record.replayed(options, of_process())
    return record.recorded(_plan(config, options))


def _plan(config: Config, options: Options) -> Plan:
    if isinstance(config.provider, str):
        return plan(options, of_process())
    return Plan(_own_setup(config, config.provider, options), resumed_by(options, of_process()))


def _own_setup(config: Config, provider: Provider, options: Options) -> Setup:
    model = config.model or provider.name
    if isinstance(model, str):
        model = Model(id=model, provider=provider.name, api="scripted")
    info = ProviderInfo(name=provider.name, api=model.api, auth="none", open_models=True)
    around = of_process()
    cwd, known = working_directory(options.cwd, around), Known(around.home)
    return OwnSetup(options, info, model, "", "", cwd, known, around, own=provider, flags=options)


class OwnSetup(Setup, kw_only=True):
    """Setup of a runtime whose provider is an object of the embedder."""

    own: Provider

    def derived(self, options: Options, session_model: tuple[str, str] | None = None) -> Setup:
        if options.provider not in ("", self.own.name):
            return super().derived(options, session_model)
        cwd = working_directory(options.cwd, self.around)
        model = self.find(options.model or self.model.id)
        return replace(self, options=options, flags=options, cwd=cwd, model=model)

    def find(self, id: str) -> Model:
        return self.model if id == self.model.id else Model(id, self.own.name, self.model.api)

    def all(self) -> Sequence[Model]:
        return (self.model,)

    def connect(self, model: Model) -> Provider:
        return OwnProvider(self.own)


class OwnProvider:
    """Adapter for an embedder's provider: passes the messages as a tuple, which it may concatenate
    and encode. Internally they are a view of the start of a growing list."""

    def __init__(self, provider: Provider) -> None:
        self.own = provider
        self.name, self.close = provider.name, provider.close

    def stream(self, request: Request, cancel: Cancel) -> Iterator[StreamEvent]:
        return self.own.stream(replace(request, messages=tuple(request.messages)), cancel)


def own_tools(config: Config) -> list[Tool]:
    """Return the configured tools that are not built in."""
    if config.no_tools:
        return []
    own: list[Tool] = []
    for item in config.tools or ():
        if isinstance(item, str):
            continue
        if is_tool(item):
            own.append(item)
        elif callable(item):
            own.append(function_tool(item))
        else:
            raise ConfigError(f"not a tool: {item!r}; give a name, a Tool or a typed function")
    return own


def is_tool(item: object) -> TypeGuard[Tool]:
    return all(hasattr(item, name) for name in ("name", "description", "schema", "run"))


def hooks_of(config: Config) -> list[Hook]:
    return [hook if isinstance(hook, Hook) else guard(hook) for hook in config.hooks]


def check_level(level: str) -> None:
    """Raise ConfigError for an unknown reasoning level."""
    if level not in LEVELS:
        raise ConfigError(f"reasoning must be one of {', '.join(LEVELS)}, not {level!r}")


def _options(config: Config) -> Options:
    """Check the types as well, for callers without a type checker, and convert to Options. Raises
    ConfigError, which names the setting and its value."""
    for feature in config.features:
        if feature not in FEATURES:
            raise ConfigError(f"unknown feature {feature!r}: use some of {', '.join(FEATURES)}")
    for hook in config.hooks:
        if not isinstance(hook, Hook) and not callable(hook):
            raise ConfigError(f"not a guard: {hook!r}; give a Hook or a function of a tool call")
    if config.on_agent_event is not None and not callable(config.on_agent_event):
        raise ConfigError(f"on_agent_event must be a function, not {config.on_agent_event!r}")
    _check_servers(config.mcp_servers)
    if isinstance(config.tools, str):
        raise ConfigError(f"tools must be a list of tools, not {config.tools!r}")
    if config.no_tools and config.tools:
        raise ConfigError("no_tools and tools contradict each other: leave one of them out")
    values: dict[str, Json] = {"extensions": False, "mcp": False}
    for word, setting in _ROWS.items():
        value = getattr(config, word)
        if value is None or value == _DEFAULTS[word]:
            continue
        try:
            values[setting.name] = checked(setting, _plain(setting, value))
        except ValueError as error:
            raise ConfigError(f"{word} {error}") from error
    return Options(**values)


def _check_servers(servers: Mapping[str, Json]) -> None:
    for name, entry in servers.items():
        try:
            from zot.mcp import config as servers_config

            servers_config.parse_server(name, entry, "given", "")
        except ConfigError as error:
            raise ConfigError(f"mcp_servers: {name!r}: {error}") from error


def _plain(setting: Setting, value: Any) -> Json:
    """Convert the value to its command-line form."""
    if setting.name == "provider" and not isinstance(value, str):
        return ""
    if isinstance(value, Model):
        return value.id
    if setting.kind == "words":  # tools: objects and functions go to the runtime directly
        return tuple(item for item in value if isinstance(item, str))
    if setting.kind == "list":
        items = (value,) if isinstance(value, str) else value
        return tuple(os.fspath(item) for item in items)
    return os.fspath(value) if isinstance(value, os.PathLike) else value
