"""The helper process itself: what is left of a command whatever happens to whom."""

import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.patience import patience
from support.tools import eventually, marked, none_left

from zot import trees
from zot.cancel import Cancel
from zot.errors import ToolError
from zot.tools.process.supervisor import ProcessResult, Supervisor

MARKER = f"zot-test-{os.getpid()}-{os.urandom(4).hex()}"
ENV = {"PATH": os.environ["PATH"], "ZOT_TEST_MARKER": MARKER}


@pytest.fixture
def supervisor() -> Iterator[Supervisor]:
    supervisor = Supervisor()
    yield supervisor
    supervisor.close()
    assert none_left(MARKER), marked(MARKER)


def run(
    supervisor: Supervisor, command: str, timeout: float | None = None
) -> tuple[ProcessResult, bytes]:
    output = bytearray()
    result = supervisor.run(
        ["/bin/sh", "-c", command], Path("/"), ENV, output.extend, Cancel(), timeout
    )
    return result, bytes(output)


# What a command leaves behind in the test that kills the host, while its shell still runs.
TREES = {
    "plain": "sleep 300 & sleep 300",
    "setsid": "setsid sleep 300 & sleep 300",
    "double fork that ignores signals": (
        "(setsid sh -c 'trap \"\" TERM HUP INT; sleep 300' &); trap '' TERM HUP; sleep 300"
    ),
    "stopped": "sleep 300 & kill -STOP $!; sleep 300",
    "floods its output": "yes",
    "stopped supervisor": "sleep 300 & kill -STOP $PPID; sleep 300",
    "killed supervisor": "setsid sleep 300 & sleep 0.2; kill -9 $PPID; sleep 300",
}

HOST = """
import os, sys
from pathlib import Path
from zot.tools.process.supervisor import Supervisor
from zot.cancel import Cancel
Supervisor().run(
    ["/bin/sh", "-c", "echo go; " + sys.argv[1]], Path("/"), dict(os.environ),
    lambda data: os.write(1, data[:10]), Cancel())
"""


@pytest.mark.parametrize("command", TREES.values(), ids=TREES.keys())
@pytest.mark.slow
def test_nothing_is_left_after_kill_9_of_the_host(command: str) -> None:
    host = subprocess.Popen(
        [sys.executable, "-c", HOST, command], stdout=subprocess.PIPE, env=os.environ | ENV
    )
    assert host.stdout is not None
    with host, host.stdout:
        assert host.stdout.read(2) == b"go"
        helpers = children(host.pid)
        host.kill()
    assert none_left(MARKER), marked(MARKER)
    assert eventually(lambda: not any(alive(pid) for pid in helpers))


FORKED = """
import os, sys, time
from pathlib import Path
from zot.tools.process.supervisor import Supervisor
from zot.cancel import Cancel
def fork(data):
    if os.fork() == 0:
        time.sleep(60)  # a process of the embedder's that holds copies of all our sockets
        os._exit(0)
    os.write(1, data[:2])
Supervisor().run(
    ["/bin/sh", "-c", "echo go; setsid sleep 300 & sleep 300"], Path("/"),
    {"PATH": os.environ["PATH"], "ZOT_TEST_MARKER": sys.argv[1][::-1]}, fork, Cancel())
"""


def test_a_forked_copy_of_the_host_does_not_hide_its_death() -> None:
    host = subprocess.Popen([sys.executable, "-c", FORKED, MARKER[::-1]], stdout=subprocess.PIPE)
    assert host.stdout is not None
    with host, host.stdout:
        assert os.read(host.stdout.fileno(), 2) == b"go"
        [copy] = [pid for pid in children(host.pid) if b"os.fork" in cmdline(pid)]
        assert marked(MARKER)
        host.kill()
        try:
            assert none_left(MARKER), marked(MARKER)
        finally:
            os.kill(copy, signal.SIGKILL)


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def descriptors(pid: int | str = "self") -> list[str]:
    return [entry.name for entry in Path(f"/proc/{pid}/fd").iterdir()]


