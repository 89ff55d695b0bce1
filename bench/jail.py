"""Cost of a command at each level of the jail: python bench/jail.py [ROUNDS].

Runs `true` through the whole path of the tool `bash`, the levels in turn, so that noise of the
machine hits all of them; prints the median and the fastest time of each, as a ratio to a bare one.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from zot.cancel import Cancel
from zot.core.confinement import NO_JAIL, JailPolicy
from zot.tools.place import Job, Place
from zot.tools.process.supervisor import Supervisor
from zot.tools.registry import SharedPlace

BROKEN = "#!/bin/sh\nexit 1\n"
"""A bubblewrap that cannot work, so that `best` is the level `files`."""


def places(folder: Path) -> dict[str, Place]:
    project, home, program = folder / "project", folder / "zot", folder / "bin" / "bwrap"
    for path in (project, home, program.parent):
        path.mkdir()
    program.write_text(BROKEN)
    program.chmod(0o755)
    environ = dict(os.environ)
    broken = {**environ, "PATH": f"{program.parent}:{environ['PATH']}"}
    full, best = JailPolicy(on=True), JailPolicy(on=True, best=True)
    rows = {"bare": (environ, NO_JAIL), "files": (broken, best), "full": (environ, full)}
    return {
        name: SharedPlace(str(project), variables, home=str(home), policy=policy).get()
        for name, (variables, policy) in rows.items()
    }


def seconds(place: Place, supervisor: Supervisor) -> float:
    job = Job("true", {"PATH": os.defpath}, lambda data: None, Cancel(), None)
    began = time.perf_counter()
    place.run(supervisor, job)
    return time.perf_counter() - began


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    supervisor = Supervisor()
    with tempfile.TemporaryDirectory(dir=Path.home()) as folder:
        levels = places(Path(folder))
        times: dict[str, list[float]] = {name: [] for name in levels}
        for at in range(rounds + 5):
            for name, place in levels.items():
                taken = seconds(place, supervisor)
                if at >= 5:  # the first ones start the helper and probe the system
                    times[name].append(taken)
    supervisor.close()
    bare = times["bare"]
    print("| level | median ms | fastest ms | median / bare | fastest / bare |")
    print("| --- | --- | --- | --- | --- |")
    for name, taken in times.items():
        middle, best = statistics.median(taken), min(taken)
        ratios = f"{middle / statistics.median(bare):.2f} | {best / min(bare):.2f}"
        print(f"| {name} | {middle * 1000:.2f} | {best * 1000:.2f} | {ratios} |")


if __name__ == "__main__":
    main()
