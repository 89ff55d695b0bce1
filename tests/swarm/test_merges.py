"""Merges at once, merges that are killed, and work whose merge was undone."""

import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from swarm.support import bash, says
from swarm.support import place as place
from zot.swarm.checkout import JOURNAL, WorktreeError, _remove_file, changing
from zot.swarm.worktrees import Worktree, Worktrees

FILES = 300
GIT = shutil.which("git")


def git(directory, *words):
    who = ["-c", "user.name=t", "-c", "user.email=t@t", "-c", "init.defaultBranch=main"]
    done = subprocess.run(["git", *who, *words], cwd=directory, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def environment(**variables):
    return {"PATH": os.environ["PATH"], "HOME": "/nonexistent", **variables}


@pytest.fixture
def trees():
    return Worktrees(environment())


@pytest.fixture
def repository(tmp_path):
    path = tmp_path / "repository"
    (path / "d").mkdir(parents=True)
    for number in range(FILES):
        (path / "d" / f"{number}.txt").write_text("old\n" * 50)
    (path / "users.txt").write_text("as committed\n")
    git(path, "init", "-q", "-b", "main")
    git(path, "add", "-A")
    git(path, "commit", "-qm", "first")
    return path


def work(trees, repository, tmp_path, id="fix-1", files=None):
    """An agent's tree with committed work."""
    tree = trees.make(str(repository), id, tmp_path / "agents" / id)
    for name, text in (files or {f"{id}.txt": "work\n"}).items():
        (Path(tree.path) / name).write_text(text)
    assert trees.commit(tree, f"work of {id}")
    return tree


# --- at once -------------------------------------------------------------------------------------


def test_merges_at_once_all_arrive_and_leave_a_clean_checkout(trees, repository, tmp_path):
    made = [work(trees, repository, tmp_path, f"fix-{number}") for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        merged = list(pool.map(lambda tree: trees.merge(tree, "Merge"), made))
    assert len({commit for _, commit in merged}) == 8
    assert git(repository, "status", "--porcelain") == ""
    assert all((repository / f"fix-{number}.txt").exists() for number in range(8))
    assert git(repository, "rev-list", "--count", "--merges", "HEAD") == "8"


def test_a_double_click_merges_once(trees, repository, tmp_path):
    tree = work(trees, repository, tmp_path)
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: trees.merge(tree, "M", squash=True), range(2))
    assert first == second
    assert git(repository, "rev-list", "--count", "HEAD") == "2"


def test_the_lock_of_a_repository_ends_with_its_holder(trees, repository, tmp_path, monkeypatch):
    tree = work(trees, repository, tmp_path)
    monkeypatch.setattr("zot.swarm.checkout.LOCK_SECONDS", 0.1)
    reader, writer = os.pipe()
    holder = os.fork()
    if holder == 0:
        with changing(tree.path, environment()):  # of another checkout: the repository counts
            os.write(writer, b"x")
            time.sleep(60)
        os._exit(0)
    os.read(reader, 1)
    try:
        with pytest.raises(WorktreeError, match="another zot has been changing"):
            trees.merge(tree, "Merge")
    finally:
        os.kill(holder, signal.SIGKILL)
        os.waitpid(holder, 0)
        os.close(reader)
        os.close(writer)
    trees.merge(tree, "Merge")


def test_a_git_of_the_users_in_the_checkout_is_waited_for(trees, repository, tmp_path, monkeypatch):
    monkeypatch.setattr("zot.swarm.checkout.WAIT_SECONDS", 0.1)
    tree = work(trees, repository, tmp_path)
    lock = repository / ".git" / "index.lock"
    lock.write_text("")
    with pytest.raises(WorktreeError, match="another git works in"):
        trees.merge(tree, "Merge")
    assert lock.exists()  # it is not ours
    lock.unlink()
    assert git(repository, "status", "--porcelain") == ""
    trees.merge(tree, "Merge")


# --- killed --------------------------------------------------------------------------------------

KILLER = """#!/bin/sh
case " $* " in
*" $ZOT_TEST_WORDS "*)
    case $ZOT_TEST_WHEN in
    before) kill -9 0 ;;
    after) {git} "$@"; kill -9 0 ;;
    within) {git} "$@" & sleep 0.0$(($$ % 4))1; kill -9 0 ;;
    fails) exit 1 ;;
    esac ;;
esac
exec {git} "$@"
"""


def cut(tree, repository, tmp_path, words, when, merge="Merge"):
    """Merge in another process, where git kills everything at one step."""
    folder = tmp_path / "bin"
    folder.mkdir(exist_ok=True)
    (folder / "git").write_text(KILLER.format(git=GIT))
    (folder / "git").chmod(0o755)
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    variables = environment(PATH=path, ZOT_TEST_WORDS=words, ZOT_TEST_WHEN=when)
    child = os.fork()
    if child == 0:
        os.setsid()
        try:
            Worktrees(variables).merge(tree, merge)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == (signal.SIGKILL if when != "fails" else 256)


def changed_everywhere():
    files = {f"d/{number}.txt": "new\n" * 80 for number in range(FILES)}
    return {**files, **{f"added{number}.txt": "added\n" for number in range(20)}}


@pytest.mark.parametrize(
    ("words", "when", "state"),
    [
        ("commit-tree", "after", "old"),
        ("read-tree -m -u", "before", "old"),
        ("read-tree -m -u", "within", "old"),
        ("read-tree -m -u", "within", "old"),
        ("read-tree -m -u", "after", "old"),
        ("update-ref", "before", "old"),
        ("update-ref", "fails", "old"),
        ("update-ref", "after", "new"),
    ],
)
def test_a_merge_that_was_killed_leaves_the_old_state_or_the_new_one(
    trees, repository, tmp_path, words, when, state
):
    tree = work(trees, repository, tmp_path, files=changed_everywhere())
    (repository / "users.txt").write_text("edited\n")
    old = git(repository, "rev-parse", "HEAD")
    cut(tree, repository, tmp_path, words, when)
    move = trees.settle(tree)
    assert git(repository, "status", "--porcelain") == "M users.txt"
    assert (repository / "users.txt").read_text() == "edited\n"
    head = git(repository, "rev-parse", "HEAD")
    assert (head == old) is (state == "old")
    assert (move.new if move else old) == head
    left = [path.name for path in (repository / ".git").glob("*") if "lock" in path.name]
    assert left == ["zot.lock"]
    assert not list((repository / ".git").glob("zot-*"))
    trees.merge(tree, "Merge")
    assert (repository / "d" / "7.txt").read_text() == "new\n" * 80
    assert git(repository, "status", "--porcelain") == "M users.txt"


def test_a_file_that_was_edited_after_the_crash_is_left_as_it_is(trees, repository, tmp_path):
    tree = work(trees, repository, tmp_path, files=changed_everywhere())
    cut(tree, repository, tmp_path, "update-ref", "before")
    (repository / "d" / "5.txt").write_text("by hand\n")
    (repository / "added5.txt").write_text("by hand, too\n")
    trees.settle(tree)
    assert git(repository, "status", "--porcelain").split() == ["M", "d/5.txt", "??", "added5.txt"]
    assert (repository / "d" / "5.txt").read_text() == "by hand\n"


def test_a_crash_after_which_the_user_took_the_lock_away_is_repaired(trees, repository, tmp_path):
    for words, when in (("update-ref", "before"), ("update-ref", "after")):
        tree = work(trees, repository, tmp_path, f"fix-{when}", {"d/5.txt": when, when: "x"})
        cut(tree, repository, tmp_path, words, when)
        (repository / ".git" / "index.lock").unlink()
        trees.settle(tree)
        assert git(repository, "status", "--porcelain") == ""


def test_a_checkout_that_moved_on_after_a_crash_is_not_touched(trees, repository, tmp_path):
    tree = work(trees, repository, tmp_path, files=changed_everywhere())
    cut(tree, repository, tmp_path, "update-ref", "before")
    (repository / ".git" / "index.lock").unlink()
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "the user keeps it")
    head = git(repository, "rev-parse", "HEAD")
    assert trees.settle(tree) is None
    assert git(repository, "rev-parse", "HEAD") == head
    assert git(repository, "status", "--porcelain") == ""
    assert not (repository / ".git" / JOURNAL).exists()


