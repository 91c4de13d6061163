"""Contract of reductions along axes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, final

import numpy as np

from hpfracc import _reading
from hpfracc.engine.primitives.base import (
    INTEGERS,
    ArraySpec,
    Call,
    Cut,
    Primitive,
    normal_axes,
    read_dtype,
    real_of,
    shape_of,
)
from hpfracc.errors import ShapeError, UnsupportedDtypeError

KINDS = ("sum", "mean", "prod", "max", "min", "norm")
#: Kinds that add up; integers do so in 64 bits, as in NumPy on all supported systems.
_WIDENED = {name: "uint64" if name.startswith("u") else "int64" for name in INTEGERS}


def reduced_axes(axis: Any, axes: int) -> tuple[int, ...]:
    """``axis`` (None, a number or several) as ascending axes counted from the front."""
    return tuple(range(axes)) if axis is None else tuple(sorted(normal_axes("reduction", axis, axes)))


@final
class Reduction(Primitive):
    """``reduction(x, kind="sum", axis=None, keepdims=False)``; kinds: sum, mean, prod, max, min, norm.

    ``axis`` is None (all), a number or a tuple. ``norm`` is the 2-norm, ``sqrt(sum |x|^2)``, unscaled, and real. Sums
    and products of integers are exact modulo 2^64; their mean and norm are float64. max and min propagate nan. For no
    elements a sum is 0, a product 1, a mean nan and a norm 0; a maximum or minimum raises an error.

    Floating-point sums are computed in blocks or pairs: their error grows at most like the logarithm of the number of
    elements. The error of a product grows linearly. Differentiable in ``x``.
    """

    name = "reduction"
    operands = ("x",)

    def describe(self, x: Any, *, kind: str = "sum", axis: Any = None, keepdims: bool = False) -> Call:
        """Check the call; ``facts``: ``kind``, ``result`` (a dtype), and whether the reduced axes come last."""
        dtype = read_dtype(self.name, "x", x)
        _reading.choice(f"{self.name}: kind", kind, KINDS)
        _reading.flag(f"{self.name}: keepdims", keepdims)
        if kind in ("max", "min") and dtype.startswith("complex"):
            raise UnsupportedDtypeError(f"{self.name}: complex numbers have no {kind}; reduce x.real, or abs(x)")
        if dtype in INTEGERS and kind not in ("max", "min"):
            dtype = _WIDENED[dtype] if kind in ("sum", "prod") else "float64"
        shape = shape_of(x)
        gone = reduced_axes(axis, len(shape))
        length = math.prod(shape[i] for i in gone)
        if not length and kind in ("max", "min"):
            raise ShapeError(f"{self.name}: {kind} over no elements (shape {shape}); give it at least one")
        return self.call(
            dtype,
            tuple(1 if i in gone else size for i, size in enumerate(shape) if keepdims or i not in gone),
            [shape],
            batch=math.prod(size for i, size in enumerate(shape) if i not in gone),
            length=length,
            result=real_of(dtype) if kind == "norm" else dtype,
            kind=kind,
            trailing=gone == tuple(range(len(shape) - len(gone), len(shape))),
        )

    def work(self, call: Call, algorithm: str) -> float:
        """Elements."""
        return float(call.batch * call.length)

    def workspace(self, call: Call, algorithm: str) -> int:
        """The squares of a norm along non-adjacent axes; nothing otherwise."""
        return 0 if call.facts["trailing"] else self.block_elements(call, algorithm) * call.itemsize

    def block_elements(self, call: Call, algorithm: str) -> int:
        """The squares of a norm."""
        return call.batch * call.length if call.facts["kind"] == "norm" else 0

    def cuts(self, call: Call, *arrays: Any, **params: Any) -> Iterator[Cut]:
        """Remaining axes, the longest first; then reduced ones, whose parts are reduced again."""
        shape = shape_of(arrays[0])
        gone = reduced_axes(params.get("axis"), len(shape))
        kept = [axis for axis in range(len(shape)) if axis not in gone]
        for axis in sorted(kept, key=lambda axis: -shape[axis]):
            if shape[axis] > 1:
                place = axis if params.get("keepdims") else kept.index(axis)
                yield Cut(place - len(call.shape), shape[axis], (axis - len(shape),))
        for axis in sorted(gone, key=lambda axis: -shape[axis]):
            if shape[axis] > 1:
                yield Cut(axis - len(shape), shape[axis], (axis - len(shape),), merges=True)

    def merge(self, parts: np.ndarray[Any, Any], sizes: tuple[int, ...], **params: Any) -> np.ndarray[Any, Any]:
        """Sums of sums, products of products; means weighted by the number of elements."""
        kind = params.get("kind", "sum")
        with np.errstate(all="ignore"):
            if kind == "mean":
                shares = np.asarray(sizes, parts.real.dtype) / sum(sizes)
                return np.asarray(np.tensordot(shares, parts, axes=1), parts.dtype)
            if kind == "norm":
                return np.asarray(np.sqrt(np.sum(parts * parts, axis=0)))
            merge = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}[kind]
            return np.asarray(merge.reduce(parts, axis=0), parts.dtype)

    def example(self, shape: tuple[int, ...], dtype: str) -> tuple[tuple[ArraySpec, ...], dict[str, Any]]:
        """The sum of each row."""
        return (ArraySpec(shape, dtype),), {"kind": "sum", "axis": -1 if shape else None}
