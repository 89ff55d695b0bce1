"""Resolves what a run works with: provider, model and key (`Setup`), the session to resume
(`Plan`), the models to switch to (`AvailableModels`). Writes no file, whatever the user typed.

Part of stage one: packages that only some files or flags need are imported where they are used.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from zot.errors import AuthError, ConfigError
from zot.home import OTEL_HEADERS, RPC_TOKEN, Surroundings
from zot.provider import address
from zot.provider.catalog import notices
from zot.provider.model import Model, always_thinks, cannot_be_off
from zot.provider.providers import (
    PROVIDERS,
    ProviderInfo,
    env_base_url,
    env_key,
    find_provider,
)
from zot.settings.known import Known, stored_providers, with_token
from zot.settings.options import VARIABLES, Options, chosen, with_defaults
from zot.text import Frozen

if TYPE_CHECKING:
    from zot.core.events import Event
    from zot.core.session import Session
    from zot.core.tool import Tool
    from zot.provider.types import Models, Provider

DEFAULT_PROVIDER = "anthropic"
LOCAL = "local"
HOLDER_SECONDS = 5.0
"""Seconds a durable runtime's start waits for a process that still holds the session."""


class Choice(Frozen):
    info: ProviderInfo
    model: str = ""
    """Model id; empty: the provider's default."""
    base_url: str = ""
    because: str = ""
    """Reason for the choice; empty when the user named the provider."""

    def line(self, model: str) -> str:
        """Return the notice for the user."""
        return (
            f"using {self.info.name} with {model} ({self.because}); --provider NAME chooses another"
        )


class Setup(Frozen):
    """A provider that is ready for requests: everything is resolved, nothing was sent."""

    options: Options
    info: ProviderInfo
    model: Model
    key: str
    base_url: str
    cwd: str
    known: Known
    around: Surroundings
    notice: str = ""
    """Message naming the chosen provider and the reason, when the user named none."""
    warnings: tuple[str, ...] = ()
    """Ignored parts of the user's and the project's files, and security warnings."""
    renew: Callable[[], str] | None = None
    """Returns a currently valid token; None if the key is not a token."""
    flags: Options = Options()
    """Options given for this run, without the configuration: they take precedence over the model
    that a session last used.
    """

    def derived(self, options: Options, session_model: tuple[str, str] | None = None) -> Setup:
        """Return the setup of another agent in this process; raises as `resolve`."""
        if options.replay:  # the cassette answers, whatever the model's name
            cwd = working_directory(options.cwd, self.around)
            return replace(self, options=options, flags=options, cwd=cwd)
        return resolve(options, self.around, session_model)

    def secret_names(self) -> frozenset[str]:
        """Return the names of variables that no child process may see."""
        return self.known.key_variables(self.around.environ) | {RPC_TOKEN} | OTEL_HEADERS

    # --- models of this provider ---------------------------------------------------------------

    def find(self, id: str) -> Model:
        if self.info.name == LOCAL:
            return local_model(id, self.around.home)
        return self.known.find(self.info.name, id, unlisted=True)

    def all(self) -> Sequence[Model]:
        if self.info.name == LOCAL:
            from zot.local import provider as on_this_machine

            return on_this_machine.local_models(self.around.home)
        return self.known.all(self.info.name)

    def connect(self, model: Model) -> Provider:
        if self.info.name == LOCAL:
            from zot.local import provider as on_this_machine

            return on_this_machine.open_local(model, self.around)
        from zot.provider.client import connect  # loads HTTP, so only for the agent

        options = self.options
        return connect(
            self.info,
            model,
            self.renew or self.key,
            self.base_url or None,
            idle_seconds=chosen(options, "idle_timeout"),
            script=options.script,
        )


def resolve(
    options: Options, around: Surroundings, session_model: tuple[str, str] | None = None
) -> Setup:
    """Resolve the setup of a run; `session_model` is the session's last provider and model.

    Raises:
        ConfigError: an unknown provider or model, a bad directory; says what to do.
        AuthError: no key.
    """
    cwd = working_directory(options.cwd, around)
    known = Known(around.home)
    with_session = resumed(options, session_model, known)
    if with_session is not options:
        try:
            return _resolved(with_session, options, around, cwd, known)
        except AuthError:
            pass  # no key for that provider any more: use today's default
    return _resolved(options, options, around, cwd, known)


def _resolved(
    options: Options, flags: Options, around: Surroundings, cwd: str, known: Known
) -> Setup:
    environ = around.environ
    options, ignored = configured(options, environ, cwd, known.home)
    options = _naming_both(options, flags, environ, known)
    choice = choose_provider(options, around, known)
    info = choice.info
    base_url = options.base_url or choice.base_url or env_base_url(info, environ)
    model = choose_model(info, options.model or choice.model, known)
    key = known.key(info, options.api_key, environ)
    if not key.text and info.auth != "none" and not info.key_optional:
        raise AuthError(missing_key(info))
    url = base_url or model.base_url or info.base_url
    return Setup(
        options,
        with_token(info, key.text) if key.is_token else info,
        model,
        key.text,
        base_url,
        cwd,
        known,
        around,
        notice=choice.line(model.id) if choice.because else "",
        warnings=(
            *ignored,
            *known.warnings,
            *_unsafe(known.home, url if key.text else ""),
            *notices(model),
            *_no_thinking(model, options),
            *_jail_notes(options, cwd, environ),
        ),
        # Called before each request: a token is renewed if it expires soon.
        renew=(lambda: known.key(info, "", environ).text) if key.is_token else None,
        flags=flags,
    )


