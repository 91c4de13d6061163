"""``mittag_leffler``: z sorted into the plan's bands, each evaluated in blocks that fit a cache or a GPU."""

from __future__ import annotations

from typing import Any

from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.backends.generic.library import Library
from hpfracc.engine.numerics.mittag_leffler_plan import make_contour_plan
from hpfracc.engine.numerics.mittag_leffler_values import evaluate

__all__ = ["make_kernels"]


def make_kernels(library: Library) -> dict[str, Kernel]:
    """The ``order``-th derivative of E_{alpha,beta} at ``z``, in the dtype of ``z``."""

    def contour(z: Any, *, alpha: float, beta: float = 1.0, order: int = 0) -> Any:
        return evaluate(z, make_contour_plan(float(alpha), float(beta), int(order)), library.xp)

    return {"contour": Kernel(contour)}
