"""``import hpfracc`` is quick, and neither it nor touching its public names brings in an accelerator library."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.helpers.source import SOURCE

#: What a user who only wants a NumPy call should never wait for.
HEAVY = ("torch", "jax", "jaxlib", "cupy", "numba", "dask", "distributed", "matplotlib", "pandas", "scipy.signal")

IMPORT = """
import json, sys
import hpfracc
{then}
print(json.dumps(sorted(sys.modules)))
"""


def run_child(then: str = "") -> list[str]:
    """The modules in a fresh interpreter after ``import hpfracc``, followed by ``then``."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("HPFRACC_", "PYTHON"))}
    child = subprocess.run(
        [sys.executable, "-W", "error", "-c", IMPORT.format(then=then)],
        env=environment | {"PYTHONPATH": str(SOURCE.parent)},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert child.returncode == 0, child.stderr
    return list(json.loads(child.stdout))


def heavy_among(modules: list[str]) -> list[str]:
    return [name for name in modules if any(name == heavy or name.startswith(f"{heavy}.") for heavy in HEAVY)]


def test_import_brings_a_few_modules_of_our_own_and_no_library():
    """What makes it quick on any machine: not even NumPy is imported."""
    bare = subprocess.run(
        [sys.executable, "-c", "import json, sys; print(json.dumps(sorted(sys.modules)))"],
        capture_output=True,
        text=True,
        timeout=500,
        check=True,
    )
    brought = set(run_child()) - set(json.loads(bare.stdout))
    ours = {name for name in brought if name.partition(".")[0] == "hpfracc"}
    assert "hpfracc" in ours
    assert len(ours) <= 10
    assert {name.partition(".")[0] for name in brought - ours} <= sys.stdlib_module_names


def test_public_names_bring_no_accelerator_library():
    """Neither does touching every public name: libraries are imported when an arm of theirs is about to run."""
    modules = run_child("for name in hpfracc.__all__: getattr(hpfracc, name)")
    assert "hpfracc._config" in modules
    assert heavy_among(modules) == []


#: First calls, and the most of our modules that each may load (shared with no other call of the process).
FIRST_CALLS = {
    "hpfracc.mittag_leffler(-1.0, 0.5)": 60,
    "t = numpy.linspace(0.0, 1.0, 101); hpfracc.caputo(t**2, t, 0.5)": 88,
    "hpfracc.fbm(100, 0.7)": 66,
    "hpfracc.solve_fode(lambda t, y: -y, (0.0, 1.0), [1.0], 0.5)": 78,
    "hpfracc.solve_fode(lambda t, y: -y, (0.0, 1.0), [1.0], 0.5, step=0.01)": 120,
}
#: What a first call on arrays of NumPy has no use for: chunked runs, clean-up under memory pressure, recorded spans,
#: adapters of libraries that are not imported, and reports.
UNUSED = (
    "hpfracc._xp.jax",
    "hpfracc._xp.torch",
    "hpfracc.engine.execution.batch.driver",
    "hpfracc.engine.execution.pressure",
    "hpfracc.engine.memory.staging",
    "hpfracc.engine.backends.cupy.adapter",
    "hpfracc.engine.backends.jax.adapter",
    "hpfracc.engine.backends.torch.adapter",
    "hpfracc.engine.selection.reports",
    "hpfracc.profiling.clocks",
    "hpfracc.profiling.session",
    "hpfracc.profiling.spans",
    "scipy.stats",
)


@pytest.mark.parametrize(
    ("call", "most"), FIRST_CALLS.items(), ids=["mittag_leffler", "caputo", "fbm", "solve_fode", "with a step"]
)
def test_a_first_call_loads_what_it_uses(call: str, most: int):
    """A bounded number of our modules, and none that such a call has no use for."""
    modules = run_child(f"import numpy; {call}")
    ours = [name for name in modules if name.partition(".")[0] == "hpfracc"]
    assert len(ours) <= most
    assert [name for name in UNUSED if name in modules] == []
    assert heavy_among(modules) == []
