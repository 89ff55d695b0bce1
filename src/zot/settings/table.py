"""Declares every setting once: flags, variables, config files, SDK keywords, `--help` and the table
of docs/config.md are generated from these rows. Part of stage one.

`Options` in flags.py and `Settings` in sdk/config.py repeat the names for type checkers; tests
compare them with this table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, assert_never

import msgspec

from zot.provider.model import LEVELS, Json, Level
from zot.text import Frozen

if TYPE_CHECKING:  # building a Literal takes longer than building the table
    from typing import Literal

    Kind = Literal["switch", "text", "list", "words", "whole", "number", "percent", "time", "level"]
    """list: the flag may be repeated; words: its value is split at commas."""

LEVEL_WORDS: dict[str, Level] = {
    **{level: level for level in LEVELS},
    "none": "off",
    "min": "minimum",
    "minimal": "minimum",
    "med": "medium",
    "hi": "high",
    "maximum": "xhigh",
}
"""Accepted names of the levels, including other programs' names."""
_SWITCH_WORDS: dict[str, Json] = {
    **dict.fromkeys(("true", "on", "1", "yes"), True),
    **dict.fromkeys(("false", "off", "0", "no"), False),
}
_WANTED: dict[Kind, str] = {
    "switch": "true or false",
    "text": "a text",
    "list": "a list of texts",
    "words": "a list of texts",
    "whole": "a positive whole number",
    "number": "a positive number",
    "percent": "a percentage from 1 to 100, or 0 for never",
    "time": "a positive number of seconds, or none",
    "level": f"one of {', '.join(LEVELS)}",
}


class Setting(Frozen):
    name: str
    """Field of Options, key in config.json and SDK keyword."""
    kind: Kind
    help: str
    value: str = ""
    """Placeholder of the value in `--help`."""
    flags: tuple[str, ...] | None = None
    """Flags on the command line; None: `--` and the name."""
    fixed: Mapping[str, Json] = {}
    """Flags without a value, and the value that each one sets."""
    pi: Mapping[str, str] = {}
    """pi's flags that zot does not have, and zot's flag for each."""
    file: Literal["", "user", "project"] = ""
    """Allowed in config.json and as a variable. "user": in a project's file only if trusted."""
    default: Json = None
    choices: tuple[str, ...] = ()
    """The only allowed texts; empty: any."""
    old: tuple[str, ...] = ()
    """Former names in files and variables, and the Go program's names."""
    sdk: bool = False
    keyword: str = ""
    """SDK keyword, if it differs from the name."""

    @property
    def words(self) -> tuple[str, ...]:
        return ("--" + self.name.replace("_", "-"),) if self.flags is None else self.flags

    @property
    def variables(self) -> tuple[str, ...]:
        names = (self.name, *self.old) if self.file else ()
        return tuple(f"ZOT_{name.upper()}" for name in names)


