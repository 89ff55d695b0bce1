import errno
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.patience import PATIENCE

from zot.tools.disk import FOLDER, READ, Disk, Outside
from zot.tools.jail import disk as beneath
from zot.tools.jail.disk import Beneath, kernel_open, walk_open

OPENAT2 = beneath.has_openat2()
NO_OPENAT2 = "this kernel has no openat2"
WAYS = [
    pytest.param("kernel", marks=pytest.mark.skipif(not OPENAT2, reason=NO_OPENAT2)),
    "walk",
]
TRIES = 20_000
SECONDS = 1.5


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    path = tmp_path / "outside"
    path.mkdir()
    (path / "f").write_text("secret")
    return path


@pytest.fixture
def root(tmp_path: Path, outside: Path) -> Path:
    path = tmp_path / "root"
    (path / "d").mkdir(parents=True)
    (path / "d/f").write_text("inside")
    (path / "out").symlink_to(outside)
    (path / "up").symlink_to("../outside")
    (path / "abs").symlink_to(path / "d")
    (path / "in").symlink_to("d/../d")
    (path / "loop").symlink_to("loop")
    (path / "dangling").symlink_to("d/new")
    (path / "file_out").symlink_to(outside / "f")
    (path / "magic").symlink_to("/proc/self/root")
    return path


@pytest.fixture(params=WAYS)
def disk(request: pytest.FixtureRequest, root: Path, monkeypatch: pytest.MonkeyPatch) -> Beneath:
    if request.param == "walk":
        monkeypatch.setattr(beneath, "has_openat2", lambda: False)
    return Beneath(str(root))


def content(disk: Disk, path: Path | str) -> str:
    fd = disk.open(str(path))
    with os.fdopen(fd) as file:
        return file.read()


@pytest.mark.parametrize(
    "path",
    ["d/f", "in/f", "./d/f", "d/../d/f", "d//f", "in/../d/f", "d/./f"],
)
def test_what_lies_inside_is_found_however_it_is_written(
    disk: Beneath, root: Path, path: str
) -> None:
    assert content(disk, f"{root}/{path}") == "inside"
    assert disk.stat(f"{root}/{path}").st_size == len("inside")
    assert disk.real(f"{root}/{path}") == str(root / "d/f")


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "/",
        "/proc/self/root/etc/passwd",
        "/proc/self/cwd/f",
        "{root}/../outside/f",
        "{root}/d/../../outside/f",
        "{root}/d/../../root/d/f",
        "{root}/out/f",
        "{root}/up/f",
        "{root}/file_out",
        "{root}/magic/etc/passwd",
        "{root}/magic{root}/d/f",
        "{root}/in/../../outside/f",
        "{root}side/f",
    ],
)
def test_what_lies_outside_is_refused_however_it_is_written(
    disk: Beneath, root: Path, path: str
) -> None:
    said = path.format(root=root)
    for act in (disk.open, disk.stat, disk.real, disk.entries):
        with pytest.raises(Outside, match="jailed: path .* is outside .*without --jail"):
            act(said)
    with pytest.raises((Outside, IsADirectoryError)):
        disk.place(said, create=True)


def test_a_symlink_by_an_absolute_path_is_refused_even_where_it_leads_inside(
    disk: Beneath, root: Path
) -> None:
    with pytest.raises(Outside):
        disk.open(f"{root}/abs/f")


