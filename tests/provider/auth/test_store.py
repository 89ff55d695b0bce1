import json
import math
import os
import stat
import sys
import types
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zot.errors import AuthError
from zot.provider.auth import resolve
from zot.provider.auth.resolve import find_credential, key_from_command, masked
from zot.provider.auth.store import AuthFile, Credential, KeyCommand, Token
from zot.provider.providers import find_provider
from zot.settings.known import Known

ANTHROPIC = find_provider("anthropic")
GROQ = find_provider("groq")


def credential(*words):
    stored = find_credential(*words)
    return None if stored is None else stored.key


@pytest.fixture
def home(tmp_path):
    return str(tmp_path / "home")


@pytest.fixture(autouse=True)
def forget_commands():
    resolve._from_commands.clear()


def content(home) -> dict:
    with open(os.path.join(home, "auth.json")) as file:  # noqa: PTH118, PTH123  plain strings here
        return json.load(file)


def put_raw(home, value) -> None:
    os.makedirs(home, exist_ok=True)  # noqa: PTH103  as above
    with open(os.path.join(home, "auth.json"), "w") as file:  # noqa: PTH118, PTH123  as above
        file.write(value if isinstance(value, str) else json.dumps(value))


# --- the file --------------------------------------------------------------------------------


def test_credentials_are_kept_where_the_go_program_looks_for_them(home):
    file = AuthFile(home)
    file.put("anthropic", Credential(api_key="a"))
    file.put("groq", Credential(api_key="g"))
    file.put("xai", Credential(oauth=Token("at", "rt", expiry="2030-01-01T00:00:00Z")))
    assert content(home) == {
        "anthropic": {"api_key": "a"},
        "additional_api_key_creds": {"groq": {"api_key": "g"}},
        "xai": {
            "oauth": {
                "access_token": "at",
                "refresh_token": "rt",
                "expiry": "2030-01-01T00:00:00Z",
            }
        },
    }
    assert set(file.all()) == {"anthropic", "groq", "xai"}
    assert stat.S_IMODE(os.stat(file.path).st_mode) == 0o600  # noqa: PTH116  as above
    assert stat.S_IMODE(os.stat(home).st_mode) == 0o700  # noqa: PTH116  as above


def test_one_credential_replaces_the_other_and_strangers_stay(home):
    put_raw(home, {"later": {"some": "thing"}, "openai": {"oauth": {"access_token": "x"}}})
    file = AuthFile(home)
    file.put("openai", Credential(api_key="k"))
    assert content(home)["openai"] == {"api_key": "k"}
    assert content(home)["later"] == {"some": "thing"}
    assert file.remove("openai")
    assert not file.remove("openai")
    assert file.get("openai") is None


@pytest.mark.parametrize("text", ["{", "[]", '{"anthropic": "sk-canary"}', "\xff"])
def test_a_broken_file_is_named_never_shown_and_never_overwritten(home, text):
    put_raw(home, text)
    file = AuthFile(home)
    for action in (lambda: file.get("x"), lambda: file.put("x", Credential(api_key="y"))):
        with pytest.raises(AuthError, match="not valid JSON") as caught:
            action()
        assert "canary" not in str(caught.value)
    with open(file.path) as kept:  # noqa: PTH123  as above
        assert kept.read() == text


def test_a_broken_credential_does_not_hide_the_others(home):
    put_raw(home, {"anthropic": {"api_key": 5}, "openai": {"api_key": "k"}})
    assert AuthFile(home).get("openai") == Credential(api_key="k")
    with pytest.raises(AuthError, match="zot login anthropic"):
        AuthFile(home).get("anthropic")


def test_a_file_others_can_read_is_made_private(home):
    put_raw(home, {"openai": {"api_key": "k"}})
    path = AuthFile(home).path
    os.chmod(path, 0o644)  # noqa: PTH101  as above
    AuthFile(home).get("openai")
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600  # noqa: PTH116  as above


def test_a_home_that_cannot_be_used_is_a_clear_error(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(AuthError, match="cannot write"):
        AuthFile(str(tmp_path / "file")).put("x", Credential(api_key="y"))


@settings(max_examples=50, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["anthropic", "groq", "additional_api_key_creds"]),
        st.dictionaries(
            st.sampled_from(["api_key", "oauth", "api_key_command", "groq"]),
            st.none() | st.text(max_size=4) | st.dictionaries(st.text(max_size=4), st.none()),
        ),
    )
)
def test_no_file_breaks_the_reader(tmp_path_factory, value):
    home = str(tmp_path_factory.getbasetemp() / "any-home")
    put_raw(home, value)
    try:
        AuthFile(home).all()
    except AuthError:
        pass


def test_when_a_token_ends():
    assert Token("a").seconds_left(0) == math.inf
    assert Token("a", expiry="0001-01-01T00:00:00Z").seconds_left(0) == math.inf
    assert Token("a", expiry="1970-01-01T00:01:00Z").seconds_left(0) == 60
    assert Token("a", expiry="1970-01-01T00:01:00").seconds_left(0) == 60
    assert Token("a", expiry="soon").seconds_left(0) == 0


# --- the order -------------------------------------------------------------------------------


