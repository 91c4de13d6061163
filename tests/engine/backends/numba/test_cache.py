"""Compiled kernels are kept on disk, and where the package's own folder cannot be written, elsewhere."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import hpfracc
from hpfracc._optional import is_installed
from tests.helpers.thinned import thinned

pytestmark = pytest.mark.skipif(not is_installed("numba"), reason="needs Numba")

PROGRAM = """
import numpy as np
from hpfracc.engine.backends.numba import heap
keys, items = np.zeros(4), np.zeros(4, np.int64)
heap.push(keys, items, 0, 2.5, 7)
assert keys[0] == 2.5 and items[0] == 7
assert "hpfracc_copy" in heap.__file__
print("hits", sum(heap.push.stats.cache_hits.values()))
"""


def run(folder: Path, home: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    environment |= {"PYTHONPATH": str(folder), "HOME": str(home), "XDG_CACHE_HOME": str(home / ".cache")}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("writable", [True, False], ids=["writable", "read-only"])
@thinned(lambda writable: writable)
def test_compiled_code_is_found_again(tmp_path: Path, writable: bool) -> None:
    """The second process compiles nothing, also with the package in a folder that cannot hold a cache."""
    folder, home = tmp_path / "hpfracc_copy", tmp_path / "home"
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(hpfracc.__file__ or "").parent, folder / "hpfracc", ignore=ignore)
    kernels = folder / "hpfracc" / "engine" / "backends" / "numba"
    if not writable:
        # A file in place of the folder: no user can write into it, not even root.
        (kernels / "__pycache__").write_text("")
    assert run(folder, home) == "hits 0"
    kept = list((kernels / "__pycache__" if writable else home).rglob("*.nbi"))
    assert kept
    assert run(folder, home) == "hits 1"
