"""JAX's adapter: what it says of itself, moves in double precision, and no global state touched."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from hpfracc.engine.backends.jax.adapter import ADAPTER
from hpfracc.engine.primitives import PRIMITIVES
from hpfracc.engine.primitives.base import INEXACT, INTEGERS, ArraySpec
from hpfracc.errors import BackendUnavailableError
from tests.helpers.thinned import thinned

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


@pytest.mark.parametrize("dtype", sorted(INEXACT | INTEGERS))
def test_round_trip_of_dtypes(dtype: str):
    """Every dtype that a primitive takes goes through unchanged."""
    array = np.arange(6).astype(dtype)
    back = ADAPTER.to_host(ADAPTER.from_host(array, "cpu"))
    assert back.dtype == array.dtype
    np.testing.assert_array_equal(back, array)


@pytest.mark.parametrize("n", [3, 100_000])
def test_writing_to_a_result_leaves_the_jax_array_alone(n: int):
    """The NumPy array of a result has memory of its own, and outlives the JAX array."""
    with jax.enable_x64(True):
        placed = ADAPTER.from_host(np.arange(float(n)), "cpu") + 0
    back = ADAPTER.to_host(placed)
    back += 1
    np.testing.assert_array_equal(np.asarray(placed), np.arange(float(n)))
    del placed
    np.testing.assert_array_equal(back, np.arange(1.0, n + 1.0))


def test_an_operand_is_read_without_a_copy():
    """A kernel of another library reads JAX's own memory on the host, and cannot write to it."""
    with jax.enable_x64(True):
        placed = ADAPTER.from_host(np.arange(100_000.0), "cpu") + 0
    seen = ADAPTER.read(placed)
    assert np.shares_memory(seen, np.asarray(placed))
    assert not seen.flags.writeable


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


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_single_precision_needs_no_scope(dtype: str):
    """Nothing is entered for dtypes that JAX takes as they are."""
    call = PRIMITIVES["causal_convolution"].describe(ArraySpec((4,), dtype), ArraySpec((4,), dtype))
    assert ADAPTER.scope(call) is None


def test_no_scope_where_the_user_enabled_it():
    """A user who works in double precision anyway pays for no scope."""
    call = PRIMITIVES["causal_convolution"].describe(ArraySpec((4,)), ArraySpec((4,)))
    with jax.enable_x64(True):
        assert ADAPTER.scope(call) is None


def test_cast():
    """An array that has the dtype is itself; others are cast, to double precision too; tracers as far as JAX goes."""
    single = ADAPTER.from_host(np.ones(3, np.float32), "cpu")
    assert ADAPTER.cast(single, "float32") is single
    assert str(ADAPTER.cast(single, "complex128").dtype) == "complex128"
    traced = jax.jit(lambda x: ADAPTER.cast(x, "complex64"))(single)
    assert str(traced.dtype) == "complex64"


def test_host_device():
    """The host is there, and asynchronous; its memory is somebody else's to count."""
    assert "cpu" in ADAPTER.devices()
    assert ADAPTER.is_asynchronous("cpu")
    assert ADAPTER.timer("cpu") is None
    assert ADAPTER.free_bytes("cpu") is None
    assert ADAPTER.declaration.version() == jax.__version__


def test_synchronize_waits():
    """After it, what was being computed is there."""
    array = ADAPTER.from_host(np.ones((600, 600), np.float32), "cpu")
    product = array @ array
    ADAPTER.synchronize("cpu")
    assert product.is_ready()


def test_unknown_device_is_named():
    """A device that JAX does not have is refused with those it has."""
    with pytest.raises(BackendUnavailableError, match=r"no device 'cuda:99'; it has .*cpu"):
        ADAPTER.from_host(np.ones(3), "cuda:99")


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


def test_xla_errors_are_runtime_errors():
    """What XLA raises is of the class that is looked for."""
    assert issubclass(jax.errors.JaxRuntimeError, RuntimeError)


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


READ = "import os; print(os.environ.get('XLA_PYTHON_CLIENT_PREALLOCATE'))"
TOUCH = "from hpfracc.engine.backends.jax.adapter import ADAPTER; ADAPTER.devices();"


@pytest.mark.parametrize(
    ("code", "variables", "expected"),
    [
        (TOUCH + READ, {}, "false"),
        (TOUCH + READ, {"XLA_PYTHON_CLIENT_PREALLOCATE": "true"}, "true"),
        ("import jax;" + TOUCH + READ, {}, "None"),
    ],
    ids=["we start JAX", "the user decided", "the user started JAX"],
)
@thinned(lambda expected: expected == "None")
def test_the_gpu_is_not_taken_at_first_use(code: str, variables: dict[str, Any], expected: str):
    """Preallocation is switched off where we are the ones who start JAX, and left alone elsewhere.

    ``tests/engine/execution/test_good_neighbours.py`` has the first two by way of a call.
    """
    assert run_python(code, **variables) == expected


def test_adapter_imports_no_jax():
    """Listing what JAX could do does not import it."""
    code = (
        "import sys; from hpfracc.engine.backends.jax.adapter import ADAPTER;"
        "ADAPTER.declaration.specs, ADAPTER.declaration.version();"
        "ADAPTER.is_out_of_memory(RuntimeError('x')); print('jax' in sys.modules)"
    )
    assert run_python(code) == "False"
