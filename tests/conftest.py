"""Settings of every test."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import settings
from support import skipped
from support.own_home import MADE, OwnHome
from support.patience import PATIENCE, TEST_LIMIT, patience

HOME_CHANGED = 9
"""The exit code of a run that wrote into the user's folders."""

own_home = None if MADE in os.environ else OwnHome()

# Machines that run tests are busy with other things too.
os.environ.setdefault("ZOT_EXT_GRACE", str(PATIENCE))
os.environ.setdefault("PYTEST_TIMEOUT", str(TEST_LIMIT))

# A shell that starts the tests in the background makes them, and all they spawn, ignore this one.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# No time limit for one example: machines that run tests are busy with other things too.
settings.register_profile("all", deadline=None)
settings.register_profile("quick", deadline=None, max_examples=20)  # `dev.py test` without words
settings.load_profile(os.environ.get("ZOT_TEST_PROFILE", "all"))


def pytest_collection_modifyitems(items):
    """What takes long begins first: at the end all cores have something to do."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)
    for item in items:
        if limit := item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(patience(limit.args[0])), append=False)


def pytest_terminal_summary(terminalreporter):
    reports = terminalreporter.stats.get("skipped", [])
    if rows := skipped.table(report.longrepr[2] for report in reports):
        terminalreporter.section("not tested here")
        for row in rows:
            terminalreporter.write_line(row)
    if changed := own_home.changed() if own_home else []:
        terminalreporter.section("the tests, or a zot that you used meanwhile, changed your files")
        for path in changed[:20]:
            terminalreporter.write_line(path)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session):
    if own_home is not None and own_home.changed():
        session.exitstatus = HOME_CHANGED


def pytest_unconfigure():
    if own_home is not None:
        own_home.remove()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """What coverage sees: not the tests that take long or do much, whose lines others run, too. A
    process that tells it what it ran takes 0.1 s more: of a test's many cases, the first one's do.
    """
    if any(item.get_closest_marker(name) for name in ("slow", "untraced")):
        with untraced(), uncovered_children():
            return (yield)
    cases = getattr(item, "callspec", None)
    if cases is not None and any(cases.indices.values()):
        with uncovered_children():
            return (yield)
    return (yield)


@contextmanager
def untraced() -> Iterator[None]:
    here, in_threads = sys.gettrace(), threading.gettrace()
    sys.settrace(None)
    threading.settrace(None)
    try:
        yield
    finally:
        sys.settrace(here)
        threading.settrace(in_threads)


@contextmanager
def uncovered_children() -> Iterator[None]:
    config = os.environ.pop("COVERAGE_PROCESS_CONFIG", None)
    try:
        yield
    finally:
        if config is not None:
            os.environ["COVERAGE_PROCESS_CONFIG"] = config


@pytest.fixture
def pipe() -> Iterator[tuple[int, int, list[int]]]:
    """Yield the ends of a pipe, to read and to write, and a list for those that a test closes."""
    read, write = os.pipe()
    closed: list[int] = []
    yield read, write, closed
    for fd in (read, write):
        if fd not in closed:
            os.close(fd)
