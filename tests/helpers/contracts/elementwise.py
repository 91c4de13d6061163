"""Reference and test cases of ``elementwise``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from hpfracc.engine.numerics.expression import Expression, parse_expression
from hpfracc.engine.primitives.base import Primitive
from tests.helpers.contracts import Case, reversed_view, samples, strided_view


def reference(primitive: Primitive, *arrays: np.ndarray[Any, Any], **params: Any) -> np.ndarray[Any, Any]:
    """NumPy in extended precision."""
    call = primitive.describe(*arrays, **params)
    wide = np.clongdouble if call.dtype.startswith("complex") else np.longdouble
    formula: Expression = parse_expression(params["expression"], params["names"])
    operands = [np.asarray(array).astype(call.dtype).astype(wide) for array in arrays]
    with np.errstate(all="ignore"):
        result = formula.compile_for(vars(np))(*operands)
        return np.broadcast_to(np.asarray(result), call.shape).astype(call.facts["result"])


def cases(primitive: Primitive, dtype: str) -> Iterator[Case]:
    """Every function and operator the dtype allows, then broadcasting and memory layouts."""
    x, y = samples(dtype, 40, 1), samples(dtype, 40, 2)
    names = ("x", "y")
    # Few and long: some backends compile each for half a second.
    smooth = ["x*y + sin(x)", "exp(-x*x)*cos(y) - 2*x/(3 + y*y) + sinh(x)*tanh(y/4)/cosh(x/8) + x**3 - y**2 + pi"]
    rough = ["abs(x) + sqrt(y*y + 1) + tan(x/4) - log(x*x + 2)*y + log10(y*y + 2)", "where(x != y, x, -y)"]
    if dtype.startswith("complex"):
        rough += ["abs(x) - abs(y)", "x == y"]
    else:
        smooth += ["arctan(x) + arcsin(y/8)*arccos(y/9) + expm1(x)*log1p(y*y) + log2(1 + x*x) + (x*x + 1)**y + e"]
        rough += ["where(x > 0, x, 0.1*y) + where(x <= y, 1, 0.1) + (x > 0)*y + power(x*x, 0.5) + sign(y)"]
        rough += ["floor(x*3) + ceil(y) + x % 0.7 + y // 0.3 + minimum(x, y) - maximum(x, 0.25)", "x < y"]
    for expression in smooth:
        yield Case(expression, (x, y), {"expression": expression, "names": names}, differentiable=True)
    for expression in rough:
        yield Case(expression, (x, y), {"expression": expression, "names": names})
    params = {"expression": "x*y + sin(x)", "names": names}
    yield Case("one element", (x[:1], y[:1]), params)
    yield Case("no axes", (x[0, ...], y[1, ...]), params)
    yield Case("prime length", (samples(dtype, 1031, 3), samples(dtype, 1031, 4)), params)
    yield Case("several blocks", (samples(dtype, 70_001, 3), samples(dtype, 70_001, 4)), params)
    yield Case("no elements", (x[:0], y[:0]), params)
    grid, row = samples(dtype, (5, 1, 8), 5), samples(dtype, (3, 1), 6)
    yield Case("broadcast", (grid, row), params, differentiable=True)
    yield Case("broadcast over nothing", (samples(dtype, (0, 4), 7), x[:4]), params)
    yield Case("scalar operand", (grid, x[0, ...]), params)
    yield Case("strided", (strided_view(grid), strided_view(row)), params)
    yield Case("reversed", (reversed_view(x), y), params)
    yield Case("transposed", (samples(dtype, (6, 7), 8).T, samples(dtype, (7, 6), 9)), params)
    three = {"expression": "a*b - c", "names": ("a", "b", "c")}
    yield Case("three operands", (x, y, samples(dtype, 40, 10)), three)
    yield Case("one operand", (x,), {"expression": "z*z*z + 1", "names": ("z",)})
    if dtype == "float64":
        yield Case("integers", (np.arange(1, 9), np.arange(8)), {"expression": "y/x", "names": ("x", "y")})
        yield Case("mixed precision", (samples("float32", 12, 11), samples("float64", 12, 12)), params)
    elif dtype == "complex64":
        yield Case("real and complex", (samples("float32", 12, 11), x[:12]), params)
