import http.client
from contextlib import closing
from urllib.parse import urlencode, urlsplit

import pytest
from support.browser import CHROMIUM, Browser
from support.oauth import OAuthServer

from zot.cancel import Cancel
from zot.errors import AuthError, Cancelled
from zot.provider.auth import oauth
from zot.provider.auth.page import CallbackPage, KeyPage

FORM = "application/x-www-form-urlencoded"


class Visitor:
    """Speaks to a page as a browser would, or as somebody who should not."""

    def __init__(self, page: KeyPage) -> None:
        self.host = urlsplit(page.url).netloc
        self.cookie = ""

    def ask(self, method: str, path: str, headers=(), body: str | None = None):
        connection = http.client.HTTPConnection(self.host, timeout=10)
        sent = {"Host": self.host, "Cookie": self.cookie, **dict(headers)}
        connection.request(method, path, body, {k: v for k, v in sent.items() if v is not None})
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer, text

    def enter(self, page: KeyPage) -> None:
        answer, _ = self.ask("GET", "/?" + urlsplit(page.url).query)
        assert (answer.status, answer.headers["location"]) == (303, "/")
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        self.cookie = cookie.partition(";")[0]

    def post(self, key: str, **headers):
        sent = {"Origin": f"http://{self.host}", "Content-Type": FORM} | {
            name.replace("_", "-"): value for name, value in headers.items()
        }
        return self.ask("POST", "/", sent, urlencode({"api_key": key}))


@pytest.fixture
def taken():
    return []


@pytest.fixture
def page(taken):
    def take(key: str) -> str:
        if key == "bad":
            return "refused <b>"
        if key == "full":
            raise AuthError("the disk is full")
        taken.append(key)
        return ""

    with closing(KeyPage("Acme <i>", take)) as page:
        yield page


def test_a_key_is_taken_once(page, taken):
    visitor = Visitor(page)
    visitor.enter(page)
    answer, text = visitor.ask("GET", "/")
    assert answer.status == 200
    assert "Log in to Acme &lt;i&gt;" in text
    assert 'type="password"' in text
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert answer.headers["cache-control"] == "no-store"
    answer, text = visitor.post("bad")
    assert (answer.status, "refused &lt;b&gt;" in text) == (400, True)
    answer, text = visitor.post("full")
    assert (answer.status, "the disk is full" in text) == (400, True)
    assert visitor.post("  ")[0].status == 400
    assert visitor.post("a\nb")[0].status == 400
    assert visitor.post("x" * 9000)[0].status == 400
    answer, text = visitor.post(" sk-good ")
    assert (answer.status, "Logged in" in text) == (200, True)
    assert "sk-good" not in text
    assert taken == ["sk-good"]
    assert page.wait(Cancel())
    assert visitor.post("again")[0].status == 410


def test_the_address_works_once(page):
    Visitor(page).enter(page)
    answer, _ = Visitor(page).ask("GET", "/?" + urlsplit(page.url).query)
    assert answer.status == 403
    assert "set-cookie" not in answer.headers
    assert Visitor(page).ask("GET", "/?token=guess")[0].status == 403
    assert Visitor(page).ask("GET", "/?token=")[0].status == 403


def test_without_the_cookie_nothing_is_shown_or_taken(page, taken):
    visitor = Visitor(page)
    assert visitor.ask("GET", "/")[0].status == 403
    assert visitor.post("stolen")[0].status == 403
    visitor.cookie = "zot_login="
    assert visitor.post("stolen")[0].status == 403
    visitor.cookie = 'zot_login="\\'
    assert visitor.post("stolen")[0].status == 403
    assert taken == []


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": None},
        {"Host": "evil.example"},
        {"Host": "localhost"},
        {"Content_Type": "text/plain"},
        {"Content_Length": "999999"},
    ],
)
def test_another_page_cannot_send_the_form(page, taken, headers):
    visitor = Visitor(page)
    visitor.enter(page)
    answer, _ = visitor.post("planted", **headers)
    assert answer.status in (400, 403)
    assert taken == []


def test_other_paths_and_methods_are_not_there(page):
    visitor = Visitor(page)
    visitor.enter(page)
    assert visitor.ask("GET", "/other")[0].status == 404
    assert visitor.ask("PUT", "/")[0].status == 501
    assert visitor.ask("GET", "//[")[0].status in (400, 404)


def test_it_listens_on_this_machine_only(page):
    assert page._server._server.server_address[0] == "127.0.0.1"


def test_waiting_can_be_given_up(page):
    assert not page.wait(Cancel(), 0.01)
    cancel = Cancel()
    cancel.set()
    with pytest.raises(Cancelled):
        page.wait(cancel)


# --- a real browser --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    if CHROMIUM is None:
        pytest.skip("no chromium is installed")
    with closing(Browser(tmp_path_factory.mktemp("chromium"))) as browser:
        yield browser


def test_a_person_logs_in_with_a_browser(browser, page, taken):
    browser.open(page.url)
    browser.wait_for("!!document.querySelector('#api_key')")
    assert "token" not in browser.run("location.href")
    type_and_send = (
        "document.querySelector('#api_key').value = {!r};document.querySelector('button').click()"
    )
    browser.run(type_and_send.format("bad"))
    assert browser.wait_for("document.querySelector('.bad')?.innerText") == "refused <b>"
    browser.run(type_and_send.format("sk-from-browser"))
    browser.wait_for("document.querySelector('h1')?.innerText === 'Logged in'")
    assert taken == ["sk-from-browser"]


def test_a_page_elsewhere_cannot_plant_a_key_through_the_users_browser(
    browser, page, taken, tmp_path
):
    browser.open(page.url)
    browser.wait_for("!!document.querySelector('#api_key')")
    host = urlsplit(page.url).netloc
    evil = tmp_path / "evil.html"
    evil.write_text(
        f'<form method="post" action="http://{host}/"><input name="api_key" value="planted">'
        "</form><script>document.forms[0].submit()</script>"
    )
    browser.open(evil.as_uri())
    browser.wait_for("document.querySelector('h1')?.innerText === 'Not here'")
    done = browser.run(
        f"fetch('http://{host}/', {{method: 'POST', mode: 'no-cors', credentials: 'include', "
        "headers: {'content-type': 'application/x-www-form-urlencoded'}, body: 'api_key=planted'})"
        ".then(() => 'sent', () => 'blocked')"
    )
    assert done in ("sent", "blocked")
    assert taken == []


def test_an_oauth_login_goes_round_through_a_browser(browser, tmp_path):
    with closing(OAuthServer()) as server:
        settings = oauth.AuthServer(
            client_id="client-1",
            authorize_url=f"{server.url}/authorize",
            token_url=f"{server.url}/token",
            callback_host="localhost",
        )
        with closing(CallbackPage(settings)) as page:
            browser.open(page.attempt.url)
            browser.wait_for("document.querySelector('h1')?.innerText === 'Logged in'")
            credential = oauth.exchange(settings, page.attempt, page.wait(Cancel(), 10))
        assert credential.oauth.access_token in server.access_tokens
