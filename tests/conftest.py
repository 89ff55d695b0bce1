"""Settings of every test."""

import os
import signal

import pytest
from hypothesis import settings

# Extensions that tests start get more time to be ready, for the same reason as below.
os.environ.setdefault("ZOT_EXT_GRACE", "20")

# A shell that starts the tests in the background makes them, and all they spawn, ignore this one.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# No time limit for one example: machines that run tests are busy with other things too.
settings.register_profile("all", deadline=None)
settings.register_profile("quick", deadline=None, max_examples=20)  # `dev.py test` without words
settings.load_profile(os.environ.get("ZOT_TEST_PROFILE", "all"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """A process that tells coverage what it ran takes 0.2 s more: of a test's many cases, the first
    one's do."""
    cases = getattr(item, "callspec", None)
    is_first = cases is None or not any(cases.indices.values())
    config = None if is_first else os.environ.pop("COVERAGE_PROCESS_CONFIG", None)
    try:
        return (yield)
    finally:
        if config is not None:
            os.environ["COVERAGE_PROCESS_CONFIG"] = config
