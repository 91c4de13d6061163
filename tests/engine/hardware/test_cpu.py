"""The processor: its names, its affinity, and the CPU limit of a container."""

from __future__ import annotations

import json
import os

import pytest

from hpfracc.engine.hardware import read_cpu
from tests.helpers.fake_root import cgroup_v1, cgroup_v2, write_tree

INTEL = """processor\t: 0
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 143
model name\t: Intel(R) Xeon(R) Processor
stepping\t: 8

processor\t: 1
model name\t: another
"""
ARM = """processor\t: 0
CPU implementer\t: 0x41
CPU variant\t: 0x3
CPU part\t: 0xd0c

Model\t\t: Raspberry Pi 5
"""


@pytest.mark.parametrize(
    ("text", "model", "family"),
    [
        (INTEL, "Intel(R) Xeon(R) Processor", "GenuineIntel 6 143 8"),
        (ARM, "Raspberry Pi 5", "0x41 0xd0c 0x3"),
    ],
)
def test_names(tmp_path, text, model, family):
    """The name and the model numbers are read: virtual machines share names, but not numbers."""
    cpu = read_cpu(write_tree(tmp_path, {"proc/cpuinfo": text}))
    assert (cpu.model, cpu.family) == (model, family)


def test_this_machine():
    """The real one has a name, an affinity within its threads, and is plain data."""
    cpu = read_cpu()
    assert cpu.model
    assert cpu.architecture
    assert 1 <= len(cpu.affinity) <= cpu.logical
    assert cpu.quota is None or cpu.quota > 0
    assert json.loads(json.dumps(cpu.to_dict()))["affinity"] == list(cpu.affinity)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system has no affinity to set")
def test_affinity_is_followed():
    """A process pinned to one hardware thread has one."""
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        cpu = read_cpu()
    finally:
        os.sched_setaffinity(0, before)
    assert cpu.affinity == (min(before),)
    assert cpu.allotment.startswith("1 threads")


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        (cgroup_v2("/a/b", {"a": {"cpu.max": "150000 100000"}, "a/b": {"cpu.max": "400000 100000"}}), 1.5),
        (cgroup_v2("/a", {"a": {"cpu.max": "max 100000"}}), None),
        (cgroup_v2("/a", {"a": {"cpu.max": "100000 0"}}), None),
        (cgroup_v1("cpu", "/a", {"a": {"cpu.cfs_quota_us": "50000", "cpu.cfs_period_us": "100000"}}), 0.5),
        (cgroup_v1("cpu", "/a", {"a": {"cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": "100000"}}), None),
        ({}, None),
    ],
)
def test_quota(tmp_path, files, quota):
    """The tightest group's share of processor time, in processors."""
    assert read_cpu(write_tree(tmp_path, files)).quota == quota
