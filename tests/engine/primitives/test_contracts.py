"""Contracts: what each primitive makes of its operands, and what it refuses."""

from __future__ import annotations

import importlib
import math
from typing import Any

import numpy as np
import pytest

from hpfracc._optional import is_installed
from hpfracc.engine.numerics.lengths import block_length
from hpfracc.engine.primitives import PRIMITIVES
from hpfracc.engine.primitives.base import ArraySpec, fills_one_block
from hpfracc.errors import HpfraccError, InvalidInputError, ShapeError, UnsupportedDtypeError

XY: dict[str, Any] = {"expression": "x*y", "names": ("x", "y")}
VECTOR, MATRIX, WHOLE, KEY = np.ones(4), np.ones((2, 3)), np.arange(4), np.arange(4, dtype=np.uint32)

REFUSALS: list[tuple[str, tuple[Any, ...], dict[str, Any], type[HpfraccError], str]] = [
    ("causal_convolution", (VECTOR, np.array(1.0)), {}, ShapeError, "at least one axis"),
    ("causal_convolution", (1.0, VECTOR), {}, ShapeError, "weights has shape ()"),
    ("causal_convolution", (np.ones((2, 4)), np.ones((3, 4))), {}, ShapeError, "(2,) and (3,)"),
    ("causal_convolution", (VECTOR, [[1.0], [2.0, 3.0]]), {}, ShapeError, "equally long"),
    ("matmul", (MATRIX, MATRIX), {}, ShapeError, "3 columns meet 2 rows"),
    ("matmul", (2.0, MATRIX), {}, ShapeError, "at least one axis"),
    ("matmul", (np.ones((2, 3, 3)), np.ones((4, 3, 3))), {}, ShapeError, "do not broadcast"),
    ("fft", (VECTOR,), {"kind": "dct"}, InvalidInputError, "'fft', 'ifft', 'rfft', 'irfft'"),
    ("fft", (VECTOR,), {"norm": "unitary"}, InvalidInputError, "'backward', 'ortho', 'forward'"),
    ("fft", (VECTOR,), {"axis": 1}, InvalidInputError, "axis=1"),
    ("fft", (VECTOR,), {"axis": 0.5}, InvalidInputError, "is not an integer"),
    ("fft", (VECTOR,), {"n": 0}, InvalidInputError, "n=0"),
    ("fft", (VECTOR,), {"n": 2.5}, InvalidInputError, "n=2.5"),
    ("fft", (VECTOR,), {"n": True}, InvalidInputError, "n=True"),
    ("fft", (np.array(1.0),), {}, ShapeError, "at least one axis"),
    ("fft", (VECTOR + 0j,), {"kind": "rfft"}, UnsupportedDtypeError, "x.real"),
    ("fft", (np.ones(1) + 0j,), {"kind": "irfft"}, ShapeError, "n=1"),
    ("elementwise", (VECTOR,), XY, ShapeError, "1 arrays for the names"),
    ("elementwise", (VECTOR, np.ones(3)), XY, ShapeError, "(4,) and (3,)"),
    ("elementwise", (VECTOR + 0j, VECTOR), {**XY, "expression": "x < y"}, UnsupportedDtypeError, "'<'"),
    ("elementwise", (VECTOR + 0j, VECTOR), {**XY, "expression": "floor(x) + y"}, UnsupportedDtypeError, "abs()"),
    ("reduction", (VECTOR,), {"kind": "median"}, InvalidInputError, "'sum', 'mean', 'prod', 'max', 'min', 'norm'"),
    ("reduction", (VECTOR,), {"axis": 3}, InvalidInputError, "axis=3"),
    ("reduction", (MATRIX,), {"axis": (0, -2)}, InvalidInputError, "twice"),
    ("reduction", (MATRIX,), {"axis": "rows"}, InvalidInputError, "'rows'"),
    ("reduction", (VECTOR,), {"keepdims": "yes"}, InvalidInputError, "neither True nor False"),
    ("reduction", (VECTOR[:0],), {"kind": "max"}, ShapeError, "no elements"),
    ("reduction", (VECTOR + 0j,), {"kind": "min"}, UnsupportedDtypeError, "x.real"),
    ("bitwise_xor", (VECTOR, WHOLE), {}, UnsupportedDtypeError, "float64"),
    ("bitwise_xor", (WHOLE, WHOLE.astype("uint64")), {}, UnsupportedDtypeError, "int64 and uint64"),
    ("bitwise_xor", (WHOLE, np.arange(3)), {}, ShapeError, "do not broadcast"),
    ("random", (VECTOR, KEY), {"n": 3}, UnsupportedDtypeError, "float64"),
    ("random", (WHOLE, WHOLE.astype("int32")), {"n": 3}, UnsupportedDtypeError, "uint32"),
    ("random", (WHOLE, KEY[:2]), {"n": 3}, ShapeError, "four words"),
    ("random", (WHOLE, KEY), {"n": -1}, InvalidInputError, "n=-1"),
    ("random", (WHOLE, KEY), {"n": 2.0}, InvalidInputError, "is not an integer"),
    ("random", (WHOLE, KEY), {"n": 2, "kind": "cauchy"}, InvalidInputError, "'normal', 'uniform'"),
    ("random", (WHOLE, KEY), {"n": 2, "stream": 2**63}, InvalidInputError, "of 64 bits"),
    ("random", (WHOLE, KEY), {"n": 2, "dtype": "float16"}, UnsupportedDtypeError, "'float64' or 'float32'"),
    ("toeplitz_apply", (VECTOR, np.array(1.0)), {}, ShapeError, "at least one axis"),
    ("toeplitz_apply", (1.0, VECTOR), {}, ShapeError, "need the axes (-1,)"),
    ("toeplitz_apply", (VECTOR, MATRIX), {"axes": (0, 1)}, ShapeError, "need the axes (-2, -1)"),
    ("toeplitz_apply", (np.ones((2, 4)), np.ones((3, 4))), {}, ShapeError, "do not broadcast"),
    ("toeplitz_apply", (MATRIX, MATRIX), {"axes": (1, -1)}, InvalidInputError, "twice"),
    ("toeplitz_apply", (MATRIX, MATRIX), {"axes": ()}, InvalidInputError, "names no axis"),
    ("spectral_multiply", (VECTOR, np.array(1.0)), {}, ShapeError, "at least one axis"),
    ("spectral_multiply", (np.ones(5), VECTOR), {}, ShapeError, "5 frequencies along axis -1"),
    ("spectral_multiply", (np.ones(3), VECTOR + 0j), {}, ShapeError, "4 points"),
    ("spectral_multiply", (np.ones(3), VECTOR), {"kinds": "dst1"}, ShapeError, "3 frequencies"),
    ("spectral_multiply", (np.ones((3, 1)), np.ones((2, 4))), {}, ShapeError, "do not broadcast"),
    ("spectral_multiply", (VECTOR, VECTOR), {"kinds": "dct3"}, InvalidInputError, "'dct3'"),
    ("spectral_multiply", (VECTOR, VECTOR), {"kinds": ("fft", "fft")}, InvalidInputError, "2 kinds for 1 axes"),
    ("spectral_multiply", (VECTOR, MATRIX), {"axes": (1, -1)}, InvalidInputError, "twice"),
    ("spectral_multiply", (VECTOR, VECTOR), {"axes": ()}, InvalidInputError, "names no axis"),
    ("spectral_multiply", (VECTOR, VECTOR), {"axes": 1}, InvalidInputError, "axis=1"),
    ("spectral_multiply", (1.0, np.ones(1)), {"kinds": "dct1"}, ShapeError, "'dct2'"),
    ("spectral_multiply", (VECTOR, VECTOR + 0j), {"real": True}, InvalidInputError, "real part"),
    ("spectral_multiply", (1j, VECTOR), {"real": True, "kinds": "dct2"}, InvalidInputError, "symbol's real part"),
    ("spectral_multiply", (VECTOR, VECTOR), {"real": "yes"}, InvalidInputError, "True, False or None"),
]


