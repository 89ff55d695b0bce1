"""`/llama`: list, download, use and remove models on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from zot.errors import ZotError
from zot.local.models import LocalModel, is_pulled, known_models
from zot.local.pull import pull, remove
from zot.local.server import running_servers
from zot.serve.interactive.slash import models
from zot.text import size_text
from zot.tui.blocks import LiveBlock
from zot.tui.cells import Line, clip
from zot.tui.menu import Menu, MenuItem

if TYPE_CHECKING:
    from zot.serve.interactive.app import App

WIDTH = 30
"""Width of the progress bar, in cells."""
HINT = "enter downloads and uses it, ctrl+d removes it from this machine, esc leaves"


def local(app: App, args: str) -> None:
    """Pick a model that runs inside zot; download it first if necessary."""
    if args:
        model = next((model for model in known_models() if model.name == args), None)
        if model is None:
            names = ", ".join(model.name for model in known_models())
            raise ZotError(f"there is no local model {args!r}; there is: {names}")
        use_local(app, model)
        return

    def pick(value: object) -> None:
        assert isinstance(value, LocalModel)
        use_local(app, value)

    def delete(value: object) -> None:
        assert isinstance(value, LocalModel)
        app.dialogs.confirm(
            f"Remove {value.name} from this machine?", lambda: _remove(app, value, menu)
        )

    keys = {"ctrl+d": delete}
    menu = app.dialogs.choose("Models on this machine", _items(app), pick, keys=keys, hint=HINT)


def _items(app: App) -> list[MenuItem]:
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
    menu.replace(_items(app))


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
        filled = int(WIDTH * share)
        bar = "█" * filled + "░" * (WIDTH - filled)
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
    models.use_model(app, model.name, "local")
