"""pi's command line as zot's options, and the models that its flags name. Flags without an
equivalent are ignored silently, as pi does with unknown flags: a client must not fail over a flag
for its terminal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from msgspec.structs import replace

from zot.errors import UsageError
from zot.home import Surroundings
from zot.pi.messages import WORD_LEVELS
from zot.provider.providers import PROVIDERS
from zot.provider.types import Model, Models
from zot.settings.known import Known
from zot.settings.options import FLAGS, LEVEL_WORDS, SETTINGS, Options, parse, takes_value
from zot.settings.resolve import DEFAULT_PROVIDER, Setup, resolve

MODES = ("text", "json", "rpc")
ALIASES = {word: flag for setting in SETTINGS.values() for word, flag in setting.pi.items()}
WITH_VALUE = ("--theme", "--prompt-template", "--skill", "--exclude-tools", "-xt", "--mcp-config")
"""Ignored flags of pi that take a value."""
TOOLS = {"find": "glob", "ls": "glob"}
"""pi's names of tools that zot names differently."""


def parse_pi(argv: Sequence[str]) -> Options:
    """Parse the command line. Raises UsageError: a flag that zot knows lacks its value or has an
    invalid one, or `@file` was given in rpc mode."""
    options = parse(list(_translated(iter(argv))))
    mode = options.mode or "text"
    if mode not in MODES:
        raise UsageError(f"--mode must be one of {', '.join(MODES)}, not {mode!r}")
    if mode == "rpc" and any(word.startswith("@") for word in options.words):
        raise UsageError("@file arguments are not taken in rpc mode: send them with the prompt")
    if options.pi_protocol not in ("", "a", "b", "c"):
        raise UsageError(f"--pi-protocol must be a, b or c, not {options.pi_protocol!r}")
    options = replace(
        options,
        mode=mode,
        system_prompt=None if options.system_prompt is None else _text(options.system_prompt),
        append_system_prompt=tuple(map(_text, options.append_system_prompt)),
        words=tuple(map(_word, options.words)),
    )
    return _with_model(options)


def _translated(words: Iterator[str]) -> Iterator[str]:
    for word in words:
        if word == "--":
            yield word
            yield from words
            return
        name, equals, value = word.partition("=")
        name = ALIASES.get(name, name)
        if not word.startswith("-") or word == "-":
            yield word
        elif name in WITH_VALUE:
            if not equals:
                next(words, None)
        elif name == "--approve" and not equals:
            continue  # pi's flag for trusting a folder; ours needs tool names
        elif name in FLAGS:
            yield from _known(name, equals, value, words)


def _known(name: str, equals: str, value: str, words: Iterator[str]) -> Iterator[str]:
    if not takes_value(name):
        yield f"{name}={value}" if equals and SETTINGS["jail"] is FLAGS[name] else name
        return
    if not equals:
        following = next(words, None)
        if following is None:
            yield name  # the parser reports the missing value
            return
        value = following
    if name == "--thinking" and value not in LEVEL_WORDS:
        return  # pi warns and goes on
    if name == "--tools":
        value = ",".join(dict.fromkeys(_tools(value)))
    yield f"{name}={value}"


def _tools(value: str) -> Iterator[str]:
    for name in value.split(","):
        if (name := name.strip()) and not name.startswith(("+", "-", "mcp__")):
            yield TOOLS.get(name, name)


def _with_model(options: Options) -> Options:
    """Split `--model provider/id:level` into its three parts."""
    model, level = options.model, options.reasoning
    head, colon, tail = model.rpartition(":")
    if colon and tail in LEVEL_WORDS:
        model, level = head, level or LEVEL_WORDS[tail]
    provider, slash, rest = model.partition("/")
    if slash and provider in PROVIDERS and options.provider in ("", provider):
        return replace(options, provider=provider, model=rest, reasoning=level)
    return replace(options, model=model, reasoning=level)


def _text(value: str) -> str:
    """Return the text itself, or the content of the file it names."""
    try:
        path = Path(value).expanduser()
        return path.read_text("utf-8", "replace") if path.is_file() else value
    except (OSError, ValueError, RuntimeError):  # too long for a name, or no home directory
        return value


def _word(word: str) -> str:
    """Return a word of the prompt; for `@path`, the content of the file."""
    if not word.startswith("@"):
        return word
    path = Path(word[1:]).expanduser()
    try:
        text = path.read_text("utf-8", "replace")
    except OSError as error:
        raise UsageError(f"cannot read {str(path)!r}: {error.strerror}") from error
    return f'<file name="{path.absolute()}">\n{text}\n</file>\n'


# --- models ----------------------------------------------------------------------------------


def scoped(models: Models, patterns: str) -> list[Model]:
    """Return the models that `--models` names, in its order; empty without the flag."""
    wanted = [pattern.strip() for pattern in patterns.split(",") if pattern.strip()]
    matching: dict[tuple[str, str], Model] = {}
    every = models.all() if wanted else ()
    for pattern in wanted:
        for model in every:
            if matches(pattern, model):
                matching.setdefault((model.provider, model.id), model)
    return list(matching.values())


def resolve_pi(options: Options, around: Surroundings) -> Setup:
    """Like `resolve`, but the model may also be a part of an id, as in pi. Raises ConfigError: it
    cannot be found, or there is no credential."""
    setup = resolve(options, around)
    if not options.model or setup.model.source != "unlisted":
        return setup
    model = near(options, around.home)
    if model is None:
        return setup
    return resolve(replace(options, provider=model.provider, model=model.id), around)


def near(options: Options, home: str) -> Model | None:
    """Return the model whose id contains the user's text: the shortest id; among equals the last in
    alphabetical order, usually the newest."""
    known = Known(home)
    provider = known.provider(options.provider or DEFAULT_PROVIDER).name
    models = [model for model in known.all(provider) if matches(options.model, model)]
    models.sort(key=lambda model: model.id, reverse=True)
    return min(models, key=lambda model: len(model.id), default=None)


def matches(pattern: str, model: Model) -> bool:
    """Whether an id, glob or part of an id matches the model; a final `:level` is ignored."""
    pattern = without_level(pattern).lower()
    names = (model.id.lower(), f"{model.provider}/{model.id}".lower())
    if any(letter in pattern for letter in "*?["):
        return any(fnmatchcase(name, pattern) for name in names)
    return pattern in names or (pattern in model.id.lower() and "/" not in pattern)


def without_level(pattern: str) -> str:
    head, colon, tail = pattern.rpartition(":")
    return head if colon and tail in WORD_LEVELS else pattern
