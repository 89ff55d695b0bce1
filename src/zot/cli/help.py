"""Text of `zot --help`: examples first, then the flags from the settings table."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from zot.cli.main import SUBCOMMANDS
from zot.extras import addresses
from zot.provider.providers import PROVIDERS
from zot.settings.options import SETTINGS, Setting

_HEAD = """\
zot: a coding agent, for programs that embed it and for people at a terminal.

  zot                                     work at the terminal (/help lists commands)
  zot "what does this project do?"        work at the terminal, beginning with a prompt
  zot -p "why does the test fail?"        answer once, print the answer
  git diff | zot -p "review this"         the same, with piped text before the prompt
  zot rpc                                 serve a program: one JSON object a line, both ways
  zot --json "list the TODOs"             answer once, print every event as a JSON line

  zot -p -c "and now fix it"              go on with the latest session
  zot -p --tools read,grep,glob "..."     only tools that change nothing
  zot -p --provider openai --model {openai} "..."
  zot -p --provider local "..."           a model on this machine, no key needed
  zot swarm new "fix the flaky test"      an agent in its own worktree; zot glasspane shows all
  zot config set model {anthropic}  store a setting; `zot config list` shows all

Subcommands (each has --help):
  rpc           serve a program: one JSON object a line, both ways
"""

_TAIL = """
Keys come from the provider's variable (ANTHROPIC_API_KEY, OPENAI_API_KEY, ...), from `zot login`,
or from --api-key. With ZOTCORE_RPC_TOKEN set, `zot rpc` requires that token in a first hello.
Files live in $ZOT_HOME (default ~/.local/state/zot).

Exit codes: 0 done; 1 the run failed, or a key, model or file is missing; 2 wrong usage;
128 + N stopped by signal N.

Documentation: `zot docs` lists the pages, `zot docs rpc` shows the one about the wire.
"""


def help_text() -> str:
    defaults = {name: PROVIDERS[name].default_model for name in ("anthropic", "openai")}
    parts = [
        _HEAD.format(**defaults),
        *(f"  {word:<14}{text}\n" for word, (_, text) in SUBCOMMANDS.items()),
    ]
    # Only the first of pi's flags is shown; docs/pi.md has the others.
    shown = [row for row in SETTINGS.values() if row.group != "pi" or row.name == "mode"]
    for group, settings in groupby(shown, key=lambda setting: setting.group):
        parts.append(f"\n{group}:\n")
        parts += (row for setting in settings for row in _rows(setting))
    return "".join(parts) + _TAIL + "".join(f"{url}\n" for url in addresses().values())


def _rows(setting: Setting) -> Iterator[str]:
    if setting.default is not True:  # a default that is on needs no flag
        default = f" ({setting.default})" if setting.default else ""
        yield _row(f"{', '.join(setting.words)} {setting.value}", setting.help + default)
    if setting.kind == "switch" and setting.fixed:
        opposite = f"do not {setting.help}" if setting.default else f"not {setting.words[-1]}"
        yield _row(", ".join(setting.fixed), opposite)
    elif setting.fixed:
        ((word, value),) = setting.fixed.items()
        text = ",".join(value) if isinstance(value, tuple) else value
        yield _row(word, f"short for {setting.words[-1]} {text}")


def _row(left: str, right: str) -> str:
    left = left.rstrip()
    return f"  {left:<32}{right}\n" if len(left) <= 30 else f"  {left}\n{'':34}{right}\n"
