import os
import shutil
import subprocess
from pathlib import Path

import pytest

from zot.git import Git, GitError
from zot.swarm.checkout import MergeConflict, WorktreeError
from zot.swarm.worktrees import DiffSize, Worktree, Worktrees

ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_DIR": "/nowhere",  # a variable that would lead git astray
    "HOME": "/nonexistent",
}


def git(directory, *words):
    who = ["-c", "user.name=t", "-c", "user.email=t@t", "-c", "init.defaultBranch=main"]
    done = subprocess.run(["git", *who, *words], cwd=directory, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path):
    path = tmp_path / "repository"
    (path / "sub").mkdir(parents=True)
    git(path, "init", "-q", "-b", "main")
    (path / "a.txt").write_text("one\n")
    (path / "sub" / "b.txt").write_text("two\n")
    git(path, "add", "-A")
    git(path, "commit", "-qm", "first")
    return path


@pytest.fixture
def trees():
    return Worktrees(ENVIRONMENT)


def make(trees, repository, tmp_path, id="fix-1", **words):
    return trees.make(str(repository), id, tmp_path / "agents" / id, **words)


def write(tree, name, text):
    (Path(tree.path) / name).write_text(text)


def test_an_agent_gets_a_branch_and_a_tree_and_the_checkout_stays_as_it_is(
    trees, repository, tmp_path
):
    tree = make(trees, repository, tmp_path)
    write(tree, "a.txt", "changed\n")
    assert (repository / "a.txt").read_text() == "one\n"
    assert tree.branch == "zot/fix-1"
    assert git(repository, "branch", "--list", "zot/*").strip("+ ") == "zot/fix-1"
    assert oct((tmp_path / "agents" / "fix-1").stat().st_mode & 0o777) == "0o700"


def test_a_task_for_a_part_of_a_repository_works_in_that_part(trees, repository, tmp_path):
    tree = make(trees, repository / "sub", tmp_path)
    assert tree.cwd == str(Path(tree.path) / "sub")
    assert [path.name for path in Path(tree.cwd).iterdir()] == ["b.txt"]
    (repository / "fresh").mkdir()  # not committed: the worktree would not have it
    assert Path(make(trees, repository / "fresh", tmp_path, "fix-2").cwd).is_dir()


def test_the_diff_has_new_files_commits_and_uncommitted_changes(trees, repository, tmp_path):
    tree = make(trees, repository, tmp_path)
    write(tree, "a.txt", "uno\n")
    git(tree.path, "commit", "-qam", "its own")
    write(tree, "new.txt", "x\ny\n")
    diff = trees.diff(tree)
    assert "+uno" in diff
    assert "+++ b/new.txt" in diff
    assert trees.size(tree) == DiffSize(files=2, added=3, removed=1)
    assert git(tree.path, "status", "--porcelain") == "?? new.txt"  # its index is not touched


def test_an_agent_that_left_a_merge_half_done_gets_a_merge_commit(trees, repository, tmp_path):
    tree = make(trees, repository, tmp_path)
    write(tree, "a.txt", "theirs\n")
    trees.commit(tree, "theirs")
    (repository / "a.txt").write_text("ours\n")
    git(repository, "commit", "-qam", "ours")
    with pytest.raises(AssertionError):
        git(tree.path, "merge", "main")
    write(tree, "a.txt", "both\n")
    assert trees.commit(tree, "resolved")
    assert len(git(tree.path, "log", "-1", "--format=%P").split()) == 2
    assert git(tree.path, "status", "--porcelain", "--branch") == "## zot/fix-1"
    trees.merge(tree, "Merge")
    assert (repository / "a.txt").read_text() == "both\n"


def test_what_the_agent_staged_by_force_and_made_of_directories_is_committed(
    trees, repository, tmp_path
):
    (repository / ".gitignore").write_text("out\n")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "ignore")
    tree = make(trees, repository, tmp_path)
    write(tree, "out", "forced\n")
    git(tree.path, "add", "-f", "out")
    root = Path(tree.path)
    (root / "sub").rename(root / "moved")
    (root / "sub").symlink_to("moved")
    (root / "a.txt").unlink()
    (root / "a.txt").mkdir()
    write(tree, "a.txt/inside", "x\n")
    assert trees.commit(tree, "work")
    names = git(root, "ls-tree", "-r", "--name-only", "HEAD").split()
    assert names == [".gitignore", "a.txt/inside", "moved/b.txt", "out", "sub"]
    trees.merge(tree, "Merge")
    assert (repository / "sub").is_symlink()
    assert git(repository, "status", "--porcelain") == ""


