import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.around import around, zot_home
from zot.build import build_runtime
from zot.cancel import Cancel
from zot.cli.main import run as main
from zot.core.agent import Agent
from zot.core.session import Session
from zot.core.tool import ToolContext
from zot.errors import ToolError
from zot.home import of_process
from zot.provider.catalog import SCRIPTED as MODEL
from zot.provider.scripted import ScriptedProvider
from zot.runtime.client import RuntimeClient
from zot.runtime.commands import Commands
from zot.runtime.sources import Sources
from zot.settings.options import Options, parse
from zot.settings.resolve import Plan, resolve
from zot.settings.skills import skills_here
from zot.settings.trust import trust
from zot.skills import skill as skills
from zot.skills.skill import (
    SkillFolder,
    SkillTool,
    find_skills,
    manifest,
    read_skill,
    skill_files,
)
from zot.skills.source import SkillSource


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("ZOT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path


def add(
    folder: Path, name: str, description: str = "does it", body: str = "Do it.", head: str = ""
):
    path = folder / name / "SKILL.md"
    path.parent.mkdir(parents=True)
    path.write_text(f"---\nname: {name}\ndescription: {description}\n{head}---\n\n{body}\n")
    return path


def by_name() -> dict[str, skills.Skill]:
    return {skill.name: skill for skill in skills_here(Path.cwd(), of_process())}


# --- finding ---------------------------------------------------------------------------------


def test_skills_come_from_everywhere_and_the_nearest_wins(place):
    folders = [
        place / "work" / ".zot" / "skills",
        place / "home" / "skills",
        place / "work" / ".claude" / "skills",
        place / "user" / ".claude" / "skills",
        place / "work" / ".agents" / "skills",
        place / "user" / ".agents" / "skills",
    ]
    for number, folder in enumerate(folders):
        add(folder, "shared", f"from {number}")
        add(folder, f"own-{number}")
    names = by_name()
    assert names["shared"].description == "from 0"
    assert set(names) == {"shared", "write-zot-extension", *(f"own-{n}" for n in range(6))}
    assert names["own-3"].source == "~/.claude/skills/own-3"
    shutil.rmtree(folders[0])
    assert by_name()["shared"].description == "from 1"


def test_a_user_can_replace_a_builtin_skill(place):
    add(place / "home" / "skills", "write-zot-extension", "mine")
    assert by_name()["write-zot-extension"].description == "mine"


def test_folders_are_searched_deeply_but_not_for_ever(place):
    root = place / "skills"
    add(root / "a" / "b", "deep")
    add(root / "deep-one", "nested")
    add(root / ".hidden", "secret")
    (root / "loop").symlink_to(root)
    (root / "a" / "SKILL.md.bak").touch()
    add(root / "1" / "2" / "3" / "4" / "5" / "6" / "7", "too-deep")
    assert [Path(path).parent.name for path in skill_files(root)] == ["nested", "deep"]
    assert skill_files(root / "a" / "b" / "deep" / "SKILL.md") != []
    assert skill_files(place / "nowhere") == []
    assert skill_files(place / "nowhere" / "SKILL.md") == []


def test_skills_of_extensions_carry_their_name(place):
    folder = place / "work" / ".zot" / "extensions" / "acme"
    add(folder / "skills", "deploy")
    (folder / "extension.json").write_text(json.dumps({"name": "acme", "skills": ["skills"]}))
    assert "acme:deploy" not in by_name()  # nor does the extension run
    trust(str(place / "work"), zot_home())
    assert "acme:deploy" in by_name()
    assert "acme:deploy" not in {
        s.name for s in skills_here(Path.cwd(), of_process(), extensions=False)
    }
    off = {"name": "acme", "skills": ["skills"], "enabled": False}
    (folder / "extension.json").write_text(json.dumps(off))
    assert "acme:deploy" not in by_name()


# --- one file --------------------------------------------------------------------------------


def read(place, text: str | bytes, folder: str = "x"):
    path = place / folder / "SKILL.md"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_skill(path, SkillFolder(place))


def test_front_matter_is_real_yaml(place):
    text = (
        "---\nname: x\ndescription: >\n  folded\n  text: with colon\nmetadata: {a: [1, 2]}\n---\nB"
    )
    skill = read(place, text)
    assert (skill.name, skill.description, skill.body) == ("x", "folded text: with colon", "B")
    assert skill.problems == ()
    assert not skill.hidden
    windows = read(place, "\ufeff---\r\nname: x\r\ndescription: d\r\n---\r\nbody\r\n")
    assert (windows.description, windows.body, windows.problems) == ("d", "body", ())


def test_a_skill_can_be_kept_from_the_model(place):
    skill = read(place, "---\nname: x\ndescription: d\ndisable-model-invocation: true\n---\n")
    assert skill.hidden
    assert manifest([skill]) == ""


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("just text", "no front matter"),
        ("---\nname: x\n", "no front matter"),
        ("---\n- a\n---\n", "not a list of keys"),
        ("---\nname: [\n---\n", "not valid YAML (line 3)"),
        ("---\nname: x\n---\n", "no description"),
        ("---\ndescription: d\n---\n", "no name"),
        ("---\nname: 5\ndescription: d\n---\n", "not text: 5"),
        ("---\nname: y\ndescription: d\n---\n", "its folder 'x'"),
        ("---\nname: Bad_Name\ndescription: d\n---\n", "small letters"),
        (f"---\nname: x\ndescription: {'d' * 2000}\n---\n", "more than 1024"),
        (f"---\nname: x\ndescription: d\nmore: {'d' * 20000}\n---\n", "of front matter"),
        ("---\nname: x\ndescription: d\n---\n" + "x" * 300_000, "longer than"),
        ("---\n&a [*a]: x\n---\n", "not"),
    ],
)
def test_what_is_wrong_is_noted_and_the_rest_is_used(place, text, problem):
    skill = read(place, text)
    assert any(problem in each for each in skill.problems), skill.problems
    assert skill.name


