"""One server over stdio, of either era, well behaved and not."""

import os
import threading
import time
from pathlib import Path

import pytest
from support.mcp import alone, entry
from support.patience import patience
from support.rpc import marked
from support.tools import eventually

from zot.cancel import Cancel
from zot.errors import Cancelled, McpError, ToolError
from zot.mcp.server import server_log
from zot.provider.types import Image, Text

ERAS = pytest.mark.parametrize("era", ["legacy", "modern"])


@ERAS
def test_a_server_of_either_era_is_started_asked_and_called(tmp_path, era):
    with alone(tmp_path, entry=entry(era=era)) as test:
        assert test.listed()[:3] == ["echo", "write", "image"]
        assert test.server.listed.era == era
        assert test.server.listed.has_resources
        assert test.text("echo", {"text": "hi"}) == "you said hi"
        assert test.server.state.state == "ready"
    assert test.states == ["starting", "ready"]


@ERAS
def test_results_of_every_kind_become_text_and_images(tmp_path, era):
    with alone(tmp_path, entry=entry(era=era)) as test:
        output, _ = test.call("image")
        picture, bad, link, inside, audio, unknown, garbage = output.content
        assert isinstance(picture, Image)
        assert isinstance(bad, Text) and "cannot be used" in bad.text
        assert isinstance(link, Text) and "test://one" in link.text
        assert inside == Text("test://two\ntwo's text")
        assert audio == Text("[audio of type audio/wav, 3 bytes]")
        assert isinstance(unknown, Text) and "unknown type 'new'" in unknown.text
        assert isinstance(garbage, Text) and "cannot be read" in garbage.text
        output, _ = test.call("structured")
        assert output.content == (Text('{"n":1}'),)
        assert output.details == {"structured_content": {"n": 1}}
        assert test.call("fail")[0].is_error


@ERAS
def test_progress_is_told_while_the_call_runs(tmp_path, era):
    with alone(tmp_path, entry=entry(era=era)) as test:
        output, told = test.call("slow")
        assert told == "1/3 step 1\n2/3 step 2\n3/3 step 3\n"
        assert output.content == (Text("done"),)


@ERAS
def test_an_abort_ends_the_call_at_once_and_the_server_is_told(tmp_path, era):
    with alone(tmp_path, entry=entry(era=era)) as test:
        test.listed()
        cancel = Cancel()
        threading.Timer(0.1, cancel.set).start()
        began = time.monotonic()
        with pytest.raises(Cancelled):
            test.call("hang", cancel=cancel)
        assert time.monotonic() - began < patience(2)
        assert test.text("cancelled") == "1"


@ERAS
def test_a_call_that_takes_too_long_is_given_up_and_the_server_goes_on(tmp_path, era):
    with alone(tmp_path, entry={**entry(era=era), "timeout": 0.2}) as test:
        with pytest.raises(ToolError, match="no answer to tools/call within 0.2 s"):
            test.call("hang")
        assert test.text("cancelled") == "1"


def test_progress_extends_the_patience(tmp_path):
    with alone(tmp_path, entry={**entry(), "timeout": 0.2}) as test:
        assert test.call("slow", {"steps": 40})[0].content == (Text("done"),)


@ERAS
def test_a_list_in_pages_is_followed_to_its_end(tmp_path, era):
    with alone(tmp_path, entry=entry(era=era, paging="one")) as test:
        assert len(test.listed()) == 18


def test_a_cursor_that_repeats_ends_the_list(tmp_path):
    with alone(tmp_path, entry=entry(paging="same")) as test:
        assert len(test.listed()) == 18


def test_a_list_without_an_end_is_cut(tmp_path):
    with alone(tmp_path, entry=entry(paging="endless")) as test:
        assert len(test.listed()) == 50


def test_a_server_that_ends_says_its_last_words_and_is_started_again(tmp_path):
    with alone(tmp_path, entry=entry()) as test:
        with pytest.raises(
            ToolError, match="exited with code 3; it said:\nfirst words\nI am dying"
        ):
            test.call("die")
        assert test.text("echo", {"text": "again"}) == "you said again"
    assert "dying of thirst" in Path(server_log(str(tmp_path), "test")).read_text()


def test_a_server_that_cannot_start_says_why(tmp_path):
    with alone(tmp_path, entry=entry(start="die")) as test:
        with pytest.raises(McpError, match="cannot find my configuration"):
            test.server.connection(Cancel())
        assert test.server.state.state == "failed"
        # Whoever asks again at once hears the same, and no second process is started.
        with pytest.raises(McpError, match="cannot find my configuration"):
            test.server.connection(Cancel())
        assert test.states == ["starting", "failed"]


def test_a_program_that_is_not_there_is_named(tmp_path):
    with (
        alone(tmp_path, entry={"command": "no-such-program"}) as test,
        pytest.raises(McpError, match="no program 'no-such-program'; install it"),
    ):
        test.server.connection(Cancel())


def test_a_server_that_hangs_at_its_start_is_given_up(tmp_path):
    config = {**entry(start="hang"), "startup_timeout": 0.5}
    with (
        alone(tmp_path, entry=config) as test,
        pytest.raises(McpError, match="no answer to initialize within 0.5 s"),
    ):
        test.server.connection(Cancel())


def test_an_abort_does_not_wait_for_a_start(tmp_path):
    with alone(tmp_path, entry=entry(start="hang")) as test:
        cancel = Cancel()
        threading.Timer(0.1, cancel.set).start()
        with pytest.raises(Cancelled):
            test.server.connection(cancel)


