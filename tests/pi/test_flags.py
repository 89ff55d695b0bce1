"""pi's command line without a process."""

from pathlib import Path

import pytest

from tests.support.around import around
from zot.errors import AuthError, UsageError
from zot.pi.flags import matches, parse_pi, scoped, without_level
from zot.provider.types import Model
from zot.settings.resolve import AvailableModels, resolve

SONNET = Model("claude-sonnet-5-5", "anthropic", "anthropic")


def test_a_mode_is_always_set() -> None:
    assert parse_pi([]).mode == "text"
    assert parse_pi(["--mode", "rpc"]).mode == "rpc"
    assert parse_pi(["--mode=json"]).mode == "json"


def test_what_follows_two_dashes_is_the_prompt() -> None:
    assert parse_pi(["-p", "--", "--not-a-flag", "word"]).words == ("--not-a-flag", "word")


def test_unknown_flags_are_left_out_and_words_stay() -> None:
    found = parse_pi(["--shiny", "-zz", "word", "--theme", "dark", "--theme=dark", "-"])
    assert found.words == ("word", "-")


def test_short_forms_of_pi() -> None:
    found = parse_pi(["-t", "read,find,ls", "-n", "name", "-ne", "-ns", "--extension", "x", "-c"])
    assert found.tools == ("read", "glob")
    assert (found.session_name, found.extensions, found.skills) == ("name", False, False)
    assert (found.ext, found.continue_) == (("x",), True)
    assert parse_pi(["-nt"]).no_tools


def test_a_flag_of_zot_without_its_value_is_refused() -> None:
    with pytest.raises(UsageError, match="--model needs a value"):
        parse_pi(["--model"])


def test_approve_is_ours_with_names_and_theirs_without() -> None:
    assert parse_pi(["--approve"]).approve is None
    assert parse_pi(["--approve=bash"]).approve == ("bash",)


@pytest.mark.parametrize(
    ("args", "provider", "model", "level"),
    [
        (["--model", "anthropic/x"], "anthropic", "x", None),
        (["--model", "nobody/x"], "", "nobody/x", None),
        (["--provider", "openrouter", "--model", "openai/x"], "openrouter", "openai/x", None),
        (["--model", "x:low"], "", "x", "low"),
        (["--model", "x:low", "--thinking", "high"], "", "x", "high"),
        (["--model", "x:free"], "", "x:free", None),
        (["--thinking", "minimal"], "", "", "minimum"),
    ],
)
def test_a_model_says_up_to_three_things(
    args: list[str], provider: str, model: str, level: str | None
) -> None:
    found = parse_pi(args)
    assert (found.provider, found.model, found.reasoning) == (provider, model, level)


def test_a_prompt_text_that_is_no_file_is_itself(tmp_path: Path) -> None:
    path = tmp_path / "sys.md"
    path.write_text("from a file")
    assert parse_pi(["--system-prompt", str(path)]).system_prompt == "from a file"
    assert parse_pi(["--system-prompt", "a\0b"]).system_prompt == "a\0b"
    long = "x" * 5000
    assert parse_pi(["--append-system-prompt", long]).append_system_prompt == (long,)


@pytest.mark.parametrize(
    ("pattern", "fits"),
    [
        ("claude-sonnet-5-5", True),
        ("CLAUDE-sonnet-5-5:high", True),
        ("anthropic/claude-sonnet-5-5", True),
        ("anthropic/*", True),
        ("*sonnet*", True),
        ("sonnet", True),
        ("openai/*", False),
        ("anthropic/sonnet", False),
        ("opus", False),
    ],
)
def test_patterns_of_models(pattern: str, fits: bool) -> None:
    assert matches(pattern, SONNET) is fits


def test_a_level_is_only_cut_off_when_it_is_one() -> None:
    assert without_level("a:high") == "a"
    assert without_level("a:free") == "a:free"


def test_models_are_found_across_providers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZOT_HOME", str(tmp_path))
    environ = {"OPENAI_API_KEY": "sk-y"}
    options = parse_pi(["--provider", "anthropic", "--model", SONNET.id, "--api-key", "sk-x"])
    models = AvailableModels(resolve(options, around(environ)))
    assert models.find(SONNET.id, "anthropic").provider == "anthropic"
    found = models.find("openai/gpt-6.1-sol", "anthropic")
    assert (found.provider, found.id) == ("openai", "gpt-6.1-sol")
    models.connect(found).close()
    assert {each.provider for each in models.all()} == {"anthropic", "openai"}
    assert scoped(models, "") == []
    with pytest.raises(AuthError, match="no credential for google"):
        models.find("google/gemini-2.5-pro", "anthropic")