@pytest.mark.parametrize(
    "journal",
    [
        "no json",
        '{"old": "--output=victim", "new": "--output=victim", "ref": "", "mark": ""}',
        '{"old": "HEAD", "new": "HEAD", "ref": "../../victim", "mark": ""}',
    ],
)
def test_a_journal_of_a_strangers_is_refused(trees, repository, tmp_path, journal):
    tree = work(trees, repository, tmp_path)
    (repository / ".git" / JOURNAL).write_text(journal)
    with pytest.raises(WorktreeError, match=r"zot-merge\.json' is no journal of a merge"):
        trees.merge(tree, "Merge")
    assert not (repository / "victim").exists()
    (repository / ".git" / JOURNAL).unlink()
    victim = tmp_path / "victim"
    victim.write_text("mine\n")
    for name in ("zot-merge-index", "zot-merge-index.mark"):
        (repository / ".git" / name).symlink_to(victim)
    trees.merge(tree, "Merge")
    assert victim.read_text() == "mine\n"


def test_a_killed_merge_of_a_copy_leaves_the_old_state_or_the_new_one(trees, tmp_path):
    plain = tmp_path / "plain"
    plain.mkdir()
    for number in range(100):
        (plain / f"{number}.txt").write_text("old\n")
    for words, when, expected in (
        ("read-tree -m -u", "within", "old\n"),
        ("update-ref -m", "before", "old\n"),
        ("update-ref -m", "after", "new\n"),
    ):
        id = f"fix-{when}"
        tree = trees.make(str(plain), id, tmp_path / "agents" / id)
        for number in range(100):
            (Path(tree.path) / f"{number}.txt").write_text("new\n")
        trees.commit(tree, "work")
        cut(tree, plain, tmp_path, words, when)
        trees.settle(tree)
        assert {path.read_text() for path in plain.iterdir()} == {expected}


