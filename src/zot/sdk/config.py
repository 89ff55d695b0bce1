"""What an embedder can say about a runtime, and how that becomes the setup that every mode uses."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, TypedDict, TypeGuard

from msgspec import Struct

from zot.core.hook import Hook
from zot.core.tool import Tool
from zot.errors import ConfigError
from zot.provider.providers import ProviderInfo
from zot.provider.types import LEVELS, Level, Model, Provider
from zot.sdk.function import Guard, function_tool, guard
from zot.settings.flags import Options
from zot.settings.known import Known
from zot.settings.plan import Plan, plan, resumed_by
from zot.settings.resolve import Setup, working_directory

AnyTool = str | Tool | Callable[..., Any]
Tools = Sequence[AnyTool]
FEATURES = ("approvals", "codes", "dialogs", "queue", "retries", "thinking")
"""Those of the wire's features that make sense in one process. With `approvals` and `dialogs` the
embedder says that it answers: `Runtime.approve`, `Runtime.answer`."""


class Config(Struct, frozen=True, kw_only=True):
    """How a Runtime is to work. What is left out is as in `zot rpc` without flags."""

    provider: str | Provider = ""
    """A provider's name, or an object that is one."""
    model: str | Model = ""
    cwd: str | os.PathLike[str] = ""
    system_prompt: str | None = None
    """Instead of the built-in one."""
    append_system_prompt: str | Sequence[str] = ()
    context_files: bool = True
    """Read AGENTS.md files."""
    reasoning: Level | None = None
    api_key: str = ""
    base_url: str = ""
    fallback_models: Sequence[str] = ()
    script: str | os.PathLike[str] = ""
    """The turns of `provider="scripted"`: for tests."""
    tools: Tools | None = None
    """Exactly these: names of built-in tools, Tool objects, typed functions. None: all built-in."""
    no_tools: bool = False
    jail: bool = False
    """Keep the built-in tools in the working directory, without network; see docs/tools.md."""
    hooks: Sequence[Hook | Guard] = ()
    """Guards, in order; a plain function is asked before each tool call (see `guard`)."""
    extensions: Sequence[str | os.PathLike[str]] = ()
    """Directories of extensions to load; none are searched for."""
    session: str | os.PathLike[str] | None = None
    """A session file to go on with, or to begin. None: the transcript lives in memory."""
    max_steps: int | None = None
    max_cost: float | None = None
    """US dollars for one prompt."""
    max_tokens: int | None = None
    max_seconds: float | None = None
    idle_timeout: float | None = None
    """Seconds without a byte after which a model call fails."""
    compact_at: float | None = None
    """Percent of the model's window that starts a compaction; 0: never."""
    record: str | os.PathLike[str] = ""
    """Write a cassette of all runs to this file."""
    replay: str | os.PathLike[str] = ""
    """Answer from such a file: no network, no key, and no tool runs."""
    features: Sequence[str] = ()
    """More kinds of events, as a client of `zot rpc` asks for them in `hello`."""


class Settings(TypedDict, total=False):
    """The fields of Config as keyword arguments, for type checkers."""

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
    jail: bool
    hooks: Sequence[Hook | Guard]
    extensions: Sequence[str | os.PathLike[str]]
    session: str | os.PathLike[str] | None
    max_steps: int | None
    max_cost: float | None
    max_tokens: int | None
    max_seconds: float | None
    idle_timeout: float | None
    compact_at: float | None
    record: str | os.PathLike[str]
    replay: str | os.PathLike[str]
    features: Sequence[str]


def plan_of(config: Config) -> Plan:
    """Find out what to run with.

    Raises:
        ConfigError: an unknown provider, model or feature, a bad directory; says what to do.
        AuthError: no key.
        SessionError: the session cannot be used.
    """
    options = _options(config)
    if options.replay:
        from zot.testing.record import replayed  # only for tests of an embedder's own

        return replayed(options)
    if isinstance(config.provider, str):
        made = plan(options, os.environ)
    else:
        made = Plan(_own_setup(config, config.provider, options), resumed_by(options))
    if options.record:
        from zot.testing.record import recorded  # as above

        return recorded(made)
    return made


