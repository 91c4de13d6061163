"""What an answer's error estimate is held against: the tolerance of a callable, and the rounding of samples."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hpfracc.operators._grids import to_host
from hpfracc.operators._order import Order
from hpfracc.operators._rule import Rule
from hpfracc.operators._values import Samples, largest, real_dtype, scalar

__all__ = ["meets", "rounding_note", "rounding_of"]

#: Rounding above this part of the largest value is told.
_LOST = 1e-3


def meets(value: Any, estimate: Any, rtol: float) -> bool:
    """Whether the estimated error is within ``rtol`` of the largest finite value; True where neither can be seen."""
    try:
        sizes, error = np.abs(to_host(value)), float(np.max(to_host(estimate), initial=0.0))
    except Exception:  # traced or mapped
        return True
    return math.isnan(error) or error <= rtol * float(np.max(sizes[np.isfinite(sizes)], initial=0.0))


def rounding_of(rule: Rule, samples: Samples, order: Order) -> Any:
    """What a derivative makes of rounding of the samples, which grows as the step falls; 0 where that is little."""
    alpha = order.known
    if alpha is None or not samples.grid.uniform or not (size := rule.magnification(alpha)):
        return 0.0
    eps = float(np.finfo(real_dtype(samples.values)).eps)
    return largest(samples.values) * (eps * size) * scalar(samples.scale(-alpha), samples.values)


def rounding_note(rule: Rule, samples: Samples, order: Order, value: Any) -> str:
    """What to say where rounding of the samples is all that is left of an answer, or nearly; else nothing."""
    try:
        lost, size = (float(np.max(to_host(one))) for one in (rounding_of(rule, samples, order), largest(value)))
    except Exception:  # traced or mapped
        return ""
    if lost <= _LOST * size:
        return ""
    return (
        f"rounding of the samples alone makes an error of up to {lost:.1g}, beside values up to {size:.1g}: "
        "a longer step, or f as a callable, leaves more digits"
    )
