"""A kit of escapes: tries to leave a sandbox in many ways, and reports which of them it held.

Any sandbox can be tried that runs a shell command: the kit appends `/bin/sh -c SCRIPT` to its
command. Around each try stand a home directory with secrets, a project in it, servers and a process
outside, all of them new and all removed afterwards. A script prints ESCAPED when it did what a
sandbox should prevent; for what a script cannot see itself, the kit looks outside.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Literal

from zot.git import Git, GitError
from zot.text import Frozen

Verdict = Literal["held", "escaped", "not tried"]
TRIED, ESCAPED = "=TRIED=", "=ESCAPED="
SECONDS = 30.0
LATER = 2.0
"""Seconds after which a process that outlived its command gives itself away."""


class Escape(Frozen):
    name: str
    kind: Literal["write", "protected", "read", "network", "process", "kernel"]
    text: str
    """Damage that is possible if it is not held."""
    script: str
    """For /bin/sh, in the project. Names in braces are fields of Around."""
    must: bool = True
    """Whether a sandbox with the usual policy should hold it; others are reported only."""
    left: str = ""
    """A path in the home directory that exists afterwards if it was not held."""
    delay: float = 0.0
    """Seconds before that path is looked for."""


class Tried(Frozen):
    escape: Escape
    verdict: Verdict
    output: str


class Around(Frozen):
    """Surroundings of a try: values that the scripts need."""

    home: str
    canary: str
    """Text in all files, and in the variables of the process outside."""
    token: str
    """Text in a variable of the sandbox's own."""
    tcp: int
    udp: int
    pid: int
    """A process of the user's outside."""


def _python(code: str) -> str:
    return f"python3 -c '{code}'"


def _call(number: int, *arguments: str) -> str:
    """Return a script that makes a system call (of x86-64) and tells whether it was let through."""
    words = ", ".join((str(number), *arguments))
    code = (
        "import ctypes, platform, sys; c = ctypes.CDLL(None, use_errno=True);"
        ' sys.exit(0) if platform.machine() != "x86_64" else None;'
        f' r = c.syscall({words}); e = ctypes.get_errno(); print("=ESC" + "APED=")'
        " if r >= 0 or e not in (1, 12, 13, 22, 28, 38) else print(e)"
    )
    return _python(code)


def _connect(family: str, kind: str, address: str) -> str:
    told = ' print("=ESC" + "APED=")' if kind == "SOCK_STREAM" else ""  # a packet may get lost
    return _python(
        f"import socket; s = socket.socket(socket.{family}, socket.{kind}); s.settimeout(3);"
        f' s.connect({address}); s.send(b"x");{told}'
    )


