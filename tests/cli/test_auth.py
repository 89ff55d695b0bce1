import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from contextlib import closing

import pytest
from support.oauth import OAuthServer
from support.terminal import in_a_terminal

from tests.support.around import around
from zot.cli import auth as auth_cli
from zot.cli.main import run as main
from zot.provider.auth.store import AuthFile, Credential, Token
from zot.settings.options import parse
from zot.settings.resolve import resolve

ZOT = [sys.executable, "-m", "zot"]


@pytest.fixture
def server():
    with closing(OAuthServer()) as server:
        yield server


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch, server):
    for name in list(os.environ):
        if name.endswith(("_API_KEY", "_TOKEN", "_BASE_URL")) or name.startswith("ZOT_"):
            monkeypatch.delenv(name)
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    monkeypatch.setenv("ZOT_HOME", str(home))
    monkeypatch.setenv("ZOT_NO_BROWSER", "1")
    row = {"baseUrl": server.url, "api": "openai", "title": "Acme"}
    (home / "models.json").write_text(json.dumps({"providers": {"acme": row}}))
    (home / "oauth.json").write_text(json.dumps({"acme": server.settings()}))
    return home


def zot(*words: str, given: str = "", **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*ZOT, *words],
        input=given,
        capture_output=True,
        text=True,
        env={**os.environ, **environ},
    )


def test_a_key_can_be_piped_in(home, server):
    server.keys.add("sk-good-0123456789")
    done = zot("login", "acme", given="sk-good-0123456789\n")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"logged in to Acme; the credential is in {home}/auth.json\n"
    assert AuthFile(str(home)).get("acme") == Credential(api_key="sk-good-0123456789")
    status = json.loads(zot("auth", "status", "--json").stdout)
    assert status == {
        "provider": "acme",
        "source": "auth.json",
        "where": f"{home}/auth.json",
        "key": "...6789",
        "probe": "accepted",
    }
    assert zot("logout", "acme").stdout == "logged out of acme\n"
    assert AuthFile(str(home)).all() == {}


def test_a_refused_key_is_not_kept(home):
    done = zot("login", "acme", given="sk-canary\n")
    assert done.returncode == 1
    assert done.stderr == "zot: acme refused the key (HTTP 401)\n"
    assert not (home / "auth.json").exists()
    assert zot("login", "acme", "--no-probe", given="sk-canary\n").returncode == 0


def test_a_person_types_the_key_where_nobody_sees_it(home, server):
    server.keys.add("sk-typed")
    says = [(b"log in to:", b"acme\n"), (b"API key of Acme:", b"sk-typed\n")]
    code, shown = in_a_terminal([*ZOT, "login"], says, os.environ)
    assert (code, b"sk-typed" in shown) == (0, False)
    assert AuthFile(str(home)).get("acme").api_key == "sk-typed"


BROWSER = """#!{python}
import sys, urllib.request
from http.cookiejar import CookieJar
opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
page = opener.open(sys.argv[1], timeout=20)
origin = page.url.rstrip("/")
form = urllib.request.Request(page.url, b"api_key=sk-from-page", {{"Origin": origin}})
opener.open(form, timeout=20).close()
"""


def test_in_a_terminal_with_a_browser_a_page_takes_the_key(home, server, tmp_path, monkeypatch):
    server.keys.add("sk-from-page")
    program = tmp_path / "browser"
    program.write_text(BROWSER.format(python=sys.executable))
    program.chmod(0o700)
    monkeypatch.delenv("ZOT_NO_BROWSER")
    monkeypatch.setenv("ZOT_FORCE_BROWSER", "1")
    monkeypatch.setenv("BROWSER", str(program))
    code, shown = in_a_terminal([*ZOT, "login", "acme"], [], os.environ)
    assert (code, b"logged in to Acme" in shown) == (0, True)
    assert AuthFile(str(home)).get("acme").api_key == "sk-from-page"


def test_whether_there_is_a_browser(monkeypatch):
    assert not auth_cli._has_browser()
    monkeypatch.delenv("ZOT_NO_BROWSER")
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    assert not auth_cli._has_browser()
    monkeypatch.setattr(sys, "platform", "darwin")
    assert auth_cli._has_browser()


def test_a_key_that_cannot_be_tried_is_kept_with_a_word_of_warning(home, server):
    server.close()
    try:
        done = zot("login", "acme", given="sk-untried\n")
    finally:
        server.close = lambda: None  # the fixture closes it too
    assert done.returncode == 0
    assert "could not be tried" in done.stderr
    assert AuthFile(str(home)).get("acme").api_key == "sk-untried"


def test_a_machine_without_a_keyring_keeps_nothing(home, monkeypatch):
    done = zot("login", "acme", "--keyring", "--no-probe", given="sk-x\n")
    assert done.returncode == 1
    assert "keyring" in done.stderr
    assert not (home / "auth.json").exists()
    AuthFile(str(home)).put("acme", Credential(keyring=True))
    assert "keyring" in zot("logout", "acme").stderr
    assert "broken" in zot("auth", "status", "--no-probe").stdout


def test_a_program_can_bring_the_key(home, server):
    server.keys.add("from-program")
    assert zot("login", "acme", "--command", "echo", "from-program").returncode == 0
    assert "accepted" in zot("auth", "status").stdout
    assert "accepted" not in zot("auth", "status", "--no-probe").stdout


