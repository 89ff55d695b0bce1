import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.around import zot_home
from zot.cli.main import run as main
from zot.core.confinement import JailPolicy, with_words
from zot.errors import ConfigError
from zot.files import ensure_dir, locked, read_bytes, write_atomic
from zot.home import home_dir
from zot.settings import config, trust
from zot.settings.config import Configuration, Value, _narrowed, read_configuration
from zot.settings.options import FILE_SETTINGS, Options, checked, from_text, with_defaults
from zot.settings.resolve import configured


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    for name in list(os.environ):
        if name.startswith("ZOT_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("ZOT_HOME", str(tmp_path / "home"))
    (tmp_path / "project" / ".zot").mkdir(parents=True)
    return tmp_path


def user_file(place, value):
    ensure_dir(place / "home")
    path = place / "home" / "config.json"
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return path


def project_file(place, value):
    path = place / "project" / ".zot" / "config.json"
    path.write_text(json.dumps(value))
    return path


def settings_of(place, environ=None, **flags) -> Configuration:
    project, home = str(place / "project"), str(place / "home")
    return read_configuration(Options(**flags), environ or {}, project, home)


def options_of(place, options, environ=None) -> Options:
    return configured(options, environ or {}, str(place / "project"), str(place / "home"))[0]


# --- home ------------------------------------------------------------------------------------


def test_home_is_where_the_platform_keeps_state(monkeypatch, tmp_path):
    monkeypatch.setenv("ZOT_HOME", "~/z")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert home_dir(os.environ) == str(tmp_path / "z")
    monkeypatch.delenv("ZOT_HOME")
    monkeypatch.setenv("XDG_STATE_HOME", "/x")
    assert home_dir(os.environ) == "/x/zot"
    monkeypatch.delenv("XDG_STATE_HOME")
    assert home_dir(os.environ) == str(tmp_path / ".local" / "state" / "zot")
    monkeypatch.setattr(sys, "platform", "darwin")
    assert home_dir(os.environ) == str(tmp_path / "Library" / "Application Support" / "zot")
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", "/local")
    assert home_dir(os.environ) == "/local/zot"


def test_a_file_is_replaced_whole_and_private(tmp_path):
    path = tmp_path / "deep" / "er" / "f.json"
    write_atomic(path, b"one")
    write_atomic(path, b"two")
    assert path.read_bytes() == b"two"
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert list(path.parent.iterdir()) == [path]


def test_a_write_that_fails_leaves_the_old_file_and_no_other(tmp_path):
    target = tmp_path / "d"
    target.mkdir()
    (target / "x").touch()
    with pytest.raises(OSError):
        write_atomic(target, b"x")  # a directory with something in it cannot be replaced
    assert sorted(each.name for each in tmp_path.iterdir()) == ["d", "project"]


def test_a_directory_that_is_a_file_is_an_error(tmp_path):
    (tmp_path / "f").touch()
    with pytest.raises(OSError):
        ensure_dir(str(tmp_path / "f" / "sub"))
    assert read_bytes(tmp_path / "f" / "sub") is None


def test_two_writers_wait_for_each_other(tmp_path):
    path = tmp_path / "n"
    path.write_bytes(b"0")

    def count():
        for _ in range(20):
            with locked(path):
                write_atomic(path, b"%d" % (int(path.read_bytes()) + 1))

    threads = [threading.Thread(target=count) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert path.read_bytes() == b"60"


def test_a_lock_that_is_never_freed_is_an_error(tmp_path):
    with (
        locked(tmp_path / "f"),
        pytest.raises(ConfigError, match="holds"),
        locked(tmp_path / "f", 0.05),
    ):
        pass


# --- precedence ------------------------------------------------------------------------------


def test_the_stronger_word_wins_and_is_named(place):
    assert settings_of(place).values["model"] == Value("", "default")
    user = user_file(place, {"model": "of-user"})
    assert settings_of(place).values["model"] == Value("of-user", "user", str(user))
    project = project_file(place, {"model": "of-project"})
    assert settings_of(place).values["model"] == Value("of-project", "project", str(project))
    environ = {"ZOT_MODEL": "of-env"}
    value = settings_of(place, environ).values["model"]
    assert value == Value("of-env", "environment", "ZOT_MODEL")
    value = settings_of(place, environ, model="of-flag").values["model"]
    assert value == Value("of-flag", "flag")
    assert settings_of(place, environ, model="")["model"] == "of-env"


EXAMPLES = {
    "switch": ("off", False),
    "text": ("x", "x"),
    "list": ("a, b", ("a", "b")),
    "words": ("a, b", ("a", "b")),
    "whole": ("3", 3),
    "number": ("1.5", 1.5),
    "percent": ("50", 50),
    "time": ("none", 0),
    "level": ("low", "low"),
    "jail": ("best,read-only", "best,read-only"),
}


@pytest.mark.parametrize("setting", FILE_SETTINGS.values(), ids=lambda setting: setting.name)
def test_every_setting_comes_from_file_and_variable_by_each_of_its_names(place, setting):
    text, value = EXAMPLES[setting.kind]
    if setting.choices:
        text = value = setting.choices[0]
    for name, variable in zip((setting.name, *setting.old), setting.variables, strict=True):
        user_file(place, {name: value})
        assert settings_of(place)[setting.name] == value
        assert getattr(options_of(place, Options()), setting.name) == value
        user_file(place, {})
        assert settings_of(place, {variable: text})[setting.name] == value
        assert getattr(options_of(place, Options(), {variable: text}), setting.name) == value


def test_a_project_may_not_set_what_is_dangerous_unless_it_is_trusted(place):
    project_file(place, {"base_url": "http://evil", "model": "m", "max_cost": 1000})
    read = settings_of(place)
    assert (read["base_url"], read["model"], read["max_cost"]) == ("", "m", None)
    assert len(read.warnings) == 1
    assert "base_url, max_cost" in read.warnings[0]
    assert "zot config trust" in read.warnings[0]
    trust.trust(str(place / "project"), zot_home())
    read = settings_of(place)
    assert (read["base_url"], read.warnings) == ("http://evil", [])
    trust.distrust(str(place / "project"), zot_home())
    assert settings_of(place)["base_url"] == ""


def test_trust_is_for_one_directory_and_not_for_those_below_or_beside(place):
    trust.trust(str(place / "project"), zot_home())
    assert trust.is_trusted(str(place / "project"), zot_home())
    for other in ("project/vendored", "project2", "."):
        assert not trust.is_trusted(str(place / other), zot_home())


def test_a_project_below_a_trusted_directory_may_set_nothing_dangerous(place):
    trust.trust(str(place), zot_home())
    project_file(place, {"base_url": "http://evil"})
    assert settings_of(place)["base_url"] == ""


def test_a_broken_trust_file_trusts_nothing_and_is_not_overwritten(place):
    ensure_dir(place / "home")
    (place / "home" / "trust.json").write_text('{"dirs": 1')
    assert not trust.is_trusted(str(place), zot_home())
    with pytest.raises(ConfigError, match=r"trust\.json"):
        trust.trust(str(place), zot_home())
    assert (place / "home" / "trust.json").read_text() == '{"dirs": 1'


@pytest.mark.parametrize("text", ["{", "[]", "\x00", "nonsense", '{"model":"\\ud800"}'])
def test_a_broken_file_is_one_warning_that_names_it_and_is_never_overwritten(place, text):
    path = user_file(place, text)
    read = settings_of(place)
    assert read["model"] == ""
    assert len(read.warnings) == 1
    assert str(path) in read.warnings[0]
    assert main(["config", "set", "model", "x"]) == 1
    assert path.read_text() == text


def test_a_value_of_the_wrong_kind_is_named_and_not_used(place):
    user_file(place, {"model": 5, "skills": "yes", "max_steps": -1, "reasoning": "very"})
    read = settings_of(place)
    assert read["model"] == ""
    assert read["skills"] is True
    assert [warning.split(": ")[1].split()[0] for warning in read.warnings] == [
        "model",
        "skills",
        "max_steps",
        "reasoning",
    ]


def test_words_of_the_go_program_are_understood(place):
    user_file(
        place,
        {"jail_by_default": True, "reasoning": "maximum", "theme": "dark", "input_style": "box"},
    )
    project_file(place, {"jail_by_default": False})  # what weakens a guard needs trust
    read = settings_of(place)
    assert read["jail"] is True
    assert read["theme"] == "dark"
    assert read.others == {"input_style": "box"}
    assert len(read.warnings) == 1
    assert options_of(place, Options()).reasoning == "xhigh"
    user_file(place, {"jail_by_default": True, "jail": False})
    assert settings_of(place)["jail"] is False


def test_a_variable_of_the_wrong_kind_is_an_error(place):
    with pytest.raises(ConfigError, match="ZOT_MAX_STEPS must be a positive whole number"):
        settings_of(place, {"ZOT_MAX_STEPS": "many"})


@settings(max_examples=60, deadline=None)
@given(name=st.sampled_from(sorted(FILE_SETTINGS)), text=st.text(max_size=12))
def test_a_text_becomes_a_value_that_fits_or_is_refused(name, text):
    setting = FILE_SETTINGS[name]
    try:
        value = from_text(setting, text)
    except ValueError:
        return
    assert checked(setting, value) == value


# --- the command -----------------------------------------------------------------------------


def test_set_get_unset_and_list(place, capsys):
    user_file(place, {"kept": {"by": "others"}, "theme": "dark"})
    where = ["--cwd", str(place / "project")]
    for name, value in (("model", "m1"), ("max_cost", "2.5"), ("skills", "off")):
        assert main(["config", *where, "set", name, value]) == 0
    assert main(["config", *where, "set", "fallback_models", "a, b"]) == 0
    assert json.loads((place / "home" / "config.json").read_text()) == {
        "kept": {"by": "others"},
        "theme": "dark",
        "model": "m1",
        "max_cost": 2.5,
        "skills": False,
        "fallback_models": ["a", "b"],
    }
    capsys.readouterr()
    assert main(["config", *where, "get", "max_cost"]) == 0
    assert capsys.readouterr().out == "2.5\n"
    assert main(["config", *where, "set", "--project", "model", "m2"]) == 0
    main(["config", *where, "list"])
    lines = capsys.readouterr().out.splitlines()
    model = next(line for line in lines if line.startswith("model"))
    assert model.split()[1:3] == ["m2", "project"]
    assert any(line.startswith("kept") and "not known here" in line for line in lines)
    main(["config", *where, "list", "--json"])
    listed = json.loads(capsys.readouterr().out)
    assert listed["skills"]["source"] == "user"
    main(["config", *where, "unset", "max_cost"])
    main(["config", *where, "get", "max_cost"])
    assert capsys.readouterr().out == "\n"


def test_path_and_trust_from_the_command_line(place, capsys):
    where = ["--cwd", str(place / "project")]
    main(["config", *where, "path"])
    main(["config", *where, "path", "--project"])
    assert capsys.readouterr().out.splitlines() == [
        str(place / "home" / "config.json"),
        str(place / "project" / ".zot" / "config.json"),
    ]
    assert main(["config", *where, "trust"]) == 0
    assert trust.is_trusted(str(place / "project"), zot_home())
    assert main(["config", "untrust", str(place / "project")]) == 0
    assert not trust.is_trusted(str(place / "project"), zot_home())


def test_mistakes_are_told_in_one_line(place, capsys):
    assert main(["config", "set", "modle", "x"]) == 1
    assert (
        capsys.readouterr().err
        == "zot: unknown setting 'modle' (did you mean model?); `zot config list` shows all\n"
    )
    assert main(["config", "set", "max_steps", "x"]) == 1
    assert "whole number" in capsys.readouterr().err
    assert main(["config", "trust", str(place / "nowhere")]) == 1
    assert "it is not a directory" in capsys.readouterr().err


def test_a_misspelt_setting_in_a_file_is_told_and_a_foreign_one_is_not(place):
    user_file(place, {"providr": "openai", "theme": "dark"})
    (warning,) = settings_of(place).warnings
    assert "providr is no setting; did you mean provider?" in warning


def test_a_directory_in_the_place_of_the_file_is_named_once(place):
    (place / "home").mkdir(exist_ok=True)
    (place / "home" / "config.json").mkdir()
    (warning,) = settings_of(place).warnings
    assert warning.endswith("is not used: Is a directory")


def test_a_home_that_cannot_be_written_is_one_line(place, capsys, monkeypatch):
    (place / "file").touch()
    monkeypatch.setenv("ZOT_HOME", str(place / "file"))
    assert main(["config", "set", "model", "x"]) == 1
    assert "cannot write" in capsys.readouterr().err


# --- into a run ------------------------------------------------------------------------------


def test_the_command_line_wins_over_the_files(place):
    user_file(
        place,
        {
            "provider": "openai",
            "model": "gpt-5",
            "reasoning": "high",
            "max_steps": 7,
            "auto_compact_threshold": 0,
            "context_files": False,
            "skills": False,
            "approve": ["bash"],
        },
    )
    options = options_of(place, Options(max_steps=3, skills=True))
    assert (options.provider, options.model, options.reasoning) == ("openai", "gpt-5", "high")
    assert (options.max_steps, options.compact_at) == (3, 0)
    assert (options.context_files, options.skills) == (False, True)
    assert options.approve == ("bash",)


def test_a_model_belongs_to_the_provider_it_was_set_with(place):
    user_file(place, {"provider": "openai", "model": "gpt-5", "base_url": "http://x"})
    options = options_of(place, Options(provider="anthropic"))
    assert (options.model, options.base_url) == ("", "")
    options = options_of(place, Options(), {"ZOT_PROVIDER": "anthropic"})
    assert (options.provider, options.model, options.base_url) == ("anthropic", "", "")
    project_file(place, {"provider": "google", "model": "gemini"})
    assert options_of(place, Options()).model == "gemini"
    assert options_of(place, Options(provider="openai")).model == "gpt-5"


def test_without_file_and_variable_the_defaults_are_filled_in(place):
    options = options_of(place, Options(model="m"), {"ZOT_HOME": "x"})
    assert options == with_defaults(Options(model="m"))
    assert (options.compact_at, options.idle_timeout, options.skills) == (85, 120, True)
    user_file(place, {})
    assert options_of(place, Options(model="m")) == options


def test_looking_creates_nothing(place):
    env = {**os.environ, "ZOT_HOME": str(place / "nowhere")}
    done = subprocess.run(
        [sys.executable, "-m", "zot", "config", "list"], env=env, capture_output=True
    )
    assert done.returncode == 0
    assert not (place / "nowhere").exists()


def test_a_projects_file_that_is_a_link_out_of_it_is_not_used(place):
    secret = place / "secret.json"
    secret.write_text('{"model": "m", "key": "sk-of-the-user"}')
    path = Path(config.project_path(str(place / "project")))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(secret)
    read = settings_of(place)
    assert read["model"] == ""
    assert "it is a link to a file elsewhere" in read.warnings[0]
    with pytest.raises(ConfigError, match="link to a file elsewhere"):
        config.change(str(path), lambda values: None, str(place / "project"))
    assert path.is_symlink()
    path.unlink()
    (place / "project/shared.json").write_text('{"model": "m"}')
    path.symlink_to("../shared.json")
    assert settings_of(place)["model"] == "m"


# --- a project may only narrow ---------------------------------------------------------------

JAILS = st.sampled_from([False, True, "best", "read-only", "best,read-only", "full,read-only"])


def policy_of(read) -> JailPolicy:
    return with_words(JailPolicy(), read["jail"])


@settings(max_examples=40, deadline=None)
@given(user=JAILS, project=JAILS)
def test_a_jail_of_a_project_is_never_wider_than_that_of_the_user(user, project):
    merged: list[str] = []
    kept = _narrowed({"jail": project}, {"jail": user}, "p", merged)
    ours, both = with_words(JailPolicy(), user), policy_of(kept)
    assert both.on >= ours.on
    assert both.read_only >= ours.read_only
    assert not ours.on or both.best <= ours.best
    asked = with_words(JailPolicy(), project)
    assert bool(merged) == (both.words != asked.words)


def test_a_project_hides_more_files_and_opens_no_directory(place):
    user_file(place, {"deny_read": ["*.pem"], "allow_write": ["/srv/cache"], "jail": True})
    narrower = {"deny_read": [".env"], "jail": "read-only", "jail_read": "project"}
    project_file(place, {**narrower, "allow_write": ["/"]})
    read = settings_of(place, {"ZOT_DENY_READ": "secret"})
    assert read["deny_read"] == ("secret", ".env", "*.pem")
    assert (read["jail"], read["jail_read"]) == ("read-only", "project")
    assert read["allow_write"] == ("/srv/cache",)
    (warning,) = read.warnings
    assert "sets allow_write to something that allows more" in warning
    trust.trust(str(place / "project"), zot_home())
    project_file(place, {"jail": False, "jail_read": "all"})
    assert settings_of(place)["jail"] is True
