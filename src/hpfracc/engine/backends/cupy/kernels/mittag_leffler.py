"""``mittag_leffler`` in CuPy: z sorted into the plan's bands, each evaluated in blocks that fit the GPU."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.numerics.mittag_leffler_plan import make_plan
from hpfracc.engine.numerics.mittag_leffler_poles import Namespace
from hpfracc.engine.numerics.mittag_leffler_sum import band_value, taylor_value, values_together

__all__ = ["KERNELS", "mittag_leffler_contour"]


def _join(real: cupy.ndarray, imag: cupy.ndarray) -> cupy.ndarray:
    value = cupy.empty(np.broadcast_shapes(real.shape, imag.shape), np.complex128)
    value.real, value.imag = real, imag
    return value


_TOOLS = Namespace(cupy, _join, cupy.asarray)


def mittag_leffler_contour(z: Any, *, alpha: float, beta: float = 1.0, order: int = 0) -> cupy.ndarray:
    """The ``order``-th derivative of E_{alpha,beta} at ``z``, in the dtype of ``z``."""
    z = cupy.asarray(z)
    plan = make_plan(float(alpha), float(beta), int(order))
    points = cupy.ravel(z).astype(np.complex128 if z.dtype.kind == "c" else np.float64, copy=False)
    values = cupy.empty_like(points)
    radius = cupy.abs(points)
    # nan, from z, stays below every edge and goes through the power series.
    found = cupy.searchsorted(cupy.asarray(plan.edges), radius, side="right") - 1
    band_of = cupy.where(radius > plan.radius, found, -1)
    together = values_together(points.size)
    for index in cupy.unique(band_of).tolist():
        where = cupy.nonzero(band_of == index)[0]
        for start in range(0, where.size, together):
            block = where[start : start + together]
            if index < 0:
                values[block] = taylor_value(plan, points[block])
            else:
                values[block] = band_value(_TOOLS, plan, index, points[block])
    values = _limits(plan.alpha, points, radius, values)
    return values.reshape(z.shape).astype(z.dtype, copy=False)


def _limits(alpha: float, points: cupy.ndarray, radius: cupy.ndarray, values: cupy.ndarray) -> cupy.ndarray:
    """At infinity: inf to the right of the real axis, 0 to the left below alpha = 2; elsewhere there is no limit."""
    limit = cupy.where(points.real > 0, cupy.full_like(radius, np.inf), 0.0 if alpha < 2 else np.nan)
    limit = cupy.where(points.imag == 0, limit, np.nan)
    return cupy.where(cupy.isinf(radius), limit.astype(values.dtype), values)


KERNELS: dict[str, Kernel] = {"contour": Kernel(mittag_leffler_contour)}
