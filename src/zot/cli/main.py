"""The `zot` command: choose the mode or subcommand to run, and load only what it needs."""

from __future__ import annotations

import errno
import gc
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from io import TextIOWrapper

from msgspec.structs import replace

from zot import __version__
from zot.bugs import complain
from zot.errors import UsageError, ZotError
from zot.home import RPC_TOKEN, Surroundings, of_process
from zot.settings import resolve
from zot.settings.options import Options, parse
from zot.text import for_terminal, nearest
from zot.wire.serving import open_missing

EXIT_OK, EXIT_FAILED, EXIT_USAGE = 0, 1, 2

SUBCOMMANDS = {
    "acp": ("cli.servers:acp", "serve an editor: the Agent Client Protocol"),
    "mcp-server": ("cli.servers:mcp_server", "serve other agents: zot as an MCP tool"),
    "swarm": ("cli.swarm:main", "run many agents, each in its own git worktree"),
    "glasspane": ("cli.glasspane:main", "show all agents on one page in the browser"),
    "watch": ("cli.watch:watch", "show the state of one stream of events"),
    "follow": ("cli.watch:follow", "print the events of a durable session as they come"),
    "login": ("cli.auth:login", "store a provider's key, or log in with the browser"),
    "logout": ("cli.auth:logout", "delete a stored credential"),
    "auth": ("cli.auth:auth", "list the credentials"),
    "local": ("cli.models:local", "models on this machine: download, list, remove"),
    "config": ("cli.config:config", "show and change settings"),
    "sessions": ("cli.sessions:main", "conversations: list, show, search, export, remove"),
    "approvals": ("cli.config:approvals", "tool calls that run without a question"),
    "ext": ("cli.ext:main", "extensions: create, install, check"),
    "mcp": ("cli.mcp:main", "MCP servers: add, test, trust"),
    "hooks": ("cli.hooks:main", "commands that run at moments of the agent's work"),
    "skills": ("cli.skills:main", "instructions that the agent can look up"),
    "docs": ("cli.docs:main", "read the documentation"),
    "schema": ("cli.schema:main", "print the JSON Schema of the wire"),
    "conformance": ("conformance.cli:main", "check any implementation of the wire, any sandbox"),
    "jail": ("cli.jail:main", "run a command in the jail; check what it holds"),
}
"""Name -> (module and function, help). The function is called with the words of the command line,
beginning with the name, and returns the exit code.
"""

_BARE = {
    "auth": "status",
    **dict.fromkeys(
        ("approvals", "config", "ext", "hooks", "local", "mcp", "sessions", "skills", "swarm"),
        "list",
    ),
}
"""Default action of a subcommand that is called without one."""

_MEANT = {
    "continue": "zot -c",
    "model": "zot --list-models",
    "models": "zot --list-models",
    "resume": "zot -r",
    "version": "zot --version",
}
"""Subcommands of other programs, and their equivalents here."""


def run(argv: Sequence[str], *, as_pi: bool = False) -> int:
    """Run the command and return the exit code. No traceback reaches the user."""
    try:
        code = _run(list(argv), as_pi=as_pi)
        if sys.stdout is not None:
            sys.stdout.flush()  # here, where a failure can still be reported
        return code
    except UsageError as error:
        complain(str(error))
        return EXIT_USAGE
    except ZotError as error:
        complain(str(error))
        return EXIT_FAILED
    except SystemExit as done:  # argparse has printed the reason
        return int(done.code or 0)
    except KeyboardInterrupt:
        return 130
    except RuntimeError as error:
        if "start new thread" not in str(error):
            raise
        complain("the system allows no more threads; raise the limit of processes (ulimit -u)")
        return EXIT_FAILED
    except BrokenPipeError:
        _drop_output()  # the reader has closed the pipe
        return EXIT_OK
    except OSError as error:
        _drop_output()
        if not error.filename and not of_process().cwd:
            complain("the working directory is gone: change to one that exists")
            return EXIT_FAILED
        lost = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)
        where = "cannot write the output: " if lost else ""
        where = f"cannot use {error.filename!r}: " if error.filename else where
        complain(f"{where}{error.strerror or error}")
        return EXIT_FAILED


def _drop_output() -> None:
    # Python would complain again when it flushes stdout at the end.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _run(argv: list[str], *, as_pi: bool) -> int:
    if argv[:1] == ["help"] and (len(argv) == 1 or (argv[1] in SUBCOMMANDS and len(argv) == 2)):
        argv = [*argv[1:], "--help"]
    if argv and argv[0] in SUBCOMMANDS:
        if len(argv) == 1 and argv[0] in _BARE:
            argv = [*argv, _BARE[argv[0]]]
        _make_files_usable()
        main = subcommand(argv[0])
        _loaded()
        return main(argv)
    if argv and argv[0] == "rpc":
        argv[0] = "--rpc"
    if as_pi or any(word.partition("=")[0] == "--mode" for word in argv):
        from zot.pi import flags as pi_flags

        options = pi_flags.parse_pi(argv)
    else:
        options = parse(argv)
        if options.words == ("rpc",) and not (options.print or options.json):
            options = replace(options, words=(), rpc=True)  # flags may stand before the word
        _check_words(options)
    if options.help or options.version or options.list_models:
        _make_files_usable()
    if options.help:
        from zot.cli import help

        sys.stdout.write(help.help_text())
        return EXIT_OK
    if options.version:
        sys.stdout.write(f"zot {__version__}\n")
        return EXIT_OK
    return _run_mode(options)


