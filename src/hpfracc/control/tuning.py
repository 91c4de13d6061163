"""Gains and orders of fractional PID controllers that suit a plant.

References
----------
C. A. Monje, B. M. Vinagre, V. Feliu, Y. Q. Chen, Control Eng. Pract. 16 (2008) 798-812.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import optimize

from hpfracc._interrupts import raise_interrupted
from hpfracc._reading import choice, generator, instance, number, shown, whole
from hpfracc.control.fopid import FOPID
from hpfracc.control.frequency import margins
from hpfracc.control.laplace import fourier_inverse
from hpfracc.control.stability import Stability, is_stable
from hpfracc.control.systems import single
from hpfracc.errors import InvalidInputError, SolveError

Array = np.ndarray[Any, Any]

#: Parameters that are tuned, and those of them that are positive.
_TUNED, _GAINS = ("Kp", "Ki", "lam", "Kd", "mu"), ("Kp", "Ki", "Kd")
#: Of the horizon: the first time, with its loops of crossovers up to 1e5; times in a decade; more of them at the end.
_EARLIEST, _DECADE, _FINER = 1e-8, 12, 16


@dataclass(frozen=True)
class Tuning:
    """A tuned controller.

    Attributes
    ----------
    controller : FOPID
        The best one found.
    objective : float
        Its objective.
    phase_margin, gain_margin, sensitivity : float
        Of the open loop; the phase margin in radians.
    evaluations : int
        Number of loops that were looked at.
    success : bool
        Whether the loop is stable and all constraints hold.
    message : str
        What was found, in words.
    """

    controller: FOPID
    objective: float
    phase_margin: float
    gain_margin: float
    sensitivity: float
    evaluations: int
    success: bool
    message: str


class _Times:
    """Times of a step response until ``end``, from those on at which the fastest loop that is looked at has begun.

    Attributes
    ----------
    all : numpy.ndarray, shape (n,)
        The times, ``density`` times as many as a search needs.
    rows, inside : numpy.ndarray
        Times of similar size in rows, filled up with their last ones, and which of them are not.
    """

    def __init__(self, end: float, density: int) -> None:
        early = np.geomspace(_EARLIEST, 0.1, density * round(-_DECADE * math.log10(10.0 * _EARLIEST)), endpoint=False)
        self.all = np.concatenate([early, np.linspace(0.1, 1.0, 120 * density + 1)]) * end
        groups = np.split(self.all, np.searchsorted(self.all, 0.2 * end * 8.0 ** -np.arange(7.0, -1.0, -1.0)))
        longest = max(map(len, groups))
        self.rows = np.stack([np.pad(each, (0, longest - each.size), mode="edge") for each in groups])
        self.inside = np.arange(longest) < np.array([[each.size] for each in groups])

    def integral(self, values: Array) -> float:
        """The integral from 0 on: the first value holds before its time."""
        return float(values[0] * self.all[0] + np.trapezoid(values, self.all))


def tune(
    plant: Any,
    objective: str | Callable[[FOPID], float] = "itae",
    *,
    horizon: float,
    start: FOPID | None = None,
    max_sensitivity: float = 2.0,
    min_phase_margin: float = 0.0,
    max_control: float = math.inf,
    fixed: Mapping[str, float] | None = None,
    starts: int = 3,
    rng: int | np.random.Generator = 0,
) -> Tuning:
    """Choose gains and orders of a FOPID for a step of the setpoint.

    Parameters
    ----------
    plant : TransferFunction
        The plant; delays are allowed.
    objective : {"itae", "ise", "iae"} or callable
        Integral of ``t |e|``, ``e^2`` or ``|e|`` over the horizon, or a function of the controller.
    horizon : float
        Length of the step response that counts. Loops cross over below 1e5 divided by it.
    start : FOPID, optional
        A first guess; its filter is kept.
    max_sensitivity, min_phase_margin : float
        Constraints: the H-infinity norm of 1/(1 + GC), and the phase margin in radians.
    max_control : float
        Largest proportional and derivative gain.
    fixed : mapping, optional
        Parameters that are not tuned, such as ``{"mu": 1.0}``.
    starts : int
        Number of starts of the search (Nelder and Mead).
    rng : int or numpy.random.Generator
        Of the starts; the same number gives the same controller.

    Returns
    -------
    Tuning
    """
    system, end = single(plant, "plant"), number("horizon", horizon, above=0.0)
    if not callable(objective) or isinstance(objective, type):
        choice("objective", objective, ("itae", "ise", "iae"))
    tries, most = whole("starts", starts, least=1), number("max_control", max_control, above=0.0, infinite=True)
    given: Any = instance("fixed", {} if fixed is None else fixed, dict, "{'mu': 1.0}")
    kept = {choice("fixed", name, _TUNED): number(f"fixed[{name!r}]", value) for name, value in given.items()}
    if len(kept) == len(_TUNED):
        raise InvalidInputError(f"fixed={shown(given)} leaves nothing to tune; name fewer")
    random = generator(rng)
    limit, least = number("max_sensitivity", max_sensitivity, above=1.0), number("min_phase_margin", min_phase_margin)
    # The sign of the gain of a stable plant; other plants need that of their highest power.
    steady = is_stable(system)
    first, last = (next(iter(terms.values())) for terms in (system.numerator, system.denominator))
    told = complex(system(1j / end) if steady else first / last)
    sign = -1.0 if told.real < 0.0 else 1.0
    gain = sign * abs(complex(system(1j / end)))
    base = FOPID(0.5 / gain, 2.0 / gain / end, 1.0, 0.02 * end / gain, 0.9, 1e-3 * end)
    if start is not None:
        base = instance("start", start, FOPID, "control.FOPID(1.0, 0.5)")
        sign = -1.0 if base.Kp + base.Ki < 0.0 else 1.0
    elif not steady:  # as much gain as a stable loop needs
        more = (replace(base, **{name: 2.0**k * getattr(base, name) for name in _GAINS}) for k in range(8))
        base = next((each for each in more if is_stable(each.closed_loop(system))), base)
    base = replace(base, **kept)
    names = [name for name in _TUNED if name not in kept]
    w = np.geomspace(1e-2 / end, 1e5 / end, 400)
    plain, count, coarse = system(1j * w), 0, _Times(end, 1)

    def law_of(values: Array) -> FOPID | None:
        found = {n: sign * math.exp(v) if n in _GAINS else v for n, v in zip(names, values.tolist(), strict=True)}
        if not all(0.05 < found.get(name, 1.0) < 1.95 for name in ("lam", "mu")):
            return None
        law = replace(base, **found)
        return None if max(abs(law.Kp), abs(law.Kd)) > most else law

    def stability_of(law: FOPID) -> Stability:
        try:
            return is_stable(law.closed_loop(system))
        except SolveError as error:  # orders that are nearly those of the plant
            return Stability(False, "none", str(error))

    lowest, leading = math.inf, base

    def loss(values: Array) -> float:
        """The objective; a loop that would be the best one so far has to be stable."""
        nonlocal count, lowest, leading
        count, law = count + 1, law_of(values)
        found = 1e9 if law is None else value_of(law, coarse)
        if law is not None and found < lowest:
            if not stability_of(law):
                return 1e6 + found
            lowest, leading = found, law
        return found

    def value_of(law: FOPID, times: _Times) -> float:
        open_loop = plain * law.transfer_function()(1j * w)
        if 1.0 < abs(open_loop[-1]) < 0.999 * abs(open_loop[-2]):  # it crosses over where nothing is looked at
            return 1e6
        peak = float((1.0 / np.abs(1.0 + open_loop)).max())
        penalty = 100.0 * max(0.0, peak / limit - 0.98)
        crossing = np.flatnonzero((np.abs(open_loop[:-1]) > 1.0) & (np.abs(open_loop[1:]) <= 1.0))
        if crossing.size and least > 0.0:
            margin = math.pi + float(np.angle(open_loop[crossing[-1]]))
            penalty += 100.0 * max(0.0, 1.02 - margin / least)
        if callable(objective):
            return float(objective(law)) * (1.0 + penalty)
        loop = law.closed_loop(system)
        with np.errstate(all="ignore"):
            y = fourier_inverse(lambda z: loop(z) / z, times.rows, 0.0, 24, 2.0)[times.inside]
        # Nothing comes back before the delay.
        e = 1.0 - np.where(times.all < min((key[1] for key in loop.numerator), default=0.0), 0.0, y)
        if not np.isfinite(e).all() or np.abs(e).max() > 1e3:
            return 1e6
        weight = {"itae": times.all * np.abs(e), "iae": np.abs(e), "ise": e**2}[objective]
        # A loop that swings or grows at the end is not stable.
        late = float(np.abs(e[times.all > 0.78 * end]).max() / max(np.abs(e).max(), 1e-12))
        return times.integral(weight) * (1.0 + penalty + 10.0 * max(0.0, late - 0.2))

    guess = np.array([math.log(max(sign * getattr(base, n), 1e-6)) if n in _GAINS else getattr(base, n) for n in names])
    spread = [0.8 if n in _GAINS else 0.2 for n in names]
    starting = [guess, *(guess + random.normal(0.0, spread) for _ in range(tries - 1))]
    options = {"maxfev": 250, "xatol": 1e-3, "fatol": 1e-6}
    try:
        tried = [optimize.minimize(loss, each, method="Nelder-Mead", options=options) for each in starting]
    except KeyboardInterrupt:
        words = f"Interrupted after {count:,} loops: this is the best one so far."
        raise_interrupted(words, Tuning(leading, lowest, math.nan, math.nan, math.nan, count, False, words))
    best = min(tried, key=lambda found: float(np.nan_to_num(found.fun, nan=np.inf)))
    law = law_of(best.x) or base
    value = float(best.fun) if best.fun >= 1e6 else value_of(law, _Times(end, _FINER))
    held, stable = margins(law.transfer_function() * system), stability_of(law)
    good = bool(stable) and held.sensitivity <= 1.01 * limit and held.phase >= 0.99 * least
    words = "the loop is stable and all constraints hold"
    if not stable:
        words = f"the loop is not stable ({stable.reason})"
    elif not good:
        words = (
            f"constraints are not met: sensitivity {held.sensitivity:.3g} for at most {limit:g}, phase margin "
            f"{held.phase:.3g} for at least {least:g}; relax them, or give another start= or more starts="
        )
    return Tuning(law, value, held.phase, held.gain, held.sensitivity, count, good, words)