@pytest.mark.parametrize("program", ["/no/such/program", "false", "true"])
def test_a_program_that_brings_no_key_is_not_kept(home, program):
    done = zot("login", "acme", "--command", program)
    assert done.returncode == 1
    assert "the key command of 'acme'" in done.stderr
    assert not (home / "auth.json").exists()
    assert zot("login", "acme", "--no-probe", "--command", program).returncode == 0


@pytest.mark.parametrize("key", ["two words\n", "sch\u00f6n\n", "a\x1bb\n"])
def test_what_cannot_be_a_key_is_refused(home, key):
    done = zot("login", "acme", "--no-probe", given=key)
    assert done.returncode == 1
    assert "this is no key" in done.stderr
    assert key.strip() not in done.stderr
    assert not (home / "auth.json").exists()


def test_a_broken_file_of_credentials_is_told_once(home):
    (home / "auth.json").write_text("{bad")
    done = zot("auth", "status")
    assert done.returncode == 1
    assert done.stderr.count("is not valid JSON") == 1


def test_login_by_device_code(home, server):
    child = subprocess.Popen(
        [*ZOT, "login", "acme", "--device"],
        stdout=subprocess.PIPE,
        text=True,
    )
    line = child.stdout.readline()
    assert "enter the code ABCD-1234" in line
    server.devices = dict.fromkeys(server.devices, "allowed")
    out, _ = child.communicate(timeout=30)
    assert (child.returncode, "logged in to Acme" in out) == (0, True)
    assert AuthFile(str(home)).get("acme").oauth.access_token in server.access_tokens
    assert json.loads(zot("auth", "status", "--json").stdout)["probe"] == "accepted"


@pytest.mark.parametrize("way", ["browser", "paste"])
def test_login_with_oauth(home, server, way):
    child = subprocess.Popen(
        [*ZOT, "login", "acme", "--oauth"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    shown = ""
    while "or paste here" not in shown:
        shown += child.stdout.readline()
    url = re.search(r"http://\S+", shown)[0]
    if way == "browser":
        urllib.request.urlopen(url, timeout=10).close()
        out, _ = child.communicate(timeout=30)
    else:
        query = dict(part.split("=", 1) for part in url.partition("?")[2].split("&"))
        back = server.authorize({name: urllib.request.unquote(v) for name, v in query.items()})
        out, _ = child.communicate(back + "\n", timeout=30)
    assert (child.returncode, "logged in to Acme" in out) == (0, True)
    assert AuthFile(str(home)).get("acme").oauth.refresh_token in server.refresh_tokens


def test_a_wrong_paste_is_told(server):
    done = zot("login", "acme", "--oauth", given="code#of-another-login\n")
    assert done.returncode == 1
    assert "another attempt" in done.stderr


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("login",), "name a provider"),
        (("login", "nobody"), "unknown provider 'nobody'"),
        (("login", "scripted"), "needs no credential"),
        (("login", "acme"), "no key was given"),
        (("login", "openai", "--oauth"), "client id of your own"),
        (("logout",), "name a provider, or use --all; logged in to: none"),
        (("logout", "acme"), "not logged in to 'acme'"),
    ],
)
def test_mistakes_are_told_in_one_line(words, text):
    done = zot(*words)
    assert done.returncode == (2 if "name a provider" in text else 1)
    assert done.stderr.startswith("zot: ")
    assert text in done.stderr
    assert done.stderr.count("\n") == 1


def test_logout_of_everything_and_a_broken_credential(home, capsys):
    file = AuthFile(str(home))
    file.put("acme", Credential(api_key="a"))
    file.put("openai", Credential(api_key="b"))
    assert main(["logout", "--all"]) == 0
    assert file.all() == {}
    main(["auth", "status", "--no-probe"])
    assert "no credentials" in capsys.readouterr().out
    (home / "auth.json").write_text('{"openai": {"api_key": 5}}')
    main(["auth", "status", "--no-probe"])
    assert "zot login openai" in capsys.readouterr().out


def test_a_variable_is_shown_with_its_name(monkeypatch, capsys):
    monkeypatch.setenv("ACME_API_KEY", "sk-abcdefghijklmnop")
    main(["auth", "status", "--no-probe"])
    assert capsys.readouterr().out.split() == ["acme", "...mnop", "environment", "ACME_API_KEY"]


# --- into a run ------------------------------------------------------------------------------


def test_a_stored_key_reaches_the_setup_and_chooses_the_provider(home):
    AuthFile(str(home)).put("openai", Credential(api_key="stored"))
    setup = resolve(parse([]), around({}))
    assert (setup.info.name, setup.key, setup.renew) == ("openai", "stored", None)
    assert "logged in" in setup.notice


def test_a_token_travels_as_one_and_is_renewed_between_calls(home, server):
    issued = server.issue()
    soon = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 1000))
    token = Token(issued["access_token"], issued["refresh_token"], expiry=soon)
    AuthFile(str(home)).put("anthropic", Credential(oauth=token))
    setup = resolve(parse(["--provider", "anthropic"]), around({}))
    assert (setup.key, setup.info.auth) == (issued["access_token"], "bearer")
    setup.connect(setup.model).close()
    (home / "oauth.json").write_text(json.dumps({"anthropic": server.settings()}))
    old = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 5))
    token = Token(issued["access_token"], issued["refresh_token"], expiry=old)
    AuthFile(str(home)).put("anthropic", Credential(oauth=token))
    assert setup.renew() in server.access_tokens - {issued["access_token"]}