@pytest.mark.parametrize(("name", "arrays", "params", "error", "words"), REFUSALS)
def test_refuses(name: str, arrays: Any, params: Any, error: type[HpfraccError], words: str) -> None:
    """A bad call is a typed error that shows the value, before any kernel runs."""
    with pytest.raises(error) as caught:
        PRIMITIVES[name].describe(*arrays, **params)
    assert words in str(caught.value)


def operands_of(name: str, dtype: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A plain call with every operand in ``dtype``."""
    specs, params = PRIMITIVES[name].example((4, 4), "float64")
    return tuple(np.zeros(spec.shape, dtype) for spec in specs), params


DTYPE_REMEDIES = [
    (object, "numpy.asarray"),
    ("float16", "convert it to float32"),
    (np.longdouble, "convert it to float64"),
    (np.clongdouble, "convert it to complex128"),
    (">f8", "byte order"),
    ("datetime64[s]", "convert it to one of"),
    ("U3", "convert it to one of"),
]


@pytest.mark.parametrize(("dtype", "words"), DTYPE_REMEDIES, ids=lambda value: str(value)[:16])
@pytest.mark.parametrize("name", sorted(set(PRIMITIVES) - {"bitwise_xor", "random"}))
def test_refuses_dtypes_with_the_remedy_that_fits(name: str, dtype: Any, words: str) -> None:
    """Objects, half and extended precision, foreign byte order, dates, text: each is told what to convert to."""
    arrays, params = operands_of(name, dtype)
    if name == "stencil_relax" and "complex" in words:
        words = "convert it to one of"  # distances are real
    with pytest.raises(UnsupportedDtypeError) as caught:
        PRIMITIVES[name].describe(*arrays, **params)
    assert words in str(caught.value)


def make(library: str, shape: tuple[int, ...], dtype: str) -> Any:
    if library == "spec":
        return ArraySpec(shape, dtype)
    if library == "numpy":
        return np.zeros(shape, dtype)
    module = importlib.import_module("torch" if library == "torch" else "jax.numpy")
    return module.zeros(shape, dtype=getattr(module, dtype))


LIBRARIES = ["spec", "numpy", *(name for name in ("torch", "jax") if is_installed(name))]


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("name", sorted(PRIMITIVES))
def test_describes_arrays_of_any_library_alike(name: str, library: str) -> None:
    """Only shape and dtype count, not whose array it is, or whether it exists at all."""
    dtype = "int32" if name == "bitwise_xor" else "float32"
    specs, params = PRIMITIVES[name].example((3, 5), dtype)
    arrays = [make(library, spec.shape, spec.dtype) for spec in specs]
    assert PRIMITIVES[name].describe(*arrays, **params) == PRIMITIVES[name].describe(*specs, **params)


@pytest.mark.skipif(not is_installed("torch"), reason="needs PyTorch, which has bfloat16")
def test_bfloat16_is_told_to_become_float32() -> None:
    """PyTorch's own dtype, which NumPy does not know, gets the same advice as half precision."""
    x = make("torch", (4,), "bfloat16")
    with pytest.raises(UnsupportedDtypeError, match="'bfloat16'.*convert it to float32"):
        PRIMITIVES["causal_convolution"].describe(x, x)


@pytest.mark.parametrize(
    ("name", "arrays", "params", "dtype", "shape"),
    [
        ("causal_convolution", ("float64", "float32"), {}, "float32", (4,)),
        ("causal_convolution", ("float32", "int8"), {}, "float64", (4,)),
        ("causal_convolution", ("complex64", "float64"), {}, "complex128", (4,)),
        ("causal_convolution", ("float32", "bool"), {}, "float64", (4,)),
        ("matmul", ("float32", "int64"), {}, "float64", ()),
        ("matmul", ("int8", "int16"), {}, "int16", ()),
        ("fft", ("int16",), {"kind": "ifft"}, "float64", (4,)),
        ("fft", ("float32",), {"kind": "irfft"}, "complex64", (6,)),
        ("elementwise", ("int32", "float32"), XY, "float64", (4,)),
        ("elementwise", ("int8", "bool"), XY, "float64", (4,)),
        ("reduction", ("int8",), {}, "int64", ()),
        ("reduction", ("uint16",), {"kind": "prod"}, "uint64", ()),
        ("reduction", ("bool",), {"kind": "mean"}, "float64", ()),
        ("reduction", ("int8",), {"kind": "max", "keepdims": True}, "int8", (1,)),
        ("bitwise_xor", ("int8", "uint8"), {}, "int16", (4,)),
    ],
)
def test_dtype_of_the_work(name: str, arrays: Any, params: Any, dtype: str, shape: tuple[int, ...]) -> None:
    """Mixed operands meet in the dtype that the contract says."""
    call = PRIMITIVES[name].describe(*(ArraySpec((4,), each) for each in arrays), **params)
    assert (call.dtype, call.shape) == (dtype, shape)


def test_a_python_number_takes_the_dtype_of_the_arrays_beside_it() -> None:
    """Elementwise, 2.0 does not turn float32 into float64, but 2j makes it complex."""
    x = np.ones(3, np.float32)
    assert PRIMITIVES["elementwise"].describe(x, 2.0, **XY).dtype == "float32"
    assert PRIMITIVES["elementwise"].describe(x, 2j, **XY).dtype == "complex64"
    assert PRIMITIVES["elementwise"].describe(1, 2, **XY).dtype == "float64"


@pytest.mark.parametrize("name", sorted(PRIMITIVES))
def test_work_and_memory_grow_with_the_call(name: str) -> None:
    """Twice the length is more work and no less memory; no work is negative, not even of nothing."""
    primitive = PRIMITIVES[name]
    for algorithm in ("direct", "fft", "blocked", "default", "fused"):
        costs = []
        for n in (0, 1, 16, 1000, 100_000):
            specs, params = primitive.example((2, n), "float64")
            call = primitive.describe(*specs, **params)
            costs.append((primitive.work(call, algorithm), primitive.memory(call, algorithm)))
        assert all(math.isfinite(work) and work >= 0 and memory >= 0 for work, memory in costs)
        assert costs == sorted(costs)
        assert costs[-1][0] > costs[2][0]


def test_bytes_are_those_of_operands_and_result() -> None:
    """In the dtypes in which they travel: real in and half a spectrum out, or a real norm of complex numbers."""
    call = PRIMITIVES["fft"].describe(ArraySpec((3, 8), "float32"), kind="rfft")
    assert (call.input_bytes, call.output_bytes, call.batch, call.length) == (96, 3 * 5 * 8, 3, 8)
    call = PRIMITIVES["reduction"].describe(ArraySpec((5, 8), "complex128"), kind="norm", axis=0)
    assert (call.input_bytes, call.output_bytes, call.batch, call.length) == (640, 64, 8, 5)


def test_a_call_that_fills_one_block_is_not_cut_into_blocks() -> None:
    """The refusal names the block; one point more, and there are two."""
    step = block_length(100) - 99
    describe = PRIMITIVES["causal_convolution"].describe
    assert "one block" in str(fills_one_block(describe(ArraySpec((100,)), ArraySpec((step,)))))
    assert fills_one_block(describe(ArraySpec((100,)), ArraySpec((step + 1,)))) is None
