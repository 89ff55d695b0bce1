"""`--resume`: let the user choose a session; without a terminal only list them."""

from __future__ import annotations

import os
import sys
import time
from itertools import islice

from msgspec.structs import replace

from zot.cli.output import asked
from zot.core.session import SessionInfo
from zot.errors import SessionError, UsageError
from zot.home import of_process
from zot.sessions.library import summaries
from zot.settings.options import Options
from zot.settings.resolve import working_directory
from zot.text import printable

SHOWN = 20
WIDTH = 60


def choose_session(options: Options) -> Options:
    """Return the options with the chosen session.

    Raises:
        SessionError: there is no session, or no terminal to choose at.
        UsageError: the choice is not in the list.
    """
    around = of_process()
    cwd = working_directory(options.cwd, around)
    sessions = list(islice(summaries(cwd, around.home), SHOWN))
    if not sessions:
        raise SessionError(f"there is no session of {cwd}; leave out --resume to start one")
    for number, summary in enumerate(sessions, 1):
        sys.stderr.write(f"{number:3}  {_line(summary)}\n")
    if not (os.isatty(0) and os.isatty(2)):
        raise SessionError("choose one of them: --session PATH, or --continue for the first")
    number_text = asked("number (Enter: 1): ") or "1"
    if not number_text.isdigit() or not 1 <= int(number_text) <= len(sessions):
        raise UsageError(f"{number_text!r} is not one of the {len(sessions)} numbers")
    return replace(options, session=sessions[int(number_text) - 1].path)


def _line(summary: SessionInfo) -> str:
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(summary.modified))
    text = " ".join((summary.title or summary.first_text).split())[:WIDTH]
    return printable(f"{when}  {summary.messages:4} messages  {text}  {summary.path}")
