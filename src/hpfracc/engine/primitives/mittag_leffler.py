"""Contract of the two-parameter Mittag-Leffler function, element by element."""

from __future__ import annotations

import math
from typing import Any, final

import numpy as np

from hpfracc import _reading
from hpfracc.engine.numerics.mittag_leffler_plan import check_parameters
from hpfracc.engine.primitives.base import ArraySpec, Call, Primitive, inexact, read_dtype, shape_of


@final
class MittagLefflerFunction(Primitive):
    """``mittag_leffler(z, alpha=, beta=1.0, order=0)``: E_{alpha,beta}(z), or its ``order``-th derivative in z.

    E_{a,b}(z) = sum_k z^k / Gamma(a k + b). ``z`` has any shape; integers are converted to float64, and the result has
    the dtype of z: real for real z. The computation is always in double precision. ``alpha`` and ``beta`` are
    numbers, not arrays. Beyond the range of the dtype the result is inf; nan stays nan.

    Differentiable in z.

    Algorithms: ``contour``; see :mod:`hpfracc.engine.numerics.mittag_leffler_plan`.
    """

    name = "mittag_leffler"
    operands = ("z",)
    free_parameters = frozenset({"alpha", "beta"})

    def describe(self, *arrays: Any, alpha: float, beta: float = 1.0, order: int = 0) -> Call:
        """Check operand and parameters; ``facts``: ``order``."""
        (z,) = arrays
        check_parameters(alpha, beta)
        order = _reading.whole(f"{self.name}: order", order, least=0)
        shape = shape_of(z)
        dtype = inexact(read_dtype(self.name, "z", z))
        return self.call(dtype, shape, [shape], batch=1, length=math.prod(shape), inner=(), order=order)

    def work(self, call: Call, algorithm: str) -> float:
        """Elements times the number of derivatives."""
        return float(call.length * (1 + call.facts["order"]))

    def workspace(self, call: Call, algorithm: str) -> int:
        """The points in double precision."""
        return call.length * call.wide_itemsize

    def block_elements(self, call: Call, algorithm: str) -> int:
        """Points: each needs about fifty fractions."""
        return call.length

    def example(self, shape: tuple[int, ...], dtype: str) -> tuple[tuple[ArraySpec, ...], dict[str, Any]]:
        """The solution of D^0.7 y = -y."""
        return (ArraySpec(shape, dtype),), {"alpha": 0.7}

    def typical(self, arrays: list[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
        """Arguments of decaying solutions: negative, small and large."""
        return [-4 * np.abs(arrays[0]).astype(arrays[0].dtype)]
