"""Ordinary files that something obeyed leads to: read-only for commands and file tools."""

import os
import subprocess
from pathlib import Path

import pytest
from support.bwrap import needs_bwrap
from support.tools import call, text

from zot.core.tool import Tool
from zot.errors import ConfigError, ToolError
from zot.tools.jail.fit import check_led_to
from zot.tools.jail.jail import Jail
from zot.tools.jail.obeyed import Survey
from zot.tools.jail.record import Record, record_path, recover
from zot.tools.jail.targets import Targets, led_to
from zot.tools.registry import SharedPlace, SharedSupervisor, builtin_tools

ENVIRONMENT = {**os.environ, "GIT_CONFIG_NOSYSTEM": "1"}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    (home / "zot").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setitem(ENVIRONMENT, "HOME", str(home))
    path = home / "project"
    (path / "code" / "hooks").mkdir(parents=True)
    (path / "code" / "hooks" / "pre-commit").write_text("mine\n")
    (path / "code" / "other").write_text("mine\n")
    subprocess.run(["git", "init", "-q", str(path)], check=True)
    return path


def configure(root: Path, name: str, value: str) -> None:
    subprocess.run(["git", "-C", str(root), "config", name, value], check=True)


def tools_of(root: Path) -> tuple[dict[str, Tool], SharedSupervisor]:
    supervisor = SharedSupervisor()
    home = str(root.parent / "zot")
    place = SharedPlace(str(root), os.environ, jail=True, home=home)
    return {tool.name: tool for tool in builtin_tools(place, supervisor=supervisor)}, supervisor


def hooks_path(root: Path) -> None:
    configure(root, "core.hooksPath", "code/hooks")


def users_hooks_path(root: Path) -> None:
    (root.parent / ".gitconfig").write_text("[core]\n hooksPath = code/hooks\n")


def nested_hooks_path(root: Path) -> None:
    subprocess.run(["git", "init", "-q", str(root / "code")], check=True)
    configure(root / "code", "core.hooksPath", "hooks")


def included(root: Path) -> None:
    configure(root, "include.path", "../code/hooks/pre-commit")


def included_for_a_branch(root: Path) -> None:
    configure(root, "includeIf.onbranch:other.path", "../code/hooks/pre-commit")


def a_filter(root: Path) -> None:
    configure(root, "filter.x.clean", "sh -e code/hooks/pre-commit %f")


def link_in_hooks(root: Path) -> None:
    (root / ".git/hooks/pre-commit").symlink_to("../../code/hooks/pre-commit")


def link_in_an_editors_directory(root: Path) -> None:
    (root / ".claude/deep").mkdir(parents=True)
    (root / ".claude/deep/x").symlink_to("../../code/hooks")


def link_with_an_obeyed_name(root: Path) -> None:
    (root / ".githooks").symlink_to("code/hooks")


WAYS = [
    hooks_path,
    users_hooks_path,
    nested_hooks_path,
    included,
    included_for_a_branch,
    a_filter,
    link_in_hooks,
    link_in_an_editors_directory,
    link_with_an_obeyed_name,
]


@needs_bwrap
@pytest.mark.parametrize("way", WAYS)
def test_what_something_obeyed_leads_to_is_not_written(root: Path, way) -> None:  # type: ignore[no-untyped-def]
    way(root)
    tools, supervisor = tools_of(root)
    with pytest.raises(ToolError, match="protected"):
        call(tools["write"], path="code/hooks/pre-commit", content="theirs\n")
    tries = (
        "echo theirs > code/hooks/pre-commit; mv code/hooks/pre-commit code/x; rm -rf code/hooks"
    )
    tries += "; mv code moved; mkdir -p code/hooks; echo theirs > code/hooks/pre-commit; true"
    call(tools["bash"], command=tries)
    call(tools["bash"], command="echo new > free")
    supervisor.close()
    names = [root / "code/hooks/pre-commit", root / "moved/hooks/pre-commit"]
    assert [name.read_text() for name in names if name.exists()] == ["mine\n"]
    assert (root / "free").read_text() == "new\n"


@needs_bwrap
def test_hooks_that_were_not_there_are_renamed(root: Path) -> None:
    configure(root, "core.hooksPath", "made/hooks")
    tools, supervisor = tools_of(root)
    command = "mkdir -p made/hooks; echo theirs > made/hooks/pre-commit"
    assert "was renamed" in text(call(tools["bash"], command=command))
    supervisor.close()
    assert not (root / "made/hooks").exists()
    assert [path.name[:13] for path in (root / "made").iterdir()] == ["hooks.jailed-"]


def test_hooks_that_a_killed_zot_left_are_renamed(root: Path) -> None:
    configure(root, "core.hooksPath", "made")
    path = record_path(str(root.parent / "zot"), str(root))
    record = Record.open(path, create=True)
    assert record is not None
    folder = os.open(root, os.O_PATH)
    record.write(str(root), Targets(str(root), ENVIRONMENT).look(Survey(str(root), folder)))
    record.close()
    os.close(folder)
    (root / "made").mkdir()
    after = recover(path, str(root))
    assert after is not None
    assert [thing.path for thing, _ in after.renamed] == ["made"]


def test_a_directory_to_which_an_obeyed_link_leads_cannot_be_a_jail(root: Path) -> None:
    link_with_an_obeyed_name(root)
    with pytest.raises(ConfigError, match=r"other programs obey '.*\.githooks', which leads there"):
        Jail(str(root / "code/hooks"), os.environ, str(root.parent / "zot"))


def test_a_link_elsewhere_in_the_tree_counts_too(root: Path) -> None:
    (root / "far/.vscode").mkdir(parents=True)
    (root / "far/.vscode/x").symlink_to("../../code/hooks")
    check_led_to(str(root / "far"), str(root), ENVIRONMENT)
    with pytest.raises(ConfigError, match=r"'.*/code/hooks' is protected"):
        check_led_to(str(root / "code"), str(root), ENVIRONMENT)


def test_hooks_that_hold_the_project_stop_everything(root: Path) -> None:
    configure(root, "core.hooksPath", ".")
    with pytest.raises(ToolError, match="it holds"):
        led_to(str(root), ENVIRONMENT)


def test_settings_are_read_again_only_when_a_file_changed(root: Path) -> None:
    targets, folder = Targets(str(root), ENVIRONMENT), os.open(root, os.O_PATH)
    survey = Survey(str(root), folder)
    assert targets.look(survey).obeyed == ()
    first = targets._settings[str(root)]
    targets.look(survey)
    assert targets._settings[str(root)] is first
    hooks_path(root)
    assert targets.look(survey).obeyed == ("code/hooks",)
    os.close(folder)
