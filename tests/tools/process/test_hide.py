import os
import subprocess
import sys

from zot.tools.process.hide import _arguments, _variables

SCRIPT = """
import os, subprocess, sys
from zot.tools.process.hide import hide_secrets
hide_secrets({"CANARY_KEY", "NOT_THERE"}, [sys.argv[2], "x"])
for name in ("environ", "cmdline"):
    print(subprocess.run(["cat", f"/proc/{os.getpid()}/{name}"], capture_output=True).stdout)
print("inherited", subprocess.run(["env"], capture_output=True, text=True).stdout)
print("kept", os.environ["CANARY_KEY"], sys.argv[2])
"""


def test_a_child_sees_no_secret_of_its_parent() -> None:
    env = os.environ | {"CANARY_KEY": "sk-canary-1", "ALIAS": "sk-canary-1", "AFTER": "still here"}
    said = subprocess.run(
        [sys.executable, "-c", SCRIPT, "--api-key", "sk-canary-2", "--model=x"],
        env=env, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    shown, kept = said.split("kept ")
    assert "canary" not in shown
    assert "still here" in shown
    assert "--model=x" in shown
    assert kept.split() == ["sk-canary-1", "sk-canary-2"]


def test_places() -> None:
    assert _variables(b"A=1\0KEY=secret\0KEY2=x\0EMPTY=\0", {"KEY", "EMPTY"}) == [(8, 6)]
    assert _arguments(b"zot\0--key=longenough\0longenough\0", ["longenough", "zot", ""]) == [
        (10, 10),
        (21, 10),
    ]