YES = "echo =ESC''APED="
ESCAPES = (
    Escape("home", "write", "a file is written in the home directory",
           "echo x > ~/planted", left="planted"),
    Escape("link", "write", "a file outside is written through a symlink",
           "ln -s {home} out && echo x > out/planted", left="planted"),
    Escape("move", "write", "a file of the project is moved out of it",
           "mv file {home}/planted", left="planted"),
    Escape("hard link", "write", "a file outside is changed through a hard link",
           f"ln {{home}}/outside here && echo x >> here && {YES}"),
    Escape("system", "write", "a file of the system is written",
           f"echo x > /etc/zot-escape && {YES}; rm -f /etc/zot-escape"),
    Escape("host tmp", "write", "a file appears in the host's /tmp",
           "echo x > /tmp/{canary}", left="/tmp/{canary}"),
    Escape("hook", "protected", "a git hook of the project is written",
           f"echo id > .git/hooks/pre-commit && {YES}", left="project/.git/hooks/pre-commit"),
    Escape("nested config", "protected", "a nested repository's configuration is written",
           f"echo x >> sub/.git/config && {YES}"),
    Escape("new repository", "protected", "a new repository with a configuration is left behind",
           "mkdir -p new/.git && echo x > new/.git/config", left="project/new/.git/config"),
    Escape("bare repository", "protected", "files in the shape of a repository are left behind",
           "mkdir -p b/objects b/refs && echo x > b/HEAD", left="project/b/HEAD"),
    Escape("editor", "protected", "tasks of an editor are left behind",
           "mkdir .vscode && echo x > .vscode/tasks.json", left="project/.vscode/tasks.json"),
    Escape("servers", "protected", "MCP servers are left behind",
           "echo x > .mcp.json", left="project/.mcp.json"),
    Escape("moved repository", "protected", "the directory above a repository is moved away",
           f"mv sub other && echo x >> other/.git/config && {YES}"),
    Escape("ssh key", "read", "a key in ~/.ssh is read",
           f"grep -q {{canary}} ~/.ssh/id_test && {YES}"),
    Escape("variable", "read", "a token in the environment is seen",
           f"env | grep -q {{token}} && {YES}"),
    Escape("environ", "read", "variables of a process outside are read",
           f"cat /proc/[0-9]*/environ 2>/dev/null | grep -q {{canary}} && {YES}"),
    Escape("other project", "read", "a file of another project is read",
           f"cat ~/other/code && {YES}", must=False),
    Escape("tcp", "network", "a server of this machine is reached by TCP",
           _connect("AF_INET", "SOCK_STREAM", '("127.0.0.1", {tcp})')),
    Escape("udp", "network", "a packet is sent to a socket outside",
           _connect("AF_INET", "SOCK_DGRAM", '("127.0.0.1", {udp})'), left="packet", delay=0.2),
    Escape("unix socket", "network", "a unix socket in the home directory is reached",
           _connect("AF_UNIX", "SOCK_STREAM", '"{home}/socket"'), must=False),
    Escape("abstract socket", "network", "an abstract unix socket is reached",
           _connect("AF_UNIX", "SOCK_STREAM", '"\\0{canary}"')),
    Escape("vsock", "network", "a socket to the host of a virtual machine is made",
           _python('import socket; socket.socket(40, 1); print("=ESC" + "APED=")')),
    Escape("packet", "network", "a raw packet socket is made",
           _python('import socket; socket.socket(17, socket.SOCK_RAW); print("=ESC" + "APED=")')),
    Escape("signal", "process", "a process outside can be signalled", f"kill -0 {{pid}} && {YES}"),
    Escape("trace", "process", "a process outside is traced", _call(101, "16", "{pid}", "0", "0")),
    Escape("survivor", "process", "a process outlives the command",
           f"(setsid sh -c 'sleep {LATER / 2}; echo x > survivor' >/dev/null 2>&1 &)",
           left="project/survivor", delay=LATER),
    Escape("user namespace", "kernel", "a user namespace is made", f"unshare -U true && {YES}"),
    Escape("mount", "kernel", "a file system is mounted",
           f"unshare -Urm mount -t tmpfs none sub && {YES}; mount -t tmpfs none sub && {YES}"),
    Escape("set-user-ID", "kernel", "a set-user-ID file is left behind",
           f"cp /bin/true suid && chmod u+s suid && test -u suid && {YES}"),
    Escape("device", "kernel", "a device is made", f"mknod dev c 1 3 && cat dev && {YES}"),
    Escape("sysctl", "kernel", "a setting of the kernel is written",
           f"f=/proc/sys/kernel/domainname; d=$(cat $f) && echo $d > $f && {YES}"),
    Escape("keyring", "kernel", "the user's keyring is used", _call(250, "0", "-3", "1")),
    Escape("io_uring", "kernel", "io_uring is set up", _call(425, "1", "bytes(120)")),
    Escape("userfaultfd", "kernel", "userfaultfd is opened", _call(323, "1")),
    Escape("bpf", "kernel", "a bpf map is made", _call(321, "0", "bytes(120)", "120")),
)  # fmt: skip
WORKS = {
    "write the project": "echo x > made && rm made",
    "temporary files": 't=$(mktemp) && echo x > "$t" && rm "$t"',
    "a server on loopback": _python(
        'import socket; s = socket.create_server(("127.0.0.1", 0));'
        ' socket.create_connection(s.getsockname()).send(b"x")'
    ),
    "git status": "git status --short",
    "change a mode": "echo x > m && chmod 755 m && rm m",
}
"""Ordinary work that a sandbox should not stop."""


# --- surroundings ---------------------------------------------------------------------------------


