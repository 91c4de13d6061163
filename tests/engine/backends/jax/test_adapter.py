"""JAX's adapter: what it says of itself, moves in double precision, and no global state touched."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from hpfracc.engine.backends.jax.adapter import ADAPTER
from hpfracc.engine.primitives import PRIMITIVES
from hpfracc.engine.primitives.base import INEXACT, ArraySpec

jax = pytest.importorskip("jax", reason="JAX is not installed")


def layouts() -> dict[str, np.ndarray]:
    grid = np.arange(24.0).reshape(4, 6)
    locked = grid.copy()
    locked.flags.writeable = False
    return {
        "contiguous": grid,
        "read-only": locked,
        "repeated": np.broadcast_to(np.arange(3.0), (4, 3)),
        "transposed": grid.T,
        "strided": grid[::2, 1::3],
        "backwards": grid[::-1, ::-1],
        "no elements": grid[:0],
        "no axes": np.array(3.5),
        "other byte order": grid.astype(">f8"),
        "large": np.arange(100_000.0),
    }


@pytest.mark.parametrize("layout", layouts())
def test_round_trip(layout: str):
    """Any array comes back as it was: float64, though JAX is in single precision, and writable."""
    array = layouts()[layout]
    placed = ADAPTER.from_host(array, "cpu")
    assert isinstance(placed, jax.Array)
    back = ADAPTER.to_host(placed)
    assert back.dtype == np.float64
    assert back.flags.writeable
    np.testing.assert_array_equal(back, array)
    assert not jax.config.jax_enable_x64


@pytest.mark.parametrize("dtype", ["float64", "complex128", "int64", "uint64"])
def test_double_precision_in_its_scope(dtype: str):
    """Kernels inside the scope work in 64 bits; outside, the user's setting is as it was."""
    name = "causal_convolution" if dtype in INEXACT else "bitwise_xor"
    call = PRIMITIVES[name].describe(ArraySpec((4,), dtype), ArraySpec((4,), dtype))
    scope = ADAPTER.scope(call)
    assert scope is not None
    with scope:
        assert str((ADAPTER.from_host(np.ones(3, dtype), "cpu") * 2).dtype) == dtype
    assert not jax.config.jax_enable_x64


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8589934592 bytes."), True),
        (MemoryError(), True),
        (RuntimeError("INTERNAL: cuSolver failed"), False),
        (ValueError("RESOURCE_EXHAUSTED"), False),
    ],
)
def test_out_of_memory_is_told_apart(error: Exception, expected: bool):
    """XLA's status, and nothing else."""
    assert ADAPTER.is_out_of_memory(error) is expected


def run_python(code: str, **variables: str) -> str:
    keep = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    path = ":".join(part for part in sys.path if part)
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        text=True,
        env={**keep, "PYTHONPATH": path, "JAX_PLATFORMS": "cpu", **variables},
    )
    return done.stdout.strip()


def test_adapter_imports_no_jax():
    """Listing what JAX could do does not import it."""
    code = (
        "import sys; from hpfracc.engine.backends.jax.adapter import ADAPTER;"
        "ADAPTER.declaration.specs, ADAPTER.declaration.version();"
        "ADAPTER.is_out_of_memory(RuntimeError('x')); print('jax' in sys.modules)"
    )
    assert run_python(code) == "False"
