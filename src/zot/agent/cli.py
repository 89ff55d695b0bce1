"""The `zot` command: which mode or subcommand to run. Loads only what that one needs."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from zot.agent.flags import Options, UsageError, parse
from zot.errors import ZotError

if TYPE_CHECKING:
    from zot.agent.setup import Setup

EXIT_OK, EXIT_FAILED, EXIT_USAGE = 0, 1, 2

SUBCOMMANDS = {
    "ext": "zot.agent.ext_cli",
    "local": "zot.agent.local_cli",
    "sessions": "zot.agent.sessions_cli",
    "config": "zot.agent.config_cli",
    "login": "zot.agent.auth_cli",
    "logout": "zot.agent.auth_cli",
    "auth": "zot.agent.auth_cli",
    "skills": "zot.agent.skills_cli",
    "schema": "zot.agent.schema_cli",
    "conformance": "zot.conformance.cli",
    "watch": "zot.agent.watch_cli",
}
"""Each module has `main(argv) -> int`; `argv[0]` is the subcommand's own word."""


def run(argv: Sequence[str], *, as_pi: bool = False) -> int:
    """Run the command; the exit code. No traceback reaches the user."""
    try:
        return _run(list(argv), as_pi=as_pi)
    except UsageError as error:
        complain(str(error))
        return EXIT_USAGE
    except ZotError as error:
        complain(str(error))
        return EXIT_FAILED
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever read our output has gone; Python would complain again when it flushes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return EXIT_OK


def _run(argv: list[str], *, as_pi: bool) -> int:
    if argv and argv[0] in SUBCOMMANDS:
        from importlib import import_module

        code: int = import_module(SUBCOMMANDS[argv[0]]).main(argv)
        return code
    if argv and argv[0] == "rpc":
        argv[0] = "--rpc"
    if as_pi or any(word.partition("=")[0] == "--mode" for word in argv):
        from zot.agent.pi_flags import parse_pi

        options = parse_pi(argv)
    else:
        options = parse(argv)
    if options.help:
        from zot.agent.help import help_text

        sys.stdout.write(help_text())
        return EXIT_OK
    if options.version:
        from zot import __version__

        sys.stdout.write(f"zot {__version__}\n")
        return EXIT_OK
    return _run_mode(options)


def _run_mode(options: Options) -> int:
    # Read once and taken away at once: no child may inherit it.
    token = os.environ.pop("ZOTCORE_RPC_TOKEN", "")
    if options.list_models:
        from zot.agent.modes.models import list_models

        return list_models(options)
    if options.resume and not options.session:
        from zot.agent.modes.resume import choose_session

        options = choose_session(options)
    if options.rpc:
        from zot.agent.modes.rpc import serve

        return serve(_resolved(options), token)
    if options.export:
        from zot.agent.modes.pi_export import export_file

        sys.stdout.write(export_file(options.export, options.words) + "\n")
        return EXIT_OK
    if options.mode == "rpc":
        from zot.agent.modes import pi_rpc

        return pi_rpc.serve(_resolved(options))
    from zot.agent.modes import once

    prompt = once.prompt_text(options.words)
    if not prompt:
        raise UsageError(
            "there is no prompt: zot -p 'what does this project do?', or pipe it to zot -p; "
            "`zot --help` shows all modes"
        )
    if options.mode == "json":
        from zot.agent.modes import pi_json

        return pi_json.run(_resolved(options), prompt, options.pi_protocol)
    return once.run(lambda: _resolved(options), prompt, as_json=options.json)


def _resolved(options: Options) -> Setup:
    if options.mode:  # pi's own, where a part of a model's id is enough
        from zot.agent.modes.pi_models import resolve_pi as resolve
    else:
        from zot.agent.setup import resolve

    setup = resolve(options, os.environ)
    for warning in setup.warnings:
        complain(f"warning: {warning}")
    if setup.notice:
        complain(setup.notice)
    return setup


def complain(text: str) -> None:
    try:
        sys.stderr.write(f"zot: {text}\n")
    except (OSError, AttributeError):  # stderr is closed, or was never there
        pass
