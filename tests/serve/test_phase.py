"""OpenAI says of each text whether it is commentary or the answer, and wants to hear it again."""

import pytest
from support.rpc import Zot

from zot.testing.fakeserver import FakeServer

FIRST = "think:1 say:looking\nphase:commentary tool:bash:true\nthen\nphase:final_answer say:done"


@pytest.fixture
def server():
    with FakeServer() as made:
        yield made


def zot(folder, server, session, *args):
    named = ("--provider", "openai-responses", "--base-url", server.url, "--session", str(session))
    return Zot(folder, args=[*named, *args])


def phases(server):
    items = server.requests[-1].body["input"]
    return [item.get("phase") for item in items if item.get("role") == "assistant"]


@pytest.mark.parametrize("name", ["kept.jsonl", "pi.jsonl"])
def test_a_phase_goes_back_and_is_kept_with_the_session(tmp_path, server, name):
    session = tmp_path / name
    if name == "pi.jsonl":
        session.write_text(
            '{"type":"session","version":3,"id":"0198b3d0-0000-7000-8000-000000000000",'
            f'"timestamp":"2026-11-01T00:00:00.000Z","cwd":"{tmp_path / "work"}"}}\n'
        )
    with zot(tmp_path, server, session, "--model", "gpt-6.1-sol") as process:
        process.prompt(FIRST)
        assert phases(server) == ["commentary"]
        process.prompt("say:again")
        assert phases(server) == ["commentary", "final_answer"]
    with zot(tmp_path, server, session, "--model", "gpt-6.1-sol") as process:
        process.prompt("say:more")
        assert phases(server) == ["commentary", "final_answer", None]
        process.data("set_model", model="gpt-6.1-terra")
        process.prompt("say:of another")
        assert phases(server) == [None] * 4
