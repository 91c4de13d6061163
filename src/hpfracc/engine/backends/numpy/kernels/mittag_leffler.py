"""``mittag_leffler`` in NumPy."""

from __future__ import annotations

from typing import Any

from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.numerics.mittag_leffler_plan import make_contour_plan
from hpfracc.engine.numerics.mittag_leffler_values import evaluate


def mittag_leffler_contour(z: Any, *, alpha: float, beta: float = 1.0, order: int = 0) -> Any:
    """The ``order``-th derivative of E_{alpha,beta} at ``z``, in the dtype of ``z``."""
    return evaluate(z, make_contour_plan(float(alpha), float(beta), int(order)))


KERNELS: dict[str, Kernel] = {"contour": Kernel(mittag_leffler_contour)}