@pytest.mark.parametrize(("when", "merged"), [("before", False), ("after", True)])
def test_the_next_supervisor_repairs_a_merge_that_was_killed_with_the_last_one(
    place, tmp_path, when, merged
):
    id = place.submit("Add", bash("echo two >> a.txt"), says("Done."))
    place.wait(id)
    place.swarm.stop()
    while place.supervisor() is not None:
        time.sleep(0.05)
    tree = msgspec.convert(place.rows(id, "swarm_tree")[0]["tree"], Worktree)
    cut(tree, place.repository, tmp_path, "update-ref -m", when)
    other = place.submit("Say", says("Done."))  # which starts a supervisor
    place.wait(other)
    assert not (place.repository / ".git" / JOURNAL).exists()
    assert place.git("status", "--porcelain") == ""
    assert place.swarm.show(id).merged is merged
    assert (place.repository / "a.txt").read_text() == ("one\ntwo\n" if merged else "one\n")


def test_an_older_git_is_told_what_is_needed(trees, repository, tmp_path):
    tree = work(trees, repository, tmp_path)
    old = tmp_path / "git"
    old.write_text(
        f'#!/bin/sh\ncase "$*" in *merge-tree*) echo "usage: git merge-tree" >&2; exit 129;; esac\n'
        f'exec {GIT} "$@"\n'
    )
    old.chmod(0o755)
    older = Worktrees(environment(PATH=f"{tmp_path}{os.pathsep}{os.environ['PATH']}"))
    with pytest.raises(WorktreeError, match=r"git 2\.38 or newer is needed"):
        older.merge(tree, "Merge")


# --- left by killed processes --------------------------------------------------------------------


def test_a_stale_lock_in_an_agents_own_tree_does_not_stop_it(trees, repository, tmp_path):
    tree = trees.make(str(repository), "fix-1", tmp_path / "agents" / "fix-1")
    lock = Path(git(tree.path, "rev-parse", "--absolute-git-dir")) / "index.lock"
    lock.write_text("")
    trees.resume(tree)
    assert not lock.exists()
    (Path(tree.path) / "new.txt").write_text("work\n")
    lock.write_text("")
    assert trees.commit(tree, "work")
    assert git(tree.path, "status", "--porcelain") == ""


def test_the_lock_of_a_git_that_runs_is_left(trees, repository, tmp_path, monkeypatch):
    monkeypatch.setattr("zot.swarm.checkout.STALE_SECONDS", 0.0)
    tree = trees.make(str(repository), "fix-1", tmp_path / "agents" / "fix-1")
    lock = Path(git(tree.path, "rev-parse", "--absolute-git-dir")) / "index.lock"
    lock.write_text("")
    running = subprocess.Popen(["git", "cat-file", "--batch"], cwd=tree.path, stdin=subprocess.PIPE)
    try:
        trees.resume(tree)
        assert lock.exists()
    finally:
        running.communicate()
    trees.resume(tree)
    assert not lock.exists()


def test_private_indexes_of_dead_processes_are_removed(trees, repository, tmp_path):
    tree = work(trees, repository, tmp_path)
    folder = Path(git(tree.path, "rev-parse", "--absolute-git-dir"))
    dead = subprocess.Popen(["true"])
    dead.wait()
    (folder / f"zot-index-{dead.pid}-00").write_text("")
    (folder / f"zot-index-{os.getpid()}-00").write_text("")
    trees.size(tree)
    left = [path.name for path in folder.glob("zot-index-*")]
    assert left == [f"zot-index-{os.getpid()}-00"]


