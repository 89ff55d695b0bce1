"""The kit of escapes, against sandboxes that are known to hold and not to hold."""

import json
import os
import pwd
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.bwrap import needs_bwrap

from zot.conformance import escapes
from zot.conformance.escapes import ESCAPES, _tried, surroundings
from zot.home import own_command

NAMED = {escape.name: escape for escape in ESCAPES}
ZOT = own_command("jail", "run", "--")


@pytest.fixture
def folder() -> Iterator[str]:
    """A directory outside /tmp, which most sandboxes replace."""
    base = "/var/lib" if os.access("/var/lib", os.W_OK) else pwd.getpwuid(os.getuid()).pw_dir
    if base.startswith("/tmp") or not os.access(base, os.W_OK):
        pytest.skip("there is no directory outside /tmp that can be written")
    made = tempfile.mkdtemp(prefix="zot-test-escapes-", dir=base)
    yield made
    shutil.rmtree(made)


def verdict(name: str, command: list[str], folder: str) -> str:
    with surroundings(folder) as around:
        return _tried(NAMED[name], command, around, 60.0).verdict


@pytest.mark.parametrize("name", ["home", "hook", "ssh key", "environ", "udp", "survivor", "tcp"])
def test_no_sandbox_at_all_lets_escapes_through(name: str, folder: str) -> None:
    assert verdict(name, ["env"], folder) == "escaped"


@needs_bwrap
@pytest.mark.parametrize("name", ["home", "new repository", "environ", "survivor"])
def test_the_jail_holds_them(name: str, folder: str) -> None:
    assert verdict(name, ZOT, folder) == "held"


def test_a_sandbox_that_runs_nothing_is_not_praised(folder: str) -> None:
    assert verdict("home", ["false"], folder) == "not tried"


def test_nothing_is_left_behind(folder: str) -> None:
    verdict("home", ["env"], folder)
    assert list(Path(folder).iterdir()) == []


def test_every_escape_has_a_name_of_its_own_and_is_listed() -> None:
    words = own_command("conformance", "--jail", "--list")
    printed = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert len(NAMED) == len(ESCAPES) == len(printed.splitlines())
    assert {escape.kind for escape in ESCAPES} == {
        "write", "protected", "read", "network", "process", "kernel",
    }  # fmt: skip


def test_the_exit_code_says_whether_all_was_held(
    folder: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from zot.conformance import jail

    monkeypatch.setattr(escapes, "ESCAPES", (NAMED["home"], NAMED["other project"]))
    assert jail.main(["--json", "--folder", folder], ["env"]) == 1
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["verdict"] for row in rows] == ["escaped", "escaped"]
    monkeypatch.setattr(escapes, "ESCAPES", (NAMED["other project"],))
    assert jail.main(["--json", "--folder", folder], ["env"]) == 0  # told, but no must


@needs_bwrap
def test_a_command_runs_in_the_jail_with_its_own_exit_code(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    words = own_command("jail", "run", "--jail=read-only", "--", "sh", "-c")
    env = {**os.environ, "HOME": str(tmp_path / "h"), "ZOT_HOME": str(tmp_path / "z")}
    ran = subprocess.run(
        [*words, "echo 'a  b'; echo x > f || exit 7"],
        cwd=tmp_path / "p",
        env=env,
        capture_output=True,
        text=True,
    )
    assert (ran.returncode, ran.stdout.splitlines()[0]) == (7, "a  b")
    assert re.search("Read-only", ran.stdout)