def test_a_merge_brings_the_work_into_the_checkout(trees, repository, tmp_path):
    tree = make(trees, repository, tmp_path)
    write(tree, "a.txt", "uno\n")
    assert trees.commit(tree, "Fix it") is True
    assert trees.commit(tree, "Nothing more") is False
    tip, commit = trees.merge(tree, "Merge fix-1")
    assert (repository / "a.txt").read_text() == "uno\n"
    assert git(repository, "log", "-1", "--format=%s %P").count(" ") == 3  # two parents
    assert tip == git(tree.path, "rev-parse", "HEAD")
    assert commit == git(repository, "rev-parse", "HEAD") != tip
    trees.remove(tree)
    assert git(repository, "branch", "--list", "zot/*") == ""
    assert not Path(tree.path).exists()


def test_a_squash_is_one_commit_and_the_tree_can_go_once_it_is_known(trees, repository, tmp_path):
    tree = make(trees, repository, tmp_path)
    for text in ("uno\n", "due\n"):
        write(tree, "a.txt", text)
        trees.commit(tree, text)
    tip, commit = trees.merge(tree, "Fix it", squash=True)
    assert git(repository, "log", "--format=%s").splitlines() == ["Fix it", "first"]
    assert "not merged" in trees.unsaved(tree)
    assert "not merged" in trees.unsaved(tree, merged=tip)
    assert trees.unsaved(tree, merged=tip, commit=commit) == ""
    trees.remove(tree, merged=tip, commit=commit)


def test_a_conflict_is_named_and_nothing_is_half_done(trees, repository, tmp_path):
    tree = make(trees, repository, tmp_path)
    write(tree, "a.txt", "theirs\n")
    write(tree, "sub/b.txt", "theirs\n")
    trees.commit(tree, "theirs")
    (repository / "a.txt").write_text("ours\n")
    git(repository, "commit", "-qam", "ours")
    before = git(repository, "rev-parse", "HEAD")
    with pytest.raises(MergeConflict, match=r"both changed a\.txt; nothing was merged") as raised:
        trees.merge(tree, "Merge")
    assert raised.value.paths == ("a.txt",)
    assert git(repository, "rev-parse", "HEAD") == before
    assert git(repository, "status", "--porcelain") == ""
    assert not (repository / ".git" / "MERGE_HEAD").exists()


def test_a_merge_that_would_change_a_dirty_file_is_refused_with_its_name(
    trees, repository, tmp_path
):
    tree = make(trees, repository, tmp_path)
    write(tree, "a.txt", "x\n")
    write(tree, "sub/b.txt", "x\n")
    trees.commit(tree, "x")
    (repository / "a.txt").write_text("mine, not committed\n")
    for stage in (False, True):
        if stage:
            git(repository, "add", "a.txt")
        with pytest.raises(WorktreeError, match=r"changes in a\.txt, .* commit or stash them"):
            trees.merge(tree, "Merge")
    assert (repository / "a.txt").read_text() == "mine, not committed\n"
    assert (repository / "sub" / "b.txt").read_text() == "two\n"
    assert git(repository, "status", "--porcelain") == "M  a.txt"


def test_uncommitted_changes_of_other_files_stay_as_they_are(trees, repository, tmp_path):
    for name in ("staged.txt", "both.txt"):
        (repository / name).write_text("old\n")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "more")
    tree = make(trees, repository, tmp_path)
    write(tree, "sub/b.txt", "theirs\n")
    trees.commit(tree, "x")
    (repository / "a.txt").write_text("edited\n")
    (repository / "new.txt").write_text("untracked\n")
    for name in ("staged.txt", "both.txt"):
        (repository / name).write_text("staged\n")
    git(repository, "add", "staged.txt", "both.txt")
    (repository / "both.txt").write_text("and edited\n")
    before = git(repository, "status", "--porcelain")
    trees.merge(tree, "Merge")
    assert (repository / "sub" / "b.txt").read_text() == "theirs\n"
    assert git(repository, "status", "--porcelain") == before
    assert git(repository, "show", ":both.txt") == "staged"


