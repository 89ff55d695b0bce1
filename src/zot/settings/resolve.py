"""Resolves provider, model and key of a run. Part of stage one: packages that only some files or
flags need are imported where they are used.

Writes no file, whatever the user typed.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from zot.errors import AuthError, ConfigError
from zot.home import Surroundings
from zot.provider import address
from zot.provider.catalog import notices
from zot.provider.model import Model, always_thinks, cannot_be_off
from zot.provider.providers import ProviderInfo, env_base_url
from zot.settings.known import Choice, Known, configured, resumed, stored_providers, with_token
from zot.settings.options import Options, chosen
from zot.text import Frozen

if TYPE_CHECKING:
    from zot.provider.types import Provider

DEFAULT_PROVIDER = "anthropic"
LOCAL = "local"


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

    # --- models of this provider; settings/available.py has those of all providers ------------

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
    asked = with_token(info, key.text) if key.is_token else info
    renew = partial(_current_token, known, info, around) if key.is_token else None
    notice = choice.line(model.id) if choice.because else ""
    url = base_url or model.base_url or info.base_url
    warnings = (
        *ignored,
        *known.warnings,
        *_unsafe(known.home, url if key.text else ""),
        *_about_model(model, options),
    )
    return Setup(
        options,
        asked,
        model,
        key.text,
        base_url,
        cwd,
        known,
        around,
        notice,
        warnings,
        renew,
        flags,
    )


def _current_token(known: Known, info: ProviderInfo, around: Surroundings) -> str:
    """Return the login's token, renewed if it expires soon; called before each request."""
    return known.key(info, "", around.environ).text


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


def _about_model(model: Model, options: Options) -> list[str]:
    told = notices(model)
    if options.reasoning == "off" and always_thinks(model):
        told.append(cannot_be_off(model))
    return told


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


def choose_provider(options: Options, around: Surroundings, known: Known) -> Choice:
    """Return the provider the user named, or that fits the other options, or the first found."""
    provider = options.provider
    if not provider and options.model.endswith(".gguf"):
        provider = LOCAL
    elif not provider and (options.api_key or options.base_url):
        provider = DEFAULT_PROVIDER
    if provider:
        return Choice(known.provider(provider))
    from zot.settings import choose

    return choose.choose(around.environ, known.home, stored=partial(stored_providers, known.home))


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
        "key itself (--api-key; api_key=... in Python). Without a key: the provider local runs a "
        "model on this machine"
    )


def working_directory(cwd: str, around: Surroundings) -> str:
    path = around.absolute(cwd) if cwd else around.cwd
    if not path:
        raise ConfigError("the working directory is gone: change to one that exists")
    if not os.path.isdir(path):
        raise ConfigError(f"--cwd {cwd!r} is not a directory")
    return path