# Each setting takes one or two lines.
# fmt: off
GROUPS: dict[str, tuple[Setting, ...]] = {
    "Modes": (
        Setting("print", "switch", "answer once, print the final text", flags=("-p", "--print")),
        Setting("json", "switch", "answer once, print every event as a JSON line"),
        Setting("rpc", "switch", "the same as `zot rpc`: commands in, events out"),
        Setting("list_models", "switch", "the models of the provider"),
        Setting("help", "switch", "this text", flags=("-h", "--help")),
        Setting("version", "switch", "the version", flags=("-v", "--version")),
    ),
    "Model": (
        Setting("provider", "text", "anthropic, openai, local, ...", "NAME",
                file="project", sdk=True),
        Setting("model", "text", "a model of that provider, or of another one", "[PROVIDER/]ID",
                file="project", sdk=True),
        Setting("reasoning", "level", f"how much to think: {', '.join(LEVELS)} (medium)",
                "LEVEL", flags=("--reasoning", "--thinking"), file="project", sdk=True),
        Setting("api_key", "text", "better: the provider's variable (others can see arguments)",
                "KEY", sdk=True),
        Setting("base_url", "text", "another server for the same API", "URL",
                file="user", sdk=True),
        Setting("fallback_models", "list", "when the model fails for good; may be repeated",
                "[PROVIDER/]ID", flags=("--fallback-model",), file="user", sdk=True),
        Setting("script", "text", "turns for `--provider scripted`", "FILE", sdk=True),
    ),
    "Agent": (
        Setting("cwd", "text", "work in this directory", "DIR", sdk=True),
        Setting("system_prompt", "text", "instead of the built-in one", "TEXT", sdk=True),
        Setting("append_system_prompt", "list", "add to the system prompt; may be repeated",
                "TEXT", sdk=True),
        Setting("context_files", "switch", "read AGENTS.md files", flags=(), default=True,
                fixed={"-nc": False, "--no-context-files": False}, file="user", sdk=True),
        Setting("tools", "words", "only these tools", "a,b", pi={"-t": "--tools"}, sdk=True),
        Setting("no_tools", "switch", "no tools at all", pi={"-nt": "--no-tools"}, sdk=True),
        Setting("tasks", "switch", "the model may hand work to agents of its own",
                fixed={"--no-tasks": False}, file="user", sdk=True),
        Setting("swarm_budget", "number", "the model may start agents of the swarm, for so much",
                "USD", fixed={"--no-swarm": 0}, file="user", sdk=True),
        Setting("approve", "words", "ask before these tools run (all: every tool)", "a,b",
                fixed={"--no-yolo": ("all",)}, file="user"),
        Setting("yolo", "switch", "never ask"),
        Setting("approval_timeout", "time", "how long a question to a client waits",
                "S|none", file="user", default=300, sdk=True),
        Setting("jail", "switch", "keep the built-in tools in the working directory, offline",
                file="user", default=False, old=("jail_by_default",), sdk=True),
        Setting("ext", "list", "load an extension; may be repeated", "DIR", flags=("-e", "--ext"),
                pi={"--extension": "--ext"}, sdk=True, keyword="extensions"),
        Setting("extensions", "switch", "load the extensions that are installed", flags=(),
                fixed={"--no-ext": False, "--no-extensions": False}, pi={"-ne": "--no-ext"},
                file="user", default=True),
        Setting("mcp", "switch", "use the MCP servers that are configured", flags=(),
                fixed={"--no-mcp": False}, file="user", default=True),
        Setting("trust", "switch", "use the project's .zot/ (extensions, settings) for this run"),
        Setting("skills", "switch", "offer skills", flags=("--with-skills", "--with-skill"),
                fixed={"--no-skills": False, "--no-skill": False}, pi={"-ns": "--no-skills"},
                file="user", default=True),
    ),
    "Limits": (
        Setting("max_steps", "whole", "model calls for one prompt", "N", file="user", sdk=True),
        Setting("max_cost", "number", "US dollars for one prompt", "USD", file="user", sdk=True),
        Setting("max_tokens", "whole", "tokens for one prompt", "N", file="user", sdk=True),
        Setting("max_seconds", "number", "time for one prompt", "S", file="user", sdk=True),
        Setting("spend_file", "text", "share a limit with other processes: `zot swarm budget`",
                "FILE"),
        Setting("idle_timeout", "number", "give up on a stream that is silent for so long", "S",
                file="user", default=120, sdk=True),
        Setting("max_tries", "whole", "how often a model call is tried: 1 is never again", "N",
                file="user", default=10, sdk=True),
        Setting("compact_at", "percent", "compact at this part of the model's window; 0: never",
                "PERCENT", fixed={"--no-auto-compact": 0}, file="project", default=85,
                old=("auto_compact_threshold",), sdk=True),
    ),
    "Sessions": (
        Setting("continue_", "switch", "go on with the latest session", flags=("-c", "--continue")),
        Setting("resume", "switch", "choose a session to go on with", flags=("-r", "--resume")),
        Setting("session", "text", "use this session file", "PATH", sdk=True),
        Setting("no_session", "switch", "keep nothing"),
        Setting("durable", "switch", "runs survive the process: needs a session file", sdk=True),
        Setting("on_crash", "text", "what a run does after a crash: continue, hold or fail", "WORD",
                choices=("continue", "hold", "fail"), file="user", default="continue", sdk=True),
    ),
    "Terminal": (
        Setting("theme", "text", "terminal, auto, dark, light, or a file of themes/", "NAME",
                file="user", default="terminal"),
        Setting("vi", "switch", "vi's keys in the editor", file="user", default=False),
        Setting("status_line", "words", "what it says: model, context, cost, right, cwd, ...",
                "a,b", file="user"),
        Setting("images", "text", "show pictures: auto, off, kitty, iterm", "WORD",
                choices=("auto", "off", "kitty", "iterm"), file="user", default="auto"),
        Setting("file_links", "text", "where names of files lead: file, vscode, off, ...",
                "WORD|URL", file="user", default="file"),
        Setting("linear", "switch", "plain lines, for screen readers and dumb terminals"),
    ),
    "Testing": (
        Setting("record", "text", "write a cassette of the run", "FILE", sdk=True),
        Setting("replay", "text", "answer from a cassette", "FILE", sdk=True),
    ),
    "pi": (
        Setting("mode", "text", "speak pi's protocol; docs/pi.md has its flags", "rpc|json|text"),
        Setting("pi_protocol", "text", "pin its generation", "a|b|c"),
        Setting("models", "text", "what cycle_model goes through", "a,b"),
        Setting("session_dir", "text", "where sessions are kept", "DIR"),
        Setting("session_id", "text", "the id of a new session", "ID"),
        Setting("session_name", "text", "its name", "TEXT", flags=("--name",), pi={"-n": "--name"}),
        Setting("fork", "text", "start with a copy of a session", "PATH|ID"),
        Setting("export", "text", "make a page of a session file", "FILE [OUT]"),
    ),
}
# fmt: on
SETTINGS = {setting.name: setting for group in GROUPS.values() for setting in group}
FILE_SETTINGS = {name: setting for name, setting in SETTINGS.items() if setting.file}
"""Settings allowed in config.json and as variables."""
VARIABLES = {name for setting in FILE_SETTINGS.values() for name in setting.variables}