def test_an_untracked_file_in_the_way_is_not_overwritten(trees, repository, tmp_path):
    tree = make(trees, repository, tmp_path)
    write(tree, "new.txt", "theirs\n")
    trees.commit(tree, "new")
    (repository / "new.txt").write_text("mine\n")
    with pytest.raises(WorktreeError, match=r"new\.txt"):
        trees.merge(tree, "Merge")
    assert (repository / "new.txt").read_text() == "mine\n"
    assert not (repository / ".git" / "MERGE_HEAD").exists()


@pytest.mark.parametrize(
    "unfinished", ["MERGE_HEAD", "CHERRY_PICK_HEAD", "rebase-merge", "rebase-apply"]
)
def test_nothing_is_merged_into_an_unfinished_merge_or_rebase(
    trees, repository, tmp_path, unfinished
):
    tree = make(trees, repository, tmp_path)
    write(tree, "a.txt", "x\n")
    trees.commit(tree, "x")
    (repository / ".git" / unfinished).write_text("")
    with pytest.raises(WorktreeError, match="in the middle of a .*: finish or abort it"):
        trees.merge(tree, "Merge")
    assert (repository / "a.txt").read_text() == "one\n"


def test_a_second_merge_of_one_tip_makes_no_commit(trees, repository, tmp_path):
    for squash in (False, True):
        tree = make(trees, repository, tmp_path, id=f"fix-{squash}")
        write(tree, "a.txt", f"{squash}\n")
        trees.commit(tree, "x")
        first = trees.merge(tree, "Merge", squash=squash)
        assert trees.merge(tree, "Merge", squash=squash) == first
        assert git(repository, "rev-parse", "HEAD") == first[1]


@pytest.mark.parametrize("committed", [False, True])
def test_a_tree_with_work_is_never_removed(trees, repository, tmp_path, committed):
    tree = make(trees, repository, tmp_path)
    write(tree, "new.txt", "work\n")
    if committed:
        trees.commit(tree, "work")
    with pytest.raises(WorktreeError, match="not merged" if committed else "not committed"):
        trees.remove(tree)
    assert (Path(tree.path) / "new.txt").exists()


def test_a_branch_whose_tree_is_gone_or_was_left_is_never_removed_with_its_work(
    trees, repository, tmp_path
):
    tree = make(trees, repository, tmp_path)
    write(tree, "a.txt", "work\n")
    assert trees.commit(tree, "work")
    git(tree.path, "checkout", "-q", "-b", "elsewhere", "main")
    with pytest.raises(WorktreeError, match="commits on zot/fix-1 that are not merged"):
        trees.remove(tree)
    shutil.rmtree(tree.path)
    with pytest.raises(WorktreeError, match=r"throw its work away: git -C \S+ worktree remove"):
        trees.remove(tree)
    git(repository, "worktree", "prune")
    git(repository, "branch", "-q", "-D", tree.branch)  # a person did not want it
    trees.remove(tree)
    shutil.rmtree(repository)
    assert trees.unsaved(tree) == ""
    trees.remove(tree)


def test_uncommitted_work_of_the_agent_is_not_left_behind_by_a_merge(trees, repository, tmp_path):
    tree = make(trees, repository, tmp_path)
    write(tree, "new.txt", "work\n")
    with pytest.raises(WorktreeError, match="not committed"):
        trees.merge(tree, "Merge")


def test_a_tree_that_a_crash_left_unused_is_made_again(trees, repository, plain, tmp_path):
    for directory, id in ((repository, "fix-1"), (plain, "fix-2")):
        first = make(trees, directory, tmp_path, id)
        write(first, "a.txt", "half\n")  # whatever git had written until then
        assert make(trees, directory, tmp_path, id) == first or directory == plain
        assert (Path(first.path) / "a.txt").read_text() == "one\n"


