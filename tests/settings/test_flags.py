import pytest
from hypothesis import given
from hypothesis import strategies as st

from zot.cli.help import help_text
from zot.settings.flags import FLAGS, LEVEL_WORDS, Options, UsageError, parse

GOOD = {"text": "x", "list": "x", "words": "a,b", "int": "3", "float": "1.5", "level": "low"}


def test_nothing_said_is_every_default():
    assert parse([]) == Options()


@pytest.mark.parametrize("flag", FLAGS, ids=lambda flag: flag.field)
def test_every_flag_sets_its_field_by_each_of_its_names(flag):
    for name in flag.names:
        if flag.kind == "yes":
            assert getattr(parse([name]), flag.field) is True
            with pytest.raises(UsageError, match="takes no value"):
                parse([f"{name}=1"])
            continue
        spaced, joined = parse([name, GOOD[flag.kind]]), parse([f"{name}={GOOD[flag.kind]}"])
        assert spaced == joined
        assert getattr(spaced, flag.field) != getattr(Options(), flag.field)
        with pytest.raises(UsageError, match="needs a value"):
            parse([name])


def test_every_flag_has_a_field_and_stands_in_the_help():
    text = help_text()
    for flag in FLAGS:
        assert hasattr(Options(), flag.field)
        assert flag.help in text
        for name in flag.names:
            assert name in text
    names = [name for flag in FLAGS for name in flag.names]
    assert len(names) == len(set(names))


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


@given(st.lists(st.text(max_size=8) | st.sampled_from([n for f in FLAGS for n in f.names])))
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
