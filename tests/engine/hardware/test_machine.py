"""The description of the machine: complete, plain data, and cheap to import."""

from __future__ import annotations

import sys

import numpy as np

from hpfracc._optional import package_version
from hpfracc.engine import hardware
from tests.helpers.processes import run_python

IMPORT = """
import sys
import hpfracc
before = set(sys.modules)
import hpfracc.engine.hardware
print(*sorted(set(sys.modules) - before))
from hpfracc.engine import hardware
hardware.machine()
print(*sorted({"torch", "jax", "jaxlib", "cupy", "numba", "numpy", "scipy"} & set(sys.modules)))
"""


def test_importing_and_reading_import_no_array_library():
    """Importing is quick because it loads few modules; describing the machine loads none of the libraries it names."""
    imported, loaded = run_python(IMPORT).splitlines()
    assert len([name for name in imported.split() if name.startswith("hpfracc.")]) <= 10
    assert loaded == ""


def test_the_machine_is_read_once():
    """The description is cached until it is reset."""
    first = hardware.machine()
    assert hardware.machine() is first
    hardware.reset()
    assert hardware.machine() is not first


def test_versions_come_from_the_packages(monkeypatch):
    """A library's version is that of its package, whatever its name; None if not installed."""
    known = {"cupy-cuda12x": "13.6.0", "torch": "2.13.0"}
    assert package_version("numpy") == np.__version__
    assert package_version("no-such-package") is None
    monkeypatch.setattr("hpfracc.engine.hardware.package_version", known.get)
    monkeypatch.delitem(sys.modules, "numba", raising=False)
    assert hardware.library_version("cupy") == "13.6.0"
    assert hardware.library_version("torch") == "2.13.0"
    assert hardware.library_version("numba") is None
    assert hardware.library_version("numpy") == np.__version__  # loaded, though without metadata now
