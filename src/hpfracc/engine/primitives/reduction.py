"""Contract of reductions along axes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, final

import numpy as np

from hpfracc.engine.primitives.base import (
    INEXACT,
    INTEGERS,
    ArraySpec,
    Call,
    Case,
    Primitive,
    reversed_view,
    samples,
    strided_view,
)
from hpfracc.engine.primitives.cuts import Cut
from hpfracc.engine.primitives.operands import dtype_bytes, elements, normal_axis, read_dtype, real_of, shape_of
from hpfracc.errors import InvalidInputError, ShapeError, UnsupportedDtypeError

__all__ = ["KINDS", "Reduction", "reduced_axes"]

_TAKES = INEXACT | INTEGERS
KINDS = ("sum", "mean", "prod", "max", "min", "norm")
#: Kinds that add up; integers do so in 64 bits, as in NumPy on all supported systems.
_WIDENED = {name: "uint64" if name.startswith("u") else "int64" for name in INTEGERS}


def reduced_axes(axis: Any, axes: int) -> tuple[int, ...]:
    """``axis`` (None, a number or several) as ascending axes counted from the front."""
    if axis is None:
        return tuple(range(axes))
    if not isinstance(axis, tuple | list):
        return (normal_axis("reduction", axis, axes),)
    chosen = sorted(normal_axis("reduction", each, axes) for each in axis)
    if len(set(chosen)) != len(chosen):
        raise InvalidInputError(f"reduction: axis={axis!r} names an axis twice; name each once")
    return tuple(chosen)


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
        dtype = read_dtype(self.name, "x", x, _TAKES)
        if kind not in KINDS:
            raise InvalidInputError(f"{self.name}: kind={kind!r} is not a reduction; use {', '.join(KINDS)}")
        if not isinstance(keepdims, bool | np.bool_):
            raise InvalidInputError(f"{self.name}: keepdims={keepdims!r} is not a flag; use True or False")
        if kind in ("max", "min") and dtype.startswith("complex"):
            raise UnsupportedDtypeError(f"{self.name}: complex numbers have no {kind}; reduce x.real, or abs(x)")
        if dtype in INTEGERS and kind not in ("max", "min"):
            dtype = _WIDENED[dtype] if kind in ("sum", "prod") else "float64"
        shape = shape_of(x)
        gone = reduced_axes(axis, len(shape))
        length = elements(tuple(shape[i] for i in gone))
        batch = elements(tuple(size for i, size in enumerate(shape) if i not in gone))
        if not length and kind in ("max", "min"):
            raise ShapeError(f"{self.name}: {kind} over no elements (shape {shape}); give it at least one")
        out = tuple(1 if i in gone else size for i, size in enumerate(shape) if keepdims or i not in gone)
        result = real_of(dtype) if kind == "norm" else dtype
        return Call(
            operation=self.name,
            batch=batch,
            length=length,
            dtype=dtype,
            shape=out,
            input_bytes=batch * length * dtype_bytes(dtype),
            output_bytes=batch * dtype_bytes(result),
            facts={
                "kind": kind,
                "result": result,
                "trailing": gone == tuple(range(len(shape) - len(gone), len(shape))),
            },
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

    def reference(self, *arrays: np.ndarray[Any, Any], **params: Any) -> np.ndarray[Any, Any]:
        """NumPy in extended precision."""
        call = self.describe(*arrays, **params)
        kind = np.dtype(call.dtype).kind
        x = np.asarray(arrays[0]).astype(call.dtype)
        x = x.astype({"f": np.longdouble, "c": np.clongdouble}.get(kind, x.dtype.type))
        options = {"axis": reduced_axes(params.get("axis"), x.ndim), "keepdims": params.get("keepdims", False)}
        with np.errstate(all="ignore"):
            if call.facts["kind"] == "norm":
                result = np.sqrt(np.sum(x.real**2 + x.imag**2, **options))
            elif call.facts["kind"] == "mean":
                result = np.sum(x, **options) / np.longdouble(call.length)
            else:
                result = getattr(np, call.facts["kind"])(x, **options)
        return np.asarray(result).astype(call.facts["result"])

    def cases(self, dtype: str) -> Iterator[Case]:
        """Each kind the dtype has, over axes, memory layouts and lengths that cross a block's edge."""
        inexact = dtype in INEXACT
        for kind in KINDS:
            ordered = kind in ("max", "min")
            if (ordered and dtype.startswith("complex")) or (
                not inexact and not ordered and dtype not in _WIDENED.values()
            ):
                continue  # smaller integers are widened before summation, so kernels do not get them
            if not inexact and kind in ("mean", "norm"):
                continue
            x = samples(dtype, (3, 4, 5), 1)
            smooth = inexact and not ordered
            yield Case(f"{kind} of all", (x,), {"kind": kind}, smooth)
            yield Case(f"{kind} of rows", (x,), {"kind": kind, "axis": -1}, smooth)
            yield Case(f"{kind} of columns", (x,), {"kind": kind, "axis": 0, "keepdims": True}, smooth)
            yield Case(f"{kind} of the middle", (x,), {"kind": kind, "axis": 1})
            yield Case(f"{kind} of two axes", (x,), {"kind": kind, "axis": (0, -1)}, smooth)
            yield Case(f"{kind} of the last two", (x,), {"kind": kind, "axis": (1, 2), "keepdims": True})
            yield Case(f"{kind} of no axis", (x,), {"kind": kind, "axis": ()})
            yield Case(f"{kind} without axes", (x[0, 0, 0, ...],), {"kind": kind})
            yield Case(f"{kind} of one", (x[:1, :1, :1],), {"kind": kind})
            yield Case(f"{kind} strided", (strided_view(x),), {"kind": kind, "axis": -1})
            yield Case(f"{kind} reversed", (reversed_view(x),), {"kind": kind})
            yield Case(f"{kind} transposed", (x.T,), {"kind": kind, "axis": 0})
            scaled = samples(dtype, 5003, 2) / (40 if kind == "prod" and inexact else 1)
            long = (scaled + (1 if kind == "prod" else 0)).astype(dtype) if inexact else samples(dtype, 5003, 2)
            yield Case(f"{kind} of many", (long,), {"kind": kind})
            yield Case(f"{kind} of long columns", (long[:4998].reshape(1666, 3),), {"kind": kind, "axis": 0})
            yield Case(f"{kind} of no rows", (x[:0],), {"kind": kind, "axis": 1})
            if not ordered:
                yield Case(f"{kind} of nothing", (x[:, :0],), {"kind": kind})
                yield Case(f"{kind} of empty columns", (x[:, :0],), {"kind": kind, "axis": 1})
        if dtype == "float64":
            yield Case("mean of integers", (np.arange(7),), {"kind": "mean"})
            yield Case("norm of booleans", (np.arange(7) % 2 == 0,), {"kind": "norm"})
        elif dtype == "int64":
            yield Case("sum of bytes", (samples("int8", (4, 300), 3),), {"kind": "sum", "axis": 1})
            yield Case("sum of booleans", (samples("bool", 50, 3),), {"kind": "sum"})
