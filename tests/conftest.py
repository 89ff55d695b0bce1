"""Settings of every test."""

import os
import signal

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
