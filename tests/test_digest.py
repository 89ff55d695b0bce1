import hashlib
import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st
from support.environment import uncovered

from zot.digest import sha256_hex


@given(st.binary(max_size=300))
def test_it_is_what_everybody_calls_sha256(data):
    assert sha256_hex(data) == hashlib.sha256(data).hexdigest()


def test_openssl_is_not_loaded_for_it():
    code = "import sys; from zot.digest import sha256_hex; sha256_hex(b''); "
    code += "sys.exit('_hashlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env=uncovered()).returncode == 0
