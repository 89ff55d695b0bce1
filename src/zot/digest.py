"""SHA-256 without OpenSSL: `hashlib` loads it, which takes four megabytes and some milliseconds.
For names of files and for comparing contents; not for anything secret.
"""

from __future__ import annotations

import sys

# Python's own, under the name that it has there; the same one that hashlib falls back to.
try:
    _module = __import__("_sha2" if sys.version_info >= (3, 12) else "_sha256")
except ImportError:
    _module = __import__("hashlib")


def sha256_hex(data: bytes) -> str:
    digest: str = _module.sha256(data).hexdigest()
    return digest