def subcommand(name: str) -> Callable[[Sequence[str]], int]:
    module, _, function = SUBCOMMANDS[name][0].partition(":")
    main: Callable[[Sequence[str]], int] = getattr(import_module(f"zot.{module}"), function)
    return main


def _loaded() -> None:
    """Exclude what is loaded from garbage collection, and enable the collector."""
    if not gc.isenabled():  # disabled by __main__, not by an embedding program
        gc.freeze()
        gc.enable()


def _make_files_usable() -> None:
    """Let every print succeed: Python sets a standard file to None if the parent closed it, and
    refuses characters that the terminal's encoding lacks."""
    if sys.stdin is None or sys.stdout is None or sys.stderr is None:
        open_missing()
        sys.stdin = sys.stdin or os.fdopen(0)
        sys.stdout = sys.stdout or os.fdopen(1, "w")
        sys.stderr = sys.stderr or os.fdopen(2, "w")
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def _check_words(options: Options) -> None:
    """Refuse likely typos, which would otherwise be sent to a model and paid for.

    Raises:
        UsageError: there are words where none belong, or they look like a subcommand.
    """
    words = options.words
    if options.rpc and words:
        raise UsageError(f"zot rpc takes no words, got {words[0]!r}: prompts come on stdin")
    if not words or options.print or options.json or options.rpc or options.list_models:
        return
    if meant := _MEANT.get(words[0]) if len(words) == 1 else None:
        raise UsageError(f"there is no subcommand {words[0]!r}: use {meant}")
    near = nearest(words[0], (*SUBCOMMANDS, "rpc"), cutoff=0.65)
    at_terminal = os.isatty(0) and os.isatty(1)
    if near or (len(words) == 1 and words[0].isalpha() and not at_terminal):
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise UsageError(
            f"unknown subcommand {words[0]!r}{hint}; a prompt goes after -p: "
            f"zot -p {' '.join(words)!r}"
        )


def _run_mode(options: Options) -> int:
    # Read and removed at once: no child may inherit the token.
    token = os.environ.pop(RPC_TOKEN, "")
    if not options.rpc:
        _loaded()
    if options.list_models:
        from zot.cli import models

        return models.list_models(options)
    if options.durable and not options.rpc:
        raise UsageError("--durable is for zot rpc, and for the SDK (docs/durable.md)")
    if options.resume and not options.session:
        from zot.cli import sessions

        options = sessions.choose_session(options)
    if options.rpc:
        plan = _planned(options)
        if os.isatty(0):
            complain("reading commands, one JSON object a line (docs/rpc.md); Ctrl-D ends")
        _loaded()
        from zot.serve import rpc

        return rpc.serve(plan, token)
    if options.export:
        from zot.sessions.export import export

        path = export(options.export, options.words[0] if options.words else ".", "html")
        sys.stdout.write(for_terminal(path) + "\n")
        return EXIT_OK
    if options.mode == "rpc":
        from zot.pi import rpc as pi_rpc

        return pi_rpc.serve(_planned(options))
    if not (options.print or options.json or options.mode) and os.isatty(0) and os.isatty(1):

        def find_plan(**changes: str) -> resolve.Plan:
            return _plan(replace(options, **changes))

        words = " ".join(options.words)
        from zot.serve.interactive import start

        return start.run(find_plan, words, of_process(), linear=options.linear)
    return _answer_once(options)


def _answer_once(options: Options) -> int:
    from zot.serve import once

    prompt = once.prompt_text(options.words)
    if not prompt:
        raise UsageError(
            "there is no prompt: zot -p 'what does this project do?', or pipe it to zot -p; "
            "`zot --help` shows all modes"
        )
    if options.mode == "json":
        from zot.pi import rpc as pi_rpc

        return pi_rpc.run_once(_planned(options), prompt, options.pi_protocol)
    return once.run(lambda: _planned(options), prompt, as_json=options.json)


def _planned(options: Options) -> resolve.Plan:
    plan = _plan(options)
    for warning in plan.setup.warnings:
        complain(f"warning: {warning}")
    if plan.setup.notice:
        complain(plan.setup.notice)
    return plan


def _plan(options: Options) -> resolve.Plan:
    around = of_process()
    if options.replay:
        from zot.testing import record

        plan = record.replayed(options, around)
    else:
        plan = _fresh(options, around)
    if options.mode:
        from zot.pi import sessions as pi_sessions

        plan = pi_sessions.with_session(plan)
    if options.record:
        from zot.testing import record

        plan = record.recorded(plan)
    return plan


def _fresh(options: Options, around: Surroundings) -> resolve.Plan:
    if options.mode:  # pi's
        from zot.pi import flags as pi_flags

        return resolve.Plan(pi_flags.resolve_pi(options, around))
    return resolve.plan(options, around)
