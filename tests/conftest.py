"""Settings of every test."""

import os

from hypothesis import settings

# Extensions that tests start get more time to be ready, for the same reason as below.
os.environ.setdefault("ZOT_EXT_GRACE", "20")

# No time limit for one example: machines that run tests are busy with other things too.
settings.register_profile("zot", deadline=None)
settings.load_profile("zot")
