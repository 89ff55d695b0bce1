"""SHA-256 without OpenSSL: `hashlib` loads it, which takes four megabytes and some milliseconds.
For names of files and for comparing contents; not for anything secret.
"""

from __future__ import annotations

import sys
from importlib import import_module


def sha256_hex(data: bytes) -> str:
    # Python's own, under the name that it has there; the same one that hashlib falls back to.
    try:
        module = import_module("_sha2" if sys.version_info >= (3, 12) else "_sha256")
    except ImportError:
        module = import_module("hashlib")
    return str(module.sha256(data).hexdigest())
