"""The model server's process: `python -m zot.local.serve`, configured on stdin.

Runs llama.cpp's HTTP server and exits when the lease has no holder. Knows nothing of agents. A
crash in the native code ends this process and not zot.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from zot.files import lock_file, write_atomic
from zot.text import Frozen

if TYPE_CHECKING:
    import xllamacpp

LEASE, ALIVE, STARTING, ADDRESS, LOG = "lease", "alive", "starting", "server.json", "server.log"
"""Files in a server's directory. The first three are lock files without content."""


class Orders(Frozen):
    """Server parameters; sent on stdin to keep the key out of the argument list."""

    directory: str
    model: str
    key: str
    port: int
    threads: int
    context: int
    slim: bool
    linger: float
    """Seconds to keep running after the last user left."""
    template: str = ""


class ServerAddress(Frozen):
    """Address of a running server; stored in a file that only the user can read."""

    pid: int
    port: int
    key: str
    model: str
    context: int


def set_parameters(params: xllamacpp.CommonParams, orders: Orders) -> None:
    params.model.path = orders.model
    params.hostnames = ["127.0.0.1"]
    params.port = orders.port
    params.api_keys = [orders.key]
    params.cors_origins = ""
    params.n_ctx = orders.context
    params.n_parallel = 1
    params.sampling.temp = 0.0  # same question, same answer
    params.cache_ram_mib = 256
    params.slot_save_path = f"{orders.directory}/prefixes/"
    params.offline = True
    params.ui = False
    params.warmup = False
    params.verbosity = 1
    params.no_extra_bufts = orders.slim
    if orders.template:
        params.chat_template = orders.template
    for pool in (params.cpuparams, params.cpuparams_batch):
        pool.n_threads = orders.threads
        pool.poll = 0  # spinning at barriers costs more than it gains on a busy machine


def wait_until_unused(directory: Path, linger: float) -> int:
    """Return with the lease locked exclusively once no user has held it for `linger` seconds.

    Users hold it shared, and the kernel releases it however they end, so the exclusive lock
    succeeds exactly when there are none. A user who comes while we hold it waits, finds the address
    gone, and starts another server.
    """
    while True:
        held = lock_file(directory / LEASE, wait=True)
        assert held is not None
        os.close(held)
        time.sleep(linger)
        if (held := lock_file(directory / LEASE)) is not None:
            return held


def claim(directory: Path) -> bool:
    """Take the lock that marks a live server; return False if another server has it.

    `is_alive` takes the same lock for a moment, hence the repeated tries.
    """
    for _ in range(20):
        if lock_file(directory / ALIVE) is not None:
            return True
        time.sleep(0.05)
    return False


def serve(orders: Orders) -> int:
    directory = Path(orders.directory)
    if not claim(directory):
        sys.stderr.write("another server of this model runs\n")
        return 3
    # Optional dependency: extra `local`.
    import xllamacpp

    params = xllamacpp.CommonParams()
    set_parameters(params, orders)
    try:
        server = xllamacpp.Server(params)
    except RuntimeError as failed:
        sys.stderr.write(f"{failed}\n")
        return 1
    port = int(server.listening_address.rsplit(":", 1)[1])
    address = ServerAddress(os.getpid(), port, orders.key, orders.model, orders.context)
    write_atomic(directory / ADDRESS, msgspec.json.encode(address))
    wait_until_unused(directory, orders.linger)
    (directory / ADDRESS).unlink(missing_ok=True)
    sys.stderr.flush()
    # Skip the cleanup: native threads have nothing to save, and unwinding can hang in an old libc.
    os._exit(0)


def main() -> int:
    return serve(msgspec.json.decode(sys.stdin.buffer.read(), type=Orders))


if __name__ == "__main__":
    sys.exit(main())
