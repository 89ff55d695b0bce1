"""The command line as data: one table that parses, and that `--help` prints.

Hand-written because argparse alone takes as long to load as everything `zot rpc` needs for its
first answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from msgspec import Struct

from zot.errors import ConfigError
from zot.provider.types import LEVELS, Level

Kind = Literal["yes", "text", "list", "words", "int", "float", "level"]
"""yes: takes no value; list: may be repeated; words: separated by commas."""


class UsageError(ConfigError):
    """The command line cannot be understood; exit code 2."""

    code = "usage"


class Flag(Struct, frozen=True):
    names: tuple[str, ...]
    field: str
    kind: Kind
    group: str
    help: str
    value: str = ""
    """What stands for the value in the help."""


class Options(Struct, frozen=True):
    """What the command line said. None and empty mean that it said nothing."""

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
    fallback_model: tuple[str, ...] = ()
    script: str = ""
    cwd: str = ""
    system_prompt: str | None = None
    append_system_prompt: tuple[str, ...] = ()
    no_context_files: bool = False
    tools: tuple[str, ...] | None = None
    no_tools: bool = False
    approve: tuple[str, ...] | None = None
    yolo: bool = False
    jail: bool = False
    max_steps: int | None = None
    max_cost: float | None = None
    max_tokens: int | None = None
    max_seconds: float | None = None
    idle_timeout: float | None = None
    compact_at: float | None = None
    no_auto_compact: bool = False
    continue_: bool = False
    resume: bool = False
    session: str = ""
    no_session: bool = False
    ext: tuple[str, ...] = ()
    no_ext: bool = False
    trust: bool = False
    no_skills: bool = False
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


FLAGS: tuple[Flag, ...] = (
    Flag(("-p", "--print"), "print", "yes", "Modes", "answer once; only the final text on stdout"),
    Flag(("--json",), "json", "yes", "Modes", "answer once; every event as a JSON line, last done"),
    Flag(("--rpc",), "rpc", "yes", "Modes", "the same as `zot rpc`: commands in, events out"),
    Flag(("--mode",), "mode", "text", "pi", "speak pi's protocol, see docs/pi.md", "rpc|json|text"),
    Flag(("--pi-protocol",), "pi_protocol", "text", "pi", "pin its generation", "a|b|c"),
    Flag(("--models",), "models", "text", "pi", "what cycle_model goes through", "a,b"),
    Flag(("--session-dir",), "session_dir", "text", "pi", "where sessions are kept", "DIR"),
    Flag(("--session-id",), "session_id", "text", "pi", "the id of a new session", "ID"),
    Flag(("--fork",), "fork", "text", "pi", "start with a copy of a session", "PATH|ID"),
    Flag(("--export",), "export", "text", "pi", "make a page of a session file", "FILE [OUT]"),
    Flag(("--name",), "session_name", "text", "pi", "the name of the session", "TEXT"),
    Flag(("--list-models",), "list_models", "yes", "Modes", "the models of the provider"),
    Flag(("-h", "--help"), "help", "yes", "Modes", "this text"),
    Flag(("-v", "--version"), "version", "yes", "Modes", "the version"),
    Flag(("--provider",), "provider", "text", "Model", "anthropic, openai, local, ...", "NAME"),
    Flag(("--model",), "model", "text", "Model", "a model of that provider", "ID"),
    Flag(
        ("--api-key",),
        "api_key",
        "text",
        "Model",
        "better: the provider's variable (other users can see arguments)",
        "KEY",
    ),
    Flag(("--base-url",), "base_url", "text", "Model", "another server for the same API", "URL"),
    Flag(
        ("--reasoning", "--thinking"),
        "reasoning",
        "level",
        "Model",
        "how much to think",
        "|".join(LEVELS),
    ),
    Flag(
        ("--fallback-model",),
        "fallback_model",
        "list",
        "Model",
        "when the model fails for good; may be repeated",
        "[PROVIDER/]ID",
    ),
    Flag(("--script",), "script", "text", "Model", "turns for `--provider scripted`", "FILE"),
    Flag(("--cwd",), "cwd", "text", "Agent", "work in this directory", "DIR"),
    Flag(("--system-prompt",), "system_prompt", "text", "Agent", "instead of the built-in", "TEXT"),
    Flag(
        ("--append-system-prompt",),
        "append_system_prompt",
        "list",
        "Agent",
        "add to the system prompt; may be repeated",
        "TEXT",
    ),
    Flag(
        ("-nc", "--no-context-files"),
        "no_context_files",
        "yes",
        "Agent",
        "do not read AGENTS.md files",
    ),
    Flag(("--tools",), "tools", "words", "Agent", "only these tools", "a,b"),
    Flag(("--no-tools",), "no_tools", "yes", "Agent", "no tools at all"),
    Flag(("--approve",), "approve", "words", "Agent", "ask before these tools run", "a,b"),
    Flag(("--yolo",), "yolo", "yes", "Agent", "never ask"),
    Flag(
        ("--jail",),
        "jail",
        "yes",
        "Agent",
        "keep the built-in tools in the working directory, without network",
    ),
    Flag(("-e", "--ext"), "ext", "list", "Agent", "load an extension; may be repeated", "DIR"),
    Flag(("--no-ext", "--no-extensions"), "no_ext", "yes", "Agent", "load no extension"),
    Flag(
        ("--trust",),
        "trust",
        "yes",
        "Agent",
        "use the extensions and settings of the project in .zot/, for this run",
    ),
    Flag(("--no-skills", "--no-skill"), "no_skills", "yes", "Agent", "offer no skills"),
    Flag(("--max-steps",), "max_steps", "int", "Limits", "model calls for one prompt", "N"),
    Flag(("--max-cost",), "max_cost", "float", "Limits", "US dollars for one prompt", "USD"),
    Flag(("--max-tokens",), "max_tokens", "int", "Limits", "tokens for one prompt", "N"),
    Flag(("--max-seconds",), "max_seconds", "float", "Limits", "time for one prompt", "S"),
    Flag(
        ("--idle-timeout",),
        "idle_timeout",
        "float",
        "Limits",
        "give up on a stream that is silent for so long (120)",
        "S",
    ),
    Flag(
        ("--compact-at",),
        "compact_at",
        "float",
        "Limits",
        "compact when the context passes this part of the window (85)",
        "PERCENT",
    ),
    Flag(("--no-auto-compact",), "no_auto_compact", "yes", "Limits", "never compact unasked"),
    Flag(("-c", "--continue"), "continue_", "yes", "Sessions", "go on with the latest session"),
    Flag(("-r", "--resume"), "resume", "yes", "Sessions", "choose a session to go on with"),
    Flag(("--session",), "session", "text", "Sessions", "use this session file", "PATH"),
    Flag(("--no-session",), "no_session", "yes", "Sessions", "keep nothing"),
    Flag(("--record",), "record", "text", "Testing", "write a cassette of the run", "FILE"),
    Flag(("--replay",), "replay", "text", "Testing", "answer from a cassette", "FILE"),
)

_BY_NAME = {name: flag for flag in FLAGS for name in flag.names}


def known_flags() -> dict[str, bool]:
    """Every flag, and whether it takes a value."""
    return {name: flag.kind != "yes" for name, flag in _BY_NAME.items()}


LEVEL_WORDS: dict[str, Level] = {
    **{level: level for level in LEVELS},
    "none": "off",
    "min": "minimum",
    "minimal": "minimum",
    "med": "medium",
    "hi": "high",
    "maximum": "xhigh",
}


def parse(argv: Sequence[str]) -> Options:
    """The command line as options.

    Raises:
        UsageError: a flag is unknown, or its value is missing or wrong.
    """
    found: dict[str, Any] = {}
    words: list[str] = []
    rest = iter(argv)
    for word in rest:
        if word == "--":
            words.extend(rest)
        elif word.startswith("-") and word != "-":
            _take(word, rest, found)
        else:
            words.append(word)
    return Options(**found, words=tuple(words))


def _take(word: str, rest: Any, found: dict[str, Any]) -> None:
    name, equals, value = word.partition("=")
    flag = _BY_NAME.get(name)
    if flag is None:
        raise UsageError(f"unknown flag {name!r}{_near(name)}; `zot --help` lists them all")
    if flag.kind == "yes":
        if equals:
            raise UsageError(f"{name} takes no value, got {value!r}")
        found[flag.field] = True
        return
    if not equals:
        given = next(rest, None)
        if given is None:
            raise UsageError(f"{name} needs a value: {name} {flag.value}")
        value = given
    if flag.kind == "list":
        found[flag.field] = (*found.get(flag.field, ()), value)
    else:
        found[flag.field] = _converted(flag, name, value)


def _converted(flag: Flag, name: str, value: str) -> Any:
    if flag.kind == "words":
        return tuple(part.strip() for part in value.split(",") if part.strip())
    if flag.kind == "level":
        if value not in LEVEL_WORDS:
            raise UsageError(f"{name} must be one of {', '.join(LEVELS)}, not {value!r}")
        return LEVEL_WORDS[value]
    if flag.kind in ("int", "float"):
        return _number(flag, name, value)
    return value


def _number(flag: Flag, name: str, value: str) -> float:
    try:
        number = int(value) if flag.kind == "int" else float(value)
    except ValueError:
        number = -1
    if not 0 < number < 1e15:
        what = "whole number" if flag.kind == "int" else "number"
        raise UsageError(f"{name} must be a positive {what}, not {value!r}")
    if flag.value == "PERCENT" and not 1 <= number <= 100:
        raise UsageError(f"{name} must be a percentage from 1 to 100, not {value!r}")
    return number


def _near(name: str) -> str:
    import difflib  # deferred: only for a mistake

    near = difflib.get_close_matches(name, list(_BY_NAME), n=1)
    return f" (did you mean {near[0]}?)" if near else ""
