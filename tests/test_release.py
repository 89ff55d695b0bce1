"""scripts/release.py in a small repository: a release is dated and tagged, or refused."""

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.environment import uncovered

ROOT = Path(__file__).parent.parent
pytestmark = pytest.mark.untraced


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "release.py", tmp_path / "scripts")
    (tmp_path / "src" / "zot").mkdir(parents=True)
    (tmp_path / "src" / "zot" / "__init__.py").write_text('__version__ = "0.1.0"\n')
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## Unreleased\n\n- A thing.\n")
    git(tmp_path, "init", "--quiet", "--initial-branch", "main")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "begin")
    return tmp_path


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    done = subprocess.run(
        ["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout


def release(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "scripts/release.py", *words]
    who = {
        f"GIT_{role}_{part}": "t" for role in ("AUTHOR", "COMMITTER") for part in ("NAME", "EMAIL")
    }
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=60, env={**uncovered(), **who}
    )


def test_a_release_is_dated_committed_and_tagged(project: Path) -> None:
    assert release(project, "prepare", "0.2.0").returncode == 0
    today = time.strftime("%Y-%m-%d")
    changes = (project / "CHANGELOG.md").read_text()
    assert f"## Unreleased\n\n## 0.2.0 ({today})\n\n- A thing." in changes
    assert '"0.2.0"' in (project / "src" / "zot" / "__init__.py").read_text()
    assert git(project, "describe", "--exact-match").strip() == "v0.2.0"
    assert git(project, "status", "--porcelain") == ""
    assert release(project, "verify", "v0.2.0").returncode == 0


@pytest.mark.parametrize(
    ("version", "why"),
    [("0.1.0", "not above"), ("0.2", "not a version"), ("v0.2.0", "not a version")],
)
def test_a_version_that_cannot_be_is_refused(project: Path, version: str, why: str) -> None:
    done = release(project, "prepare", version)
    assert done.returncode == 1
    assert why in done.stderr
    assert git(project, "tag") == ""


def test_uncommitted_work_is_not_released(project: Path) -> None:
    (project / "new.txt").write_text("")
    assert "nothing uncommitted" in release(project, "prepare", "0.2.0").stderr


def test_a_tag_of_another_version_is_refused(project: Path) -> None:
    assert "does not name the version" in release(project, "verify", "v0.3.0").stderr


def test_sections_of_one_area_are_joined(project: Path) -> None:
    news = "### Tools\n\n- One.\n\n### Python\n\n- Two.\n\n### Tools\n\n- Three.\n\n"
    log = project / "CHANGELOG.md"
    log.write_text(f"# Changelog\n\n## Unreleased\n\n{news}## 0.1.0 (2026-01-01)\n\n- First.\n")
    git(project, "commit", "--all", "--quiet", "--message", "news")
    assert release(project, "prepare", "0.2.0").returncode == 0
    text = log.read_text()
    assert "### Tools\n\n- One.\n- Three.\n\n### Python\n\n- Two.\n\n## 0.1.0" in text


def test_a_version_without_a_dated_section_is_refused(project: Path) -> None:
    assert "no heading" in release(project, "verify", "v0.1.0").stderr


def test_every_action_of_the_workflows_is_pinned_by_its_commit() -> None:
    for file in (ROOT / ".github" / "workflows").glob("*.yml"):
        for line in file.read_text().splitlines():
            if "uses:" in line:
                commit = line.partition("@")[2].partition(" ")[0]
                assert len(commit) == 40, f"{file.name}: {line.strip()}"
