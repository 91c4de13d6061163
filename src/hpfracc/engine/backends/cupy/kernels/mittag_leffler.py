"""``mittag_leffler`` in CuPy: z sorted into the plan's bands, each evaluated in blocks that fit the GPU."""

from __future__ import annotations

from typing import Any

import cupy

from hpfracc._xp import namespace
from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.numerics.mittag_leffler_plan import make_contour_plan
from hpfracc.engine.numerics.mittag_leffler_values import values_on_bands, values_together

__all__ = ["KERNELS", "mittag_leffler_contour"]


def mittag_leffler_contour(z: Any, *, alpha: float, beta: float = 1.0, order: int = 0) -> cupy.ndarray:
    """The ``order``-th derivative of E_{alpha,beta} at ``z``, in the dtype of ``z``."""
    z = cupy.asarray(z)
    plan = make_contour_plan(float(alpha), float(beta), int(order))
    values = values_on_bands(namespace("cupy"), cupy.ravel(z), plan, values_together(z.size))
    return values.reshape(z.shape).astype(z.dtype, copy=False)


KERNELS: dict[str, Kernel] = {"contour": Kernel(mittag_leffler_contour)}
