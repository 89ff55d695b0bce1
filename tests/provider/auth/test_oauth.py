import http.client
import json
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import closing
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest
from support.oauth import CLIENT, OAuthServer

from zot.cancel import Cancel
from zot.errors import AuthError, Cancelled
from zot.provider.auth import oauth
from zot.provider.auth.page import CallbackPage
from zot.provider.auth.resolve import find_credential
from zot.provider.auth.store import AuthFile, Credential, Token
from zot.provider.discover import probe
from zot.provider.providers import ProviderInfo, find_provider

GROQ = find_provider("groq")


@pytest.fixture
def server():
    server = OAuthServer()
    yield server
    server.close()


@pytest.fixture
def home(tmp_path):
    (tmp_path / "home").mkdir(mode=0o700)
    return str(tmp_path / "home")


def configure(home: str, settings: dict, provider: str = "groq") -> oauth.AuthServer:
    Path(oauth.oauth_path(home)).write_text(json.dumps({provider: settings}))
    return oauth.server_of(provider, home)


def visit(url: str) -> tuple[int, str]:
    """What a browser does: follow the server back to us."""
    try:
        with urllib.request.urlopen(url, timeout=10) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


# --- configuration ---------------------------------------------------------------------------


def test_no_client_id_is_shipped(home):
    for name, server in oauth.servers_in(oauth.SHIPPED).items():
        assert "client_id" not in server, name
        if server.get("needs_client_id", True):
            with pytest.raises(AuthError, match="client id of your own"):
                oauth.server_of(name, home)


def test_a_user_brings_a_client_id_or_a_whole_server(home, server):
    configured = configure(home, {"client_id": "mine"}, "anthropic")
    assert configured.client_id == "mine"
    assert configured.token_url.startswith("https://")
    assert configure(home, server.settings()).token_url == f"{server.url}/token"
    with pytest.raises(AuthError, match="no OAuth server is known for 'xai'"):
        oauth.server_of("xai", home)


def test_addresses_must_be_safe_and_files_whole(home, server):
    with pytest.raises(AuthError, match="must begin with https"):
        configure(home, server.settings(token_url="http://example.com/token"))
    Path(oauth.oauth_path(home)).write_text("{")
    with pytest.raises(AuthError, match="cannot be read"):
        oauth.server_of("groq", home)


# --- authorization code ----------------------------------------------------------------------


@pytest.mark.parametrize("body", ["form", "json"])
def test_a_login_through_the_browser(home, server, body):
    configured = configure(home, server.settings(body=body, params={"prompt": "login"}))
    with closing(CallbackPage(configured)) as page:
        query = parse_qs(urlsplit(page.attempt.url).query)
        assert query["scope"] == ["models"]
        assert query["prompt"] == ["login"]
        assert "code_verifier" not in query
        assert page.attempt.verifier not in page.attempt.url
        status, text = visit(page.attempt.url)
        assert (status, "Logged in" in text) == (200, True)
        code = page.wait(Cancel())
        assert visit(page.attempt.url)[0] == 410
    credential = oauth.exchange(configured, page.attempt, code)
    assert credential.oauth.access_token in server.access_tokens
    assert credential.oauth.client_id == CLIENT
    assert 3500 < credential.oauth.seconds_left(time.time()) <= 3600
    with pytest.raises(AuthError, match="invalid_grant: no such code"):
        oauth.exchange(configured, page.attempt, code)


@pytest.mark.parametrize(("lives", "most"), [(1e300, 10 * 366 * 86_400), (-1e300, 0)])
def test_a_token_that_lives_for_ever_or_not_at_all_is_a_token(home, server, lives, most):
    server.expires_in = lives
    configured = configure(home, server.settings())
    with closing(CallbackPage(configured)) as page:
        visit(page.attempt.url)
        token = oauth.exchange(configured, page.attempt, page.wait(Cancel())).oauth
    assert token.seconds_left(time.time()) <= most


def test_another_program_cannot_use_the_code(home, server):
    configured = configure(home, server.settings())
    with closing(CallbackPage(configured)) as page:
        visit(page.attempt.url)
        code = page.wait(Cancel())
    stranger = msgspec.structs.replace(page.attempt, verifier="guess")
    with pytest.raises(AuthError, match="wrong verifier"):
        oauth.exchange(configured, stranger, code)