def test_a_server_that_is_silent_about_its_version_gets_the_older_handshake(tmp_path, monkeypatch):
    monkeypatch.setattr("zot.mcp.connection.PROBE_SECONDS", 0.2)
    with alone(tmp_path, entry=entry(era="silent")) as test:
        assert "echo" in test.listed()
        assert test.server.listed.era == "legacy"


def test_a_modern_server_that_is_slow_to_start_is_asked_again(tmp_path, monkeypatch):
    monkeypatch.setattr("zot.mcp.connection.PROBE_SECONDS", 0.05)
    with alone(tmp_path, entry=entry(era="modern", start="slow", seconds=0.5)) as test:
        assert "echo" in test.listed()
        assert test.server.listed.era == "modern"


def test_a_server_of_another_version_is_refused(tmp_path):
    for options in ({"era": "newer"}, {"version": "1999-01-01"}):
        with (
            alone(tmp_path / str(len(options)), entry=entry(**options)) as test,
            pytest.raises(McpError, match="version"),
        ):
            test.server.connection(Cancel())


def test_the_era_is_remembered(tmp_path):
    with alone(tmp_path, entry=entry(era="silent")) as test:
        # As if an earlier run had found out: the server would not answer the probe.
        from zot.mcp.protocol import ServerLists

        test.server.listed = ServerLists(era="legacy")
        began = time.monotonic()
        test.listed()
        assert time.monotonic() - began < patience(3)


def test_a_server_that_changed_its_era_is_found_out(tmp_path):
    with alone(tmp_path, entry=entry(era="modern")) as test:
        from zot.mcp.protocol import ServerLists

        test.server.listed = ServerLists(era="legacy")
        assert "echo" in test.listed()
        assert test.server.listed.era == "modern"


# --- hostile ---------------------------------------------------------------------------------


def test_a_flood_is_survived(tmp_path):
    with alone(tmp_path, entry=entry()) as test:
        assert test.text("flood") == "flooded"


def test_a_line_of_100_mb_fails_its_call_and_nothing_else(tmp_path):
    with alone(tmp_path, entry=entry()) as test:
        with pytest.raises(ToolError, match="a line of more than 16777216 bytes"):
            test.call("long")
        assert test.text("echo", {"text": "still here"}) == "you said still here"


def test_a_greeting_on_stdout_is_ignored_and_noise_for_ever_is_not(tmp_path):
    with alone(tmp_path, entry=entry(start="banner")) as test:
        assert "echo" in test.listed()
    with (
        alone(tmp_path / "2", entry=entry(start="noise")) as test,
        pytest.raises(McpError, match="more than 100 lines were no frames"),
    ):
        test.server.connection(Cancel())


def test_what_a_server_forks_ends_with_it(tmp_path):
    mark = f"mark-{os.getpid()}-{time.monotonic_ns()}"
    environ = {"ZOT_TEST_MARK": mark}
    with alone(tmp_path, entry={**entry(), "env": environ}) as test:
        test.call("fork")
        assert eventually(lambda: len(marked(mark)) >= 3)
    assert marked(mark) == []


def test_a_server_sees_a_small_environment_and_what_its_entry_names(tmp_path):
    environ = {"ANTHROPIC_API_KEY": "sk-secret", "HOME": "/h", "GIVEN": "x", "LC_ALL": "C"}
    config = {**entry(), "env": {"OWN": "${GIVEN}", "PLAIN": "${UNSET:-default}"}}
    with alone(tmp_path, entry=config, environ=environ) as test:
        names = test.text("environ").split()
        assert {"HOME", "LC_ALL", "OWN", "PLAIN", "PATH"} <= set(names)
        assert "ANTHROPIC_API_KEY" not in names and "GIVEN" not in names


def test_a_variable_that_is_not_set_keeps_the_server_from_starting(tmp_path):
    config = {**entry(), "env": {"TOKEN": "${NOT_SET}"}}
    with (
        alone(tmp_path, entry=config) as test,
        pytest.raises(McpError, match="the variable NOT_SET is not set"),
    ):
        test.server.connection(Cancel())


# --- what the user agreed to -----------------------------------------------------------------


def test_tools_that_change_are_off_until_the_user_agrees(tmp_path):
    with alone(tmp_path, entry=entry()) as test:
        before = test.listed()
        test.call("change")
        test.wait(lambda: test.server.changed())
        assert [tool.name for tool in test.server.changed()] == ["write", "fresh"]
        assert [tool.name for tool in test.server.tools()] == [n for n in before if n != "write"]
        assert test.server.state.changed == ("write", "fresh")
        test.server.accept()
        assert test.server.changed() == []
        assert "fresh" in [tool.name for tool in test.server.tools()]


def test_a_broken_file_of_agreements_agrees_to_nothing(tmp_path):
    with alone(tmp_path, entry=entry()) as test:
        test.listed()
    (tmp_path / "mcp" / "trust.json").write_text("not json")
    with alone(tmp_path, entry=entry()) as test:
        assert test.server.tools() == []
        assert len(test.server.changed()) == 18


def test_only_the_tools_that_are_wanted_are_offered(tmp_path):
    with alone(tmp_path, entry={**entry(), "tools": ["echo", "no-such"]}) as test:
        assert test.listed() == ["echo"]
