"""Parses the command line into `Options`, using the table of settings.

Hand-written because argparse alone takes as long to load as everything `zot rpc` needs for its
first answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from zot.errors import UsageError
from zot.provider.model import Json, Level
from zot.settings.table import FILE_SETTINGS, SETTINGS, Setting, from_text
from zot.text import Frozen, nearest

if TYPE_CHECKING:
    from typing import Literal


class TerminalOptions(Frozen, kw_only=True):
    """Options of the terminal UI; no other front end reads them."""

    theme: str | None = None
    vi: bool | None = None
    status_line: tuple[str, ...] | None = None
    images: str | None = None
    file_links: str | None = None
    linear: bool = False


class Options(TerminalOptions):
    """Values from the command line. None, empty and False mean "not given"."""

    words: tuple[str, ...] = ()
    help: bool = False
    version: bool = False
    print: bool = False
    json: bool = False
    rpc: bool = False
    list_models: bool = False
    provider: str = ""
    model: str = ""
    api_key: str = ""
    base_url: str = ""
    reasoning: Level | None = None
    fallback_models: tuple[str, ...] = ()
    script: str = ""
    cwd: str = ""
    system_prompt: str | None = None
    append_system_prompt: tuple[str, ...] = ()
    context_files: bool | None = None
    tools: tuple[str, ...] | None = None
    no_tools: bool = False
    tasks: bool | None = None
    swarm_budget: float | None = None
    approve: tuple[str, ...] | None = None
    yolo: bool = False
    approval_timeout: float | None = None
    jail: bool = False
    max_steps: int | None = None
    max_cost: float | None = None
    max_tokens: int | None = None
    max_seconds: float | None = None
    spend_file: str = ""
    idle_timeout: float | None = None
    max_tries: int | None = None
    compact_at: float | None = None
    continue_: bool = False
    resume: bool = False
    session: str = ""
    no_session: bool = False
    durable: bool = False
    on_crash: Literal["continue", "hold", "fail"] | None = None
    ext: tuple[str, ...] = ()
    extensions: bool | None = None
    mcp: bool | None = None
    trust: bool = False
    skills: bool | None = None
    record: str = ""
    replay: str = ""
    mode: str = ""
    pi_protocol: str = ""
    models: str = ""
    session_dir: str = ""
    session_id: str = ""
    session_name: str = ""
    fork: str = ""
    export: str = ""


def chosen(options: Options, name: str) -> Any:
    """Return the value of a setting, or its default if it was not given."""
    value = getattr(options, name)
    return SETTINGS[name].default if value is None else value


FLAGS: dict[str, Setting] = {
    word: setting for setting in SETTINGS.values() for word in (*setting.words, *setting.fixed)
}
IGNORED = ("--experimental-oauth",)
"""Flags of the Go program that have no effect, there and here."""
ELSEWHERE = {
    "--stream": "-p prints the answer when it is complete, --json every event as it comes",
    "--stats": "--json has the tokens and the cost in its usage events",
    "--insecure": "certificates are always checked; SSL_CERT_FILE names a file with your own",
    "--temperature": "each model runs with its provider's own temperature",
}
"""Flags of the Go program that zot lacks, and what to use instead."""


def takes_value(word: str) -> bool:
    setting = FLAGS[word]
    return word not in setting.fixed and setting.kind != "switch"


def parse(argv: Sequence[str]) -> Options:
    """Parse the command line.

    Raises:
        UsageError: a flag is unknown, or its value is missing or wrong.
    """
    said: dict[str, Json] = {}
    words: list[str] = []
    rest = iter(argv)
    for word in rest:
        if word == "--":
            words.extend(rest)
        elif word.startswith("-") and word != "-":
            _take(word, rest, said)
        else:
            words.append(word)
    return Options(**said, words=tuple(words))


def _take(word: str, rest: Iterator[str], said: dict[str, Json]) -> None:
    name, equals, text = word.partition("=")
    if name in IGNORED:
        return
    if name not in FLAGS:
        raise UsageError(_unknown(name))
    setting = FLAGS[name]
    if not takes_value(name):
        if equals:
            raise UsageError(f"{name} takes no value, got {text!r}")
        said[setting.name] = setting.fixed.get(name, True)
        return
    if not equals:
        following = next(rest, None)
        if following is None:
            raise UsageError(f"{name} needs a value: {name} {setting.value}")
        text = following
    try:
        if setting.kind == "list":
            said[setting.name] = (*said.get(setting.name, ()), text)
        else:
            said[setting.name] = from_text(setting, text)
    except ValueError as error:
        raise UsageError(f"{name} {error}") from error


def _unknown(name: str) -> str:
    if name in ELSEWHERE:
        return f"zot has no flag {name}: {ELSEWHERE[name]}"
    near = nearest(name, FLAGS)
    hint = f" (did you mean {near[0]}?)" if near else ""
    return f"unknown flag {name!r}{hint}; `zot --help` lists them all"


def with_defaults(options: Options) -> Options:
    """Return the options with defaults for all file settings that are None."""
    defaults = {name: setting.default for name, setting in FILE_SETTINGS.items()}
    return replace(options, **{n: v for n, v in defaults.items() if getattr(options, n) is None})
