r"""Sources that are infinite at t0 like a power: :math:`s(t, x) = c(x)\,t^p + r(t, x)` with a bounded rest r.

The power adds :math:`w = c\,\Gamma(p+1)/\Gamma(q+1)\,t^q` to the integral equation, with :math:`q = p + \alpha`, or
:math:`q = p + 1` for a source outside the memory. A difference formula takes its own derivative of w in place of the
power, so that it is exact for w, and has an error for the rest of the solution alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpfracc.history.direct import DirectHistory
from hpfracc.history.interval_states import ExponentialHistory
from hpfracc.solvers.ode.singular import SCALES, negative_powers

Array = np.ndarray[Any, Any]

#: What the rest may be of the source and still be rounding; the times, in halvings of the interval, between which it
#: must not grow, and by which factor.
_ROUNDING, _HALVINGS, _GROWS = 1e-12, (20, 40), 1.5


@dataclass(frozen=True, slots=True)
class SingularSource:
    """A power of time at t0 = 0, and the rest of the source.

    Attributes
    ----------
    power : float
        The power p, between -1 and 0.
    start : float
        The power q with which the solution starts, if it is below 1.
    size : numpy.ndarray
        c, at the unknown points.
    rest : callable
        ``rest(t)``, bounded at t0.
    """

    power: float
    start: float
    size: Array
    rest: Callable[[float], Any]

    def on_mesh(self, mesh: Array, past: DirectHistory | ExponentialHistory) -> Callable[[float], Array]:
        """The derivatives of w by the weights of ``past``, at times within the steps."""
        scale = math.gamma(self.power + 1.0) / math.gamma(self.start + 1.0)
        w = np.diff(scale * mesh**self.start)
        found = []
        for n, change in enumerate(w, 1):
            own, history = past.begin(n)
            found.append(float(own) * change + (0.0 if history is None else float(history[0])))
            past.remember(np.full(1, change))
        ends, last = mesh[1:] * (1.0 + 1e-12), len(found) - 1
        return lambda t: self.size * found[min(int(np.searchsorted(ends, t)), last)]


def read_singular(source: Callable[[float], Any], length: float, rise: float) -> SingularSource | None:
    """The power with which a source is infinite at t0 = 0; None if it is not, or not like one power.

    ``rise`` is by what the power in the solution is higher.
    """
    for scales in SCALES:
        times = length * 10.0 ** -np.array(scales)
        with np.errstate(all="ignore"):
            values = np.stack([np.asarray(source(float(t))) for t in times], axis=-1)
        if np.isfinite(values).all():
            break
    else:
        return None
    powers, steady = negative_powers(np.abs(values).reshape(-1, 3), times)
    power = float(powers.min(initial=0.0))
    if not (steady and -1.0 < power < -1e-3):
        return None
    size = values[..., 0] * float(times[0]) ** -power

    def rest(t: float) -> Any:
        t = max(t, float(times[0]))
        whole = source(t)
        left = whole - size * t**power
        return np.where(np.abs(left) <= _ROUNDING * np.abs(whole), 0.0, left)

    before, after = (float(np.abs(rest(length * 2.0**-k)).max()) for k in _HALVINGS)
    if after > _GROWS * before:
        return None
    return SingularSource(power, power + rise, size, rest)
