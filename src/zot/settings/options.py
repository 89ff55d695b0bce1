"""Declares every setting once, as a field of `Options`. Flags, variables, keys of config files, SDK
keywords, `--help` and the table of docs/config.md are generated from these fields.

Parses the command line too; by hand, because argparse alone takes as long to load as everything
that `zot rpc` needs for its first answer. Part of stage one.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec.structs import replace

from zot.errors import UsageError
from zot.provider.model import LEVELS, Json, Level
from zot.text import Frozen, nearest

Kind = Literal[
    "switch", "text", "list", "words", "whole", "number", "percent", "time", "level", "jail"
]
"""list: the flag may be repeated; words: its value is split at commas; jail: a switch, or words
after an equals sign."""
Cache = Literal["auto", "short", "long", "off"]
OnCrash = Literal["continue", "hold", "fail"]
JailRead = Literal["all", "project"]
Images = Literal["auto", "off", "kitty", "iterm"]

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


def _is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e15


def _is_texts(value: Json) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(part, str) for part in value)


def _is_jail(value: Json) -> bool:
    """Return whether with_words() of core/confinement.py takes the value; loading that would
    delay the first answer."""
    words = value.split(",") if isinstance(value, str) else ()
    pairs = ("full", "best"), ("workspace", "read-only")
    known = all(any(word in pair for pair in pairs) for word in words)
    contradiction = any(set(pair) <= set(words) for pair in pairs)
    return isinstance(value, bool) or (known and bool(words) and not contradiction)


_CHECKS: dict[Kind, tuple[str, Callable[[Json], bool]]] = {
    "switch": ("true or false", lambda value: isinstance(value, bool)),
    "text": ("a text", lambda value: isinstance(value, str)),
    "list": ("a list of texts", _is_texts),
    "words": ("a list of texts", _is_texts),
    "whole": (
        "a positive whole number",
        lambda value: _is_number(value) and isinstance(value, int) and value > 0,
    ),
    "number": ("a positive number", lambda value: _is_number(value) and value > 0),
    "percent": (
        "a percentage from 1 to 100, or 0 for never",
        lambda value: _is_number(value) and (value == 0 or 1 <= value <= 100),
    ),
    "time": ("a positive number of seconds, or none", _is_number),
    "level": (
        f"one of {', '.join(LEVELS)}",
        lambda value: isinstance(value, str) and value in LEVEL_WORDS,
    ),
    "jail": (
        "true, false, full or best, workspace or read-only; joined by a comma: best,read-only",
        _is_jail,
    ),
}
"""Requirement for a value of each kind, in words and as a function."""


class Setting(Frozen):
    kind: Kind
    help: str
    value: str = ""
    """Placeholder of the value in `--help`."""
    name: str = ""
    """Field of Options, key in config.json and SDK keyword. Taken from the field."""
    group: str = ""
    """Heading in `--help`; empty: that of the field before."""
    flags: tuple[str, ...] | None = None
    """Flags on the command line; None: `--` and the name."""
    fixed: Mapping[str, Json] = {}
    """Flags without a value, and the value that each one sets."""
    pi: Mapping[str, str] = {}
    """pi's flags that zot does not have, and zot's flag for each."""
    file: Literal["", "user", "project", "narrow"] = ""
    """Allowed in config.json and as a variable. "user": in a project's file only if trusted;
    "narrow": a project's file may only make the user's value stricter."""
    adds: bool = False
    """Values of all sources count together: a project cannot take away what the user set."""
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
        """Flags that take a value, or turn a switch on."""
        return ("--" + self.name.replace("_", "-"),) if self.flags is None else self.flags

    @property
    def variables(self) -> tuple[str, ...]:
        names = (self.name, *self.old) if self.file else ()
        return tuple(f"ZOT_{name.upper()}" for name in names)


# Two lines a setting: its type and declaration, and the value that means "not given".
# fmt: off
class Options(Frozen, kw_only=True):
    """Values of the settings, from the command line or completed by `config.configured`. None,
    empty and False mean "not given"; `Setting.default` applies then.
    """

    words: tuple[str, ...] = ()
    """Arguments that are no flags: the prompt."""

    print: Annotated[bool, Setting(
        "switch", "answer once, print the final text", flags=("-p", "--print"),
        group="Modes")] = False
    json: Annotated[bool, Setting(
        "switch", "answer once, print every event as a JSON line")] = False
    rpc: Annotated[bool, Setting(
        "switch", "read commands and write events, like `zot rpc`")] = False
    list_models: Annotated[bool, Setting(
        "switch", "list the models of the provider")] = False
    help: Annotated[bool, Setting(
        "switch", "show this text", flags=("-h", "--help"))] = False
    version: Annotated[bool, Setting(
        "switch", "show the version", flags=("-v", "--version"))] = False

    provider: Annotated[str, Setting(
        "text", "anthropic, openai, local, ...", "NAME", file="project", sdk=True,
        group="Model")] = ""
    model: Annotated[str, Setting(
        "text", "a model of that provider, or of another one", "[PROVIDER/]ID",
        file="project", sdk=True)] = ""
    reasoning: Annotated[Level | None, Setting(
        "level", f"how much to think: {', '.join(LEVELS)} (medium)", "LEVEL",
        flags=("--reasoning", "--thinking"), file="project", sdk=True)] = None
    api_key: Annotated[str, Setting(
        "text", "better: the provider's variable (others can see arguments)", "KEY",
        sdk=True)] = ""
    base_url: Annotated[str, Setting(
        "text", "another server for the same API", "URL", file="user", sdk=True)] = ""
    fallback_models: Annotated[tuple[str, ...], Setting(
        "list", "use when the model fails for good; may be repeated", "[PROVIDER/]ID",
        flags=("--fallback-model",), file="user", sdk=True)] = ()
    script: Annotated[str, Setting(
        "text", "turns for `--provider scripted`", "FILE", sdk=True)] = ""

    output_schema: Annotated[str, Setting(
        "text", "JSON Schema that the answer must fit (-p, --json)", "FILE")] = ""

    cwd: Annotated[str, Setting(
        "text", "work in this directory", "DIR", sdk=True, group="Agent")] = ""
    system_prompt: Annotated[str | None, Setting(
        "text", "replace the built-in system prompt", "TEXT", sdk=True)] = None
    append_system_prompt: Annotated[tuple[str, ...], Setting(
        "list", "add to the system prompt; may be repeated", "TEXT", sdk=True)] = ()
    context_files: Annotated[bool | None, Setting(
        "switch", "read AGENTS.md files", flags=(), default=True,
        fixed={"-nc": False, "--no-context-files": False}, file="user", sdk=True)] = None
    tools: Annotated[tuple[str, ...] | None, Setting(
        "words", "use only these tools", "a,b", pi={"-t": "--tools"}, sdk=True)] = None
    no_tools: Annotated[bool, Setting(
        "switch", "use no tools", pi={"-nt": "--no-tools"}, sdk=True)] = False
    tasks: Annotated[bool | None, Setting(
        "switch", "let the model start sub-agents", fixed={"--no-tasks": False},
        file="user", sdk=True)] = None
    swarm_budget: Annotated[float | None, Setting(
        "number", "let the model start agents of the swarm, up to this cost", "USD",
        fixed={"--no-swarm": 0}, file="user", sdk=True)] = None
    approve: Annotated[tuple[str, ...] | None, Setting(
        "words", "ask before these tools run (all: every tool; auto: a model reviews)", "a,b",
        fixed={"--no-yolo": ("all",)}, file="user")] = None
    reviewer_model: Annotated[str, Setting(
        "text", "the model that reviews calls with --approve auto (the run's own)", "[PROVIDER/]ID",
        file="user", sdk=True)] = ""
    yolo: Annotated[bool, Setting("switch", "never ask")] = False
    deny: Annotated[tuple[str, ...], Setting(
        "list", "never run calls like this one, e.g. 'bash rm *'; may be repeated", "TOOL PATTERN",
        file="project", adds=True, sdk=True)] = ()
    approval_timeout: Annotated[float | None, Setting(
        "time", "how long a question waits for the client's answer", "S|none",
        file="user", default=300, sdk=True)] = None
    jail: Annotated[bool | str | None, Setting(
        "jail", "keep tools in the working directory, offline; =read-only, =best", "[=WORDS]",
        file="narrow", default=False, old=("jail_by_default",), sdk=True)] = None
    jail_read: Annotated[JailRead | None, Setting(
        "text", "files that jailed commands can read: all, or those of the project", "WORD",
        choices=get_args(JailRead), file="narrow", default="all", sdk=True)] = None
    allow_write: Annotated[tuple[str, ...], Setting(
        "list", "let jailed tools write this directory too; may be repeated", "DIR",
        file="narrow", sdk=True)] = ()
    deny_read: Annotated[tuple[str, ...], Setting(
        "list", "hide files from all tools, e.g. '.env*'; may be repeated", "GLOB",
        file="narrow", adds=True, sdk=True)] = ()
    ext: Annotated[tuple[str, ...], Setting(
        "list", "load an extension; may be repeated", "DIR", flags=("-e", "--ext"),
        pi={"--extension": "--ext"}, sdk=True, keyword="extensions")] = ()
    extensions: Annotated[bool | None, Setting(
        "switch", "load the installed extensions", flags=(),
        fixed={"--no-ext": False, "--no-extensions": False}, pi={"-ne": "--no-ext"},
        file="user", default=True)] = None
    mcp: Annotated[bool | None, Setting(
        "switch", "use the configured MCP servers", flags=(), fixed={"--no-mcp": False},
        file="user", default=True)] = None
    trust: Annotated[bool, Setting(
        "switch", "use the project's .zot/ (extensions, settings) for this run")] = False
    skills: Annotated[bool | None, Setting(
        "switch", "offer skills", flags=("--with-skills", "--with-skill"),
        fixed={"--no-skills": False, "--no-skill": False}, pi={"-ns": "--no-skills"},
        file="user", default=True)] = None

    max_steps: Annotated[int | None, Setting(
        "whole", "model calls for one prompt", "N", file="user", sdk=True,
        group="Limits")] = None
    max_cost: Annotated[float | None, Setting(
        "number", "US dollars for one prompt", "USD", file="user", sdk=True)] = None
    max_tokens: Annotated[int | None, Setting(
        "whole", "tokens for one prompt", "N", file="user", sdk=True)] = None
    max_seconds: Annotated[float | None, Setting(
        "number", "time for one prompt", "S", file="user", sdk=True)] = None
    spend_file: Annotated[str, Setting(
        "text", "share a limit with other processes: `zot swarm budget`", "FILE")] = ""
    idle_timeout: Annotated[float | None, Setting(
        "number", "give up on a stream that is silent for this long", "S",
        file="user", default=120, sdk=True)] = None
    max_tries: Annotated[int | None, Setting(
        "whole", "how often a failing model call is tried; 1: no retry", "N",
        file="user", default=10, sdk=True)] = None
    wait_for_limit: Annotated[bool | None, Setting(
        "switch", "wait until a usage limit resets; durable runs always do", file="user",
        default=False, sdk=True)] = None
    cache: Annotated[Cache | None, Setting(
        "text", "how long providers keep prompts: auto, short, long, off", "WORD",
        choices=get_args(Cache), file="user", default="auto", sdk=True)] = None
    compact_at: Annotated[float | None, Setting(
        "percent", "compact at this share of the model's window; 0: never", "PERCENT",
        fixed={"--no-auto-compact": 0}, file="project", default=85,
        old=("auto_compact_threshold",), sdk=True)] = None

    continue_: Annotated[bool, Setting(
        "switch", "go on with the latest session", flags=("-c", "--continue"),
        group="Sessions")] = False
    resume: Annotated[bool, Setting(
        "switch", "choose a session to go on with", flags=("-r", "--resume"))] = False
    session: Annotated[str, Setting("text", "use this session file", "PATH", sdk=True)] = ""
    no_session: Annotated[bool, Setting("switch", "store no session")] = False
    durable: Annotated[bool, Setting(
        "switch", "runs survive the process: needs a session file", sdk=True)] = False
    on_crash: Annotated[OnCrash | None, Setting(
        "text", "what a run does after a crash: continue, hold or fail", "WORD",
        choices=get_args(OnCrash), file="user", default="continue", sdk=True)] = None

    theme: Annotated[str | None, Setting(
        "text", "auto, terminal, dark, light, or a file of themes/", "NAME",
        file="user", default="auto", group="Terminal")] = None
    vi: Annotated[bool | None, Setting(
        "switch", "use vi's keys in the editor", file="user", default=False)] = None
    status_line: Annotated[tuple[str, ...] | None, Setting(
        "words", "parts of the status line: model, context, cost, right, cwd, ...", "a,b",
        file="user")] = None
    images: Annotated[Images | None, Setting(
        "text", "show pictures: auto, off, kitty, iterm", "WORD",
        choices=get_args(Images), file="user", default="auto")] = None
    file_links: Annotated[str | None, Setting(
        "text", "link file names to: file, vscode, off, ...", "WORD|URL",
        file="user", default="file")] = None
    linear: Annotated[bool, Setting(
        "switch", "plain lines, for screen readers and dumb terminals")] = False

    record: Annotated[str, Setting(
        "text", "write a cassette of the run", "FILE", sdk=True, group="Testing")] = ""
    replay: Annotated[str, Setting("text", "answer from a cassette", "FILE", sdk=True)] = ""

    mode: Annotated[str, Setting(
        "text", "speak pi's protocol; docs/pi.md has its flags", "rpc|json|text",
        group="pi")] = ""
    pi_protocol: Annotated[str, Setting("text", "pin its generation", "a|b|c")] = ""
    models: Annotated[str, Setting("text", "models that cycle_model goes through", "a,b")] = ""
    session_dir: Annotated[str, Setting("text", "directory of the sessions", "DIR")] = ""
    session_id: Annotated[str, Setting("text", "id of a new session", "ID")] = ""
    session_name: Annotated[str, Setting(
        "text", "name of a new session", "TEXT", flags=("--name",), pi={"-n": "--name"})] = ""
    fork: Annotated[str, Setting("text", "start with a copy of a session", "PATH|ID")] = ""
    export: Annotated[str, Setting("text", "write a session file as a page", "FILE [OUT]")] = ""
# fmt: on

    def allows(self, tool: str) -> bool:
        """Return whether the agent may have the tool of this name."""
        return not self.no_tools and (self.tools is None or tool in self.tools)


def _declared() -> dict[str, Setting]:
    settings: dict[str, Setting] = {}
    group = ""
    for name, annotation in Options.__annotations__.items():
        for setting in getattr(annotation, "__metadata__", ()):
            group = setting.group or group
            settings[name] = replace(setting, name=name, group=group)
    return settings


SETTINGS = _declared()
FILE_SETTINGS = {name: setting for name, setting in SETTINGS.items() if setting.file}
"""Settings allowed in config.json and as variables."""
VARIABLES = {name for setting in FILE_SETTINGS.values() for name in setting.variables}
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


def chosen(options: Options, name: str) -> Any:
    """Return the value of a setting, or its default if it was not given."""
    value = getattr(options, name)
    return SETTINGS[name].default if value is None else value


def with_defaults(options: Options) -> Options:
    """Return the options with defaults for all file settings that are None."""
    return replace(options, **{name: chosen(options, name) for name in FILE_SETTINGS})


# --- command line ----------------------------------------------------------------------------


def takes_value(word: str) -> bool:
    setting = FLAGS[word]
    return word not in setting.fixed and setting.kind not in ("switch", "jail")


def parse(argv: Sequence[str]) -> Options:
    """Parse the command line.

    Raises:
        UsageError: a flag is unknown, or its value is missing or wrong.
    """
    values: dict[str, Json] = {}
    words: list[str] = []
    rest = iter(argv)
    for word in rest:
        if word == "--":
            words.extend(rest)
        elif word.startswith("-") and word != "-":
            _parse_flag(word, rest, values)
        else:
            words.append(word)
    return Options(**values, words=tuple(words))


def _parse_flag(word: str, rest: Iterator[str], values: dict[str, Json]) -> None:
    name, equals, text = word.partition("=")
    if name in IGNORED:
        return
    if name not in FLAGS:
        raise UsageError(_unknown(name))
    setting = FLAGS[name]
    if not takes_value(name) and not (setting.kind == "jail" and equals):
        if equals:
            raise UsageError(f"{name} takes no value, got {text!r}")
        values[setting.name] = setting.fixed.get(name, True)
        return
    if not equals:
        following = next(rest, None)
        if following is None:
            raise UsageError(f"{name} needs a value: {name} {setting.value}")
        text = following
    try:
        if setting.kind == "list":
            values[setting.name] = (*values.get(setting.name, ()), text)
        else:
            values[setting.name] = from_text(setting, text)
    except ValueError as error:
        raise UsageError(f"{name} {error}") from error


def _unknown(name: str) -> str:
    if name in ELSEWHERE:
        return f"zot has no flag {name}: {ELSEWHERE[name]}"
    near = nearest(name, FLAGS)
    hint = f" (did you mean {near[0]}?)" if near else ""
    return f"unknown flag {name!r}{hint}; `zot --help` lists them all"


# --- values ----------------------------------------------------------------------------------


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
        case "switch" | "jail":
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
    expected, fits = _CHECKS[setting.kind]
    if not fits(value):
        raise ValueError(f"must be {expected}, not {value!r}")
    if setting.choices and value not in setting.choices:
        raise ValueError(f"must be one of {', '.join(setting.choices)}, not {value!r}")
    if setting.kind == "level":
        return LEVEL_WORDS[value]
    return tuple(value) if setting.kind in ("list", "words") else value
