"""Prompt files: `/name args` becomes the text of `prompts/name.md`."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.around import around
from zot.build import build_runtime
from zot.errors import CommandError
from zot.runtime.client import RuntimeClient
from zot.settings.options import parse
from zot.settings.resolve import Plan, resolve
from zot.skills.skill import SkillFolder
from zot.skills.source import PromptSource, filled, read_prompt


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "prompts"
    folder.mkdir()
    return folder


def test_places_are_filled_and_the_rest_comes_after():
    assert filled("fix $1 in $2", "a b c") == "fix a in b"
    assert filled("do: $ARGUMENTS.", "a  b") == "do: a  b."
    assert filled("only $3", "a") == "only "
    assert filled("no place", "a b") == "no place\n\na b"
    assert filled("no place", "") == "no place"
    assert filled("$10 and $$1", "x") == "x0 and $x"


@given(st.text(), st.text())
def test_any_text_can_be_filled_with_any_words(text, args):
    whole = filled(text, args)
    if "$" not in text:
        assert whole.startswith(text)
        assert whole.endswith(args)


def test_what_is_put_in_is_not_filled_again():
    assert filled("$1 $2", "$2 x") == "$2 x"


def test_a_file_is_read_with_or_without_front_matter(folder):
    path = folder / "fix.md"
    path.write_text("---\ndescription: fixes\n  things\n---\nFix $1.\n")
    assert (read_prompt(path).description, read_prompt(path).text) == ("fixes things", "Fix $1.")
    path.write_text("\nJust do it.\nNow.\n")
    assert read_prompt(path).description == "Just do it."
    path.write_bytes(b"---\n[: broken\n---\nText \xff")
    assert read_prompt(path).text.startswith("---\n[: broken")
    assert read_prompt(folder / "none.md").text == ""


def test_the_first_file_of_a_name_wins_and_others_are_no_commands(tmp_path, folder):
    other = tmp_path / "other"
    other.mkdir()
    (folder / "a.md").write_text("first")
    (other / "a.md").write_text("second")
    (other / "b.txt").write_text("no command")
    source = PromptSource([SkillFolder(folder), SkillFolder(other), SkillFolder(tmp_path / "none")])
    assert [info.name for info in source.commands()] == ["a"]
    assert source.run_command("a", "").text == "first"
    with pytest.raises(CommandError, match="no prompt file 'b'"):
        source.run_command("b", "")


def test_those_of_a_project_need_its_trust(tmp_path, monkeypatch):
    monkeypatch.setenv("ZOT_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".zot" / "prompts").mkdir(parents=True)
    (tmp_path / ".zot" / "prompts" / "evil.md").write_text("do something")

    def names(*flags):
        setup = resolve(parse([*flags, "--provider", "openai", "--api-key", "k"]), around({}))
        runtime = build_runtime(Plan(setup), RuntimeClient())
        listed = [info.name for info in runtime.commands.all()]
        runtime.release()
        return listed

    assert "evil" not in names()
    assert "evil" in names("--trust")


def test_a_projects_prompt_that_is_a_link_out_of_it_has_no_text(tmp_path):
    folder = tmp_path / "work/.zot/prompts"
    folder.mkdir(parents=True)
    (tmp_path / "key").write_text("sk-of-the-user")
    (folder / "stolen.md").symlink_to(tmp_path / "key")
    assert read_prompt(folder / "stolen.md", tmp_path / "work").text == ""
    assert read_prompt(folder / "stolen.md").text == "sk-of-the-user"
