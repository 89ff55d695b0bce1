import json
from pathlib import Path

import pytest
from support.rpc import make_folder, run_zot

from zot.core.hook import Rule
from zot.errors import ConfigError
from zot.settings.trust import MAX_RULES, ProjectRules, approvals_path


def test_rules_belong_to_a_project(tmp_path: Path) -> None:
    here, there = (ProjectRules(str(tmp_path), str(tmp_path / name)) for name in ("a", "b"))
    here.add(Rule("bash", "ls *"))
    here.add(Rule("bash", "ls *"))
    assert here.all() == [Rule("bash", "ls *")]
    assert there.all() == []
    assert not there.remove(Rule("bash", "ls *"))
    assert here.remove(Rule("bash", "ls *"))
    assert here.all() == []
    assert Path(approvals_path(str(tmp_path))).read_text() == "{}\n"


def test_rules_are_bounded_and_a_broken_file_is_an_error(tmp_path: Path) -> None:
    rules = ProjectRules(str(tmp_path), "/p")
    path = Path(approvals_path(str(tmp_path)))
    path.write_text(json.dumps({"/p": [{"tool": "bash", "pattern": str(n)} for n in range(1100)]}))
    rules.add(Rule("bash", "last"))
    assert len(rules.all()) == MAX_RULES
    assert rules.all()[-1].pattern == "last"
    path.write_text("[]")
    with pytest.raises(ConfigError, match="repair or remove"):
        rules.all()
    path.unlink()
    path.mkdir()
    with pytest.raises(ConfigError):
        rules.all()


def test_what_is_allowed_is_listed_and_removed_in_a_shell(tmp_path: Path) -> None:
    cwd = make_folder(tmp_path)
    rules = ProjectRules(str(tmp_path / "zot-home"), str(cwd))
    rules.add(Rule("bash", "git log *"))
    rules.add(Rule("write", "src/*"))

    def approvals(*words: str) -> tuple[int, str]:
        done = run_zot(tmp_path, ["approvals", *words])
        return done.returncode, (done.stdout + done.stderr).decode()

    assert approvals("list") == (0, "bash     git log *\nwrite    src/*\n")
    row = json.loads(approvals("list", "--all", "--json")[1].splitlines()[0])
    assert row == {"project": str(cwd), "tool": "bash", "pattern": "git log *"}
    assert str(cwd) in approvals("list", "--all")[1]
    assert approvals("remove", "bash", "git log *") == (0, "")
    assert approvals("remove", "write") == (0, "")
    assert approvals("remove", "write")[0] == 1
    assert "there is no approval" in approvals("remove", "bash", "x")[1]
    assert "nothing is allowed for good here" in approvals("list")[1]
