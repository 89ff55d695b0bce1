"""`import zot_ext` in any Python that zot starts: the same file as `zot.ext`, compiled once."""

from importlib.machinery import SourceFileLoader

_code = SourceFileLoader(__name__, __file__.rsplit("/", 3)[0] + "/ext.py").get_code(__name__)
assert _code is not None
exec(_code, globals())
