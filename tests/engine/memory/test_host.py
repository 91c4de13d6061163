"""The host's limit is the smallest of RAM, every control group above us, and the process's own limits."""

from __future__ import annotations

import json
import sys

import pytest

from hpfracc.engine.memory.host import HostProbe
from tests.helpers.fake_root import MIB, cgroup_v1, cgroup_v2, meminfo, write_tree
from tests.helpers.processes import run_python

UNLIMITED_V1 = "9223372036854771712"


@pytest.fixture(autouse=True)
def no_process_limit(monkeypatch):
    """Whatever limits the tests themselves run under, they are not what these trees are about."""
    monkeypatch.setattr("hpfracc.engine.memory.host._process_bounds", lambda root: [])


def read(root, files, total=8000 * MIB, available=5000 * MIB):
    return HostProbe(write_tree(root, {**meminfo(total, available), **files})).read()


def test_ram_alone(tmp_path):
    """Without groups, RAM is the limit and what the kernel calls available is free."""
    memory = read(tmp_path, {})
    assert (memory.limit, memory.free, memory.tightest.name) == (8000 * MIB, 5000 * MIB, "RAM")


def test_every_ancestor_counts_and_free_is_the_least_left(tmp_path):
    """A wide inner group inside a narrow outer one: the limit is the outer's, free is what the fuller one leaves."""
    groups = {
        "a": {"memory.max": str(1000 * MIB), "memory.current": str(200 * MIB)},
        "a/b": {"memory.max": "max", "memory.current": str(150 * MIB)},
        "a/b/c": {"memory.max": str(1500 * MIB), "memory.current": str(900 * MIB)},
    }
    memory = read(tmp_path, cgroup_v2("/a/b/c", groups))
    assert memory.limit == 1000 * MIB
    assert memory.free == 600 * MIB
    assert memory.tightest.name.endswith("/a/b/c")
    assert [bound.limit // MIB for bound in memory.bounds] == [8000, 1500, 1000]


def test_high_counts_like_max(tmp_path):
    """Version 2: the kernel throttles above memory.high, so it is a limit as well."""
    groups = {"a": {"memory.max": str(900 * MIB), "memory.high": str(700 * MIB), "memory.current": "0"}}
    assert read(tmp_path, cgroup_v2("/a", groups)).limit == 700 * MIB


@pytest.mark.parametrize("version", [1, 2])
def test_idle_file_cache_is_free(tmp_path, version):
    """Pages that the kernel drops when asked are not in use; never does that make free exceed the limit."""
    if version == 2:
        stat = f"anon 1\ninactive_file {300 * MIB}\nactive_file 5\n"
        entries = {"memory.max": str(500 * MIB), "memory.current": str(400 * MIB), "memory.stat": stat}
        files = cgroup_v2("/a", {"a": entries})
    else:
        stat = f"cache 7\ninactive_file 1\ntotal_inactive_file {300 * MIB}\n"
        entries = {
            "memory.limit_in_bytes": str(500 * MIB),
            "memory.usage_in_bytes": str(400 * MIB),
            "memory.stat": stat,
        }
        files = cgroup_v1("memory", "/a", {"a": entries})
    assert read(tmp_path, files).free == 400 * MIB


def test_version_one_with_an_unlimited_group(tmp_path):
    """The huge number with which version 1 says "no limit" is no limit; a limited ancestor still is."""
    groups = {
        "a": {"memory.limit_in_bytes": str(2000 * MIB), "memory.usage_in_bytes": str(500 * MIB)},
        "a/b": {"memory.limit_in_bytes": UNLIMITED_V1, "memory.usage_in_bytes": str(100 * MIB)},
    }
    memory = read(tmp_path, cgroup_v1("memory", "/a/b", groups))
    assert (memory.limit, memory.free) == (2000 * MIB, 1500 * MIB)
    assert len(memory.bounds) == 2


def test_version_one_tells_of_ancestors_that_are_not_shown(tmp_path):
    """In a container the tightest ancestor may lie above the mount: the statistics name its limit."""
    entries = {
        "memory.limit_in_bytes": UNLIMITED_V1,
        "memory.usage_in_bytes": str(100 * MIB),
        "memory.stat": f"hierarchical_memory_limit {800 * MIB}\n",
    }
    memory = read(tmp_path, cgroup_v1("memory", "/docker/x", {"": entries}, mount_root="/docker/x"))
    assert (memory.limit, memory.free) == (800 * MIB, 700 * MIB)


@pytest.mark.parametrize("value", ["", "max", "-1", "many", "12 34"])
def test_a_limit_that_is_no_number_is_no_limit(tmp_path, value):
    """Nothing that a group's file says makes a reading fail."""
    files = cgroup_v2("/a", {"a": {"memory.max": value, "memory.current": value, "memory.stat": value}})
    assert read(tmp_path, files).limit == 8000 * MIB


def test_a_system_without_proc(tmp_path):
    """Where there is no /proc, psutil tells; the reading as plain data is JSON."""
    memory = HostProbe(tmp_path).read()
    assert 0 < memory.free <= memory.limit
    assert json.loads(json.dumps(memory.to_dict()))["tightest"] == "RAM"


WITHOUT_PSUTIL = """
import os, sys
sys.modules |= dict.fromkeys(["psutil", "fcntl", "resource", "_multiprocessing"])  # as in Pyodide
from pathlib import Path
import numpy as np
import hpfracc as hf
from hpfracc.engine import hardware
from hpfracc.engine.memory.host import HostProbe
t = np.linspace(0.0, 1.0, 101)
assert np.allclose(hf.caputo(t, t, 0.5), 2 * np.sqrt(t / np.pi))
assert abs(hf.mittag_leffler(-1.0, 1.0) - np.exp(-1.0)) < 1e-14
found = hf.solve_fode(lambda t, y: -y, (0.0, 1.0), [1.0], 1.0)
assert abs(found.y[..., -1] - np.exp(-1.0)).max() < 1e-3
profiler = hf.profiling.get_profiler(enabled=True)
with profiler.profile("derivative"):
    hf.caputo(t, t, 0.5)
profiler.disable()
assert "derivative" in profiler.get_summary()
assert hf.memory.report().host.free > 0 and hardware.machine().ram > 2**20
memory = HostProbe(Path(sys.argv[1])).read()  # without /proc
assert memory.tightest.name == "RAM (how much is in use is not known without psutil)"
assert memory.free == memory.limit == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
"""


def test_without_psutil(tmp_path):
    """Ordinary calls work; where nothing else tells what is in use, the name of the limit says so."""
    run_python(WITHOUT_PSUTIL, tmp_path)


LIMITED = """
import mmap, resource, sys
from hpfracc.engine.memory.host import HostProbe
name, limit = sys.argv[1], 3 * 2**30
probe = HostProbe()
probe.read()
resource.setrlimit(getattr(resource, name), (limit, limit))
memory = probe.read()
assert memory.tightest.name == name and memory.limit == limit, memory
def take(size):
    return mmap.mmap(-1, int(size), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
try:
    take(memory.free + 2**24)
except OSError:
    pass
else:
    sys.exit("more than free could be had")
block = take(memory.free - 2**24)
assert probe.read().free <= 2**25, probe.read()
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems do not enforce these limits")
@pytest.mark.parametrize("name", ["RLIMIT_AS", "RLIMIT_DATA"])
def test_the_process_s_own_limit(name):
    """Under a real limit, what is called free can be had, and 16 MiB more cannot."""
    run_python(LIMITED, name)
