"""`zot mcp login`, as a person types it, with a browser and an authorization server on loopback."""

import json
import subprocess
import sys
from urllib.parse import parse_qs

import pytest
from support.mcp import configure
from support.mcp_http import http_server
from support.mcp_oauth import protected_server
from support.rpc import environment, make_folder

from zot.errors import AuthError
from zot.mcp.oauth import Challenge, check_reach, discover

pytestmark = pytest.mark.slow
BROWSER = "import sys, urllib.request; urllib.request.urlopen(sys.argv[1], timeout=20).read()"


@pytest.fixture
def run(tmp_path):
    make_folder(tmp_path)
    browser = tmp_path / "browser"
    browser.write_text(f"#!{sys.executable}\n{BROWSER}\n")
    browser.chmod(0o755)

    def run(*words: str, code: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "zot", "mcp", *words],
            env=environment(tmp_path, BROWSER=f"{browser} %s"),
            cwd=tmp_path / "work",
            capture_output=True,
            timeout=60,
            text=True,
        )
        assert done.returncode == code, (done.stdout, done.stderr)
        assert "at-" not in done.stdout + done.stderr  # no token is shown
        return done.stdout if code == 0 else done.stderr

    run.home = tmp_path / "zot-home"
    return run


def test_a_login_is_found_registered_used_renewed_and_forgotten(run):
    with protected_server() as (url, server, oauth):
        run("add", "s", "--url", url)
        assert "zot mcp login s" in run("test", "s", code=1)
        said = run("login", "s")
        assert f"{oauth.url}/authorize?" in said and "logged in to s: 18 tools" in said

        (client,), (login,) = oauth.clients, oauth.logins
        assert client["application_type"] == "native"
        assert client["redirect_uris"] == [login["redirect_uri"]]
        assert login["resource"] == url and login["scope"] == "tools:call"
        assert login["code_challenge_method"] == "S256" and len(login["state"]) >= 16
        exchanged = parse_qs(oauth.bodies[-1])
        assert exchanged["resource"] == [url] and exchanged["code_verifier"]

        kept = run.home / "auth.json"
        assert kept.stat().st_mode & 0o777 == 0o600
        (credential,) = json.loads(kept.read_text()).values()
        assert credential["oauth"]["access_token"] in oauth.access_tokens
        assert "18 tools" in run("list")

        # The server forgets the token: it is renewed by itself, for the same server.
        oauth.access_tokens.clear()
        assert "echo" in run("test", "s")
        assert oauth.refreshes == 1 and oauth.reused == 0
        assert parse_qs(oauth.bodies[-1])["resource"] == [url]
        # It is about to end: it is renewed before it is used.
        credential = json.loads(kept.read_text())
        for entry in credential.values():
            entry["oauth"]["expiry"] = "2020-01-01T00:00:00Z"
        kept.write_text(json.dumps(credential))
        assert "echo" in run("test", "s")
        assert oauth.refreshes == 2

        assert "logged out of s" in run("logout", "s")
        assert "zot mcp login s" in run("test", "s", code=1)
        assert "no login to 's'" in run("logout", "s", code=1)
        sent = [headers.get("authorization", "") for _, headers, _ in server.requests]
        assert all(header == "" or header.startswith("Bearer at-") for header in sent)


def test_an_issuer_that_is_another_one_is_not_believed(run):
    with protected_server() as (url, _, oauth):
        run("add", "s", "--url", url)
        oauth.issuer = "https://evil.test"
        assert "says that it is 'https://evil.test'" in run("login", "s", code=1)
        assert oauth.logins == []
        oauth.issuer = oauth.url
        oauth.answers_as = "https://evil.test"
        assert "the login failed" in run("login", "s", code=1)
        assert oauth.bodies and not [body for body in oauth.bodies if "code_verifier" in body]
        assert (
            not (run.home / "auth.json").exists()
            or "at-" not in (run.home / "auth.json").read_text()
        )


def test_a_token_for_another_server_is_not_asked_for(run):
    with protected_server() as (url, _, oauth):
        run("add", "s", "--url", url)
        oauth.resource = "https://other.test/mcp"
        assert "describes the login of another one" in run("login", "s", code=1)
        assert oauth.clients == []


def test_a_server_without_a_login_says_so_and_a_program_has_none(run):
    with http_server() as (url, _):
        configure(run.home / "mcp.json", plain={"url": url}, program={"command": "true"})
        assert "plain wants no login: 18 tools" in run("login", "plain")
        assert "'program' is a program" in run("login", "program", code=1)


@pytest.mark.parametrize(
    ("address", "server", "allowed"),
    [
        ("http://127.0.0.1:9/x", "http://127.0.0.1:8/mcp", True),
        ("http://127.0.0.1:9/x", "https://1.1.1.1/mcp", False),
        ("http://localhost:9/x", "https://1.1.1.1/mcp", False),
        ("https://10.0.0.1/x", "https://1.1.1.1/mcp", False),
        ("https://192.168.1.1/x", "https://1.1.1.1/mcp", False),
        ("https://169.254.169.254/latest", "https://1.1.1.1/mcp", False),
        ("https://[::1]/x", "https://1.1.1.1/mcp", False),
        ("https://[fd00::1]/x", "https://1.1.1.1/mcp", False),
        ("https://[::ffff:10.0.0.1]/x", "https://1.1.1.1/mcp", False),
        ("https://10.0.0.1/x", "https://10.0.0.2/mcp", True),
        ("https://8.8.8.8/x", "https://1.1.1.1/mcp", True),
        ("http://8.8.8.8/x", "https://1.1.1.1/mcp", False),
    ],
)
def test_a_far_server_does_not_lead_to_this_machine_or_its_network(
    address: str, server: str, allowed: bool
) -> None:
    if allowed:
        check_reach(address, server)
    else:
        with pytest.raises(AuthError):
            check_reach(address, server)
    challenge = Challenge(address)
    if not allowed:
        with pytest.raises(AuthError):
            discover(server, challenge)  # before anything is asked
