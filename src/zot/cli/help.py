"""What `zot --help` prints, and the table of settings in docs/config.md: both from the table."""

from __future__ import annotations

from collections.abc import Iterator

from zot.provider.types import Json
from zot.settings.table import FILE_SETTINGS, GROUPS, Setting

_HEAD = """\
zot: a coding agent that other programs embed.

  zot -p "why does the test fail?"        answer once, print the answer
  git diff | zot -p "review this"         the same, with piped text before the prompt
  zot rpc                                 a program drives it: one JSON object a line, both ways
  zot --json "list the TODOs"             answer once, print every event as a JSON line

  zot -p -c "and now fix it"              go on with the latest session
  zot -p --tools read,grep,glob "..."     only tools that change nothing
  zot -p --provider openai --model gpt-5 "..."
  zot -p --provider local "..."           a model on this machine, no key needed
  zot config set model claude-sonnet-4-5  keep a setting; `zot config list` shows all

Subcommands (each has --help):
  rpc, ext, local, sessions, skills, config, login, logout, auth, schema, conformance, watch
"""

_TAIL = """
Keys come from the provider's variable (ANTHROPIC_API_KEY, OPENAI_API_KEY, ...), from `zot login`,
or from --api-key. With ZOTCORE_RPC_TOKEN set, `zot rpc` wants that token in a first hello.
Files live in $ZOT_HOME (default ~/.local/state/zot).

Exit codes: 0 done; 1 the run failed, or a key, model or file is missing; 2 wrong usage;
128 + N stopped by signal N. Documentation: docs/ of the project, docs/rpc.md for the wire.
"""


def help_text() -> str:
    parts = [_HEAD]
    for group, settings in GROUPS.items():
        shown = settings[:1] if group == "pi" else settings  # docs/pi.md has the others
        parts.append(f"\n{group}:\n" + "".join(row for setting in shown for row in _rows(setting)))
    return "".join(parts) + _TAIL


def _rows(setting: Setting) -> Iterator[str]:
    if setting.default is not True:  # what is so anyway needs no flag
        default = f" ({setting.default})" if setting.default else ""
        yield _row(f"{', '.join(setting.words)} {setting.value}", setting.help + default)
    if setting.kind == "switch" and setting.fixed:
        yield _row(", ".join(setting.fixed), f"do not {setting.help}")
    elif setting.fixed:
        ((word, value),) = setting.fixed.items()
        yield _row(word, f"the same as {setting.words[-1]} {_text(value)}")


def _row(left: str, right: str) -> str:
    left = left.rstrip()
    return f"  {left:<32}{right}\n" if len(left) <= 30 else f"  {left}\n{'':34}{right}\n"


def _text(value: Json) -> str:
    return ", ".join(value) if isinstance(value, tuple) else str(value)


def settings_table() -> str:
    """The settings of config.json as docs/config.md shows them (scripts/settings_table.py)."""
    rows = ["setting | what it is | kind | default | flag | variable | a project may set it"]
    rows.append(" | ".join(["---"] * 7))
    for setting in FILE_SETTINGS.values():
        default = "" if setting.default is None else f"`{setting.default}`".lower()
        flags = ", ".join(f"`{word}`" for word in (*setting.words, *setting.fixed))
        variable, project = setting.variables[0], "yes" if setting.file == "project" else ""
        rows.append(
            f"`{setting.name}` | {setting.help} | {setting.kind} | {default} | {flags} | "
            f"`{variable}` | {project}"
        )
    old = (
        f"`{name}` ({setting.name})" for setting in FILE_SETTINGS.values() for name in setting.old
    )
    table = "".join(f"| {row} |\n".replace("|  |", "| |").replace("|  |", "| |") for row in rows)
    return f"{table}\nOlder names are understood, in files and as variables: {', '.join(old)}.\n"