def _unsafe(home: str, url: str) -> Iterator[str]:
    """Yield warnings about a home that others can write to, and a key sent unencrypted to `url`."""
    try:
        if os.stat(home).st_mode & stat.S_IWOTH:
            yield f"every user can write to {home!r}, where keys are kept: chmod 700 {home}"
    except OSError:
        pass  # no home yet
    if not url.lower().startswith("http://"):
        return
    host = address.host_and_port(url)[0]
    if not address.is_loopback(host):
        yield f"the key is sent to {host!r} without encryption: use https://, or a tunnel"


def _no_thinking(model: Model, options: Options) -> Iterator[str]:
    if options.reasoning == "off" and always_thinks(model):
        yield cannot_be_off(model)


def _jail_notes(options: Options, cwd: str, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield warnings about a jail that is weaker than it sounds."""
    if options.deny_read and not options.jail:
        yield "deny_read hides files from the file tools; commands can read them without --jail"
    if not options.jail:
        return
    from zot.tools.jail.levels import find_level  # runs a program: only for a jail

    found = find_level(cwd, environ)
    if found.level == "full":
        return
    if "best" not in str(options.jail).split(","):
        weaker = "; --jail=best gives a weaker one" if found.level == "files" else ""
        yield f"no command can run in this jail: {found.problem}{weaker}"
    elif found.level == "files":
        yield f"the jail has the level files (rules on files, no namespaces): {found.problem}"
    else:
        yield f"commands are NOT jailed, there are no walls for them here: {found.problem}"


def _naming_both(
    options: Options, flags: Options, environ: Mapping[str, str], known: Known
) -> Options:
    """Split `--model PROVIDER/ID` if that provider can be used. Not if another server was named,
    nor if the configured provider is a gateway: their own model ids have this form.
    """
    head, slash, id = flags.model.partition("/")
    if not (slash and id) or flags.provider or options.base_url or options.api_key:
        return options
    if options.provider and any("/" in model.id for model in known.all(options.provider)):
        return options
    try:
        info = known.provider(head)
    except ConfigError:
        return options
    has_key = info.auth == "none" or info.key_optional or bool(known.key(info, "", environ).text)
    return replace(options, provider=info.name, model=id) if has_key else options


def configured(
    options: Options, environ: Mapping[str, str], cwd: str, home: str
) -> tuple[Options, list[str]]:
    """Return the options completed from variables, files and defaults, and warnings.

    Raises:
        ConfigError: a variable holds a value that cannot be used.
    """
    files = (os.path.join(home, "config.json"), os.path.join(cwd, ".zot", "config.json"))
    if not any(map(os.path.exists, files)) and environ.keys().isdisjoint(VARIABLES):
        return with_defaults(options), []
    from zot.settings import config

    read = config.read_configuration(options, environ, cwd, home)
    values = {name: value.value for name, value in read.values.items()}
    return replace(options, **values), read.warnings


def resumed(options: Options, model: tuple[str, str] | None, known: Known) -> Options:
    """Return the options with the session's last model, unless a flag names one."""
    if model is None or options.provider or options.model:
        return options
    try:
        info = known.provider(model[0])
        known.find(info.name, model[1], unlisted=bool(options.base_url))
    except ConfigError:
        return options  # the model is gone: continue the conversation with today's default
    if info.api == "scripted":
        return options  # prepared turns belong to one run
    return replace(options, provider=info.name, model=model[1])


def choose_provider(options: Options, around: Surroundings, known: Known) -> Choice:
    """Return the provider the user named, or that fits the other options, or the first found."""
    provider = options.provider
    if not provider and options.model.endswith(".gguf"):
        provider = LOCAL
    elif not provider and (options.api_key or options.base_url):
        provider = DEFAULT_PROVIDER
    if provider:
        return Choice(known.provider(provider))
    if choice := _with_a_key(around.environ, known.home):
        return choice
    # The door of the search on this machine, which asks servers and reads the pulled models.
    from zot.settings import choose

    return choose.choose(around.environ, known.home)


def _with_a_key(environ: Mapping[str, str], home: str) -> Choice | None:
    """Return the first provider with a key in the environment, or else with a login."""
    for info in PROVIDERS.values():
        if env_key(info, environ) and not info.key_optional:
            variable = next(name for name in info.env if environ.get(name))
            return Choice(info, because=f"{variable} is set")
    for name in stored_providers(home):
        return Choice(find_provider(name), because="you are logged in")
    return None


def choose_model(info: ProviderInfo, name: str, known: Known) -> Model:
    if info.name == LOCAL:
        return local_model(name, known.home)
    if name:
        return known.find(info.name, name, unlisted=True)
    model = known.default(info.name)
    if model is None:
        raise ConfigError(
            f"provider {info.name!r} has no default model: pass --model ID; "
            f"`zot --list-models --provider {info.name}` shows what there is"
        )
    return model


def local_model(name: str, home: str) -> Model:
    from zot.local import provider as on_this_machine

    return on_this_machine.find_local(name, home)


def missing_key(info: ProviderInfo) -> str:
    variable = info.env[0] if info.env else "the provider's variable"
    return (
        f"no credential for {info.name}; set {variable}, run `zot login {info.name}`, or give the "
        "key itself: --api-key KEY. Without a key: the provider local runs a "
        "model on this machine"
    )


def working_directory(cwd: str, around: Surroundings) -> str:
    path = around.absolute(cwd) if cwd else around.cwd
    if not path:
        raise ConfigError("the working directory is gone: change to one that exists")
    if not os.path.isdir(path):
        raise ConfigError(f"--cwd {cwd!r} is not a directory")
    return path


# --- plan: the setup with a session to resume ---------------------------------------------------


class Wrapping:
    """Layer between an agent and its models and tools. Does nothing by default; testing/record.py
    records their answers, or replays them.
    """

    replays = False
    """Whether answers are replayed: no tool runs."""
    listeners: tuple[Callable[[Event, object], None], ...] = ()
    """Callbacks that receive every event."""

    def models(self, models: Models) -> Models:
        return models

    def tool(self, tool: Tool) -> Tool:
        return tool


BARE = Wrapping()


class Plan(Frozen):
    setup: Setup
    session: Session | None = None
    """The session to resume; None: start a new one."""
    wrapping: Wrapping = BARE


def plan(options: Options, around: Surroundings) -> Plan:
    """Resolve the setup. The session is looked up once, so that model and transcript come from one
    file.

    Raises:
        ConfigError, AuthError: as `resolve`.
        SessionError: the session cannot be used.
    """
    session = resumed_by(options, around)
    if session is None:
        return Plan(resolve(options, around))
    try:
        return Plan(resolve(options, around, session.last_model), session)
    except BaseException:
        session.close()
        raise


def resumed_by(options: Options, around: Surroundings) -> Session | None:
    """Return the session that the flags resume, if it exists. Raises SessionError."""
    if options.no_session or not (options.session or options.continue_):
        return None
    wait = HOLDER_SECONDS if options.durable else 0.0
    cwd = working_directory(options.cwd, around)
    from zot.sessions.open import resumed as open_resumed

    return open_resumed(options.session, cwd, around.home, wait=wait)


# --- models of all providers ------------------------------------------------------------------


class AvailableModels:
    """Finds and connects models across providers (see runtime.models.Models)."""

    def __init__(self, setup: Setup) -> None:
        self._first = setup
        self._setups = {setup.info.name: setup}
        self._around = setup.around

    def find(self, name: str, provider: str) -> Model:
        head, slash, id = name.partition("/")
        if slash and id and self._is_provider(head) and not self._has_such_ids(provider):
            provider, name = self._first.known.provider(head).name, id
        return self._setup(provider, name).find(name)

    def all(self, provider: str = "") -> Sequence[Model]:
        if provider:
            setup = self._setup(provider, "")
            return setup.all() or [setup.model]
        first = self._first.info
        models = list(self._first.all()) or [self._first.model]
        environ, stored = self._around.environ, stored_providers(self._around.home)
        seen = {first.catalog}
        for info in PROVIDERS.values():
            if info.name == first.name or info.auth == "none" or info.catalog in seen:
                continue  # provider aliases share one catalog
            if env_key(info, environ) or info.name in stored:
                seen.add(info.catalog)
                models += self._first.known.all(info.name)
        return models

    def connect(self, model: Model) -> Provider:
        return self._setup(model.provider, model.id).connect(model)

    def renew(self, provider: str) -> bool:
        before = self._setups.get(provider)
        if before is None or before.info.auth == "none":
            return False
        options = replace(before.options, provider=provider, model=before.model.id)
        setup = resolve(options, self._around)
        self._setups[provider] = setup
        if before is self._first:
            self._first = setup
        return setup.key != before.key

    def _is_provider(self, name: str) -> bool:
        try:
            self._first.known.provider(name)
        except ConfigError:
            return name in self._setups
        return True

    def _has_such_ids(self, provider: str) -> bool:
        """Return whether the provider is a gateway: its own ids look like PROVIDER/ID."""
        known = self._setups.get(provider, self._first)
        return any("/" in model.id for model in known.all())

    def _setup(self, provider: str, model: str) -> Setup:
        if provider not in self._setups:
            if provider == "scripted":
                raise ConfigError("prepared turns are of one run: start zot with --script")
            # The key, address and script of the command line are for the first provider only.
            options = replace(
                self._first.options,
                provider=provider,
                model=model,
                api_key="",
                base_url="",
                script="",
            )
            self._setups[provider] = resolve(options, self._around)
        return self._setups[provider]
