"""`python -m zot` and the `zot` command."""

from __future__ import annotations

import sys


def main() -> int:
    from zot.agent.cli import run

    return run(sys.argv[1:])


def pi_main() -> int:
    """`zot-pi`: behaves like the `pi` command for its machine-readable modes."""
    from zot.agent.cli import run

    return run(sys.argv[1:], as_pi=True)


if __name__ == "__main__":
    sys.exit(main())