def test_a_root_that_is_named_by_a_symlink(root: Path, tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(root)
    disk = Beneath(str(tmp_path / "alias"))
    assert content(disk, tmp_path / "alias/d/f") == "inside"
    assert content(disk, root / "d/f") == "inside"
    assert disk.real(str(tmp_path / "alias")) == str(root)


@pytest.mark.parametrize(
    ("path", "number"),
    [("gone", errno.ENOENT), ("d/f/x", errno.ENOTDIR), ("loop", errno.ELOOP)],
)
def test_ordinary_errors_stay_what_they_are(
    disk: Beneath, root: Path, path: str, number: int
) -> None:
    with pytest.raises(OSError) as caught:
        disk.open(f"{root}/{path}")
    assert caught.value.errno == number
    assert not isinstance(caught.value, Outside)
    assert disk.real(f"{root}/{path}") == f"{root}/{path}"


def test_entries_are_sorted_and_a_link_that_leads_out_tells_nothing(
    disk: Beneath, root: Path
) -> None:
    entries = {entry.name: entry for entry in disk.entries(str(root))}
    assert list(entries) == sorted(entries)
    assert entries["d"].is_dir() and not entries["d"].is_file()
    assert entries["in"].is_dir() and not entries["in"].is_dir(follow_symlinks=False)
    assert not entries["in"].is_file() and not entries["in"].is_file(follow_symlinks=False)
    for name in ("out", "up", "file_out", "magic"):
        with pytest.raises(Outside):
            entries[name].is_dir()
    with pytest.raises(NotADirectoryError):
        disk.entries(str(root / "d/f"))


def test_a_repository_is_looked_for_inside_only(disk: Beneath, root: Path, tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    assert disk.repository(str(root / "d")) is None
    (root / ".git").mkdir()
    assert disk.repository(str(root / "d")) == str(root)
    (root / "d/.git").write_text("gitdir: elsewhere")
    assert disk.repository(str(root / "d")) == str(root / "d")


# --- to write --------------------------------------------------------------------------------


def placed(disk: Beneath, path: Path, create: bool = True) -> Path:
    folder, name = disk.place(str(path), create=create)
    try:
        return Path(beneath.path_of(folder)) / name
    finally:
        os.close(folder)


def test_a_write_goes_through_symlinks_that_stay_inside(disk: Beneath, root: Path) -> None:
    assert placed(disk, root / "in/f") == root / "d/f"
    assert placed(disk, root / "dangling") == root / "d/new"
    assert placed(disk, root / "new/deep/f") == root / "new/deep/f"
    assert (root / "new/deep").is_dir()
    with pytest.raises(FileNotFoundError):
        placed(disk, root / "no/such/f", create=False)
    with pytest.raises(OSError, match="symbolic links"):
        placed(disk, root / "loop")
    for path in (root, root / "d/.."):
        with pytest.raises(IsADirectoryError):
            disk.place(str(path), create=True)
    with pytest.raises(NotADirectoryError):
        placed(disk, root / "d/f/x")
    (root / "hole").symlink_to("nowhere")
    with pytest.raises(OSError):
        placed(disk, root / "hole/f")


@pytest.mark.parametrize(
    "path",
    [".git/hooks/pre-commit", ".git", ".zot/config.json", "d/.git/config", ".GIT/config",
     ".Zot/x", "way/hooks/post-checkout", "to_git"],
)  # fmt: skip
@pytest.mark.parametrize("there", [False, True])
def test_what_git_and_zot_obey_is_not_written(
    disk: Beneath, root: Path, path: str, there: bool
) -> None:
    if there:
        (root / ".git/hooks").mkdir(parents=True)
        (root / ".zot").mkdir()
    (root / "way").symlink_to(".git")
    (root / "to_git").symlink_to(".git/config")
    before = sorted(root.rglob("*"))
    with pytest.raises((Outside, FileExistsError, FileNotFoundError)):
        disk.place(str(root / path), create=True)
    assert sorted(root.rglob("*")) == before


def test_names_that_only_look_alike_are_written(disk: Beneath, root: Path) -> None:
    for name in (".gitignore", ".github/workflows/ci.yml", "git/x", ".zotrc", "AGENTS.md"):
        assert placed(disk, root / name) == root / name


# --- races -----------------------------------------------------------------------------------

SWAP = """
import ctypes, os, sys
os.chdir(sys.argv[1])
os.symlink(sys.argv[2], "link")
swap = ctypes.CDLL(None).renameat2
print("ready", flush=True)
while os.path.exists("go"):
    assert swap(-100, b"d", -100, b"link", 2) == 0  # RENAME_EXCHANGE
"""


@pytest.fixture
def swapping(root: Path, outside: Path) -> Iterator[None]:
    """Another program swaps `d` for a symlink that leads out, and back, as fast as it can."""
    if not sys.platform.startswith("linux"):
        pytest.skip("two names cannot be swapped in one step here")
    (root / "go").touch()
    argv = [sys.executable, "-I", "-S", "-c", SWAP, str(root), str(outside)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as racer:
        assert racer.stdout is not None
        assert racer.stdout.readline() == b"ready\n"
        yield
        (root / "go").unlink()
        assert racer.wait(PATIENCE) == 0


def tries(seconds: float = SECONDS) -> Iterator[int]:
    until = time.monotonic() + seconds
    for number in range(TRIES):
        yield number
        if time.monotonic() > until:
            return


def test_no_read_escapes_in_a_race(disk: Beneath, root: Path, swapping: None) -> None:
    inside = refused = 0
    for _ in tries():
        try:
            read = content(disk, root / "d/f")
        except OSError:
            refused += 1
        else:
            assert read == "inside"
            inside += 1
    assert inside and refused  # both sides of the race were seen


@pytest.fixture
def only_here(root: Path) -> None:
    """A name that tells the folder from the one outside; made before the two are swapped."""
    (root / "d/only_here").touch()


def test_no_listing_escapes_in_a_race(
    disk: Beneath, root: Path, only_here: None, swapping: None
) -> None:
    inside = refused = 0
    for _ in tries():
        try:
            names = [entry.name for entry in disk.entries(str(root / "d"))]
        except OSError:
            refused += 1
        else:
            assert names == ["f", "only_here"]
            inside += 1
    assert inside and refused


@pytest.mark.slow
def test_no_write_escapes_in_a_race(
    disk: Beneath, root: Path, outside: Path, swapping: None
) -> None:
    there = outside.stat().st_ino
    inside = refused = 0
    for number in tries(2 * SECONDS):
        try:
            folder, name = disk.place(str(root / f"d/new{number % 7}/f"), create=True)
        except OSError:
            refused += 1
        else:
            assert os.stat("..", dir_fd=folder).st_ino != there
            assert name == "f"
            os.close(folder)
            inside += 1
    assert inside and refused
    assert [each.name for each in outside.iterdir()] == ["f"]


def test_the_kernel_is_asked_again_when_a_rename_crossed_its_way(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [-1, -1, 7]
    errors = iter([errno.EAGAIN, errno.EINTR])

    class Libc:
        @staticmethod
        def syscall(*args: object) -> int:
            return answers.pop(0)

    monkeypatch.setattr(beneath, "_libc", Libc)
    monkeypatch.setattr(beneath.ctypes, "get_errno", lambda: next(errors))
    assert kernel_open(3, "x", READ) == 7


def test_a_system_without_openat2_walks(monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
    def refuse(*args: object) -> int:
        raise OSError(errno.ENOSYS, "no such call")

    with monkeypatch.context() as patch:
        patch.setattr(beneath, "kernel_open", refuse)
        assert not beneath.has_openat2()
        assert content(Beneath(str(root)), root / "d/f") == "inside"
    monkeypatch.setattr(beneath.sys, "platform", "freebsd")
    assert not beneath.has_openat2()


# --- both ways give the same answer ----------------------------------------------------------

NAMES = ("a", "b", "c")
parts = st.sampled_from([*NAMES, "..", "."])
route = st.lists(parts, min_size=1, max_size=6).map("/".join)
targets = route | route.map(lambda path: f"/{path}")


def opened(way: object, root: int, path: str) -> object:
    try:
        fd = way(root, path, FOLDER)  # type: ignore[operator]
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    try:
        return os.fstat(fd).st_ino
    finally:
        os.close(fd)


@pytest.mark.skipif(not OPENAT2, reason=NO_OPENAT2)
@settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    made=st.lists(st.tuples(route, st.none() | targets), max_size=8),
    asked=st.lists(route, min_size=1, max_size=8),
)
def test_the_walk_agrees_with_the_kernel(
    tmp_path_factory: pytest.TempPathFactory,
    made: list[tuple[str, str | None]],
    asked: list[str],
) -> None:
    root = tmp_path_factory.mktemp("tree")
    for path, link in made:
        safe = root / "/".join(part for part in path.split("/") if part in NAMES)
        if not Path(os.path.realpath(safe.parent)).is_relative_to(root):
            continue
        try:
            safe.mkdir(parents=True) if link is None else safe.symlink_to(link)
        except OSError:
            continue  # it is there already, or its parent is no directory
    fd = os.open(root, FOLDER)
    try:
        for path in asked:
            assert opened(walk_open, fd, path) == opened(kernel_open, fd, path)
    finally:
        os.close(fd)