def test_a_server_that_gives_keys_and_knows_no_state(home, server):
    configured = configure(
        home,
        server.settings(
            redirect_param="callback_url", state_in_redirect=True, key_field="key", body="json"
        ),
    )
    with closing(CallbackPage(configured)) as page:
        assert visit(page.attempt.url)[0] == 200
        code = page.wait(Cancel())
    assert oauth.exchange(configured, page.attempt, code).api_key in server.keys
    odd = msgspec.structs.replace(configured, key_field="other")
    with closing(CallbackPage(configured)) as page:
        visit(page.attempt.url)
        with pytest.raises(AuthError, match="has no 'other'"):
            oauth.exchange(odd, page.attempt, page.wait(Cancel()))


def test_answers_of_other_logins_are_refused(home, server):
    configured = configure(home, server.settings())
    with closing(CallbackPage(configured)) as page:
        back = page.attempt.redirect_uri
        assert visit(f"{back}?code=x")[0] == 403
        assert visit(f"{back}?code=x&state=wrong")[0] == 403
        assert visit(f"{back}?state={page.attempt.state}")[0] == 400
        assert visit(back.replace("/callback", "/other"))[0] == 404
        host = urlsplit(back).netloc
        connection = http.client.HTTPConnection(host, timeout=10)
        path = f"/callback?code=x&state={page.attempt.state}"
        connection.request("GET", path, headers={"Host": "evil.example"})
        assert connection.getresponse().status == 403
        connection.close()
        assert visit(f"{back}?error=access_denied&state={page.attempt.state}")[0] == 400
        with pytest.raises(AuthError, match="access_denied"):
            page.wait(Cancel())


def test_waiting_ends_with_the_time_or_an_abort(home, server):
    configured = configure(home, server.settings())
    with closing(CallbackPage(configured)) as page:
        with pytest.raises(AuthError, match="start again"):
            page.wait(Cancel(), 0.01)
        cancel = Cancel()
        cancel.set()
        with pytest.raises(Cancelled):
            page.wait(cancel)
        taken = urlsplit(page.attempt.redirect_uri).port
        with pytest.raises(AuthError, match=f"port {taken}"):
            CallbackPage(msgspec.structs.replace(configured, callback_port=taken))


def test_a_pasted_code_may_have_many_shapes(home, server):
    attempt = oauth.begin(configure(home, server.settings()), "http://127.0.0.1:1/callback")
    state = attempt.state
    assert oauth.pasted_code(" abc \n", attempt) == "abc"
    assert oauth.pasted_code(f"abc#{state}", attempt) == "abc"
    assert oauth.pasted_code(f"http://x/callback?code=abc&state={state}", attempt) == "abc"
    for wrong, words in (
        ("abc#other", "another attempt"),
        ("http://x/?state=1", "no code"),
        ("", "nothing was pasted"),
    ):
        with pytest.raises(AuthError, match=words):
            oauth.pasted_code(wrong, attempt)


def test_a_server_without_a_page_points_to_the_device_flow(server, home):
    with pytest.raises(AuthError, match="--device"):
        oauth.begin(configure(home, server.settings(authorize_url="")), "http://x")
    with pytest.raises(AuthError, match="no device login"):
        oauth.begin_device(configure(home, server.settings(device_url="")))


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((500, b"<html>oops sk-canary"), "refused: 500"),
        ((200, b"[]"), "no access token"),
        ((302, b""), "302|access token"),
        ((400, b'{"error": "x", "error_description": "why", "echo": "sk-canary"}'), "x: why"),
    ],
)
def test_strange_answers_are_errors_without_their_content(home, server, answer, words):
    configured = configure(home, server.settings())
    server.fail_with = answer
    with pytest.raises(AuthError, match=words) as caught:
        oauth.exchange(configured, oauth.begin(configured, "http://x"), "code")
    assert "canary" not in str(caught.value)


def test_a_server_that_is_not_there_is_an_error(home, server):
    configured = configure(home, server.settings(token_url="http://127.0.0.1:9/token"))
    with pytest.raises(AuthError, match="127.0.0.1:9 cannot be reached"):
        oauth.exchange(configured, oauth.begin(configured, "http://x"), "code")


# --- device code -----------------------------------------------------------------------------