# --- undone --------------------------------------------------------------------------------------


def test_work_whose_merge_was_undone_is_not_removed(trees, repository, tmp_path):
    for squash in (False, True):
        tree = work(trees, repository, tmp_path, f"fix-{squash}")
        tip, commit = trees.merge(tree, "Merge", squash=squash)
        assert trees.unsaved(tree, tip, commit) == ""
        git(repository, "reset", "-q", "--hard", "HEAD~1")
        with pytest.raises(WorktreeError, match="that are not merged"):
            trees.remove(tree, tip, commit)
        git(repository, "tag", f"saved-{squash}", commit)
        trees.remove(tree, tip, commit)


def test_work_that_was_merged_on_a_detached_head_is_kept_until_a_branch_has_it(
    trees, repository, tmp_path
):
    tree = work(trees, repository, tmp_path)
    git(repository, "checkout", "-q", "--detach")
    tip, commit = trees.merge(tree, "Merge")
    assert trees.unsaved(tree, tip, commit) == ""  # HEAD has it
    git(repository, "checkout", "-q", "main")
    assert "not merged" in trees.unsaved(tree, tip, commit)
    git(repository, "worktree", "add", "-q", "--detach", str(tmp_path / "second"), commit)
    assert trees.unsaved(tree, tip, commit) == ""
    git(repository, "worktree", "remove", str(tmp_path / "second"))
    git(repository, "branch", "kept", commit)
    trees.remove(tree, tip, commit)


def test_another_agents_branch_is_no_place_to_keep_work(trees, repository, tmp_path):
    first = work(trees, repository, tmp_path)
    second = trees.make(str(repository), "fix-2", tmp_path / "agents" / "fix-2", base=first.branch)
    assert "not merged" in trees.unsaved(first)
    assert trees.unsaved(second) == ""
    trees.remove(second)
    git(repository, "update-ref", "refs/remotes/origin/pushed", first.branch)
    trees.remove(first)


@pytest.mark.parametrize("ref", ["refs/worktree/x", "refs/bisect/bad", "refs/rewritten/onto"])
def test_a_ref_that_goes_with_the_tree_is_no_place_to_keep_work(trees, repository, tmp_path, ref):
    tree = work(trees, repository, tmp_path)
    git(tree.path, "update-ref", ref, "HEAD")
    with pytest.raises(WorktreeError, match="that are not merged"):
        trees.remove(tree)


def test_a_checkout_that_is_gone_is_no_place_to_keep_work(trees, repository, tmp_path):
    tree = work(trees, repository, tmp_path)
    git(repository, "worktree", "add", "-q", "--detach", str(tmp_path / "gone"), tree.branch)
    assert trees.unsaved(tree) == ""
    shutil.rmtree(tmp_path / "gone")
    assert "not merged" in trees.unsaved(tree)


def test_gc_and_rm_keep_work_whose_merge_was_undone(place):
    id = place.submit("Add", bash("echo two >> a.txt"), says("Done."))
    place.wait(id)
    place.swarm.merge(id)
    place.git("reset", "-q", "--hard", "HEAD~1")
    assert place.zot("gc").stdout == "nothing to remove\n"
    assert "not merged" in place.zot("rm", id).stderr
    place.swarm.merge(id, squash=True)
    assert (place.repository / "a.txt").read_text() == "one\ntwo\n"
    assert place.zot("gc").stdout.startswith("removed ")


EXCHANGE = """
import ctypes, sys
call = ctypes.CDLL(None).renameat2
print("on", flush=True)
while True:
    call(-100, b"d", -100, b"link", 2)
"""


def test_a_folder_that_becomes_a_link_does_not_lead_a_repair_elsewhere(tmp_path):
    work, outside = tmp_path / "work", tmp_path / "outside"
    (work / "d").mkdir(parents=True)
    outside.mkdir()
    (outside / "f").write_text("mine")
    (work / "link").symlink_to(outside)
    with subprocess.Popen(
        [sys.executable, "-c", EXCHANGE], cwd=work, stdout=subprocess.PIPE
    ) as swapping:
        assert swapping.stdout is not None and swapping.stdout.readline()
        for _ in range(3000):
            _remove_file(work, "d/f")
            if not (outside / "f").exists():
                break
        swapping.kill()
    assert (outside / "f").exists()
