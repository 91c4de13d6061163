"""Reference and test cases of ``reduction``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from hpfracc.engine.primitives.base import INEXACT, Primitive
from hpfracc.engine.primitives.reduction import _WIDENED, KINDS, reduced_axes
from tests.helpers.contracts import Case, reversed_view, samples, strided_view


def reference(primitive: Primitive, *arrays: np.ndarray[Any, Any], **params: Any) -> np.ndarray[Any, Any]:
    """NumPy in extended precision."""
    call = primitive.describe(*arrays, **params)
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


def cases(primitive: Primitive, dtype: str) -> Iterator[Case]:
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
