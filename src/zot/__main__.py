"""`python -m zot` and the `zot` command."""

import gc
import os
import sys

import zot


def main() -> int:
    return _run(as_pi=False)


def pi_main() -> int:
    """`zot-pi`: behaves like the `pi` command for its machine-readable modes."""
    return _run(as_pi=True)


def _run(*, as_pi: bool) -> int:
    # Loading makes no garbage, and the collector would take a tenth of the start-up time. The
    # command enables it again when it has loaded (cli/main.py).
    gc.disable()
    try:
        if sys.argv[1:] == ["--version"] and _tell_version():
            return 0
        from zot.cli.main import run

        return run(sys.argv[1:], as_pi=as_pi)
    except KeyboardInterrupt:  # while it loads
        return 130


def _tell_version() -> bool:
    """Write the version without loading the program; return False if writing fails, so that the
    program reports the error."""
    try:
        os.write(1, f"zot {zot.__version__}\n".encode())
    except OSError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
