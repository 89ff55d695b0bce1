import pytest
from hypothesis import given
from hypothesis import strategies as st

from zot.cli.help import help_text
from zot.core.confinement import JailPolicy, with_words
from zot.errors import ConfigError, UsageError
from zot.settings.options import FLAGS, LEVEL_WORDS, SETTINGS, Options, parse, takes_value

GOOD = {"text": "x", "list": "x", "words": "a,b", "whole": "3", "number": "1.5", "level": "low"}
GOOD["percent"] = "50"
GOOD["time"] = "none"
NOTHING = {"switch": (False, None), "text": ("", None), "list": ((),), "words": (None,)}


def test_nothing_said_is_every_default():
    assert parse([]) == Options()


def test_the_fields_of_options_are_the_settings():
    assert set(Options.__struct_fields__) == {"words", *SETTINGS}
    for name, setting in SETTINGS.items():
        assert getattr(Options(), name) in NOTHING.get(setting.kind, (None,))


@pytest.mark.parametrize("word", FLAGS)
def test_every_flag_sets_its_field(word):
    setting = FLAGS[word]
    if not takes_value(word):
        assert getattr(parse([word]), setting.name) == setting.fixed.get(word, True)
        if setting.kind != "jail":
            with pytest.raises(UsageError, match="takes no value"):
                parse([f"{word}=1"])
        return
    good = setting.choices[0] if setting.choices else GOOD[setting.kind]
    spaced, joined = parse([word, good]), parse([f"{word}={good}"])
    assert spaced == joined
    assert getattr(spaced, setting.name) != getattr(Options(), setting.name)
    with pytest.raises(UsageError, match="needs a value"):
        parse([word])


def test_every_flag_is_of_one_setting_and_stands_in_the_help():
    words = [word for row in SETTINGS.values() for word in (*row.words, *row.fixed)]
    assert len(words) == len(set(words))
    text = help_text()
    for word, setting in FLAGS.items():
        anyway = setting.default is True and word in setting.words
        assert anyway or setting.group == "pi" or word in text


@pytest.mark.parametrize("name", ["--stream", "--stats", "--insecure", "--temperature"])
def test_a_flag_of_the_go_program_that_is_not_here_says_what_to_use(name):
    with pytest.raises(UsageError, match=f"zot has no flag {name}: "):
        parse([name])


def test_flags_of_the_go_program_are_understood():
    assert parse(["--experimental-oauth"]) == Options()
    assert parse(["--with-skills"]).skills is True
    assert parse(["--no-yolo"]).approve == ("all",)


def test_help_teaches_with_examples_and_names_the_exit_codes():
    text = help_text()
    assert 'zot -p "' in text
    assert "zot rpc" in text
    assert "Exit codes" in text
    assert max(len(line) for line in text.splitlines()) <= 110


def test_words_are_what_is_left():
    assert parse(["fix", "-p", "it", "--", "--json", "-x"]).words == ("fix", "it", "--json", "-x")
    assert parse(["-"]).words == ("-",)
    assert parse(["--model=a=b"]).model == "a=b"
    assert parse(["--system-prompt="]).system_prompt == ""


def test_lists_are_repeated_and_words_split():
    assert parse(["--append-system-prompt", "a", "--append-system-prompt", "b"]) == Options(
        append_system_prompt=("a", "b")
    )
    assert parse(["--tools", "read, bash,,"]).tools == ("read", "bash")


@pytest.mark.parametrize("value", ["0", "-1", "x", "", "1.5", "nan", "1e99", "9" * 400])
def test_a_count_must_be_a_positive_whole_number(value):
    with pytest.raises(UsageError, match="must be a positive whole number"):
        parse(["--max-steps", value])


@pytest.mark.parametrize("value", ["0", "-1", "x", "nan", "inf", "-inf", "1e400"])
def test_an_amount_must_be_a_positive_number(value):
    with pytest.raises(UsageError, match="must be a positive number"):
        parse(["--max-cost", value])


def test_levels_have_other_words():
    for word, level in LEVEL_WORDS.items():
        assert parse(["--reasoning", word]).reasoning == level
    with pytest.raises(UsageError, match="must be one of off, minimum"):
        parse(["--reasoning", "lots"])


def test_an_unknown_flag_suggests_a_near_one():
    with pytest.raises(UsageError, match="did you mean --provider"):
        parse(["--provder", "x"])
    with pytest.raises(UsageError, match="unknown flag '-Z'"):
        parse(["-Z"])


@given(st.lists(st.text(max_size=8) | st.sampled_from(sorted(FLAGS))))
def test_any_command_line_parses_or_is_a_usage_error(argv):
    try:
        parse(argv)
    except UsageError as error:
        assert str(error)


@pytest.mark.parametrize("value", ["0.85", "500"])
def test_a_share_of_the_window_is_a_percentage(value):
    with pytest.raises(UsageError, match="percentage from 1 to 100"):
        parse(["--compact-at", value])
    assert parse(["--compact-at", "85"]).compact_at == 85
    assert parse(["--no-auto-compact"]) == parse(["--compact-at", "0"])


@pytest.mark.parametrize(
    ("words", "value"),
    [
        (["--jail"], True),
        (["--jail=off"], False),
        (["--jail=best,read-only"], "best,read-only"),
        (["--jail", "workspace"], True),
    ],
)
def test_the_jail_takes_words_after_an_equals_sign_only(words, value):
    assert parse(words).jail == value


@pytest.mark.parametrize("word", ["full,best", "read-only,workspace", "strict", "", "best,"])
def test_a_jail_of_unknown_or_contradicting_words_is_refused(word):
    with pytest.raises(UsageError, match="--jail must be true, false, full or best"):
        parse([f"--jail={word}"])
    with pytest.raises(ConfigError, match="the jail cannot be"):
        with_words(JailPolicy(), word)
