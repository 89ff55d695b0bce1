from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.support.around import zot_home
from zot.cancel import Cancel
from zot.cli.main import run as main
from zot.home import of_process
from zot.local.models import Weights, models_dir
from zot.local.server import LocalServer


def said(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = main(["local", *argv])
    out, err = capsys.readouterr()
    return code, out, err


def test_list_shows_size_licence_hash_and_sources(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = said(capsys, "list")
    assert code == 0
    for word in ("qwen2.5-coder-1.5b", "1.1 GB", "Apache-2.0", "cc324af0", "22 packages", "no  "):
        assert word in out
    code, out, _ = said(capsys, "list", "--json")
    assert [row["pulled"] for row in json.loads(out)] == [False, False]


def test_status_tells_what_runs(capsys: pytest.CaptureFixture[str], small: Weights) -> None:
    assert "running: nothing" in said(capsys, "status")[1]
    server = LocalServer(small, of_process(), context=512, linger=0.2)
    address = server.acquire(Cancel())
    assert f"process {address.pid}, port {address.port}" in said(capsys, "status")[1]
    facts = json.loads(said(capsys, "status", "--json")[1])
    assert facts["servers"][0]["pid"] == address.pid
    assert facts["pulled"] == ["smollm2-135m"]
    assert address.key not in json.dumps(facts)
    server.release()


def test_pull_of_what_is_here_does_nothing(
    capsys: pytest.CaptureFixture[str], small: Weights
) -> None:
    code, out, _ = said(capsys, "pull", "smollm2-135m")
    assert (code, out) == (0, f"smollm2-135m is here: {small.path}\n")


def test_remove_deletes_and_says_when_there_is_nothing(
    capsys: pytest.CaptureFixture[str], small: Weights
) -> None:
    assert said(capsys, "remove", "smollm2-135m")[:2] == (0, "removed smollm2-135m\n")
    code, _, err = said(capsys, "remove", "smollm2-135m")
    assert code == 1
    assert "nothing to remove" in err


def test_a_pull_without_room_says_what_is_missing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZOT_LOCAL_MEMORY_MB", "1")
    code, _, err = said(capsys, "pull")
    assert code == 1
    assert "needs 1.4 GB of memory" in err


def test_a_pull_that_cannot_be_had_fails_in_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    code, _, err = said(capsys, "pull", "smollm2-135m")
    assert code == 1
    assert "zot: could not fetch smollm2-135m" in err
    assert [each.name for each in models_dir(zot_home()).glob("*.gguf")] == []


def test_bad_words_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "fly")[0] == 2
    assert said(capsys, "--help")[0] == 0
    code, _, err = said(capsys, "pull", "gpt-9")
    assert code == 1
    assert "unknown local model 'gpt-9'" in err
