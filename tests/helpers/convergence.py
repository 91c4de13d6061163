"""How fast an error falls with the step: the slope that a method's docstring promises."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

__all__ = ["measured_order", "observed_order"]


def observed_order(steps: Sequence[float], errors: Sequence[float]) -> float:
    """The exponent p of ``error = C step^p``, fitted by least squares in logarithms."""
    if min(errors) <= 0.0:
        raise ValueError(f"an error of {min(errors)} has no logarithm: the method is exact here, or the test is wrong")
    slope, _ = np.polyfit(np.log(np.asarray(steps)), np.log(np.asarray(errors)), 1)
    return float(slope)


def measured_order(error_at: Callable[[int], float], counts: Sequence[int] = (128, 256, 512)) -> float:
    """The observed order of ``error_at(n)``, the error with n steps over a fixed interval."""
    return observed_order([1.0 / n for n in counts], [error_at(n) for n in counts])
