from zot.ext import *  # noqa: F403  all of its names
