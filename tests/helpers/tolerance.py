"""How far a kernel may be from the right answer: a few units of the dtype's rounding, at the size of the operands."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hpfracc.engine.backends.numpy.kernels.history_sum import KERNELS
from hpfracc.engine.primitives.base import Call

#: Units of rounding that count as "a few".
FEW = 8.0


def eps(dtype: str) -> float:
    """The rounding unit of a dtype, 0 for one that is exact."""
    kind = np.dtype(dtype)
    return float(np.finfo(kind).eps) if kind.kind in "fc" else 0.0


def bound(call: Call, arrays: Sequence[np.ndarray], params: Mapping[str, Any], answer: np.ndarray) -> np.ndarray:
    """The largest error allowed at each element of the answer."""
    try:
        scale = _SCALES[call.operation]
    except KeyError:
        raise AssertionError(f"say in {__name__} how exact {call.operation!r} is") from None
    return np.asarray(FEW * eps(call.dtype) * scale(call, arrays, params, answer))


def _convolution(call: Call, arrays: Sequence[np.ndarray], params: Mapping[str, Any], answer: np.ndarray) -> Any:
    """``(sum |w|) (max |x|)`` of each row, finite values only; starting weights count too, and differences twice."""
    weights, signal, *starts = (np.where(np.isfinite(array), np.abs(array), 0) for array in arrays)
    total = weights.sum(-1, keepdims=True) + sum(row.max(initial=0) for rows in starts for row in rows)
    return total * signal.max(-1, keepdims=True, initial=0) * (1 + params.get("differences", False))


def _matmul(call: Call, arrays: Sequence[np.ndarray], params: Mapping[str, Any], answer: np.ndarray) -> Any:
    if not eps(call.dtype):
        return 0.0
    return np.matmul(*(np.abs(array) for array in arrays))


def _fft(call: Call, arrays: Sequence[np.ndarray], params: Mapping[str, Any], answer: np.ndarray) -> Any:
    """The largest value of each transform; errors grow with the logarithm of its length."""
    largest = np.abs(answer).max(params.get("axis", -1), keepdims=True, initial=0)
    return (1 + math.log2(max(1, call.length))) * largest


def _elementwise(call: Call, arrays: Sequence[np.ndarray], params: Mapping[str, Any], answer: np.ndarray) -> Any:
    """The value, or the size of the numbers that went in: the cases are formulae that do not blow those up."""
    return 1 + np.abs(answer.astype(np.complex128))


def _reduction(call: Call, arrays: Sequence[np.ndarray], params: Mapping[str, Any], answer: np.ndarray) -> Any:
    kind = call.facts["kind"]
    if kind in ("max", "min") or not eps(call.dtype):
        return 0.0
    if kind == "norm":
        return np.abs(answer)
    if kind == "prod":
        return np.abs(answer) * max(1, call.length)
    options = {"axis": params.get("axis"), "keepdims": params.get("keepdims", False)}
    return np.abs(arrays[0]).sum(**options) / (max(1, call.length) if kind == "mean" else 1)


def _mittag_leffler(call: Call, arrays: Sequence[np.ndarray], params: Mapping[str, Any], answer: np.ndarray) -> Any:
    """A relative error of 1e-13, which is what its authors promise in double precision, or a few units of less."""
    return np.abs(answer) * max(1.0, 1e-13 / (FEW * eps(call.dtype)))


def _spectral(call: Call, arrays: Sequence[np.ndarray], params: Mapping[str, Any], answer: np.ndarray) -> Any:
    """``max |symbol|`` times the root of the mean square of each transform, and its logarithm and root of points."""
    axes = (*(axis for axis, _ in call.facts["waves"]), *call.facts["turns"])
    size = np.sqrt((np.abs(arrays[1]) ** 2).sum(axes, keepdims=True))
    return (1 + math.log2(max(1, call.length))) * np.abs(arrays[0]).max(initial=0) * size


def _toeplitz(call: Call, arrays: Sequence[np.ndarray], params: Mapping[str, Any], answer: np.ndarray) -> Any:
    """``(sum |w|) (max |x|)`` over the axes summed along, both sides counted, finite values only."""
    weights, signal = (np.where(np.isfinite(array), np.abs(array), 0) for array in arrays)
    axes = call.facts["axes"]
    return 2 ** len(axes) * weights.sum(axes, keepdims=True) * signal.max(axes, keepdims=True, initial=0)


def _stencil(call: Call, arrays: Sequence[np.ndarray], params: Mapping[str, Any], answer: np.ndarray) -> Any:
    """The distance and the prices at the sources, and as many roundings as a path of such a lattice may have steps."""
    prices = np.abs(arrays[1][np.isfinite(arrays[1])]).max(initial=0)
    reached = np.where(np.isfinite(answer), np.abs(answer), 0)
    return (reached + prices) * max(1, call.facts["reach"])


def _recurrence(call: Call, arrays: Sequence[np.ndarray], params: Mapping[str, Any], answer: np.ndarray) -> Any:
    """All terms that a value could be the sum of: every weight with every sample; double precision all the way."""
    _, weights, _, signal, initial = (np.where(np.isfinite(array), np.abs(array), 0) for array in arrays)
    sizes = signal.astype(np.float64).sum(-1, keepdims=True) + initial.max(-1, keepdims=True, initial=0)
    return (1 + weights.sum()) * sizes


def _history(call: Call, arrays: Sequence[np.ndarray], params: Mapping[str, Any], answer: np.ndarray) -> Any:
    """The sum with every sample at its size, of weights that are right to a few units each."""
    times, signal, *parameters = arrays
    if call.facts["kernel"] == "tabulated":
        parameters = [parameters[0], np.abs(parameters[1])]
    sizes = np.abs(np.where(np.isfinite(signal), signal, 0)).astype(np.float64)
    return 2 * KERNELS["direct"].run(times, sizes, *parameters, **params)


def _chirp_transform(call: Call, arrays: Sequence[np.ndarray], params: Mapping[str, Any], answer: np.ndarray) -> Any:
    """The norm of each row times that of a chirp, as of a convolution by FFT."""
    size = max(1, call.length + call.facts["points"])
    norm = np.sqrt((np.abs(arrays[0]) ** 2).sum(-1, keepdims=True, dtype=np.float64))
    return (1 + math.log2(size)) * math.sqrt(size) * norm


def _random(call: Call, arrays: Sequence[np.ndarray], params: Mapping[str, Any], answer: np.ndarray) -> Any:
    """A few units of the value; the reference itself has an absolute error where a cosine is near 0."""
    return np.abs(answer) / 4 + 1e-3 * (call.facts["kind"] == "normal")


def _tridiagonal(call: Call, arrays: Sequence[np.ndarray], params: Mapping[str, Any], answer: np.ndarray) -> Any:
    """The componentwise condition, ``|A^-1| |A| |x|``, as often as a reduction has steps."""
    shape = (*call.shape, call.length)
    lower, diagonal, upper = (np.broadcast_to(array, call.shape) for array in arrays[:3])
    matrix = np.zeros(shape, np.complex128)
    place = np.arange(call.length)
    matrix[..., place, place] = diagonal
    matrix[..., place[1:], place[:-1]] = lower[..., 1:]
    matrix[..., place[:-1], place[1:]] = upper[..., :-1]
    sizes = np.abs(matrix) @ np.abs(np.where(np.isfinite(answer), answer, 0))[..., None]
    return (1 + math.log2(max(1, call.length))) * (np.abs(np.linalg.inv(matrix)) @ sizes)[..., 0]


def _exact(call: Call, arrays: Sequence[np.ndarray], params: Mapping[str, Any], answer: np.ndarray) -> Any:
    return 0.0


_SCALES: dict[str, Callable[[Call, Sequence[np.ndarray], Mapping[str, Any], np.ndarray], Any]] = {
    "causal_convolution": _convolution,
    "matmul": _matmul,
    "fft": _fft,
    "elementwise": _elementwise,
    "reduction": _reduction,
    "bitwise_xor": _exact,
    "mittag_leffler": _mittag_leffler,
    "spectral_multiply": _spectral,
    "toeplitz_apply": _toeplitz,
    "stencil_relax": _stencil,
    "exponential_recurrence": _recurrence,
    "history_sum": _history,
    "chirp_transform": _chirp_transform,
    "random": _random,
    "tridiagonal_solve": _tridiagonal,
}


def disagreement(result: np.ndarray, answer: np.ndarray, allowed: np.ndarray) -> str | None:
    """Where ``result`` leaves ``answer`` by more than ``allowed``, or None; equal infinities and nans agree."""
    if result.shape != answer.shape or result.dtype != answer.dtype:
        return f"{result.dtype}{result.shape} instead of {answer.dtype}{answer.shape}"
    if answer.dtype.kind not in "fc":
        wrong = result != answer
        return f"{int(wrong.sum())} elements differ" if wrong.any() else None
    with np.errstate(invalid="ignore"):
        same = (result == answer) | (np.isnan(result) & np.isnan(answer))
        error = np.where(same, 0, np.abs(result - answer))
        wrong = ~(error <= allowed)
    if not wrong.any():
        return None
    where = np.unravel_index(int(np.argmax(np.where(np.isnan(error), np.inf, error - allowed))), answer.shape)
    return f"{result[where]} instead of {answer[where]} at {tuple(map(int, where))}, {int(wrong.sum())} such"
