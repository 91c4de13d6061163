"""Memory models of NumPy's kernels against what Python sees them allocate."""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any

import numpy as np
import pytest

from hpfracc.engine.backends import registry
from hpfracc.engine.backends.base import Arm
from hpfracc.engine.memory.buffers import host_buffers
from hpfracc.engine.primitives import PRIMITIVES
from hpfracc.engine.selection.call_memory import modelled_bytes
from tests.helpers.thinned import thinned

FORMULA = {"expression": "x*y + sin(x)", "names": ("x", "y")}
CASES: list[tuple[str, str, list[tuple[int, ...]], str, dict[str, Any]]] = [
    ("causal_convolution", "fft", [(100_000,), (100_000,)], "float64", {}),
    ("causal_convolution", "fft", [(2000,), (60, 3000)], "float32", {}),
    ("causal_convolution", "fft", [(2000,), (60, 3000)], "float64", {}),
    ("causal_convolution", "fft", [(20, 2000), (20, 3000)], "complex128", {}),
    ("causal_convolution", "blocked", [(1000,), (2_000_000,)], "float64", {}),
    ("causal_convolution", "blocked", [(20_000,), (500_000,)], "float64", {}),
    ("causal_convolution", "direct", [(50,), (100_000,)], "float64", {}),
    ("causal_convolution", "direct", [(50,), (40, 3000)], "float64", {}),
    ("matmul", "default", [(400, 300), (300, 500)], "float64", {}),
    ("fft", "default", [(50, 4000)], "float64", {"kind": "fft"}),
    ("fft", "default", [(50, 4000)], "float64", {"kind": "rfft", "n": 6000}),
    ("elementwise", "default", [(200_000,), (200_000,)], "float64", FORMULA),
    ("elementwise", "default", [(200_000,)], "float64", {"expression": "exp(-x*x)*cos(x)", "names": ("x",)}),
    ("reduction", "default", [(400, 1000)], "float64", {"kind": "norm", "axis": 0}),
    ("reduction", "default", [(400, 1000)], "float64", {"kind": "sum", "axis": -1}),
    ("bitwise_xor", "default", [(400_000,), (400_000,)], "int64", {}),
    ("mittag_leffler", "contour", [(120_000,)], "float64", {"alpha": 0.7}),
    ("mittag_leffler", "contour", [(100_000,)], "complex128", {"alpha": 0.7}),
    ("toeplitz_apply", "direct", [(50,), (100_000,)], "float64", {}),
    ("toeplitz_apply", "direct", [(500,), (20, 5000)], "float64", {}),
    ("toeplitz_apply", "fft", [(100_000,), (100_000,)], "float64", {}),
    ("toeplitz_apply", "fft", [(2000,), (60, 3000)], "float32", {}),
    ("toeplitz_apply", "fft", [(100, 120), (6, 100, 120)], "float64", {"axes": (1, 2)}),
    ("toeplitz_apply", "fft", [(100, 120), (6, 100, 120)], "complex128", {"axes": (1, 2)}),
    ("toeplitz_apply", "fft", [(3, 1500), (3, 3000)], "float64", {}),
    ("history_sum", "direct", [(300,), (400, 300), ()], "float64", {"kernel": "power"}),
    ("history_sum", "direct", [(300,), (5, 90, 300), ()], "float32", {"kernel": "power", "scaled": True}),
    ("history_sum", "direct", [(1500,), (40, 1500), (), ()], "complex128", {"kernel": "tempered"}),
    ("history_sum", "direct", [(1500,), (70, 1500), ()], "float32", {"kernel": "logarithmic"}),
    ("history_sum", "direct", [(3000,), (3000,), (30,), (30,)], "float64", {"kernel": "tabulated"}),
    ("history_sum", "direct", [(3000,), (3000,), ()], "float64", {"kernel": "power"}),
    ("history_sum", "tree", [(20_000,), (20_000,), ()], "float64", {"kernel": "power"}),
    ("history_sum", "tree", [(6000,), (12, 6000), (), ()], "float64", {"kernel": "tempered"}),
    ("exponential_recurrence", "blocked", [(30,), (30,), (), (100_000,), (30,)], "float64", {}),
    ("exponential_recurrence", "blocked", [(150,), (150,), (), (60_000,), (150,)], "float64", {"lagged": True}),
    ("exponential_recurrence", "blocked", [(12,), (12,), (), (40, 1500), (12,)], "complex128", {}),
    ("exponential_recurrence", "blocked", [(30,), (30,), (), (200, 500), (200, 30)], "float32", {"final": True}),
    ("exponential_recurrence", "blocked", [(8,), (8,), (20_000,), (4, 20_000), (8,)], "float64", {"degree": 0}),
    ("exponential_recurrence", "blocked", [(30,), (30,), (600,), (400, 600), (30,)], "float32", {}),
    ("chirp_transform", "fft", [(50_000,), (3,)], "float64", {}),
    ("chirp_transform", "fft", [(4, 20_000), (4, 6)], "complex128", {}),
    ("chirp_transform", "fft", [(80, 1500), (3,)], "complex64", {"points": 1000}),
    ("chirp_transform", "fft", [(80, 1500), (3,)], "float32", {}),
    ("tridiagonal_solve", "lapack", [(300, 400)] * 4, "float64", {}),
    ("tridiagonal_solve", "lapack", [(400,), (400,), (400,), (300, 400)], "complex64", {}),
    ("tridiagonal_solve", "reduction", [(300, 400)] * 4, "float32", {}),
    ("random", "streams", [(100,), (4,)], "int64", {"n": 3000}),
    ("stencil_relax", "csgraph", [(120, 130), (120, 130)], "float64", {}),
    ("stencil_relax", "csgraph", [(4, 90, 100), (90, 100)], "float64", {"edges": True, "neighbourhood": "moore"}),
    ("spectral_multiply", "fft", [(4000,), (50, 4000)], "float64", {}),
    ("spectral_multiply", "fft", [(50, 4000), (4000,)], "float64", {}),
    ("spectral_multiply", "fft", [(60, 70, 40), (60, 70, 40)], "complex128", {"axes": (0, 1, 2)}),
    ("spectral_multiply", "fft", [(300, 400), (300, 400)], "float32", {"axes": (0, 1), "kinds": "dst1"}),
    ("spectral_multiply", "fft", [(300, 400), (300, 400)], "float64", {"axes": (0, 1), "kinds": ("dct2", "fft")}),
]


