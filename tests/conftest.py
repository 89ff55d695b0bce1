"""Settings of every test."""

from hypothesis import settings

# No time limit for one example: machines that run tests are busy with other things too.
settings.register_profile("zot", deadline=None)
settings.load_profile("zot")