def as_text(value: Json) -> str:
    """Format a value as a person would write it; empty for None."""
    if value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def from_text(setting: Setting, text: str) -> Json:
    """Parse the text of a flag, a variable or `zot config set`. Raises ValueError."""
    value: Json = text
    match setting.kind:
        case "list" | "words":
            value = tuple(part.strip() for part in text.split(",") if part.strip())
        case "switch":
            value = _SWITCH_WORDS.get(text.lower(), text)
        case "time" if text == "none":
            value = 0
        case "whole" | "number" | "percent" | "time":
            try:
                value = float(text)
            except ValueError:
                pass
            else:
                value = int(value) if value.is_integer() else value
    return checked(setting, value)


def checked(setting: Setting, value: Json) -> Json:
    """Check a value and convert it to the form in Options. Raises ValueError."""
    if not _fits(setting.kind, value):
        raise ValueError(f"must be {_WANTED[setting.kind]}, not {value!r}")
    if setting.choices and value not in setting.choices:
        raise ValueError(f"must be one of {', '.join(setting.choices)}, not {value!r}")
    if setting.kind == "level":
        return LEVEL_WORDS[value]
    return tuple(value) if setting.kind in ("list", "words") else value


def _fits(kind: Kind, value: Json) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    match kind:
        case "switch":
            return isinstance(value, bool)
        case "text":
            return isinstance(value, str)
        case "level":
            return isinstance(value, str) and value in LEVEL_WORDS
        case "list" | "words":
            return isinstance(value, list | tuple) and all(isinstance(part, str) for part in value)
        case "whole":
            return is_number and isinstance(value, int) and 0 < value < 1e15
        case "number":
            return is_number and 0 < value < 1e15
        case "time":
            return is_number and 0 <= value < 1e15
        case "percent":
            return is_number and (value == 0 or 1 <= value <= 100)
        case _:
            assert_never(kind)
