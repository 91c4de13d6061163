"""What an answer's error estimate is held against: the tolerance of a callable, and the rounding of samples."""

from __future__ import annotations

import math
import sys
import warnings
from typing import Any

import numpy as np

from hpfracc.errors import AccuracyWarning
from hpfracc.operators._grids import to_host
from hpfracc.operators._order import Order
from hpfracc.operators._rule import Rule
from hpfracc.operators._values import Samples, largest, real_dtype, scalar

__all__ = ["LOST", "meets", "rounding_note", "rounding_of", "warn_of"]

#: Rounding above this part of the largest value is told.
LOST = 1e-3


def meets(value: Any, estimate: Any, rtol: float, scale: float = 0.0) -> bool:
    """Whether the estimated error is within ``rtol`` of the largest finite value; True where neither can be seen.

    Within ``rtol`` of ``scale`` where all values are 0: relative to them nothing could be right.
    """
    try:
        sizes, error = np.abs(to_host(value)), float(np.max(to_host(estimate), initial=0.0))
    except Exception:  # traced or mapped
        return True
    return math.isnan(error) or error <= rtol * (float(np.max(sizes[np.isfinite(sizes)], initial=0.0)) or scale)


def warn_of(operator: Any, value: Any, estimate: Any, message: str) -> None:
    """Warn, where the user's own code called, of an answer that may be further off than its tolerance."""
    size = float(np.max(np.abs(to_host(value)), initial=0.0))
    error = float(np.max(to_host(estimate), initial=0.0))
    known = "its error is not known" if math.isnan(error) else f"its error may be {error:.1g}"
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("hpfracc."):
        frame, level = frame.f_back, level + 1
    warnings.warn(
        f"{type(operator).__name__}: {known}, beside values up to {size:.3g} ({message}); give rtol= as large as will "
        "do, factor= for a power at the origin, or full_output=True to look at the estimate yourself",
        AccuracyWarning,
        stacklevel=level,
    )


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
    if lost <= LOST * size:
        return ""
    return (
        f"rounding of the samples alone makes an error of up to {lost:.1g}, beside values up to {size:.1g}: "
        "a longer step, or f as a callable, leaves more digits"
    )
