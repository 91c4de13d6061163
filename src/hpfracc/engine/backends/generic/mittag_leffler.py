"""``mittag_leffler`` in NumPy and CuPy: z sorted into the plan's bands, each evaluated in blocks."""

from __future__ import annotations

from typing import Any

from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.backends.generic.library import Library
from hpfracc.engine.numerics.mittag_leffler_plan import make_contour_plan
from hpfracc.engine.numerics.mittag_leffler_values import evaluate, values_on_bands, values_together

__all__ = ["make_kernels"]


def make_kernels(library: Library) -> dict[str, Kernel]:
    """The ``order``-th derivative of E_{alpha,beta} at ``z``, in the dtype of ``z``."""
    xp = library.xp

    def mittag_leffler_contour(z: Any, *, alpha: float, beta: float = 1.0, order: int = 0) -> Any:
        plan = make_contour_plan(float(alpha), float(beta), int(order))
        if xp.library == "numpy":
            return evaluate(z, plan)
        values = values_on_bands(xp, z.reshape(-1), plan, values_together(z.size))
        return xp.astype(values.reshape(z.shape), z.dtype)

    return {"contour": Kernel(mittag_leffler_contour)}
