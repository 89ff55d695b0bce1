"""`import zot_ext`, for tests and type checkers of an extension: the module `zot.ext` itself.

zot puts a copy of that module on the path of each Python extension that it starts, so that one runs
in any Python; this package is for a Python in which zot is installed.
"""

import sys

from zot import ext

sys.modules[__name__] = ext