def _own_setup(config: Config, provider: Provider, options: Options) -> Setup:
    model = config.model or provider.name
    if isinstance(model, str):
        model = Model(id=model, provider=provider.name, api="scripted")
    info = ProviderInfo(name=provider.name, api=model.api, auth="none", open_models=True)
    cwd = working_directory(options.cwd)
    return OwnSetup(options, info, model, "", "", cwd, Known(), own=provider, flags=options)


class OwnSetup(Setup, frozen=True, kw_only=True):
    """The setup of a runtime whose provider is an object of the embedder's."""

    own: Provider

    def find(self, id: str) -> Model:
        return self.model if id == self.model.id else Model(id, self.own.name, self.model.api)

    def all(self) -> Sequence[Model]:
        return (self.model,)

    def connect(self, model: Model) -> Provider:
        return self.own


def own_tools(config: Config) -> list[Tool]:
    """The tools that are not built in."""
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


_NUMBERS = ("max_steps", "max_cost", "max_tokens", "max_seconds", "idle_timeout")


def _check(config: Config) -> None:
    """What a type checker would say, for those who use none.

    Raises:
        ConfigError: names the setting and its value.
    """
    if isinstance(config.tools, str):
        raise ConfigError(f"tools must be a list of tools, not {config.tools!r}")
    if config.reasoning is not None:
        check_level(config.reasoning)
    for name in _NUMBERS:
        value = getattr(config, name)
        number = isinstance(value, int | float) and not isinstance(value, bool) and value > 0
        if value is not None and not number:
            raise ConfigError(f"{name} must be a positive number, not {value!r}")
    for hook in config.hooks:
        if not isinstance(hook, Hook) and not callable(hook):
            raise ConfigError(f"not a guard: {hook!r}; give a Hook or a function of a tool call")


def check_level(level: str) -> None:
    """Raises ConfigError when there is no such level of reasoning."""
    if level not in LEVELS:
        raise ConfigError(f"reasoning must be one of {', '.join(LEVELS)}, not {level!r}")


def _options(config: Config) -> Options:
    _check(config)
    unknown = [name for name in config.features if name not in FEATURES]
    if unknown:
        raise ConfigError(f"unknown feature {unknown[0]!r}: use some of {', '.join(FEATURES)}")
    if config.no_tools and config.tools:
        raise ConfigError("no_tools and tools contradict each other: leave one of them out")
    names = None
    if config.tools is not None:
        names = tuple(item for item in config.tools if isinstance(item, str))
    appended = config.append_system_prompt
    model, provider = config.model, config.provider
    return Options(
        provider=provider if isinstance(provider, str) else "",
        model=model if isinstance(model, str) else model.id,
        api_key=config.api_key,
        base_url=config.base_url,
        reasoning=config.reasoning,
        fallback_model=tuple(config.fallback_models),
        script=os.fspath(config.script),
        cwd=os.fspath(config.cwd),
        system_prompt=config.system_prompt,
        append_system_prompt=(appended,) if isinstance(appended, str) else tuple(appended),
        no_context_files=not config.context_files,
        tools=names,
        no_tools=config.no_tools,
        jail=config.jail,
        max_steps=config.max_steps,
        max_cost=config.max_cost,
        max_tokens=config.max_tokens,
        max_seconds=config.max_seconds,
        idle_timeout=config.idle_timeout,
        compact_at=config.compact_at or None,
        no_auto_compact=config.compact_at == 0,
        record=os.fspath(config.record),
        replay=os.fspath(config.replay),
        ext=tuple(os.fspath(path) for path in config.extensions),
        no_ext=True,
        session=os.fspath(config.session) if config.session is not None else "",
    )
