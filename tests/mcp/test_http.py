"""Servers by HTTP, of either era, well behaved and not."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.mcp import alone
from support.mcp_http import http_server
from support.tools import eventually

from zot.cancel import Cancel
from zot.errors import Cancelled, McpError, ToolError
from zot.mcp.http import EventReader
from zot.mcp.oauth import (
    canonical,
    covers,
    issuer_addresses,
    read_challenge,
    resource_addresses,
)
from zot.provider.types import Text

ERAS = pytest.mark.parametrize("era", ["legacy", "modern"])


@ERAS
def test_a_server_by_http_is_found_listed_and_called(tmp_path, era):
    with http_server(era=era) as (url, mcp), alone(tmp_path, entry={"url": url}) as test:
        assert "echo" in test.listed()
        assert test.server.listed.era == era
        assert test.text("echo", {"text": "hi"}) == "you said hi"
        output, told = test.call("slow")
        assert output.content == (Text("done"),)
        assert told == "1/3 step 1\n2/3 step 2\n3/3 step 3\n"
    headers = {method: headers for method, headers, _ in mcp.requests}
    if era == "modern":
        call = headers["tools/call"]
        assert call["mcp-protocol-version"] == "2026-07-28"
        assert (call["mcp-method"], call["mcp-name"]) == ("tools/call", "slow")
        assert "mcp-session-id" not in call
    else:
        assert headers["tools/call"]["mcp-session-id"] == "session-1"
        assert headers["tools/call"]["mcp-protocol-version"] == "2025-11-25"
        assert "DELETE" in headers


def test_a_session_that_ended_is_begun_anew_and_the_call_repeated_once(tmp_path):
    with http_server() as (url, mcp), alone(tmp_path, entry={"url": url}) as test:
        test.listed()
        mcp.lost = True
        assert test.text("echo", {"text": "again"}) == "you said again"
        assert mcp.sessions == 2


@ERAS
def test_changes_of_lists_are_heard_over_http(tmp_path, era):
    with http_server(era=era) as (url, mcp), alone(tmp_path, entry={"url": url}) as test:
        test.listed()
        assert eventually(lambda: bool(mcp.streams))
        # Somebody between us cuts it, as they do when nothing is said: it is opened again.
        mcp.streams.pop().put(None)
        assert eventually(lambda: bool(mcp.streams))
        test.call("change")
        test.wait(lambda: test.server.changed())
        assert [tool.name for tool in test.server.changed()] == ["write", "fresh"]


@ERAS
def test_an_abort_and_a_timeout_end_the_call_at_once(tmp_path, era):
    entry = {"timeout": 0.3}
    with http_server(era=era) as (url, _), alone(tmp_path, entry={"url": url, **entry}) as test:
        test.listed()
        with pytest.raises(ToolError, match="no answer to tools/call within 0.3 s"):
            test.call("hang")
        cancel = Cancel()
        threading.Timer(0.05, cancel.set).start()
        with pytest.raises(Cancelled):
            test.call("hang", cancel=cancel)
        assert test.text("echo", {"text": "on"}) == "you said on"


def test_a_server_that_is_not_there_or_no_server_says_so(tmp_path):
    with http_server() as (url, mcp):
        mcp.refuse = 503
        with alone(tmp_path, entry={"url": url}) as test, pytest.raises(McpError, match="http 503"):
            test.server.connection(Cancel())
        mcp.refuse = 405
        with (
            alone(tmp_path / "2", entry={"url": url}) as test,
            pytest.raises(McpError, match="http 405: <html>no</html>"),
        ):
            test.server.connection(Cancel())
    with (
        alone(tmp_path / "3", entry={"url": "http://127.0.0.1:9/mcp"}) as test,
        pytest.raises(McpError, match="cannot connect"),
    ):
        test.server.connection(Cancel())


def test_only_https_or_this_machine(tmp_path):
    with (
        alone(tmp_path, entry={"url": "http://${HOST}/mcp"}, environ={"HOST": "x.test"}) as test,
        pytest.raises(McpError, match="needs https"),
    ):
        test.server.connection(Cancel())


def test_a_token_from_a_variable_is_sent_and_a_missing_one_asks_for_a_login(tmp_path):
    with http_server(tokens=["t-secret-12345"]) as (url, mcp):
        with alone(tmp_path, entry={"url": url}) as test:
            with pytest.raises(McpError, match="zot mcp login test"):
                test.server.connection(Cancel())
            assert test.server.state.state == "login"
        entry = {"url": url, "headers": {"Authorization": "Bearer ${T}"}}
        with alone(tmp_path, entry=entry, environ={"T": "t-secret-12345"}) as test:
            assert test.text("echo", {"text": "hi"}) == "you said hi"
        with (
            alone(tmp_path / "2", entry=entry, environ={"T": "t-wrong-67890"}) as test,
            pytest.raises(McpError) as refused,
        ):
            test.server.connection(Cancel())
        assert "t-wrong" not in str(refused.value)


# --- parsers ---------------------------------------------------------------------------------


@given(st.lists(st.binary(max_size=30)), st.data())
def test_events_do_not_depend_on_where_the_stream_is_cut(pieces, data):
    whole = b"".join(pieces)
    cut = data.draw(st.integers(0, len(whole)))
    at_once, in_two = EventReader(), EventReader()
    assert at_once.feed(whole) == in_two.feed(whole[:cut]) + in_two.feed(whole[cut:])


def test_events_carry_ids_and_pauses():
    reader = EventReader()
    events = reader.feed(b"id: 7\nretry: 500\ndata:\n\n: alive\n\ndata: a\r\ndata: b\r\n\r\n")
    assert [(event.data, event.id, event.retry) for event in events] == [
        (b"", "7", 0.5),
        (b"a\nb", None, None),
    ]


def test_a_challenge_is_read_and_garbage_is_none():
    header = 'Bearer realm="x", resource_metadata="https://a/b", scope="r w", error=invalid_token'
    said = read_challenge(header)
    assert (said.metadata, said.scope, said.error) == ("https://a/b", "r w", "invalid_token")
    assert read_challenge("Basic realm=x").metadata == ""


@given(st.text())
def test_any_challenge_is_read(text):
    read_challenge("Bearer " + text)


def test_where_a_login_may_be_described():
    assert resource_addresses("https://a.test/x/mcp", "") == [
        "https://a.test/.well-known/oauth-protected-resource/x/mcp",
        "https://a.test/.well-known/oauth-protected-resource",
    ]
    assert issuer_addresses("https://a.test/t1") == [
        "https://a.test/.well-known/oauth-authorization-server/t1",
        "https://a.test/.well-known/openid-configuration/t1",
        "https://a.test/t1/.well-known/openid-configuration",
    ]
    assert canonical("HTTPS://A.test/MCP?q=1#f") == "https://a.test/MCP"
    assert covers("https://a.test", "https://a.test/mcp")
    assert covers("https://a.test/mcp", "https://a.test/mcp/")
    assert not covers("https://a.test/mc", "https://a.test/mcp")
    assert not covers("https://b.test/mcp", "https://a.test/mcp")
