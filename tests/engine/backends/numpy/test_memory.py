"""The memory that NumPy's kernels take is the memory that the contracts predict."""

from __future__ import annotations

import gc
import importlib
import tracemalloc
from typing import Any

import numpy as np
import pytest

from hpfracc.engine.primitives import PRIMITIVES
from hpfracc.engine.primitives.base import ArraySpec

CASES: list[tuple[str, str, list[tuple[int, ...]], str, dict[str, Any]]] = [
    ("causal_convolution", "fft", [(100_000,), (100_000,)], "float64", {}),
    ("causal_convolution", "fft", [(2000,), (60, 3000)], "float32", {}),
    ("causal_convolution", "fft", [(20, 2000), (20, 3000)], "complex128", {}),
    ("causal_convolution", "direct", [(50,), (100_000,)], "float64", {}),
    ("causal_convolution", "direct", [(50,), (40, 3000)], "float64", {}),
    ("matmul", "default", [(400, 300), (300, 500)], "float64", {}),
    ("matmul", "stacked", [(40, 60, 60), (40, 60, 60)], "float64", {}),
    ("fft", "pocketfft", [(50, 4000)], "float64", {"kind": "rfft"}),
    ("fft", "pocketfft", [(50, 4000)], "float64", {"kind": "fft", "n": 6000}),
    ("fft", "scipy", [(50, 4000)], "float64", {"kind": "fft"}),
    ("fft", "scipy", [(50, 4000)], "float64", {"kind": "rfft", "n": 6000}),
    (
        "elementwise",
        "blocked",
        [(500_000,), (500_000,)],
        "float64",
        {"expression": "x*y + sin(x)", "names": ("x", "y")},
    ),
    ("reduction", "default", [(400, 1000)], "float64", {"kind": "norm", "axis": 0}),
    ("reduction", "default", [(400, 1000)], "float64", {"kind": "sum", "axis": -1}),
    ("bitwise_xor", "default", [(400_000,), (400_000,)], "int64", {}),
    ("toeplitz_apply", "direct", [(50,), (100_000,)], "float64", {}),
    ("toeplitz_apply", "direct", [(5000,), (5000,)], "float64", {}),
    ("toeplitz_apply", "fft", [(100_000,), (100_000,)], "float64", {}),
    ("toeplitz_apply", "fft", [(2000,), (60, 3000)], "float32", {}),
    ("toeplitz_apply", "fft", [(100, 120), (6, 100, 120)], "float64", {"axes": (1, 2)}),
    ("toeplitz_apply", "fft", [(100, 120), (6, 100, 120)], "complex128", {"axes": (1, 2)}),
    ("spectral_multiply", "scipy", [(4000,), (50, 4000)], "float64", {}),
    ("spectral_multiply", "scipy", [(50, 4000), (4000,)], "float64", {}),
    ("spectral_multiply", "scipy", [(60, 70, 40), (60, 70, 40)], "complex128", {"axes": (0, 1, 2)}),
    ("spectral_multiply", "scipy", [(300, 400), (300, 400)], "float32", {"axes": (0, 1), "kinds": "dst1"}),
    ("spectral_multiply", "scipy", [(300, 400), (300, 400)], "float64", {"axes": (0, 1), "kinds": ("dct2", "fft")}),
]


def peak_bytes(run: Any) -> int:
    run()  # what is cached at the first call is not this call's
    gc.collect()
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("name", "algorithm", "shapes", "dtype", "params"), CASES)
def test_prediction_is_within_15_percent_of_the_peak(
    name: str, algorithm: str, shapes: list[tuple[int, ...]], dtype: str, params: dict[str, Any]
) -> None:
    """Operands, result and workspace together, at the moment when most of them are alive."""
    primitive = PRIMITIVES[name]
    call = primitive.describe(*(ArraySpec(shape, dtype) for shape in shapes), **params)
    arrays = [np.ones(shape, dtype) for shape in shapes]
    kernel = importlib.import_module(f"hpfracc.engine.backends.numpy.kernels.{name}").KERNELS[algorithm]
    actual = call.input_bytes + peak_bytes(lambda: kernel.run(*arrays, **params))
    assert primitive.memory(call, algorithm) == pytest.approx(actual, rel=0.15)


@pytest.mark.parametrize("algorithm", ["blocked", "default"])
def test_what_depends_on_the_library_is_an_upper_bound(algorithm: str) -> None:
    """Blocks may be taken in groups, and a library may write over a temporary: predicted is then more than needed."""
    if algorithm == "blocked":
        name, shapes, params = "causal_convolution", [(1000,), (500_000,)], {}
    else:
        name, shapes = "elementwise", [(200_000,), (200_000,)]
        params = {"expression": "x*y + sin(x)", "names": ("x", "y")}
    arrays = [np.ones(shape) for shape in shapes]
    call = PRIMITIVES[name].describe(*arrays, **params)
    kernel = importlib.import_module(f"hpfracc.engine.backends.numpy.kernels.{name}").KERNELS[algorithm]
    actual = call.input_bytes + peak_bytes(lambda: kernel.run(*arrays, **params))
    assert actual <= 1.01 * PRIMITIVES[name].memory(call, algorithm)
