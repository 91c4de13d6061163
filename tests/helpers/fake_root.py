"""A made-up machine: a folder that stands for ``/`` with the files a test says it has."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

MIB = 2**20


def write_tree(root: Path, files: Mapping[str, str]) -> Path:
    """Write ``files`` (path below the root, text) and give the root back."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def meminfo(total: int, available: int) -> dict[str, str]:
    """``/proc/meminfo`` of a machine with these numbers of bytes."""
    text = f"MemTotal:       {total // 1024} kB\nMemFree:        12 kB\nMemAvailable:   {available // 1024} kB\n"
    return {"proc/meminfo": text}


def cgroup_v2(path: str, groups: Mapping[str, Mapping[str, str]], mount_root: str = "/") -> dict[str, str]:
    """A process in group ``path`` of a unified hierarchy; ``groups`` gives files per folder below the mount point."""
    files = {
        "proc/self/cgroup": f"0::{path}\n",
        "proc/self/mountinfo": f"29 23 0:26 {mount_root} /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n",
    }
    for group, entries in groups.items():
        files.update({f"sys/fs/cgroup/{group}/{name}".replace("//", "/"): text for name, text in entries.items()})
    return files


def cgroup_v1(
    controller: str, path: str, groups: Mapping[str, Mapping[str, str]], mount_root: str = "/"
) -> dict[str, str]:
    """The same with a hierarchy of its own for ``controller``, between lines for others."""
    mount = f"/sys/fs/cgroup/{controller}"
    files = {
        "proc/self/cgroup": f"9:name=systemd:/user.slice\n4:{controller},other:{path}\n3:pids:/elsewhere\n",
        "proc/self/mountinfo": (
            "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
            "30 29 0:27 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n"
            f"35 29 0:32 {mount_root} {mount} rw,relatime shared:9 - cgroup cgroup rw,{controller}\n"
        ),
    }
    for group, entries in groups.items():
        files.update({f"{mount[1:]}/{group}/{name}".replace("//", "/"): text for name, text in entries.items()})
    return files