def test_a_login_by_device_code(home, server):
    configured = configure(home, server.settings())
    device = oauth.begin_device(configured)
    assert device.user_code == "ABCD-1234"
    threading.Timer(0.1, lambda: server.devices.update({device.device_code: "allowed"})).start()
    credential = oauth.finish_device(configured, device, Cancel())
    assert credential.oauth.access_token in server.access_tokens


def test_a_device_login_that_is_denied_ends_late_or_is_given_up(home, server):
    configured = configure(home, server.settings())
    device = oauth.begin_device(configured)
    server.devices[device.device_code] = "denied"
    with pytest.raises(AuthError, match="access_denied"):
        oauth.finish_device(configured, device, Cancel())
    late = msgspec.structs.replace(oauth.begin_device(configured), expires_in=0.05)
    with pytest.raises(AuthError, match="not confirmed in time"):
        oauth.finish_device(configured, late, Cancel())
    cancel = Cancel()
    server.slow_down = 1
    threading.Timer(0.1, cancel.set).start()
    with pytest.raises(Cancelled):
        oauth.finish_device(configured, oauth.begin_device(configured), cancel)
    server.fail_with = (200, b"{}")
    with pytest.raises(AuthError, match="is not one"):
        oauth.begin_device(configured)


# --- refresh ---------------------------------------------------------------------------------


def stored(home: str, server: OAuthServer, seconds: float) -> Token:
    issued = server.issue()
    expiry = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + seconds))
    token = Token(issued["access_token"], issued["refresh_token"], expiry=expiry, account_id="acc")
    AuthFile(home).put("groq", Credential(oauth=token))
    return token


def test_a_token_is_renewed_before_it_ends(home, server):
    configure(home, server.settings())
    old = stored(home, server, 60)
    credential = find_credential(GROQ, "", {}, home)
    assert (credential.source, credential.key != old.access_token) == ("oauth", True)
    kept = AuthFile(home).get("groq").oauth
    assert kept.access_token == credential.key
    assert kept.account_id == "acc"
    assert find_credential(GROQ, "", {}, home).key == credential.key
    assert server.refreshes == 1


def test_a_token_that_is_good_is_left_alone(home, server):
    old = stored(home, server, 3600)
    assert find_credential(GROQ, "", {}, home).key == old.access_token
    assert server.refreshes == 0


def test_a_token_that_cannot_be_renewed_is_used_to_its_end(home, server):
    configure(home, server.settings())
    old = stored(home, server, 60)
    server.fail_with = (503, b"")
    assert find_credential(GROQ, "", {}, home).key == old.access_token
    stored(home, server, -5)
    with pytest.raises(AuthError, match="run `zot login groq`"):
        find_credential(GROQ, "", {}, home)
    AuthFile(home).put("groq", Credential(oauth=Token("a", expiry="2020-01-01T00:00:00Z")))
    with pytest.raises(AuthError, match="cannot be renewed"):
        find_credential(GROQ, "", {}, home)
    with pytest.raises(AuthError, match="not logged in"):
        oauth.refreshed("openai", AuthFile(home), home)


def test_many_processes_burn_one_refresh_token(home, server):
    configure(home, server.settings())
    server.refresh_seconds = 0.2
    stored(home, server, 60)
    program = (
        "import sys; from zot.provider.auth.resolve import find_credential;"
        "from zot.provider.providers import find_provider;"
        "print(find_credential(find_provider('groq'), '', {}, sys.argv[1]).key)"
    )
    children = [
        subprocess.Popen([sys.executable, "-c", program, home], stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    keys = {child.communicate()[0].strip() for child in children}
    assert len(keys) == 1
    assert keys <= server.access_tokens
    assert (server.refreshes, server.reused) == (1, 0)


# --- trying a key ----------------------------------------------------------------------------


def test_a_key_is_tried_against_the_list_of_models(server):
    info = ProviderInfo(name="mine", api="openai-chat", base_url=server.url)
    server.keys.add("good")
    probed = probe(info, "good")
    assert probed.verdict == "accepted"
    assert [model.id for model in probed.models] == ["m-1"]
    refused = probe(info, "sk-canary-bad")
    assert (refused.verdict, refused.reason) == ("refused", "mine refused the key (HTTP 401)")
    gone = probe(msgspec.structs.replace(info, base_url="http://127.0.0.1:9"), "x")
    assert gone.verdict == "unknown"
    assert probe(msgspec.structs.replace(info, base_url=""), "x").verdict == "unknown"