def cmdline(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except OSError:
        return False
    return state != b"Z"


def test_a_command_that_kills_all_its_supervisors_at_once_leaves_nothing(
    supervisor: Supervisor,
) -> None:
    helper = "$(awk '{print $4}' /proc/$PPID/stat)"
    result, _ = run(supervisor, f"setsid sleep 300 & kill -9 {helper} $PPID; sleep 300")
    assert result.end == "supervisor_killed"
    assert not marked(MARKER)
    assert run(supervisor, "echo on")[1] == b"on\n"


def test_a_command_that_kills_the_helper_was_not_aborted(supervisor: Supervisor) -> None:
    helper = "$(awk '{print $4}' /proc/$PPID/stat)"
    result, _ = run(supervisor, f"setsid sleep 300 & kill -9 {helper}; sleep 300")
    assert result.end == "supervisor_killed"
    assert none_left(MARKER)
    assert run(supervisor, "echo on")[1] == b"on\n"


def test_a_command_that_a_keeper_did_not_begin_is_given_to_another(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(supervisor, "true")
    [helper] = children_of_us()
    [keeper] = children(helper)
    for pid in (helper, keeper):
        os.kill(pid, signal.SIGSTOP)
    hand_over, thaw = supervisor._hand_over, trees.send

    def hand_over_to_the_dead(body: bytes, output: int) -> socket.socket:
        monkeypatch.setattr(supervisor, "_hand_over", hand_over)
        monkeypatch.setattr(trees, "send", lambda pids, number: None)
        control = hand_over(body, output)
        monkeypatch.setattr(trees, "send", thaw)
        os.kill(helper, signal.SIGKILL)
        assert eventually(lambda: not alive(helper))
        os.kill(keeper, signal.SIGCONT)
        return control

    monkeypatch.setattr(supervisor, "_hand_over", hand_over_to_the_dead)
    result, said = run(supervisor, "echo on")
    assert (result.end, said) == ("exited", b"on\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_the_helper_ignores_polite_signals(supervisor: Supervisor, number: signal.Signals) -> None:
    run(supervisor, "true")
    [helper] = children_of_us()
    os.kill(helper, number)
    assert run(supervisor, "echo on")[1] == b"on\n"
    assert children_of_us() == [helper]


def children_of_us() -> list[int]:
    """Helpers of ours; tests before this one may have left a server of theirs running."""
    return [
        int(child)
        for task in Path("/proc/self/task").iterdir()
        for child in (task / "children").read_text().split()
        if b"process.keeper" in Path(f"/proc/{child}/cmdline").read_bytes()
    ]


def test_the_helper_is_one_process_for_many_commands(supervisor: Supervisor) -> None:
    for _ in range(5):
        run(supervisor, "true")
    assert len(children_of_us()) == 1


def test_a_helper_that_was_killed_is_started_again(supervisor: Supervisor) -> None:
    run(supervisor, "true")
    [first] = children_of_us()
    os.kill(first, signal.SIGKILL)
    os.waitid(os.P_PID, first, os.WEXITED | os.WNOWAIT)
    assert run(supervisor, "echo on")[1] == b"on\n"
    [second] = children_of_us()
    assert second != first


@pytest.mark.skipif(not trees.TREES, reason="without trees each command has a keeper of its own")
def test_a_keeper_of_which_nothing_is_left_takes_the_next_command(supervisor: Supervisor) -> None:
    keepers = [run(supervisor, "echo $PPID")[1] for _ in range(3)]
    assert len(set(keepers)) == 1
    run(supervisor, "sleep 100 &")
    assert run(supervisor, "echo $PPID")[1] not in keepers


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_keeper_that_was_killed_or_stopped_while_it_waited_does_no_harm(
    supervisor: Supervisor, number: signal.Signals
) -> None:
    keeper = int(run(supervisor, "echo $PPID")[1])
    os.kill(keeper, number)
    assert run(supervisor, "echo on")[1] == b"on\n"
    assert run(supervisor, "echo on")[1] == b"on\n"


def test_nothing_is_started_before_the_first_command_nor_left_after_close() -> None:
    before = children_of_us()
    supervisor = Supervisor()
    assert children_of_us() == before
    run(supervisor, "true")
    assert len(children_of_us()) == len(before) + 1
    supervisor.close()
    supervisor.close()
    assert children_of_us() == before
    with pytest.raises(ToolError, match="closed"):
        run(supervisor, "true")


def test_no_descriptor_is_lost(supervisor: Supervisor) -> None:
    run(supervisor, "true")
    before = len(descriptors())
    for _ in range(5):
        run(supervisor, "sleep 100 & echo x; exit 3")
        run(supervisor, "sleep 100", timeout=0.05)
    with pytest.raises(ToolError):
        supervisor.run(["/nonexistent"], Path("/"), {}, bytes, Cancel())
    run(supervisor, "true")
    assert len(descriptors()) == before
    [helper] = children_of_us()
    assert eventually(lambda: len(without_libraries(helper)) <= 8)


def without_libraries(pid: int) -> list[str]:
    """The descriptors of a process but for that of libffi, whose newer versions open themselves."""
    links = [Path(f"/proc/{pid}/fd/{name}") for name in descriptors(pid)]
    opened = [str(link.readlink()) for link in links if link.is_symlink()]
    return [path for path in opened if ".so" not in path]


def test_a_listener_that_fails_ends_the_command(supervisor: Supervisor) -> None:
    def fail(data: bytes) -> None:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        supervisor.run(["/bin/sh", "-c", "echo x; sleep 300"], Path("/"), ENV, fail, Cancel())
    assert none_left(MARKER)


def test_an_abort_from_another_thread_is_quick_even_while_the_listener_blocks(
    supervisor: Supervisor,
) -> None:
    cancel, blocked, release = Cancel(), threading.Event(), threading.Event()

    def block(data: bytes) -> None:
        blocked.set()
        release.wait(20)

    results: list[ProcessResult] = []
    argv = ["/bin/sh", "-c", "echo x; setsid sleep 300"]
    thread = threading.Thread(
        target=lambda: results.append(supervisor.run(argv, Path("/"), ENV, block, cancel))
    )
    thread.start()
    assert blocked.wait(20)
    cancel.set()
    assert none_left(MARKER), "the listener still blocks, the processes are gone"
    release.set()
    thread.join()
    assert results[0].aborted


def test_an_abort_before_the_start_still_ends_it(supervisor: Supervisor) -> None:
    cancel = Cancel()
    cancel.set()
    result = supervisor.run(["/bin/sleep", "300"], Path("/"), ENV, bytes, cancel)
    assert result.aborted


def test_no_descriptors_left_is_an_error_and_not_the_end(supervisor: Supervisor) -> None:
    run(supervisor, "sleep 100 &")  # its keeper takes no other command
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    top = max(int(name) for name in descriptors())
    held: list[int] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (top + 4, hard))
    try:
        while True:
            try:
                held.append(os.open("/dev/null", os.O_RDONLY))
            except OSError:
                break
        with pytest.raises(ToolError, match="Too many open files"):
            run(supervisor, "true")
        os.close(held.pop())
        os.close(held.pop())
        with pytest.raises(ToolError, match="Too many open files"):
            run(supervisor, "true")
    finally:
        for fd in held:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert run(supervisor, "echo on")[1] == b"on\n"


def test_a_very_large_environment_reaches_the_command(supervisor: Supervisor) -> None:
    output = bytearray()
    env = ENV | {f"BIG{n}": "x" * 100_000 for n in range(10)}
    supervisor.run(
        ["/bin/sh", "-c", 'printf "$BIG3" | wc -c'], Path("/"), env, output.extend, Cancel()
    )
    assert output.strip() == b"100000"


def test_an_argument_list_that_is_too_long_is_a_clear_error(supervisor: Supervisor) -> None:
    with pytest.raises(ToolError, match="Argument list too long"):
        run(supervisor, "true " + "x" * 3_000_000)


def test_many_commands_at_once(supervisor: Supervisor) -> None:
    outputs: dict[int, bytes] = {}

    def work(number: int) -> None:
        outputs[number] = run(supervisor, f"sleep 0.1; setsid sleep 300 & echo {number}")[1]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outputs == {number: b"%d\n" % number for number in range(12)}


def test_close_from_another_thread_does_not_wait_for_a_command() -> None:
    supervisor = Supervisor()
    results: list[ProcessResult] = []
    started = threading.Event()

    def work() -> None:
        argv = ["/bin/sh", "-c", "trap '' TERM; echo x; while :; do sleep 1; done"]
        results.append(supervisor.run(argv, Path("/"), ENV, lambda data: started.set(), Cancel()))

    thread = threading.Thread(target=work)
    thread.start()
    assert started.wait(20)
    begun = time.monotonic()
    supervisor.close()
    thread.join()
    assert time.monotonic() - begun < patience(5)
    assert results[0].end in ("aborted", "supervisor_killed")
    assert none_left(MARKER)


def test_a_process_outside_that_holds_the_pipe_does_not_block(
    supervisor: Supervisor, tmp_path: Path
) -> None:
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(path)
        server.listen(1)
        send = (
            "import socket,sys; s=socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]);"
            "socket.send_fds(s,[b'x'],[1])"
        )
        result, _ = run(supervisor, f'{sys.executable} -c "{send}" {path}; echo done')
        connection, _ = server.accept()
        with connection:
            _, fds, _, _ = socket.recv_fds(connection, 1, 1)
        for fd in fds:
            os.close(fd)
    assert result.exit_code == 0


def test_a_process_outside_that_fills_the_pipe_for_ever_does_not_block(
    supervisor: Supervisor, tmp_path: Path
) -> None:
    path, ended = str(tmp_path / "s"), threading.Event()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(path)
        server.listen(1)

        def fill() -> None:
            connection, _ = server.accept()
            with connection:
                _, fds, _, _ = socket.recv_fds(connection, 1, 1)
            while not ended.wait(0.001):
                try:
                    os.write(fds[0], b"x")
                except BlockingIOError:
                    continue
                except BrokenPipeError:
                    break
            os.close(fds[0])

        filling = threading.Thread(target=fill)
        filling.start()
        send = (
            "import socket,sys; s=socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]);"
            "socket.send_fds(s,[b'x'],[1])"
        )
        result, _ = run(supervisor, f'{sys.executable} -c "{send}" {path}')
        ended.set()
        filling.join()
    assert result.exit_code == 0


def test_real_time_signals_have_a_name(supervisor: Supervisor) -> None:
    assert run(supervisor, "kill -40 $$")[0].signal == "signal 40"


def test_a_python_that_does_not_start_is_a_clear_error(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(ToolError, match="'/bin/false', ends at once"):
        run(supervisor, "true")
    monkeypatch.setattr(sys, "executable", "/nonexistent")
    with pytest.raises(ToolError, match="No such file"):
        run(supervisor, "true")
    monkeypatch.setattr(sys, "executable", "")
    with pytest.raises(ToolError, match="no Python interpreter"):
        run(supervisor, "true")


@pytest.fixture
def without_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    patched = trees.LAUNCH.replace(
        "; main()", "; from zot import trees; trees.TREES = False; main()"
    )
    assert patched != trees.LAUNCH
    monkeypatch.setattr(trees, "LAUNCH", patched)


@pytest.mark.usefixtures("without_proc")
def test_other_systems_kill_the_process_group(supervisor: Supervisor) -> None:
    result, output = run(supervisor, "sleep 300 & echo x")
    assert output == b"x\n"
    assert result.leftovers == ("the rest of its process group",)
    assert run(supervisor, "trap '' TERM; sleep 300 & sleep 300", timeout=0.1)[0].timed_out
    assert run(supervisor, "true")[0].leftovers == ()
    assert none_left(MARKER)


def test_a_command_that_closes_its_output_goes_on(supervisor: Supervisor) -> None:
    result, output = run(supervisor, "echo x; exec >&- 2>&-; sleep 0.1; exit 5")
    assert (result.exit_code, output) == (5, b"x\n")


def test_blocked_and_ignored_signals_of_the_host_are_not_inherited() -> None:
    supervisor = Supervisor()
    before = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGUSR2])
    try:
        _, output = run(supervisor, "grep -E 'Sig(Blk|Ign)' /proc/self/status")
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        signal.signal(signal.SIGUSR1, before)
        supervisor.close()
    masks = [int(line.split()[1], 16) & 0x7FFFFFFF for line in output.splitlines()]
    assert masks == [0, 0]


def test_commands_run_where_a_thousand_descriptors_are_open(supervisor: Supervisor) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2000:
        pytest.skip("the system allows too few")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2000), hard))
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        for _ in range(2):  # the second one asks whether the helper is alive
            assert run(supervisor, "echo on")[1] == b"on\n"
    finally:
        for fd in held:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_dying_helper_is_waited_for() -> None:
    # A killed process closes its descriptors in any order: zot may see the end of a command's
    # socket while the helper is still there, with all that the command left below it.
    dying = Supervisor()
    ours, theirs = socket.socketpair()
    helper = subprocess.Popen(["sleep", "0.3"], pass_fds=[theirs.fileno()])
    theirs.close()
    dying._socket, dying._pid = ours, helper.pid
    dying._bury(helper.pid + 1)
    assert dying._pid == helper.pid
    dying._bury(helper.pid)
    assert dying._pid == 0
    with pytest.raises(ChildProcessError):
        os.waitpid(helper.pid, os.WNOHANG)
    helper.returncode = 0
