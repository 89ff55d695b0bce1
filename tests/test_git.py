"""git is started in one place, and nothing of a stranger's tree runs along."""

import ast
import os
import shutil
import subprocess
import tempfile
import time
import traceback
from pathlib import Path

import pytest
from support.bwrap import needs_bwrap

from zot.git import Git, GitError
from zot.swarm.checkout import WorktreeError
from zot.swarm.snapshot import reopen_all
from zot.swarm.worktrees import Worktrees

SRC = Path(__file__).parent.parent / "src" / "zot"
ORDINARY = 4242
ENVIRONMENT = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}
NOT_A_PROGRAM = {"git.py", "runtime/programs.py", "runtime/readers.py", "runtime/rules.py"}
"""The one place; tables of programs for approval rules."""


def git(directory, *words, **options):
    who = ["-c", "user.name=t", "-c", "user.email=t@t", "-c", "init.defaultBranch=main"]
    done = subprocess.run(
        ["git", *who, *words], cwd=directory, capture_output=True, text=True, **options
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


# --- one place -----------------------------------------------------------------------------------


def starts_of_git(tree):
    """Places that name git as a program: the first word of a command, or what is looked up."""
    for node in ast.walk(tree):
        words = []
        if isinstance(node, ast.List | ast.Tuple):
            words = node.elts[:1]
        elif isinstance(node, ast.Call) and "startswith" not in ast.unparse(node.func):
            words = node.args[:1]
        for word in words:
            if isinstance(word, ast.Constant) and isinstance(word.value, str):
                name = word.value.split(" ")[0]
                if name == "git" or name.endswith("/git"):
                    yield node.lineno


def test_git_is_started_in_one_place_only():
    places = [
        f"{path.relative_to(SRC)}:{line}"
        for path in SRC.rglob("*.py")
        for line in starts_of_git(ast.parse(path.read_text(encoding="utf-8")))
    ]
    others = [place for place in places if place.rpartition(":")[0] not in NOT_A_PROGRAM]
    assert others == [], "use zot.git, which runs nothing of the repository's"
    assert [place for place in places if place.startswith("git.py")]


def test_commands_that_run_git_in_nested_repositories_are_not_used():
    entering = {"status", "add", "commit", "merge", "diff", "stash", "submodule", "pull"}
    for path in (*SRC.rglob("swarm/**/*.py"), SRC / "extensions" / "install.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                first = node.args[0] if node.args else None
                is_run = node.func.attr in ("run", "attempt", "line", "names", "succeeds")
                if is_run and isinstance(first, ast.Constant):
                    assert first.value not in entering, f"{path}:{node.lineno}"


@pytest.mark.parametrize("path", [".:{}", ":{}", "{}:", "bin:{}", "./bin:../x:{}"])
def test_git_of_the_working_directory_does_not_run(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    for folder in (tmp_path, tmp_path / "bin"):
        folder.mkdir(exist_ok=True)
        (folder / "git").write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
        (folder / "git").chmod(0o755)
    found = Git(str(tmp_path), {"PATH": path.format(os.environ["PATH"]), "HOME": "/nonexistent"})
    assert found.line("version").startswith("git version")
    said = found.run("-c", "alias.look=!echo $PATH", "look")  # git's own PATH, too
    assert all(part.startswith("/") for part in said.strip().split(":"))
    assert not (tmp_path / "ran").exists()


def test_a_machine_without_git_is_told_so(tmp_path):
    with pytest.raises(GitError, match="git is not installed"):
        Git(str(tmp_path), {"PATH": ".:bin"}).line("version")


def test_variables_of_git_in_the_environment_do_not_count(tmp_path):
    git(tmp_path, "init", "-q")
    mark = tmp_path / "ran"
    evil = {
        "GIT_DIR": "/nowhere",
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "alias.evil",
        "GIT_CONFIG_VALUE_0": f"!touch {mark}",
        "GIT_EXEC_PATH": "bin",
        "GIT_EXTERNAL_DIFF": f"touch {mark}",
        "GIT_SSH_COMMAND": f"touch {mark}",
    }
    found = Git(str(tmp_path), {**ENVIRONMENT, **evil})
    assert found.git_dir == tmp_path / ".git"
    assert not found.succeeds("evil")
    assert not mark.exists()


# --- remotes -------------------------------------------------------------------------------------


REMOTES = {
    "uploadpack": ("{other}", "remote.o.uploadpack", "{evil}; git-upload-pack"),
    "proxy": ("git://127.0.0.1:9/x", "core.gitProxy", "{evil}"),
    "ssh": ("ssh://127.0.0.1:9/x", "core.sshCommand", "{evil}"),
    "helper": ("none::x", "alias.remote-none", "!{evil}"),
    "empty-helper": ("::x", "alias.remote-", "!{evil}"),
}
"""Address of a remote, and the setting with the program that git runs to reach it."""


def partial_clone(folder, remote):
    """A repository that lacks a file of HEAD, so that git asks the remote for it."""
    path = project(folder, submodule=False)
    other = folder / "remote"
    shutil.copytree(path, other)
    id = git(path, "rev-parse", "HEAD:a.txt")
    (path / ".git" / "objects" / id[:2] / id[2:]).unlink()
    evil = folder / "evil"
    evil.write_text(f"#!/bin/sh\ntouch {folder}/ran\n")
    evil.chmod(0o755)
    url, name, value = (part.format(other=other, evil=evil) for part in REMOTES[remote])
    git(path, "config", "core.repositoryFormatVersion", "1")
    git(path, "config", "extensions.partialClone", "o")
    git(path, "config", "remote.o.promisor", "true")
    git(path, "config", "remote.o.url", url)
    git(path, "config", name, value)
    return path


@pytest.mark.parametrize("remote", REMOTES)
def test_no_program_of_a_remote_runs_for_a_missing_file(tmp_path, remote, monkeypatch):
    monkeypatch.setattr("zot.swarm.worktrees.ADD_PAUSES", (None,))
    path = partial_clone(tmp_path, remote)
    with pytest.raises(GitError, match=r"a\.txt"):
        Worktrees(ENVIRONMENT).make(str(path), "fix-1", tmp_path / "agents" / "fix-1")
    assert not (tmp_path / "ran").exists()
    assert not (tmp_path / "agents" / "fix-1" / "tree").exists()
    assert git(path, "branch", "--format=%(refname:short)") == "main"


@pytest.mark.parametrize("remote", REMOTES)
def test_no_program_of_a_remote_runs_with_a_git_that_always_fetches(tmp_path, remote):
    path = partial_clone(tmp_path, remote)
    older = {"GIT_NO_LAZY_FETCH": "0"}
    done = Git(str(path), ENVIRONMENT).attempt("cat-file", "-p", "HEAD:a.txt", env=older)
    assert done.returncode != 0
    assert not (tmp_path / "ran").exists()


def test_no_program_runs_that_appears_in_the_configuration_later(tmp_path):
    path = project(tmp_path, submodule=False)
    found = Git(str(path), ENVIRONMENT)
    assert found.line("rev-parse", "HEAD")
    git(path, "config", "filter.e.smudge", f"touch {tmp_path}/ran; cat")
    git(path, "config", "core.fsmonitor", f"touch {tmp_path}/ran; false")
    (path / ".git" / "info" / "attributes").write_text("* filter=e\n")
    (path / "a.txt").unlink()
    found.run("checkout-index", "-f", "a.txt")
    assert (path / "a.txt").read_text() == "one\n"
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("condition", ["onbranch:zot/**", "gitdir:**/worktrees/**"])
def test_no_program_runs_that_is_configured_for_agents_only(tmp_path, condition):
    path = project(tmp_path, submodule=False)
    (path / ".git" / "more").write_text(f'[filter "e"]\n smudge = "touch {tmp_path}/ran; cat"\n')
    git(path, "config", f"includeIf.{condition}.path", "more")
    (path / ".gitattributes").write_text("* filter=e\n")
    git(path, "add", "-A")
    git(path, "commit", "-qm", "filtered")
    tree = Worktrees(ENVIRONMENT).make(str(path), "fix-1", tmp_path / "agents" / "fix-1")
    assert (Path(tree.path) / "a.txt").read_text() == "one\n"
    assert not (tmp_path / "ran").exists()


# --- nested repositories -------------------------------------------------------------------------


def trap(directory, mark):
    """A repository whose filter runs as soon as git looks for changes in it."""
    directory.mkdir(parents=True, exist_ok=True)
    git(directory, "init", "-q", ".")
    (directory / "f").write_text("a")
    (directory / ".gitattributes").write_text("* filter=e\n")
    git(directory, "add", ".")
    git(directory, "commit", "-qm", "x")
    git(directory, "config", "filter.e.clean", f"touch {mark}; cat")
    git(directory, "config", "diff.external", f"touch {mark}")
    git(directory, "config", "core.fsmonitor", f"touch {mark}; false")
    (directory / "f").write_text("b")


def project(folder, *, submodule):
    path = folder / "project"
    path.mkdir()
    git(path, "init", "-q", "-b", "main")
    (path / "a.txt").write_text("one\n")
    git(path, "add", "-A")
    if submodule:
        other = folder / "other"
        other.mkdir()
        git(other, "init", "-q")
        git(other, "commit", "-q", "--allow-empty", "-m", "x")
        git(path, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(other), "sub")
        # A repository may ask for it, too.
        git(path, "config", "-f", ".gitmodules", "submodule.sub.ignore", "none")
        git(path, "config", "submodule.sub.ignore", "none")
        git(path, "config", "diff.submodule", "diff")
        git(path, "config", "submodule.recurse", "true")
        git(path, "add", "-A")
    git(path, "commit", "-qm", "first")
    return path


def use_all(folder, *, submodule, mode):
    """Everything that zot does with an agent's tree, with traps in tree and checkout."""
    mark = folder / "ran"
    path = project(folder, submodule=submodule)
    trees = Worktrees(ENVIRONMENT)
    tree = trees.make(str(path), "fix-1", folder / "agents" / "fix-1")
    (Path(tree.path) / "a.txt").write_text("two\n")
    for place in (Path(tree.path), path):
        if submodule:
            shutil.rmtree(place / "sub")
        trap(place / "sub", mark)
        (place / "sub").chmod(mode)
    assert trees.size(tree).files == 1
    shown = trees.diff(tree)
    assert "+two" in shown
    assert "[left out: 'sub' is a repository of its own]" in shown
    assert trees.commit(tree, "work") is True
    assert git(tree.path, "ls-tree", "HEAD", "sub") == git(path, "ls-tree", "HEAD", "sub")
    _, commit = trees.merge(tree, "Merge")
    assert (path / "a.txt").read_text() == "two\n"
    with pytest.raises(WorktreeError, match=r"does not keep \('sub' is a repository of its"):
        trees.remove(tree, commit, commit)
    (Path(tree.path) / "sub").chmod(0o700)
    shutil.rmtree(Path(tree.path) / "sub")
    trees.remove(tree, commit, commit)
    assert not Path(tree.path).exists()
    assert not mark.exists()


def as_ordinary_user(work, meanwhile=lambda folder: None):
    """Run it in a child of another user: root may read every directory."""
    folder = Path(tempfile.mkdtemp(prefix="zot-ordinary-"))
    os.chown(folder, ORDINARY, ORDINARY)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setgroups([])
            os.setgid(ORDINARY)
            os.setuid(ORDINARY)
            os.environ["HOME"] = str(folder)
            os.chdir(folder)
            work(folder)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    try:
        meanwhile(folder)
        assert os.waitpid(child, 0)[1] == 0
    finally:
        shutil.rmtree(folder)


@pytest.mark.parametrize("mode", [0o755, 0o311, 0o000], ids=["open", "unlisted", "closed"])
@pytest.mark.parametrize("submodule", [False, True], ids=["alone", "submodule"])
@pytest.mark.parametrize("user", ["own", "ordinary"])
def test_nothing_of_a_nested_repository_runs(tmp_path, user, submodule, mode):
    if user == "own":
        use_all(tmp_path, submodule=submodule, mode=mode)
    elif os.geteuid() != 0:
        pytest.skip("only root can become another user")
    else:
        as_ordinary_user(lambda folder: use_all(folder, submodule=submodule, mode=mode))


def test_a_repository_that_the_agent_staged_or_committed_is_not_merged(tmp_path):
    mark = tmp_path / "ran"
    path = project(tmp_path, submodule=False)
    trees = Worktrees(ENVIRONMENT)
    tree = trees.make(str(path), "fix-1", tmp_path / "agents" / "fix-1")
    trap(Path(tree.path) / "new", mark)
    (Path(tree.path) / "a.txt").write_text("two\n")
    git(tree.path, "add", "-A")
    mark.unlink(missing_ok=True)
    assert trees.commit(tree, "work")
    assert git(tree.path, "ls-tree", "HEAD", "new") == ""
    git(tree.path, "-c", "core.fsmonitor=false", "add", "-A")
    git(tree.path, "commit", "-qm", "gitlink")
    mark.unlink(missing_ok=True)
    with pytest.raises(WorktreeError, match="adds repositories as submodules: new; zot does not"):
        trees.merge(tree, "Merge")
    assert (path / "a.txt").read_text() == "one\n"
    assert not mark.exists()


def test_both_sides_that_moved_a_submodule_are_a_conflict_and_nobody_looks_into_it(tmp_path):
    path = project(tmp_path, submodule=True)
    trees = Worktrees(ENVIRONMENT)
    tree = trees.make(str(path), "fix-1", tmp_path / "agents" / "fix-1")
    for place, id in ((tree.path, "1" * 40), (path, "2" * 40)):
        git(place, "update-index", "--cacheinfo", f"160000,{id},sub")
        git(place, "commit", "-qm", "moved")
    with pytest.raises(WorktreeError, match="both changed sub"):
        trees.merge(tree, "Merge")


def unreadable(folder):
    path = project(folder, submodule=False)
    (path / "kept").mkdir()
    (path / "kept" / "f").write_text("one\n")
    git(path, "add", "-A")
    git(path, "commit", "-qm", "more")
    trees = Worktrees(ENVIRONMENT)
    tree = trees.make(str(path), "fix-1", folder / "agents" / "fix-1")
    root = Path(tree.path)
    for name in ("new/deep", "closed"):
        (root / name).mkdir(parents=True)
        (root / name / "f").write_text("work\n")
    (root / "kept" / "f").write_text("two\n")
    (root / "secret").write_text("work\n")
    (root / "secret").chmod(0)
    for name, mode in (("new/deep", 0o311), ("new", 0o311), ("closed", 0), ("kept", 0o444)):
        (root / name).chmod(mode)
    assert trees.commit(tree, "work")
    names = git(root, "ls-tree", "-r", "--name-only", "HEAD").split()
    assert names == ["a.txt", "closed/f", "kept/f", "new/deep/f", "secret"]
    assert git(root, "show", "HEAD:kept/f") == "two"
    (root / "new").chmod(0o311)
    _, commit = trees.merge(tree, "Merge")
    trees.remove(tree, commit, commit)
    assert not root.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_work_in_directories_that_the_agent_made_unreadable_is_kept():
    as_ordinary_user(unreadable)


def somebody_elses(folder):
    path = project(folder, submodule=False)
    trees = Worktrees(ENVIRONMENT)
    tree = trees.make(str(path), "fix-1", folder / "agents" / "fix-1")
    (Path(tree.path) / "a.txt").write_text("two\n")
    (folder / "ready").touch()
    while not (folder / "made").exists():
        time.sleep(0.01)
    assert trees.commit(tree, "work")
    _, commit = trees.merge(tree, "Merge")
    with pytest.raises(WorktreeError, match="does not keep .*'theirs/': Permission denied"):
        trees.remove(tree, commit, commit)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of another user")
def test_a_directory_that_cannot_be_reopened_is_left_out_and_not_removed():
    def make(folder):
        while not (folder / "ready").exists():
            time.sleep(0.01)
        (folder / "agents" / "fix-1" / "tree" / "theirs").mkdir(0o700)
        (folder / "made").touch()

    as_ordinary_user(somebody_elses, make)


def test_a_link_in_place_of_an_unreadable_directory_is_not_followed(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "f").write_text("")
    (outside / "f").chmod(0)
    outside.chmod(0o500)
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "link").symlink_to(outside)
    (inside / "file").symlink_to(outside / "f")
    reopen_all(str(inside))
    assert oct(outside.stat().st_mode & 0o777) == "0o500"
    assert oct((outside / "f").stat().st_mode & 0o777) == "0o0"


# --- behind a wall -------------------------------------------------------------------------------


@needs_bwrap
@pytest.mark.parametrize("jailed", [True, False])
def test_a_program_that_runs_in_a_jailed_tree_writes_nothing_elsewhere(tmp_path, jailed):
    """A filter of the user's own stands for one that zot does not know of."""
    work, home, outside = tmp_path / "work", tmp_path / "home", tmp_path / "outside"
    for folder in (work, home, outside):
        folder.mkdir()
    (work / ".gitattributes").write_text("* filter=x\n")
    git(work, "init", "-q")
    git(work, "add", "-A")
    git(work, "commit", "-qm", "first")
    trees = Worktrees({**ENVIRONMENT, "HOME": str(home)})
    tree = trees.make(str(work), "fix-1", tmp_path / "agents", jailed=jailed)
    hook = work / ".git/hooks/pre-commit"
    script = home / "filter"
    script.write_text(f"#!/bin/sh\ntouch {outside}/ran {hook} {home}/ran; cat\n")
    script.chmod(0o755)
    (home / ".gitconfig").write_text(f'[filter "x"]\n\tclean = {script}\n')
    (Path(tree.path) / "new").write_text("made\n")
    assert trees.size(tree).files == 1
    assert trees.commit(tree, "work")
    assert "made" in trees.diff(tree)
    assert (outside / "ran").exists() is not jailed
    assert hook.exists() is not jailed
    trees.merge(tree, "Merge")
    assert (work / "new").read_text() == "made\n"
    assert trees.unsaved(tree, *trees.merge(tree, "Merge")) == ""
    trees.remove(tree)


@needs_bwrap
def test_a_copy_for_a_jailed_agent_is_compared_and_merged(tmp_path):
    (tmp_path / "work").mkdir()
    (tmp_path / "work/old").write_text("old\n")
    trees = Worktrees(ENVIRONMENT)
    tree = trees.make(str(tmp_path / "work"), "fix-1", tmp_path / "agents", jailed=True)
    (Path(tree.path) / "new").write_text("made\n")
    assert trees.size(tree).files == 1
    assert trees.commit(tree, "work")
    tip, _ = trees.merge(tree, "Merge")
    assert (tmp_path / "work/new").read_text() == "made\n"
    trees.remove(tree, tip)