def test_a_branch_of_the_users_can_be_the_base(trees, repository, tmp_path):
    git(repository, "branch", "older")
    (repository / "a.txt").write_text("newer\n")
    git(repository, "commit", "-qam", "newer")
    tree = make(trees, repository, tmp_path, base="older")
    assert (Path(tree.path) / "a.txt").read_text() == "one\n"
    with pytest.raises(WorktreeError, match="no branch or commit 'nope'"):
        make(trees, repository, tmp_path, "fix-2", base="nope")
    with pytest.raises(WorktreeError, match="no branch or commit '--force'"):
        make(trees, repository, tmp_path, "fix-3", base="--force")


def test_hooks_and_monitors_of_a_repository_do_not_run(trees, repository, tmp_path):
    mark = tmp_path / "ran"
    for name in ("post-checkout", "pre-commit", "post-merge", "commit-msg"):
        hook = repository / ".git" / "hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\ntouch {mark}\n")
        hook.chmod(0o755)
    git(repository, "config", "core.fsmonitor", f"touch {mark}; true")
    tree = make(trees, repository, tmp_path)
    write(tree, "new.txt", "x\n")
    trees.diff(tree)
    trees.commit(tree, "x")
    trees.merge(tree, "Merge")
    assert not mark.exists()


def test_programs_that_a_repository_names_do_not_run(trees, repository, tmp_path):
    lines = "".join(f"{number}\n" for number in range(20))
    (repository / "a.txt").write_text(lines)
    (repository / ".gitattributes").write_text("*.txt filter=a=b diff=x merge=x\n")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "attributes")
    mark = tmp_path / "ran"
    for name in ("filter.a=b.clean", "filter.a=b.smudge", "diff.x.textconv", "merge.x.driver"):
        git(repository, "config", name, f"touch {mark}; cat")
    for name in ("diff.x.command", "diff.external"):
        git(repository, "config", name, f"touch {mark}")
    git(repository, "config", "filter.a=b.required", "true")
    tree = make(trees, repository, tmp_path)
    write(tree, "a.txt", lines + "their end\n")
    assert trees.size(tree).added == 1
    assert "+their end" in trees.diff(tree)
    assert trees.commit(tree, "x")
    (repository / "a.txt").write_text("our start\n" + lines)
    own = Worktree("worktree", str(repository), origin=str(repository), base=tree.base)
    assert trees.commit(own, "ours")
    trees.merge(tree, "Merge")
    assert (repository / "a.txt").read_text() == "our start\n" + lines + "their end\n"
    assert not mark.exists()


# --- directories that are no repository ----------------------------------------------------------


@pytest.fixture
def plain(tmp_path):
    path = tmp_path / "plain"
    path.mkdir()
    (path / "a.txt").write_text("one\n")
    (path / "gone.txt").write_text("old\n")
    (path / "link").symlink_to("a.txt")
    return path


def test_a_directory_that_is_no_repository_is_copied(trees, plain, tmp_path):
    tree = make(trees, plain, tmp_path)
    assert tree.kind == "copy"
    assert sorted(path.name for path in Path(tree.path).iterdir()) == [
        "a.txt",
        "gone.txt",
        "link",
    ]  # no .git to stumble on
    write(tree, "a.txt", "uno\n")
    assert "+uno" in trees.diff(tree)
    assert (plain / "a.txt").read_text() == "one\n"


def test_a_copy_is_merged_by_its_changes(trees, plain, tmp_path):
    tree = make(trees, plain, tmp_path)
    write(tree, "a.txt", "uno\n")
    (Path(tree.path) / "gone.txt").unlink()
    (Path(tree.path) / "bytes").write_bytes(bytes(range(256)))
    (plain / "other.txt").write_text("changed meanwhile\n")
    trees.commit(tree, "work")
    tip, _ = trees.merge(tree, "")
    assert (plain / "a.txt").read_text() == "uno\n"
    assert (plain / "bytes").read_bytes() == bytes(range(256))
    assert not (plain / "gone.txt").exists()
    assert (plain / "other.txt").exists()
    with pytest.raises(WorktreeError, match="not merged"):
        trees.remove(tree)
    trees.remove(tree, merged=tip)
    assert not Path(tree.path).exists()


