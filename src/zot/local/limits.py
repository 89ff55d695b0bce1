"""Free disk and memory, and usable cores of this machine. Injected where it is checked."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

MEMORY_VARIABLE = "ZOT_LOCAL_MEMORY_MB"
CGROUP = Path("/sys/fs/cgroup")


def free_disk(path: Path) -> int:
    """Return the free bytes on the disk of `path`, which need not exist yet."""
    existing = next(folder for folder in (path, *path.parents) if folder.exists())
    return shutil.disk_usage(existing).free


def free_memory() -> int | None:
    """Return the bytes a new process could use; None where the system does not say."""
    if forced := os.environ.get(MEMORY_VARIABLE, "").strip():
        return int(forced) * 1_000_000 if forced.isdigit() else None
    limits = [limit for limit in (_meminfo_available(), _cgroup_available()) if limit is not None]
    return min(limits) if limits else None


def _meminfo_available() -> int | None:
    try:
        text = Path("/proc/meminfo").read_text(encoding="ascii")
    except OSError:
        return None
    for line in text.splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _cgroup_available(root: Path = CGROUP) -> int | None:
    """Return the memory left in the cgroup: in a container, meminfo shows the host's."""
    try:
        limit = (root / "memory.max").read_text(encoding="ascii").strip()
        used = (root / "memory.current").read_text(encoding="ascii").strip()
    except OSError:
        return None
    return max(0, int(limit) - int(used)) if limit.isdigit() and used.isdigit() else None


def server_threads() -> int:
    """Return all cores but one, which zot and its tools need: using every core is slower."""
    forced = os.environ.get("ZOT_LOCAL_THREADS", "")
    return max(1, int(forced)) if forced.isdigit() else max(1, _cores() - 1)


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