def test_a_file_that_cannot_be_read_is_noted(place):
    skill = read_skill(place / "gone" / "SKILL.md", SkillFolder(place))
    assert "cannot be read" in skill.problems[0]


@settings(max_examples=80, deadline=None)
@given(head=st.text(max_size=40), body=st.text(max_size=20))
def test_no_text_breaks_the_reader(tmp_path_factory, head, body):
    path = tmp_path_factory.getbasetemp() / "any" / "SKILL.md"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(f"---\n{head}\n---\n{body}".encode("utf-8", "replace"))
    assert read_skill(path, SkillFolder(path.parent)).name


def test_builtin_skills_read_the_same_with_and_without_the_parser():
    (path,) = skill_files(skills.BUILTIN)
    assert skills.read_builtin(path) == read_skill(path, SkillFolder(skills.BUILTIN))


# --- use -------------------------------------------------------------------------------------


def test_the_prompt_names_them_and_the_tool_reads_them(place):
    add(place / "home" / "skills", "b-skill", "second\n  line", "Body of b.")
    add(place / "home" / "skills", "a-skill", "first")
    listed = find_skills([SkillFolder(place / "home" / "skills")], "")
    lines = manifest(listed).splitlines()
    assert len(lines) == 3
    assert lines[1].startswith("- a-skill [")
    assert lines[2].endswith("]: second line")
    tool = SkillTool(listed)
    context = ToolContext("c", Cancel(), lambda text: None)
    text = tool.run({"name": " b-skill "}, context)
    assert text.startswith("# Skill: b-skill\n\nsecond line\n\nIts files are in ")
    assert text.endswith("---\n\nBody of b.")
    assert tool.schema["required"] == ["name"]
    with pytest.raises(ToolError, match="name is required"):
        tool.run({"name": ""}, context)
    with pytest.raises(ToolError, match="no skill named 'zzz'; there is: a-skill, b-skill"):
        tool.run({"name": "zzz"}, context)


def expand(text, skills):
    agent = Agent(provider=ScriptedProvider([]), model=MODEL, session=Session())
    sources = Sources([SkillSource(skills, offered=True)], agent, None)
    return Commands(sources, lambda what: None).expand(text)


def test_a_slash_at_the_beginning_of_a_prompt_is_replaced(place):
    add(place / "s", "x", "d", "Body.")
    listed = find_skills([SkillFolder(place / "s")], "")
    assert expand("/skill:x", listed).endswith("---\n\nBody.")
    assert expand("/skill:x  go\nnow", listed).endswith("Body.\n\n---\n\ngo\nnow")
    for plain in ("hello", "/other", "see /skill:x", "/skill: x"):
        assert expand(plain, listed) == plain
    with pytest.raises(ToolError, match="no skill named 'y'; there is: x"):
        expand("/skill:y", listed)
    with pytest.raises(ToolError, match="there is: none"):
        expand("/skill:y", [])