def test_a_copy_whose_original_changed_the_same_lines_is_not_merged(trees, plain, tmp_path):
    tree = make(trees, plain, tmp_path)
    write(tree, "a.txt", "uno\n")
    write(tree, "gone.txt", "new\n")
    trees.commit(tree, "work")
    (plain / "a.txt").write_text("mine\n")
    with pytest.raises(MergeConflict, match="has changed since the agent began"):
        trees.merge(tree, "")
    assert (plain / "a.txt").read_text() == "mine\n"
    assert (plain / "gone.txt").read_text() == "old\n"


def test_a_copy_without_changes_merges_to_nothing(trees, plain, tmp_path):
    tree = make(trees, plain, tmp_path)
    assert trees.merge(tree, "") == (tree.base, "")
    assert trees.size(tree) == DiffSize()


def test_a_repository_without_commits_is_copied_too(trees, tmp_path):
    path = tmp_path / "fresh"
    path.mkdir()
    git(path, "init", "-q")
    (path / "a").write_text("x")
    assert make(trees, path, tmp_path).kind == "copy"
    with pytest.raises(WorktreeError, match="no commits"):
        make(trees, path, tmp_path, "fix-2", base="main")


def test_a_directory_that_is_too_large_is_not_copied(trees, plain, tmp_path, monkeypatch):
    monkeypatch.setattr("zot.swarm.worktrees.MAX_COPY", 3)
    with pytest.raises(WorktreeError, match="--here"):
        make(trees, plain, tmp_path)


def test_the_directory_itself_when_asked(trees, plain, repository, tmp_path):
    tree = make(trees, plain, tmp_path, shared=True)
    assert (tree.path, tree.base) == (str(plain), "")
    assert trees.size(tree) == DiffSize()
    with pytest.raises(WorktreeError, match="nothing to compare"):
        trees.diff(tree)
    with pytest.raises(WorktreeError, match="nothing is to merge"):
        trees.merge(tree, "")
    trees.remove(tree)
    assert plain.exists()
    ours = make(trees, repository, tmp_path, shared=True)
    (repository / "a.txt").write_text("uno\n")
    assert "+uno" in trees.diff(ours)
    assert trees.commit(ours, "not ours to commit") is False


def test_no_directory_is_an_error_that_names_it(trees, tmp_path):
    with pytest.raises(GitError, match=r"nowhere' is not a directory"):
        make(trees, tmp_path / "nowhere", tmp_path)


def test_a_tree_that_was_cut_while_git_made_it_stops_nobody(trees, repository, tmp_path):
    make(trees, repository, tmp_path, id="cut-1")
    entry = repository / ".git" / "worktrees" / "tree"
    (entry / "commondir").write_text("")  # as a git leaves it that was killed
    (entry / "locked").write_text("initializing")
    assert make(trees, repository, tmp_path, id="next-2").branch == "zot/next-2"
    assert make(trees, repository, tmp_path, id="cut-1").branch == "zot/cut-1"
    assert len(git(repository, "worktree", "list").splitlines()) == 3


def test_a_half_made_tree_of_somebody_else_is_left_alone(trees, repository, tmp_path, monkeypatch):
    monkeypatch.setattr("zot.swarm.worktrees.ADD_PAUSES", (0.01, None))
    git(repository, "worktree", "add", "-q", "-b", "own", str(tmp_path / "own"))
    entry = repository / ".git" / "worktrees" / "own"
    (entry / "commondir").write_text("")
    with pytest.raises(GitError, match="worktree failed"):
        make(trees, repository, tmp_path)
    assert entry.is_dir()


def test_what_git_starts_sees_no_key(repository):
    keys = {"OPENAI_API_KEY": "sk-canary", "GH_TOKEN": "canary", "ZOTCORE_RPC_TOKEN": "canary"}
    git = Git(str(repository), {**ENVIRONMENT, **keys})
    seen = git.run("-c", "alias.look=!env", "look")
    assert "PATH=" in seen
    assert "canary" not in seen
    assert "GIT_DIR=/nowhere" not in seen
