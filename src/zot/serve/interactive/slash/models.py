"""Commands for models, reasoning and logins, and recovery if a model cannot be reached. They also
work without a runtime: a first run ends here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from zot.cancel import Cancel
from zot.errors import CommandError, ConfigError, ZotError
from zot.local.models import LocalModel, is_pulled, known_models
from zot.local.pull import pull, remove
from zot.local.server import running_servers
from zot.provider.auth import oauth
from zot.provider.auth.page import CallbackPage
from zot.provider.auth.store import AuthFile
from zot.provider.model import clamped, levels
from zot.provider.providers import ProviderInfo
from zot.provider.types import Level, Model
from zot.serve.interactive.status import amount
from zot.settings.known import Known, keep_key, log_out
from zot.settings.resolve import AvailableModels
from zot.text import size_text
from zot.tui.blocks import LiveBlock
from zot.tui.cells import Line, clip
from zot.tui.menu import Menu, MenuItem, ShownQuestion

if TYPE_CHECKING:
    from zot.serve.interactive.app import App

BAR_CELLS = 30
"""Width of the progress bar, in cells."""
LOCAL_HINT = "enter downloads and uses it, ctrl+d removes it from this machine, esc leaves"
RESCUED = {
    "auth": "The key was refused",
    "rate_limited": "No more requests for now",
    "overloaded": "The provider failed",
    "network": "It cannot be reached",
    "idle": "It fell silent",
}
"""Titles by error code for prompts that may succeed with another model, another key, or later."""


# --- models ----------------------------------------------------------------------------------


def model(app: App, args: str) -> None:
    def listed(models: Sequence[Model]) -> None:
        if args:
            use_model(app, args, _whose(args, models))
        elif models:
            _choose_model(app, models)
        else:
            first_run(app)

    app.work(app.built.models.all if app.built is not None else partial(_usable, app), listed)


def _usable(app: App) -> Sequence[Model]:
    """Return the models if no agent could be started: those of the named provider, or else of all
    usable ones."""
    for changes in ({"model": ""}, {"model": "", "provider": ""}):
        with suppress(ConfigError):
            setup = app.find_plan(no_session=True, **changes).setup
            return AvailableModels(setup).all()
    return ()


def _whose(id: str, models: Sequence[Model]) -> str:
    """Return the provider of the model; empty: not in the list."""
    return next((model.provider for model in models if model.id == id), "")


def _choose_model(
    app: App, models: Sequence[Model], then: Callable[[], None] = lambda: None
) -> None:
    present = app.built.models.current if app.built is not None else None
    items = [MenuItem(f"{model.provider}/{model.id}", _facts(model), model) for model in models]
    chosen = next((place for place, model in enumerate(models) if model == present), 0)

    def pick(value: Model) -> None:
        use_model(app, value.id, value.provider, then)

    app.dialogs.choose("Model", items, pick, chosen)


def use_model(app: App, name: str, provider: str, then: Callable[[], None] = lambda: None) -> None:
    """Switch the conversation to the model; without a runtime, start one with it."""
    if app.built is None:
        app.load(provider=provider, model=name)
        return
    runtime = app.built

    def told(model: Model) -> None:
        later = " from the next prompt on" if runtime.runs.busy else ""
        app.note(f"model: {model.provider}/{model.id}{later}")
        app.refresh_status()
        then()

    app.work(lambda: runtime.models.set(name, provider, later=True), told)


def _facts(model: Model) -> str:
    parts = [f"{amount(model.context_window)} context"] if model.context_window else []
    parts += ["thinks"] if model.reasoning else []
    parts += ["sees images"] if model.images else []
    if model.price is not None and (model.price.input or model.price.output):
        parts.append(f"${model.price.input:g} in, ${model.price.output:g} out a million")
    return ", ".join(parts)


def reasoning(app: App, args: str) -> None:
    able = levels(app.runtime.models.current)
    if args:
        level = next((level for level in able if level == args), None)
        if level is None:
            raise CommandError(f"this model can think: {', '.join(able)}")
        _use_level(app, level)
        return
    chosen = able.index(clamped(app.runtime.agent.settings.reasoning, app.runtime.models.current))
    items = [MenuItem(level) for level in able]
    app.dialogs.choose("How much to think", items, lambda level: _use_level(app, level), chosen)


def _use_level(app: App, level: Level) -> None:
    app.runtime.models.set_reasoning(level, while_busy=True, clamp=True)
    app.note(f"reasoning: {level}")
    app.refresh_status()


# --- logins ----------------------------------------------------------------------------------


Then = Callable[[], None]


def _nothing() -> None:
    """Do nothing afterwards."""


def log_in(app: App, provider: str, then: Then = _nothing) -> None:
    known = Known(app.around.home)
    if provider:
        _choose_way(app, known.provider(provider), then)
        return
    stored = AuthFile(app.around.home).all()
    infos = [info for info in known.providers().values() if info.auth != "none"]
    items = [
        MenuItem(info.title or info.name, "logged in" if info.name in stored else "", info)
        for info in infos
    ]
    app.dialogs.choose("Log in to", items, lambda info: _choose_way(app, info, then))


def _choose_way(app: App, info: ProviderInfo, then: Then) -> None:
    if info.auth == "none":
        raise CommandError(f"{info.name} needs no login")
    try:
        server = oauth.server_of(info.name, app.around.home)
    except ZotError:
        _ask_key(app, info, then)
        return
    ways = [
        ("with an API key", "", lambda: _ask_key(app, info, then)),
        ("with the browser", "", lambda: _browser(app, info, server, then)),
    ]
    if server.device_url:
        device = partial(_device, app, info, server, then)
        ways.append(("with a code on another device", "", device))
    app.dialogs.offer(f"Log in to {info.title or info.name}", *ways)


def _ask_key(app: App, info: ProviderInfo, then: Then) -> None:
    def answer(_: object, key: str) -> None:
        if not key.strip():
            return
        home = app.around.home
        app.note("trying the key")
        app.work(
            lambda: keep_key(info, key.strip(), home),
            lambda note: logged_in(app, info, then, note),
        )

    title = f"API key of {info.title or info.name}:"
    where = "it is kept in zot's home, for you alone; enter keeps it, esc leaves"
    app.dialogs.ask(ShownQuestion(title, where, secret=True), answer)


def _browser(app: App, info: ProviderInfo, server: oauth.AuthServer, then: Then) -> None:
    """Log in by a redirect to a local page, or with a code that the person pastes."""
    page = CallbackPage(server)
    attempt = page.attempt
    if server.manual_redirect:
        attempt = oauth.begin(server, server.manual_redirect)
    cancel = Cancel()

    def paste(text: str) -> None:
        page.paste(oauth.pasted_code(text, attempt))

    def wait() -> None:
        with closing(page):
            credential = oauth.exchange(server, attempt, page.wait(cancel))
        AuthFile(app.around.home).put(info.name, credential)

    app.note(f"open this address in a browser: {attempt.url}")
    app.work(wait, lambda _: logged_in(app, info, then))
    app.dialogs.ask_text("Code, or the address the browser ends on:", "", paste)


def _device(app: App, info: ProviderInfo, server: oauth.AuthServer, then: Then) -> None:
    def begun(device: oauth.Device) -> None:
        address = device.verification_uri_complete or device.verification_uri
        app.note(f"open {address} on any device and enter the code {device.user_code}")

        def finish() -> None:
            credential = oauth.finish_device(server, device, Cancel())
            AuthFile(app.around.home).put(info.name, credential)

        app.work(finish, lambda _: logged_in(app, info, then))

    app.work(lambda: oauth.begin_device(server), begun)


def logged_in(app: App, info: ProviderInfo, then: Then, note: str = "") -> None:
    """Use the stored credential: reconnect, or start with it."""
    if note:
        app.note(note, "warning")
    app.note(f"logged in to {info.title or info.name}")
    if app.built is None:
        app.load(provider=info.name, model="")
        return
    runtime = app.runtime
    if runtime.models.current.provider == info.name:
        app.work(runtime.models.reconnect, lambda _: then())
    else:
        then()


def logout(app: App, args: str) -> None:
    home = app.around.home
    if args:
        log_out(args, home)
        app.note(f"logged out of {args}")
        return
    stored = list(AuthFile(home).all())
    if not stored:
        app.note("you are logged in nowhere; keys in variables are not kept by zot")
        return
    app.dialogs.choose(
        "Log out of", [MenuItem(name) for name in stored], lambda name: logout(app, str(name))
    )


# --- models on this machine -------------------------------------------------------------------


def local(app: App, args: str) -> None:
    """Pick a model that runs inside zot; download it first if necessary."""
    if args:
        model = next((model for model in known_models() if model.name == args), None)
        if model is None:
            names = ", ".join(model.name for model in known_models())
            raise ZotError(f"there is no local model {args!r}; there is: {names}")
        use_local(app, model)
        return

    def pick(value: LocalModel) -> None:
        use_local(app, value)

    def delete(value: LocalModel) -> None:
        app.dialogs.confirm(
            f"Remove {value.name} from this machine?", lambda: _remove(app, value, menu)
        )

    keys = {"ctrl+d": delete}
    menu = app.dialogs.choose(
        "Models on this machine", _local_items(app), pick, keys=keys, hint=LOCAL_HINT
    )


def _local_items(app: App) -> list[MenuItem]:
    home = app.around.home
    running = {Path(server.model).stem for server in running_servers(Path(home, "local"))}
    items = []
    for model in known_models():
        state = "here" if is_pulled(model, home) else f"a download of {size_text(model.bytes)}"
        state = "running" if model.name in running else state
        detail = f"{state}; {model.title}, {model.licence}, good for {model.good_for}"
        items.append(MenuItem(model.name, detail, model))
    return items


def _remove(app: App, model: LocalModel, menu: Menu) -> None:
    gone = remove(model, app.around.home)
    app.note(f"removed {model.name}" if gone else f"{model.name} is not on this machine")
    menu.replace(_local_items(app))


class ProgressBlock(LiveBlock):
    """A progress bar of a download."""

    def __init__(self, title: str) -> None:
        self.closed = False
        self._title = title
        self._done = self._total = 0

    def set(self, done: int, total: int) -> None:
        self._done, self._total = done, total

    def close(self) -> None:
        self.closed = True

    def lines(self, width: int, *, folded: bool = True) -> list[Line]:
        share = self._done / self._total if self._total else 0.0
        filled = int(BAR_CELLS * share)
        bar = "█" * filled + "░" * (BAR_CELLS - filled)
        size = f" {self._done / 1e6:.0f} of {self._total / 1e6:.0f} MB" if self._total else ""
        return [clip((("", self._title + " "), ("accent", bar), ("dim", size)), width)]


def use_local(app: App, model: LocalModel) -> None:
    """Switch to the model; download it first if necessary."""
    home = app.around.home
    if is_pulled(model, home):
        _go_on(app, model)
        return
    bar = ProgressBlock(f"downloading {model.name}")
    app.show(bar)

    def work() -> None:
        try:
            pull(model, lambda done, total: app.loop.post(lambda: bar.set(done, total)), home)
        finally:
            app.loop.post(bar.close)

    app.work(work, lambda _: _go_on(app, model))


def _go_on(app: App, model: LocalModel) -> None:
    app.note(f"{model.name} is here")
    use_model(app, model.name, "local")


# --- when there is no model, or it cannot be asked -------------------------------------------


def first_run(app: App) -> None:
    """Offer three ways to get a model to a person who has none yet."""
    app.dialogs.offer(
        "Welcome to zot. It needs a model:",
        ("an API key or a login", "Anthropic, OpenAI, Google and others", lambda: log_in(app, "")),
        (
            "a server on this machine",
            "ollama, llama.cpp, LM Studio, vLLM",
            lambda: _find_server(app),
        ),
        (
            "a model that runs inside zot",
            "no key, no network; a download",
            lambda: local(app, ""),
        ),
    )


def _find_server(app: App) -> None:
    app.note("looking for a server on this machine")
    app.chat.seeks_server = True
    app.load(provider="", model="")


def rescue(app: App, code: str) -> None:
    """Offer to repeat a failed prompt: with another model, after a login, or unchanged."""
    if code not in RESCUED:
        return
    provider = app.runtime.models.current.provider
    runtime = app.runtime

    def again() -> None:
        app.work(runtime.retry)

    def other() -> None:
        app.work(runtime.models.all, lambda models: _choose_model(app, models, again))

    login = (f"after a login to {provider}", "", lambda: log_in(app, provider, again))
    ways = (
        ("with another model", "the same prompt; nothing is typed again", other),
        ("try again", "", again),
    )
    title = f"{RESCUED[code]}. Go on:"
    if code == "auth":
        app.dialogs.offer(title, login, *ways)
    else:
        app.dialogs.offer(title, *ways, login)
