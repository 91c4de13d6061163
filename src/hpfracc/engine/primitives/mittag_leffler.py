"""Contract of the two-parameter Mittag-Leffler function, element by element."""

from __future__ import annotations

import cmath
import math
from collections.abc import Iterator
from typing import Any, final

import numpy as np

from hpfracc.engine.numerics.mittag_leffler_plan import check_parameters
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
from hpfracc.engine.primitives.cuts import Cut, broadcast_cuts
from hpfracc.engine.primitives.operands import dtype_bytes, elements, read_dtype, shape_of, whole_number
from hpfracc.errors import InvalidInputError

__all__ = ["MittagLefflerFunction"]


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

    def describe(self, *arrays: Any, alpha: float, beta: float = 1.0, order: int = 0) -> Call:
        """Check operand and parameters; ``facts``: ``order``."""
        (z,) = arrays
        check_parameters(alpha, beta)
        if whole_number(self.name, "order", order) < 0:
            raise InvalidInputError(f"{self.name}: order={order!r} of a derivative; use 0 or more")
        dtype = read_dtype(self.name, "z", z, INEXACT | INTEGERS)
        if dtype not in INEXACT:
            dtype = "float64"
        shape = shape_of(z)
        size = elements(shape)
        bytes_ = size * dtype_bytes(dtype)
        return Call(self.name, 1, size, dtype, shape, bytes_, bytes_, {"order": order})

    def work(self, call: Call, algorithm: str) -> float:
        """Elements times the number of derivatives."""
        return float(call.length * (1 + call.facts["order"]))

    def workspace(self, call: Call, algorithm: str) -> int:
        """The points in double precision."""
        return call.length * call.wide_itemsize

    def block_elements(self, call: Call, algorithm: str) -> int:
        """Points: each needs about fifty fractions."""
        return call.length

    def cuts(self, call: Call, *arrays: Any, **params: Any) -> Iterator[Cut]:
        """Every axis, the longest first."""
        return broadcast_cuts(map(shape_of, arrays), call.shape)

    def example(self, shape: tuple[int, ...], dtype: str) -> tuple[tuple[ArraySpec, ...], dict[str, Any]]:
        """The solution of D^0.7 y = -y."""
        return (ArraySpec(shape, dtype),), {"alpha": 0.7}

    def typical(self, arrays: list[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
        """Arguments of decaying solutions: negative, small and large."""
        return [-4 * np.abs(arrays[0]).astype(arrays[0].dtype)]

    def reference(self, *arrays: np.ndarray[Any, Any], **params: Any) -> np.ndarray[Any, Any]:
        """The contour integral by the trapezoid rule, in extended precision, to the right of every pole."""
        call = self.describe(*arrays, **params)
        z = np.asarray(arrays[0]).astype(call.dtype)
        alpha, beta, order = params["alpha"], params.get("beta", 1.0), params.get("order", 0)
        values = np.array([_integrate(complex(point), alpha, beta, order) for point in z.ravel()], np.complex128)
        result: np.ndarray[Any, Any] = values if np.iscomplexobj(z) else values.real
        return result.reshape(call.shape).astype(call.dtype)

    def cases(self, dtype: str) -> Iterator[Case]:
        """Both sides of alpha = 1, elementary ones, derivatives, and memory layouts."""
        z = samples(dtype, 60, 1)
        params = {"alpha": 0.7}
        yield Case("alpha=0.7", (z,), params, differentiable=True)
        yield Case("alpha=1.5, beta=0.8", (z,), {"alpha": 1.5, "beta": 0.8}, differentiable=True)
        for alpha, beta in [(0.5, 0.5), (2.0, 1.0), (1.0, 2.0), (2.6, 0.3)]:
            yield Case(f"alpha={alpha}, beta={beta}", (z,), {"alpha": alpha, "beta": beta})
        yield Case("first derivative", (z,), {**params, "order": 1})
        yield Case("third derivative", (z,), {"alpha": 1.4, "beta": 0.8, "order": 3})
        yield Case("batch", (samples(dtype, (3, 1, 7), 2),), params)
        yield Case("no axes", (z[0, ...],), params)
        yield Case("no elements", (z[:0],), params)
        yield Case("strided", (strided_view(samples(dtype, (4, 5), 3)),), params)
        yield Case("reversed", (reversed_view(z),), params)
        yield Case("transposed", (samples(dtype, (4, 5), 4).T,), params)
        if dtype == "float64":
            yield Case("whole numbers", (np.arange(-4, 3),), params)


def _integrate(z: complex, alpha: float, beta: float, order: int) -> complex:
    """``n!/(2 pi i) int e^s s^(a-b) / (s^a - z)^(n+1) ds``."""
    angles = [(cmath.phase(z) + 2 * math.pi * j) / alpha for j in range(-int(alpha) - 1, int(alpha) + 2)]
    farthest = max((math.cos(theta / 2) for theta in angles if abs(theta) <= math.pi), default=0.0)
    mu = max(1.0, abs(z) ** (1 / alpha) * (farthest / 0.8) ** 2)
    step = np.longdouble(0.012)
    u = step * np.arange(-math.ceil(8 / 0.012), math.ceil(8 / 0.012) + 1)
    turn = 1 + 1j * u.astype(np.clongdouble)
    s = mu * turn**2
    logs = np.log(s)
    integrand = np.exp(s + (alpha - beta) * logs) * turn / (np.exp(alpha * logs) - z) ** (order + 1)
    return complex(integrand.sum() * step * mu / np.pi * math.factorial(order))
