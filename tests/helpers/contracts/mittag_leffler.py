"""Reference and test cases of ``mittag_leffler``."""

from __future__ import annotations

import cmath
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from hpfracc.engine.primitives.base import Primitive
from tests.helpers.contracts import Case, reversed_view, samples, strided_view


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


def reference(primitive: Primitive, *arrays: np.ndarray[Any, Any], **params: Any) -> np.ndarray[Any, Any]:
    """The contour integral by the trapezoid rule, in extended precision, to the right of every pole."""
    call = primitive.describe(*arrays, **params)
    z = np.asarray(arrays[0]).astype(call.dtype)
    alpha, beta, order = params["alpha"], params.get("beta", 1.0), params.get("order", 0)
    values = np.array([_integrate(complex(point), alpha, beta, order) for point in z.ravel()], np.complex128)
    result: np.ndarray[Any, Any] = values if np.iscomplexobj(z) else values.real
    return result.reshape(call.shape).astype(call.dtype)


def cases(primitive: Primitive, dtype: str) -> Iterator[Case]:
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