def test_the_order_is_flag_environment_file_command(home):
    environ = {"GROQ_API_KEY": " from-env "}
    AuthFile(home).put("groq", Credential(api_key="from-file"))
    assert credential(GROQ, "from-flag", environ, home) == "from-flag"
    assert credential(GROQ, "", environ, home) == "from-env"
    assert credential(GROQ, "", {}, home) == "from-file"
    AuthFile(home).put("groq", Credential(api_key_command=KeyCommand("echo", ("from-command",))))
    assert credential(GROQ, "", {}, home) == "from-command"
    AuthFile(home).put("groq", Credential(base_url="http://x"))
    assert credential(GROQ, "", {}, home) is None
    assert credential(ANTHROPIC, "", {}, home) is None
    assert credential(ANTHROPIC, "", {}, home + "/none") is None


def test_a_command_is_run_once_and_not_at_all_when_only_looking(home, tmp_path):
    log = tmp_path / "log"
    script = f"echo x >> {log}; echo key-1"
    AuthFile(home).put("groq", Credential(api_key_command=KeyCommand("sh", ("-c", script))))
    stored = find_credential(GROQ, "", {}, home, run_commands=False)
    assert (stored.key, stored.source, stored.where) == ("", "command", "sh")
    assert not log.exists()
    assert credential(GROQ, "", {}, home) == credential(GROQ, "", {}, home) == "key-1"
    assert log.read_text() == "x\n"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("sh", "-c", "exit 3"), "exit code 3"),
        (("sh", "-c", "true"), "one line"),
        (("sh", "-c", "echo a; echo b"), "one line"),
        (("sh", "-c", "head -c 70000 /dev/zero | tr '\\0' x"), "one line"),
        (("sleep", "60"), "longer than 0.2 seconds"),
        (("/no/such/program",), "cannot be started"),
    ],
)
def test_a_command_that_fails_says_so_without_its_output(words, problem):
    with pytest.raises(AuthError, match=problem):
        key_from_command(words, 0.2 if words[0] == "sleep" else 20, "groq", os.environ)


def test_a_command_sees_no_other_key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary")
    assert (
        key_from_command(("sh", "-c", "echo ${OPENAI_API_KEY:-none}"), 20, "groq", os.environ)
        == "none"
    )


def test_a_command_sees_no_key_of_the_users_own_providers(monkeypatch, home):
    monkeypatch.setenv("MINE_KEY", "sk-mine")
    monkeypatch.setenv("ZOTCORE_RPC_TOKEN", "t0ken")
    command = "echo ${MINE_KEY:-none}-${ZOTCORE_RPC_TOKEN:-none}"
    rows = {"mine": {"api": "openai", "baseUrl": "http://x", "apiKey": "MINE_KEY"}}
    rows["other"] = {"api": "openai", "baseUrl": "http://y", "apiKey": f"!{command}"}
    Path(home).mkdir(exist_ok=True)
    (Path(home) / "models.json").write_text(json.dumps({"providers": rows}))
    known = Known(home)
    assert known.key(known.provider("other"), "", os.environ).text == "none-none"
    stored = Credential(api_key_command=KeyCommand("sh", ("-c", f"{command} # stored")))
    AuthFile(home).put("groq", stored)
    assert Known(home).key(GROQ, "", os.environ).text == "none-none"


def test_what_was_found_does_not_show_the_key(home):
    shown = find_credential(GROQ, "sk-canary", {}, home)
    assert "canary" not in f"{shown!r} {shown}"
    assert masked("sk-123456789012-abcd") == "...abcd"
    assert masked("short") == "..."


# --- the keyring -----------------------------------------------------------------------------


class KeyringError(Exception):
    pass


class PasswordDeleteError(KeyringError):
    pass


@pytest.fixture
def keyring(monkeypatch):
    kept: dict[tuple[str, str], str] = {}
    errors = types.ModuleType("keyring.errors")
    errors.KeyringError, errors.PasswordDeleteError = KeyringError, PasswordDeleteError
    module = types.ModuleType("keyring")
    module.errors = errors

    def delete(service, name):
        if (service, name) not in kept:
            raise PasswordDeleteError
        del kept[service, name]

    module.get_password = lambda service, name: kept.get((service, name))
    module.set_password = lambda service, name, key: kept.update({(service, name): key})
    module.delete_password = delete
    module.kept = kept
    monkeypatch.setitem(sys.modules, "keyring", module)
    monkeypatch.setitem(sys.modules, "keyring.errors", errors)
    return module


def test_a_key_in_the_keyring_is_not_in_the_file(home, keyring):
    resolve.put_in_keyring("groq", "secret")
    AuthFile(home).put("groq", Credential(keyring=True))
    assert credential(GROQ, "", {}, home) == "secret"
    assert "secret" not in json.dumps(content(home))
    resolve.take_from_keyring("groq")
    resolve.take_from_keyring("groq")
    with pytest.raises(AuthError, match="no key of 'groq'"):
        credential(GROQ, "", {}, home)


def test_a_machine_without_a_keyring_is_told_what_to_do(home, keyring, monkeypatch):
    def broken(*words):
        raise KeyringError("details with sk-canary")

    keyring.set_password = broken
    with pytest.raises(AuthError, match="log in without --keyring") as caught:
        resolve.put_in_keyring("groq", "sk-canary")
    assert "canary" not in str(caught.value)
    monkeypatch.setitem(sys.modules, "keyring", None)
    with pytest.raises(AuthError, match=r"\[keyring\]"):
        resolve.put_in_keyring("groq", "x")
