"""The control groups of this process, versions 1 and 2, with all visible ancestors.

Containers limit memory and CPU time through them, and any ancestor may have the tightest limit.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Group(NamedTuple):
    """A control group: its folder, and the version of the interface (1 or 2)."""

    folder: Path
    version: int

    def read(self, name: str) -> str | None:
        """Text of one of its files, stripped, or None if missing."""
        return read_text(self.folder / name)


def read_text(path: Path) -> str | None:
    """Text of a file, stripped, or None if it cannot be read."""
    try:
        with open(path, "rb", buffering=0) as file:  # unbuffered: these are small, and read often
            return file.read().decode("utf-8", "replace").strip()
    except OSError:
        return None


def own_groups_text(root: Path = Path("/")) -> str:
    """The kernel's list of this process's groups: cheap to read, and changes when the process is moved."""
    return read_text(root / "proc/self/cgroup") or ""


def find_groups(controller: str, root: Path = Path("/")) -> tuple[Group, ...]:
    """The groups that limit this process by ``controller`` (``"memory"``, ``"cpu"``): its own, then its ancestors.

    Parameters
    ----------
    controller : str
        Name of the controller, as version 1 mounts it.
    root : Path
        Root of ``/proc`` and ``/sys``.
    """
    found: list[Group] = []
    mounts = (read_text(root / "proc/self/mountinfo") or "").splitlines()
    for line in own_groups_text(root).splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        version = 2 if controllers == "" and line.startswith("0:") else 1
        if version == 1 and controller not in controllers.split(","):
            continue
        for mount in mounts:
            top = _mounted_at(mount, controller, version)
            if top is None:
                continue
            mount_root, mount_point = top
            base = root / mount_point.lstrip("/")
            if base.is_dir():
                found += _with_ancestors(base, _inside(path, mount_root), version)
                break
    return tuple(found)


def _mounted_at(line: str, controller: str, version: int) -> tuple[str, str] | None:
    """(root of the mount in the hierarchy, mount point) if this line of mountinfo mounts the controller."""
    left, separator, right = line.partition(" - ")
    fields, kind = left.split(), right.split()
    if not separator or len(fields) < 5 or not kind:
        return None
    unified = version == 2 and kind[0] == "cgroup2"
    wanted = unified or (version == 1 and kind[0] == "cgroup" and controller in kind[-1].split(","))
    return (_unescape(fields[3]), _unescape(fields[4])) if wanted else None


def _unescape(text: str) -> str:
    for code, character in ((r"\040", " "), (r"\011", "\t"), (r"\012", "\n"), (r"\134", "\\")):
        text = text.replace(code, character)
    return text


def _inside(path: str, mount_root: str) -> str:
    """The group's path below the mount point; empty if the group lies outside the mount."""
    prefix = mount_root.rstrip("/")
    if ".." in path.split("/") or not (path == prefix or path.startswith(f"{prefix}/")):
        return ""
    return path[len(prefix) :].strip("/")


def _with_ancestors(base: Path, inside: str, version: int) -> list[Group]:
    parts = [part for part in inside.split("/") if part]
    folders = [base.joinpath(*parts[:depth]) for depth in range(len(parts), -1, -1)]
    # A namespace may name a group that this mount does not show; the visible ancestors still apply.
    return [Group(folder, version) for folder in folders if folder.is_dir()]