def runtime_for(*flags: str):
    setup = resolve(parse([*flags, "--provider", "openai", "--api-key", "k"]), around({}))
    return build_runtime(Plan(setup), RuntimeClient())


def test_a_run_offers_skills_unless_told_not_to(place):
    runtime = runtime_for()
    assert "skill" in runtime.agent.toolbox.names
    assert "- write-zot-extension [builtin]" in runtime.agent._make_system()
    assert runtime.commands.expand("/skill:write-zot-extension").startswith("# Skill: write-zot")
    for flags in (["--no-skills"], ["--no-tools"], ["--tools", "read"]):
        runtime = runtime_for(*flags)
        assert "skill" not in runtime.agent.toolbox.names
        assert "write-zot-extension" not in runtime.agent._make_system()
    assert Options().skills is None


# --- the command -----------------------------------------------------------------------------


def test_list_show_and_check(place, capsys):
    path = add(place / "work" / ".zot" / "skills", "mine", "what it does", "The body.")
    assert main(["skills", "list"]) == 0
    assert "mine [" in capsys.readouterr().out
    assert main(["skills", "list", "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["name"] for row in rows] == ["mine", "write-zot-extension"]
    assert rows[0]["path"] == str(path)
    assert main(["skills", "show", "mine"]) == 0
    assert capsys.readouterr().out.endswith("The body.\n")
    assert main(["skills", "show", "yours"]) == 1
    assert "no skill 'yours'" in capsys.readouterr().err
    assert main(["skills", "check"]) == 0
    assert capsys.readouterr().out == "2 skills, nothing wrong\n"
    path.write_text("no head")
    assert main(["skills", "check", str(path.parent)]) == 1
    assert capsys.readouterr().out == f"{path}: has no front matter between two lines of ---\n"
    assert main(["skills", "check", str(place / "home")]) == 1
    main(["skills", "list"])
    assert "(not offered to the model)" in capsys.readouterr().out


def test_the_command_runs_in_another_directory(place):
    add(place / "other" / ".zot" / "skills", "there")
    done = subprocess.run(
        [sys.executable, "-m", "zot", "skills", "--cwd", str(place / "other"), "list"],
        capture_output=True,
        text=True,
        env=dict(os.environ),
    )
    assert "there [" in done.stdout


def test_a_projects_skill_that_is_a_link_out_of_it_has_no_text(place):
    (place / "user").mkdir()
    (place / "user" / "key").write_text("sk-of-the-user")
    folder = place / "work" / ".zot" / "skills" / "stolen"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").symlink_to(place / "user" / "key")
    assert by_name()["stolen"].body == ""
    assert "it is a link to a file elsewhere" in by_name()["stolen"].problems[0]
    shared = add(place / "user" / "dotfiles", "mine", body="Of the user.")
    (place / "home" / "skills").mkdir(parents=True)
    (place / "home" / "skills" / "mine").symlink_to(shared.parent)
    assert by_name()["mine"].body == "Of the user."


@pytest.mark.parametrize(
    ("head", "problem"),
    [
        ("name: &a x\ndescription: *a", "an alias, an anchor or a tag"),
        ("name: &a x\ndescription: d", "an alias, an anchor or a tag"),
        ("name: !!str x\ndescription: d", "an alias, an anchor or a tag"),
        ("name: !!python/name:os.system x", "an alias, an anchor or a tag"),
        ("name: " + "[" * 9 + "]" * 9, "deeper than 8"),
        ("name: [" + "x," * 2000 + "]", "more than 1000 parts"),
        ("name: " + "[" * 201, "more than 200 brackets"),
        ("name: x\n" + "# é\n" * 5000, "more than 16384 bytes"),
        ("name: 0x" + "f" * 16000, "a name that is not text"),
        ("name: [a]", "a name that is not text"),
    ],
)
def test_front_matter_that_stands_for_more_than_it_says_is_refused(head: str, problem: str) -> None:
    problems: list[str] = []
    split_head, body = skills.split(f"---\n{head}\n---\nbody\n", problems)
    if not problems:
        skills._text(split_head, "name", problems)
    assert problem in problems[0]
    assert len(problems[0]) < 200
    assert body in ("body\n", f"---\n{head}\n---\nbody\n")
