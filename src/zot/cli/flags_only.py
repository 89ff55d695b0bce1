"""Flags of a subcommand that serves another program, which says itself what to work on."""

from collections.abc import Sequence

from zot.errors import UsageError
from zot.settings.flags import Options, parse

NOT_HERE = [
    "session",
    "continue_",
    "resume",
    "print",
    "json",
    "rpc",
    "mode",
    "record",
    "replay",
    "durable",
]


def parse_flags(command: str, words: Sequence[str], because: str) -> Options:
    """Raises UsageError for what the other program decides, or makes no sense here."""
    options = parse(list(words))
    if options.help:
        return options
    if options.words:
        raise UsageError(f"{command} takes no words, got {options.words[0]!r}")
    wrong = next((name for name in NOT_HERE if getattr(options, name)), None)
    if wrong is not None:
        raise UsageError(f"{command} takes no --{wrong.strip('_')}: {because}")
    return options