@contextmanager
def surroundings(where: str) -> Iterator[Around]:
    """Make a home directory with a project, servers and a process, for one try."""
    with ExitStack() as stack:
        base = tempfile.mkdtemp(prefix="zot-escapes-", dir=where)
        stack.callback(shutil.rmtree, base, ignore_errors=True)
        home, canary = Path(base) / "home", f"canary-{os.urandom(8).hex()}"
        for name in ("project/.git/hooks", "project/sub/.git", ".ssh", "other", "zot"):
            (home / name).mkdir(parents=True)
        variables = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(home)}
        for folder in ("project", "project/sub"):
            with suppress(GitError):
                Git(str(home / folder), variables).run("init", "-q")
        for name in (".ssh/id_test", "other/code", "outside", "project/file"):
            (home / name).write_text(f"{canary}\n")
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        udp = stack.enter_context(_packets(home / "packet"))
        for address in (str(home / "socket"), f"\0{canary}"):
            _listen(stack, address)
        code = "import time; time.sleep(600)"
        bare = {"PATH": os.environ.get("PATH", os.defpath), "SECRET": canary}
        process = subprocess.Popen([sys.executable, "-S", "-c", code], env=bare)
        stack.callback(process.wait)
        stack.callback(process.kill)
        port: int = tcp.getsockname()[1]
        yield Around(str(home), canary, os.urandom(12).hex(), port, udp, process.pid)


def _listen(stack: ExitStack, address: str) -> None:
    server = stack.enter_context(socket.socket(socket.AF_UNIX))
    server.bind(address)
    server.listen()


@contextmanager
def _packets(marker: Path) -> Iterator[int]:
    """Listen for one packet; make a file when it comes."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        port: int = server.getsockname()[1]

        def wait() -> None:
            with suppress(OSError):
                if server.recv(10) == b"x":
                    marker.touch()

        thread = threading.Thread(target=wait, name="escape-packets", daemon=True)
        thread.start()
        try:
            yield port
        finally:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as waker:
                waker.sendto(b"end", ("127.0.0.1", port))
            thread.join()


# --- tries ----------------------------------------------------------------------------------------


def try_all(
    command: Sequence[str], where: str, tell: Callable[[Tried], None], seconds: float = SECONDS
) -> list[Tried]:
    """Try each escape in new surroundings below `where`; call `tell` with each result."""
    results = []
    for escape in ESCAPES:
        with surroundings(where) as around:
            result = _tried(escape, command, around, seconds)
        tell(result)
        results.append(result)
    return results


def _tried(escape: Escape, command: Sequence[str], around: Around, seconds: float) -> Tried:
    script = escape.script
    for name in Around.__struct_fields__:
        script = script.replace(f"{{{name}}}", str(getattr(around, name)))
    output = _run(command, script, around, seconds)
    left = escape.left.replace("{canary}", around.canary)
    if left:
        time.sleep(escape.delay)
        path = Path(around.home) / left
        if path.exists():
            output += ESCAPED
            if left.startswith("/"):
                path.unlink()
    if ESCAPED in output:
        return Tried(escape, "escaped", output)
    return Tried(escape, "held" if TRIED in output else "not tried", output)


def _run(command: Sequence[str], script: str, around: Around, seconds: float) -> str:
    """Run a script in the sandbox; return what it printed."""
    words = [*command, "/bin/sh", "-c", f"echo =TRI''ED=; {script}; true"]
    env = {**os.environ, "HOME": around.home, "ZOT_HOME": f"{around.home}/zot"}
    env["ESCAPE_TOKEN"] = around.token
    folder = f"{around.home}/project"
    try:
        ran = subprocess.run(
            words,
            cwd=folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        return f"{(error.stdout or b'').decode('utf-8', 'replace')}\nno end in {seconds} s"
    return ran.stdout.decode("utf-8", "replace")


def work(command: Sequence[str], where: str, seconds: float = SECONDS) -> dict[str, bool]:
    """Return whether each kind of ordinary work is possible in the sandbox."""
    found = {}
    for name, script in WORKS.items():
        with surroundings(where) as around:
            printed = _run(command, f"( {script} ) && echo =WOR''KS=", around, seconds)
        found[name] = "=WORKS=" in printed
    return found
