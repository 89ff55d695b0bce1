"""Commands for conversations: rewind, other sessions, branches, export and import."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from zot.core.session import ChangedFile, ExportFormat, SessionInfo
from zot.errors import CommandError
from zot.provider.types import Message, texts_in
from zot.runtime.rewind import Checkpoint, Rewound
from zot.serve.interactive.status import age, folder
from zot.serve.interactive.view import first_shown, replay
from zot.sessions import library
from zot.sessions.export import import_file
from zot.tui.blocks import LinesBlock, LiveBlock
from zot.tui.cells import Line, clean, clip
from zot.tui.diff import DiffLines, counts_line
from zot.tui.menu import AnswerKey, MenuItem, ShownQuestion

if TYPE_CHECKING:
    from zot.serve.interactive.app import App

FORMATS: tuple[ExportFormat, ...] = ("markdown", "html", "json", "zotsession", "pi")


Result = TypeVar("Result")


# --- going back ------------------------------------------------------------------------------


def rewind(app: App, args: str) -> None:
    moments = app.runtime.history.checkpoints()
    if not moments:
        raise CommandError("there is nothing to go back to yet")
    items = [MenuItem(_shown(moment.text), _moment(moment), moment.id) for moment in moments[::-1]]
    app.dialogs.choose("Go back to before", items, lambda id: look_back(app, str(id)))


def look_back(app: App, to: str) -> None:
    runtime = app.runtime
    keeps = runtime.session.contents is not None
    app.work(
        lambda: runtime.history.rewind(to, files=keeps, preview=True),
        lambda seen: _ask_back(app, seen),
    )


def _ask_back(app: App, seen: Rewound) -> None:
    foreign = [file for file in seen.files if file.state == "changed"]
    replies = [AnswerKey("c", f"the conversation ({seen.messages} messages)", (True, False, False))]
    if seen.files:
        count = f"{len(seen.files)} file{'s' * (len(seen.files) != 1)}"
        replies.insert(0, AnswerKey("b", f"the conversation and {count}", (True, True, False)))
        replies.append(AnswerKey("f", f"{count}, not the conversation", (False, True, False)))
    if foreign:
        label = "both, and also the files that someone else changed"
        replies.append(AnswerKey("x", label, (True, True, True)))

    def answer(value: tuple[bool, bool, bool], _: str) -> None:
        conversation, files, force = value
        runtime = app.runtime
        app.work(
            lambda: runtime.history.rewind(
                seen.checkpoint, conversation=conversation, files=files, force=force
            ),
            lambda done: _went_back(app, done, conversation=conversation),
        )

    title = f"Back to before: {_shown(seen.text)}"
    app.dialogs.ask(
        ShownQuestion(title, lambda width: file_lines(seen.files, width), replies), answer
    )


def _went_back(app: App, done: Rewound, *, conversation: bool) -> None:
    for file in done.files:
        if file.state != "ok":
            app.note(f"{file.path} was left as it is: {file.note}", "warning")
    touched = [file for file in done.files if file.state == "ok"]
    parts = [f"{done.messages} messages"] if conversation else []
    parts += [f"{len(touched)} file{'s' * (len(touched) != 1)}"] if touched else []
    app.note(f"went back by {' and '.join(parts) or 'nothing'}")
    if conversation and not app.editor.text:
        app.editor.set(done.text)
    app.refresh_status()


def file_lines(files: tuple[ChangedFile, ...] | list[ChangedFile], width: int) -> list[Line]:
    lines: list[Line] = []
    for file in files:
        note = f"  ({file.note})" if file.note else ""
        counts = (("", "  "), *counts_line(file.diff)) if file.diff else ()
        head = (("accent", clean(file.path)), *counts, ("warn", note))
        lines.append(clip(head, width, "..."))
        if file.diff:
            lines += DiffLines(file.diff, width, file.path)
    return lines


class ChangesBlock(LiveBlock):
    """Complete diffs of files."""

    def __init__(self, files: list[ChangedFile]) -> None:
        self._files = files

    def lines(self, width: int, *, folded: bool = True) -> list[Line]:
        return file_lines(self._files, width)


def diff(app: App, args: str) -> None:
    runtime = app.runtime

    def show(files: list[ChangedFile]) -> None:
        wanted = [file for file in files if args in file.path]
        if not wanted:
            app.note("no tool has changed a file in this session")
        else:
            app.show(ChangesBlock(wanted))

    app.work(runtime.history.changed_files, show)


def jump(app: App, args: str) -> None:
    """Show a turn of the conversation again."""
    turns = _turns(app.runtime.session.messages())
    wanted = [(text, turn) for text, turn in turns if args.casefold() in text.casefold()]
    if not wanted:
        raise CommandError("there is no such prompt in this conversation")
    items = [MenuItem(_shown(text), "", turn) for text, turn in wanted[::-1]]

    def pick(value: tuple[Message, ...]) -> None:
        assert app.view is not None
        replay(app.view, value)

    app.dialogs.choose("Show again", items, pick)


def _turns(messages: tuple[Message, ...]) -> list[tuple[str, tuple[Message, ...]]]:
    starts = [place for place, message in enumerate(messages) if message.role == "user"]
    ends = [*starts[1:], len(messages)]
    return [
        (_text(messages[a]), messages[a:b]) for a, b in zip(starts, ends, strict=True) if starts
    ]


# --- sessions --------------------------------------------------------------------------------


def sessions(app: App, args: str) -> None:
    runtime = app.runtime
    home = app.around.home
    if args:
        app.work(
            lambda: [(hit.summary, hit.text) for hit in library.search(args, runtime.cwd, home)][
                :200
            ],
            lambda hits: _choose_session(app, [(info, text) for info, text in hits]),
        )
        return
    _list_sessions(app, everywhere=False)


def _list_sessions(app: App, *, everywhere: bool) -> None:
    """List the sessions of this directory, or of all; a key changes between the two."""
    runtime = app.runtime

    def show(infos: Sequence[SessionInfo]) -> None:
        if not infos and not everywhere:
            _list_sessions(app, everywhere=True)
            return
        rows = [(info, _about(info, everywhere=everywhere)) for info in infos]
        _choose_session(app, rows, lambda: _list_sessions(app, everywhere=not everywhere))

    app.work(lambda: runtime.sessions.list(everywhere=everywhere, limit=500), show)


def _choose_session(
    app: App, rows: list[tuple[SessionInfo, str]], elsewhere: Callable[[], None] | None = None
) -> None:
    if not rows:
        app.note("there is no such session here")
        return

    def items() -> list[MenuItem]:
        return [MenuItem(_shown(info.title or info.first_text), text, info) for info, text in rows]

    def pick(value: SessionInfo) -> None:
        if value.cwd in ("", app.runtime.cwd):
            resume(app, value.path)
        else:
            app.note(f"working in {value.cwd}")
            app.load(cwd=value.cwd, session=value.path)

    def change_list(_: SessionInfo) -> None:
        app.dialogs.close(menu)
        assert elsewhere is not None
        elsewhere()

    def rename(value: SessionInfo) -> None:
        def named(title: str) -> None:
            library.rename(value.path, title)
            rows[:] = [
                (replace(info, title=title) if info.path == value.path else info, text)
                for info, text in rows
            ]
            menu.replace(items())

        app.dialogs.ask_text("The session's name:", value.title, named)

    def delete(value: SessionInfo) -> None:
        def deleted() -> None:
            if value.path == app.runtime.sessions.info().path:
                raise CommandError("this session is in use; begin a new one first: /new")
            library.remove(value.path)
            rows[:] = [row for row in rows if row[0].path != value.path]
            menu.replace(items())

        app.dialogs.confirm(f"Delete {_shown(value.title or value.first_text)}?", deleted)

    hint = "enter goes on with it · ctrl+r renames · ctrl+d deletes"
    keys: dict[str, Callable[[SessionInfo], None]] = {"ctrl+r": rename, "ctrl+d": delete}
    if elsewhere is not None:
        hint += " · ctrl+a all directories, or this one"
        keys["ctrl+a"] = change_list
    menu = app.dialogs.choose("Sessions", items(), pick, keys=keys, hint=hint)


def resume(app: App, path: str) -> None:
    def told(info: SessionInfo) -> str:
        return f"session: {info.title or info.first_text or info.id}"

    _move(app, lambda: app.runtime.sessions.load(path), told)


def _move(
    app: App, go: Callable[[], Result], told: Callable[[Result], str], *, shows: bool = True
) -> None:
    """Stop the runtime, call `go`, note the result, and show the end of the new conversation."""
    runtime = app.runtime

    def work() -> Result:
        runtime.stop()
        return go()

    def then(result: Result) -> None:
        app.note(told(result))
        if shows:
            assert app.view is not None
            messages = runtime.session.messages()
            replay(app.view, messages[first_shown(messages) :])
        app.refresh_status()

    app.work(work, then)


def session(app: App, args: str) -> None:
    """Run a subcommand of `/session`."""
    word, _, rest = args.partition(" ")
    rest = rest.strip()
    match word:
        case "export":
            _export(app, rest)
        case "import" if rest:
            cwd, home = app.runtime.cwd, app.around.home
            path = app.around.absolute(rest)
            app.work(lambda: import_file(path, cwd, home), lambda target: resume(app, target))
        case "fork":
            _fork(app)
        case "tree":
            tree(app)
        case "timeline":
            timeline(app)
        case "rename" if rest:
            app.runtime.sessions.set_title(rest)
            app.note(f"the session is called {rest!r}")
        case "":
            parts = ("export", "fork", "tree", "timeline")
            app.dialogs.choose(
                "Session", [MenuItem(part) for part in parts], lambda part: session(app, str(part))
            )
        case _:
            raise CommandError(
                "/session export [FORMAT] [FILE], import FILE, fork, tree, timeline, rename NAME"
            )


def _export(app: App, args: str) -> None:
    word, _, target = args.partition(" ")
    format = next((format for format in FORMATS if format == word), None)
    target = target.strip() if format else args
    runtime = app.runtime
    path = app.around.absolute(target) if target else runtime.cwd
    app.work(
        lambda: runtime.sessions.export("", format or "markdown", path),
        lambda exported: app.note(f"written to {exported.path}"),
    )


def _fork(app: App) -> None:
    def told(info: SessionInfo) -> str:
        return f"going on in a copy: {info.path or 'in memory'}; the session before it stays"

    _move(app, app.runtime.sessions.fork, told, shows=False)


def tree(app: App) -> None:
    """Show all branches; picking a prompt continues after its answer, on its branch."""
    session = app.runtime.session
    current = {entry.id for entry in session.path()}
    depths: dict[str | None, int] = {None: 0}
    items = []
    for entry in session.entries.values():
        depth = depths.get(entry.parent, 0)
        body = entry.body
        if isinstance(body, Message) and body.role == "user":
            mark = "* " if entry.id in current else "  "
            items.append(MenuItem("  " * depth + mark + _shown(_text(body)), "", entry.id))
            depth += 1
        depths[entry.id] = depth
    if not items:
        raise CommandError("there is nothing in this session yet")

    def pick(value: object) -> None:
        leaf = _end_of_turn(app, str(value))
        _move(app, lambda: app.runtime.history.go_to(leaf), lambda _: "going on from there")

    app.dialogs.choose("Branches", items, pick)


def _end_of_turn(app: App, prompt: str) -> str:
    """Return the last entry that answers a prompt, on its first branch."""
    last = prompt
    for entry in app.runtime.session.entries.values():
        if entry.parent == last:
            body = entry.body
            if isinstance(body, Message) and body.role == "user":
                break
            last = entry.id
    return last


def timeline(app: App) -> None:
    moments = app.runtime.history.checkpoints()
    if not moments:
        raise CommandError("there is nothing in this session yet")
    rows: list[Line] = [(("heading", "Timeline"),)]
    for moment in moments:
        said = ("", clean(_shown(moment.text)))
        rows.append((("dim", f"  {_when(moment.time)}  "), said, ("accent", f"  {_files(moment)}")))
    app.show(LinesBlock(rows))


# --- small helpers ---------------------------------------------------------------------------


def _when(seconds: float) -> str:
    return time.strftime("%d %b %H:%M", time.localtime(seconds))


def _shown(text: str) -> str:
    return " ".join(text.split())[:200] or "(no text)"


def _text(message: Message) -> str:
    return "\n".join(texts_in(message.content))


def _moment(moment: Checkpoint) -> str:
    return ", ".join(filter(None, (_when(moment.time), _files(moment))))


def _files(moment: Checkpoint) -> str:
    count = len(moment.files)
    return f"{count} file{'s' if count > 1 else ''}" if count else ""


def _about(info: SessionInfo, *, everywhere: bool = False) -> str:
    """Return the age, in a column, and what else tells sessions apart."""
    cost = f", ${info.cost:.2f}" if info.cost else ""
    where = f"  {folder(info.cwd)}" if everywhere else ""
    return f"{age(info.modified):>6}{where}  {info.messages} messages, {info.model}{cost}"
