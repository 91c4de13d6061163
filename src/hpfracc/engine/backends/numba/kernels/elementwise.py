"""Formulae in Numba: one loop for the whole formula, compiled at its first use.

Generated code has no file, so it cannot be cached on disk: each formula compiles once per dtype and process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numba
import numpy as np
from numba import njit, types

from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.backends.numba.arrays import Array, spread
from hpfracc.engine.numerics.expression import FUNCTIONS, parse_expression
from hpfracc.engine.workers import even_blocks, run_blocks


@njit(inline="always")
def _choose(condition, yes, no):  # type: ignore[no-untyped-def]
    return yes if condition else no


@njit(inline="always")
def _repeated(base, exponent):  # type: ignore[no-untyped-def]
    """An integer power by multiplications; for complex numbers Numba's own uses exp and log, and loses digits."""
    left, square, result = abs(exponent), base, base**0
    while left:
        if left & 1:
            result *= square
        square *= square
        left >>= 1
    return result if exponent >= 0 else np.divide(base**0, result)


_FUNCTIONS: dict[str, Any] = {
    **{name: getattr(np, name) for name in FUNCTIONS if name != "where"},
    "where": _choose,
    "repeated": _repeated,
    # As NumPy's; the operator raises ZeroDivisionError for complex numbers, whatever the error model.
    "quotient": np.divide,
}


@lru_cache(maxsize=512)
def _compiled(expression: str, names: tuple[str, ...], dtype: str) -> tuple[Callable[..., None], np.dtype[Any]]:
    """``loop(*operands, result, begin, stop)`` over flat arrays, and the dtype of the result."""
    formula = parse_expression(expression, names)
    kind = np.dtype(dtype)
    real = kind.type(0).real.dtype
    gives = formula.result(complex_operands=kind.kind == "c")
    result = {"bool": np.dtype(bool), "real": real, "complex": kind}[gives]
    # Numbers get the precision of the operands; Numba would add a float32 and 0.5 in float64.
    body = formula.render(
        number=lambda value: f"number({value!r})",
        name=lambda name: f"operand{names.index(name)}[i]",
        power="repeated({}, {})".format,
        quotient="quotient({}, {})".format,
    )
    parameters = ", ".join(f"operand{index}" for index in range(len(names)))
    source = (
        f"def loop({parameters}, result, begin, stop):\n"
        "    for i in range(index(begin), index(stop)):\n"
        f"        result[i] = {body}\n"
    )
    scope: dict[str, Any] = {**_FUNCTIONS, "number": numba.from_dtype(real), "index": numba.uintp, "range": range}
    exec(compile(source, "<expression>", "exec"), scope)
    # Declared as read-only, an operand may be writeable or not.
    operand = types.Array(numba.from_dtype(kind), 1, "C", readonly=True)
    target = types.Array(numba.from_dtype(result), 1, "C")
    signature = types.void(*[operand] * len(names), target, types.intp, types.intp)
    loop: Callable[..., None] = njit([signature], nogil=True, error_model="numpy")(scope["loop"])
    return loop, result


def evaluate_fused(*arrays: Array, expression: str, names: Sequence[str], workers: int = 1) -> Array:
    """A single pass over the data, divided among threads; operands that broadcast or are not contiguous are copied."""
    loop, dtype = _compiled(expression, tuple(names), arrays[0].dtype.char)
    shape = arrays[0].shape
    if not all(array.shape == shape and array.flags.c_contiguous and array.flags.aligned for array in arrays):
        shape = np.broadcast_shapes(*(array.shape for array in arrays))
        arrays = tuple(np.require(spread(array, shape), requirements=("C", "A")) for array in arrays)
    result = np.empty(shape, dtype)
    operands, target = [array.reshape(-1) for array in arrays], result.reshape(-1)
    if workers <= 1:
        loop(*operands, target, 0, target.size)
    else:
        run_blocks(lambda block: loop(*operands, target, *block), even_blocks(target.size, workers), workers)
    return result


KERNELS: dict[str, Kernel] = {"fused": Kernel(evaluate_fused)}
