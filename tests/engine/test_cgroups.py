"""Control groups are found in both versions, with every ancestor, in containers too."""

from __future__ import annotations

import pytest

from hpfracc.engine.cgroups import find_groups
from tests.helpers.fake_root import cgroup_v1, cgroup_v2, write_tree

LIMIT = {"memory.max": "1"}


def names(root, controller="memory"):
    base = root / "sys/fs/cgroup"
    return [str(group.folder.relative_to(base)) for group in find_groups(controller, root)]


def test_own_group_first_then_every_ancestor(tmp_path):
    """Version 2: from the process's own group up to the mount point."""
    write_tree(tmp_path, cgroup_v2("/a/b/c", {"a/b/c": LIMIT, "a/b": LIMIT, "a": LIMIT}))
    assert names(tmp_path) == ["a/b/c", "a/b", "a", "."]
    assert {group.version for group in find_groups("memory", tmp_path)} == {2}


def test_version_one_uses_the_hierarchy_of_the_controller(tmp_path):
    """Version 1: the line and the mount of the controller asked for, not of another."""
    write_tree(tmp_path, cgroup_v1("memory", "/job/step", {"job/step": {"x": ""}, "elsewhere": {"x": ""}}))
    assert names(tmp_path) == ["memory/job/step", "memory/job", "memory"]
    assert {group.version for group in find_groups("memory", tmp_path)} == {1}
    assert names(tmp_path, "cpu") == []


@pytest.mark.parametrize(
    ("path", "mount_root", "expected"),
    [
        ("/docker/abc", "/docker/abc", ["."]),
        ("/docker/abc/inner", "/docker/abc", ["inner", "."]),
        ("/docker/abcdef", "/docker/abc", ["."]),
        ("/../../other", "/", ["."]),
        ("/not/shown", "/", ["."]),
    ],
)
def test_a_container_sees_its_own_part_of_the_tree(tmp_path, path, mount_root, expected):
    """The path below the mount is found, and what the mount shows binds where the path leads outside it."""
    write_tree(tmp_path, cgroup_v2(path, {"": LIMIT, "inner": LIMIT}, mount_root))
    assert names(tmp_path) == expected


def test_a_mount_point_with_a_space(tmp_path):
    """The kernel's octal escapes are undone."""
    files = {
        "proc/self/cgroup": "0::/\n",
        "proc/self/mountinfo": "29 23 0:26 / /sys/fs/cgroup/my\\040groups rw - cgroup2 cgroup2 rw\n",
        "sys/fs/cgroup/my groups/memory.max": "1",
    }
    assert names(write_tree(tmp_path, files)) == ["my groups"]


@pytest.mark.parametrize("text", ["", "nonsense", "0:", "::::", "1 2 3 - \n"])
def test_nothing_is_found_in_nonsense(tmp_path, text):
    """A system without control groups, or one that we do not understand, has none."""
    write_tree(tmp_path, {"proc/self/cgroup": text, "proc/self/mountinfo": text})
    assert find_groups("memory", tmp_path) == ()
    assert find_groups("memory", tmp_path / "missing") == ()
