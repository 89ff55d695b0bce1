"""What `zot --help` prints: examples first, then every flag of the table in flags.py."""

from __future__ import annotations

from zot.settings.flags import FLAGS, Flag

_HEAD = """\
zot: a coding agent that other programs embed.

  zot rpc                             a program drives it: one JSON object a line, both ways
  zot -p "why does the test fail?"    answer once, print the answer
  git diff | zot -p "review this"     the same, with piped text before the prompt
  zot --json "list the TODOs"         answer once, print every event as a JSON line

  zot -p --provider openai --model gpt-5 "..."       choose provider and model
  zot -p --tools read,grep,glob "..."                only tools that change nothing
  zot -p --provider local "..."                      a model on this machine, no key needed

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
    for group in dict.fromkeys(flag.group for flag in FLAGS):
        rows = [_row(flag) for flag in FLAGS if flag.group == group]
        parts.append(f"\n{group}:\n" + "".join(rows))
    return "".join(parts) + _TAIL


def _row(flag: Flag) -> str:
    left = ", ".join(flag.names) + (f" {flag.value}" if flag.value else "")
    if len(left) > 30:
        return f"  {left}\n{'':34}{flag.help}\n"
    return f"  {left:<32}{flag.help}\n"