def peak_bytes(run: Any) -> int:
    run()  # what is cached at the first call is not this call's
    host_buffers.clear()
    gc.collect()
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def operand(name: str, number: int, shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    """An operand of which the call makes what it makes of any: times rise, rates are real, one point is a source."""
    rising = np.linspace(0.1, 8.0, int(np.prod(shape))).reshape(shape)
    if name == "history_sum" and number != 1:
        return rising if shape else np.array(-0.5)
    if (name == "exponential_recurrence" and number < 3) or (name == "chirp_transform" and number == 1):
        return rising / 100.0
    if name == "random":
        return np.arange(np.prod(shape)).reshape(shape)
    if name == "stencil_relax" and number == 0:
        return np.asarray(rising % 0.77 + 0.1, dtype)
    if name == "stencil_relax":
        start = np.full(shape, np.inf, dtype)
        start[..., 0] = 0.0
        return start
    return np.asarray(-rising, dtype)


def arm_of(name: str, algorithm: str) -> Arm:
    (spec,) = [spec for spec in registry.declaration("numpy").specs[name] if spec.algorithm == algorithm]
    return Arm("numpy", spec)


def test_every_primitive_is_looked_at() -> None:
    """No primitive that NumPy serves, and none of its algorithms, is left out below."""
    offered = {(name, spec.algorithm) for name, specs in registry.declaration("numpy").specs.items() for spec in specs}
    assert offered == {case[:2] for case in CASES}
    assert {name for name, _ in offered} == set(PRIMITIVES)


@pytest.mark.parametrize(("name", "algorithm", "shapes", "dtype", "params"), CASES)
@thinned(one_in=4)
def test_prediction_is_within_a_factor_of_2(
    name: str, algorithm: str, shapes: list[tuple[int, ...]], dtype: str, params: dict[str, Any]
) -> None:
    """Operands, result and workspace together, at the moment when most of them are alive."""
    arrays = [operand(name, number, shape, dtype) for number, shape in enumerate(shapes)]
    call = PRIMITIVES[name].describe(*arrays, **params)
    arm = arm_of(name, algorithm)
    kernel = registry.kernel(name, "numpy", algorithm)
    actual = call.input_bytes + peak_bytes(lambda: kernel.run(*arrays, **params))
    predicted = modelled_bytes(PRIMITIVES[name], call, arm)
    assert 0.5 < predicted / actual < 2.0
