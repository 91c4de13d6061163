r"""The leaky integrate-and-fire neuron of fractional order, with spikes and resets.

The equation of the membrane is linear, so a reset superposes: with the voltage :math:`V_f` of a neuron that never
fires, and spikes at :math:`t_k`,

.. math:: V(t) = V_f(t) - (\theta - V_r) \sum_{t_k < t} E_\alpha\big(-((t - t_k)/\tau)^\alpha\big)

Each spike lowers the voltage to :math:`V_r`, and is forgotten slowly: that is the memory, and intervals between spikes
grow. For alpha = 1 exponentials forget all but the last reset, and the classical neuron remains.

With a refractory period the rule is that of Teka et al.: the voltage is held at :math:`V_r` for that time, and then
solves the equation with the derivative of the whole path, jumps and held pieces included. A fall in the past makes the
derivative smaller, which the voltage makes up for by rising faster, and intervals shrink.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import rgamma

from hpfracc._reading import function, increasing_times, number, numbers
from hpfracc._xp import NUMPY
from hpfracc.errors import InvalidInputError, SolveError
from hpfracc.history.intervals import interval_integrals
from hpfracc.models.base import Model, ModelFit, described
from hpfracc.models.equations import TimeCourse
from hpfracc.solvers.ode.solve import solve_fode
from hpfracc.special import mittag_leffler

__all__ = ["Neuron", "integrate_and_fire"]

Array = np.ndarray[Any, Any]

#: A simulation with more spikes is an error.
_MAX_SPIKES = 10_000
#: Times at which the voltage is compared with the threshold, by default.
_POINTS = 2001
#: With a refractory period: nodes in it, the first step after it over the period, the growth of steps, the most steps.
_HELD, _FIRST, _GROWTH, _MAX_STEPS = 9, 1e-3, 0.05, 30_000


@dataclass(frozen=True, eq=False, repr=False)
class Neuron(Model):
    """A neuron; make one with :func:`integrate_and_fire`.

    Attributes
    ----------
    drive : callable or None
        ``drive(t)``, a current in nanoampere that is added to the constant one.
    refractory : float
        Milliseconds for which the voltage is held at the reset after a spike; 0 for the other rule.
    """

    drive: Callable[[float], float] | None = None
    refractory: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.drive is not None:
            function("drive", self.drive, "(t)")
        number("refractory", self.refractory, least=0.0)
        values = self.values
        needed = ("tau", "alpha", "resistance", "current", "rest", "threshold", "reset")
        if tuple(values) != needed:
            raise InvalidInputError(f"the parameters are {tuple(values)}; a neuron has {needed}")
        if not values["reset"] < values["threshold"] or not values["rest"] < values["threshold"]:
            raise InvalidInputError(
                f"reset={values['reset']:g} and rest={values['rest']:g} have to lie below threshold="
                f"{values['threshold']:g}"
            )

    def simulate(self, t: Any = None, *, rtol: float = 1e-8) -> TimeCourse:
        """The voltage, and the times of the spikes.

        Parameters
        ----------
        t : array_like, optional
            Increasing times from 0 on, in milliseconds; by default 2001 up to 500. Spikes are located between them by
            root finding. Under a constant current none can be missed; if ``drive`` changes, give times so dense that
            the voltage cannot exceed the threshold between two of them only.
        rtol : float
            Tolerance of the solve, with a ``drive``; without one the voltage is a closed form. With a refractory
            period the relative error of the intervals is about 1e-4.

        Returns
        -------
        TimeCourse
            ``.t .y .spikes``; at a spike the voltage is that after the reset.
        """
        times = increasing_times(np.linspace(0.0, 500.0, _POINTS) if t is None else t)
        spikes, voltage = self._run(times, number("rtol", rtol, above=0.0), _MAX_SPIKES + 1)
        if spikes.size > _MAX_SPIKES:
            raise SolveError(f"more than {_MAX_SPIKES} spikes before {times[-1]:g}; end sooner, or lower the current")
        return TimeCourse(times, voltage[np.newaxis], ("voltage",), None, spikes)

    def _free(self, end: float, rtol: float) -> Callable[[Any], Any]:
        """The voltage without spikes."""
        tau, alpha, resistance, current, rest, _, reset = self.values.values()
        drive, rate = self.drive, tau**-alpha
        final = rest + resistance * current
        if drive is None:
            return lambda t: final + (reset - final) * mittag_leffler(-rate * np.asarray(t) ** alpha, alpha)

        def fun(t: float, y: Array) -> Array:
            return np.asarray(rate * (final + resistance * number("drive(t)", drive(t)) - y))

        found = solve_fode(fun, (0.0, end), [reset], alpha, dense_output=True, rtol=rtol, atol=rtol)
        solution = found.sol
        if not found.success or solution is None:
            raise SolveError(f"the voltage could not be solved: {found.message}")
        return lambda t: solution(np.asarray(t))[0]

    def _run(self, times: Array, rtol: float, most: int) -> tuple[Array, Array]:
        """The first ``most`` spikes, and the voltage at the times."""
        if self.refractory:
            return self._run_held(times, rtol, most)
        tau, alpha, _, _, _, threshold, reset = self.values.values()
        free, rate, height = self._free(float(times[-1]), rtol), tau**-alpha, threshold - reset
        spikes: list[float] = []

        def lowered(t: Any) -> Any:
            """The sum of the resets."""
            past = np.asarray(t, float) - np.array(spikes)
            return height * float(np.sum(mittag_leffler(-rate * past**alpha, alpha))) if spikes else 0.0

        voltage = np.array(free(times))
        here = 0
        while len(spikes) < most:
            above = np.flatnonzero(voltage[here:] >= threshold)
            if not above.size:
                break
            here += int(above[0])
            left = max(times[here - 1] if here else 0.0, spikes[-1] if spikes else 0.0)
            # Just after a spike the voltage is that of the reset, below the threshold.
            root = float(brentq(lambda t: float(free(t)) - lowered(t) - threshold, left, times[here], xtol=1e-12))
            spikes.append(root)
            later = times >= root
            voltage[later] -= height * np.asarray(mittag_leffler(-rate * (times[later] - root) ** alpha, alpha))
        return np.array(spikes), voltage

    def _run_held(self, times: Array, rtol: float, most: int) -> tuple[Array, Array]:
        """The same with a refractory period, for U = V - V_f, the distance from the voltage without spikes.

        From the end r of a refractory period on, ``U = U(r) - I^alpha (rate U + M)``, M the derivative at t of the path
        up to r: both by integrals of piecewise linear functions, on steps that grow with the distance from r.
        """
        tau, alpha, _, _, _, threshold, reset = self.values.values()
        free, rate, hold = self._free(float(times[-1]), rtol), tau**-alpha, self.refractory
        voltage, spikes, path = np.array(free(times)), np.empty(0), np.empty((3, 0))

        def memory(t: float) -> float:
            if alpha == 1.0:
                return 0.0
            start, end, rise = path
            mean = interval_integrals(NUMPY, alpha, np.maximum(t - end, 0.0), end - start, parabola=False)[0]
            return float(rise @ mean + (reset - threshold) * rgamma(1.0 - alpha) * np.sum((t - spikes) ** -alpha))

        def step_to(t: float) -> tuple[float, float]:
            """U and its slope of order alpha at t, after those at the points s."""
            points = np.array([*s, t])
            lengths = np.diff(points)
            mean, moment = interval_integrals(NUMPY, 1.0 - alpha, t - points[1:], lengths, parabola=True)
            left, right, past = lengths * (0.5 * mean - moment), lengths * (0.5 * mean + moment), memory(t)
            known = u[0] + left @ np.array(slopes) + right[:-1] @ np.array(slopes[1:])
            value = float((known - right[-1] * past) / (1.0 + rate * right[-1]))
            return value, -rate * value - past

        def above(t: float) -> float:
            value = step_to(t)[0] if spikes.size and t > s[-1] else u[-1]
            return value + float(free(t)) - threshold

        first = np.flatnonzero(voltage >= threshold)
        if not first.size:
            return spikes, voltage
        here = int(first[0])
        s, u, slopes = [0.0], [0.0], [0.0]
        fired = float(brentq(above, times[here - 1] if here else 0.0, times[here], xtol=1e-12))
        while True:
            held = np.linspace(fired, fired + hold, _HELD)
            s, u, resting = [*s, fired], [*u, threshold - float(free(fired))], reset - np.asarray(free(held))
            pieces = [[s[:-1], s[1:], np.diff(u)], [held[:-1], held[1:], np.diff(resting)]]
            path, spikes = np.concatenate([path, *map(np.array, pieces)], axis=1), np.append(spikes, fired)
            voltage[(times >= fired) & (times <= held[-1])] = reset
            here = int(np.searchsorted(times, held[-1], side="right"))
            if spikes.size >= most or here == times.size:
                return spikes, voltage
            if path.shape[1] > _MAX_STEPS:
                raise SolveError(f"more than {_MAX_STEPS} steps before {times[-1]:g}; end sooner, or lower the current")
            s, u = [float(held[-1])], [float(resting[-1])]
            slopes = [-rate * u[0] - memory(s[0])]
            while here < times.size:
                t = min(float(times[here]), s[-1] + _FIRST * hold + _GROWTH * (s[-1] - s[0]))
                value, slope = step_to(t)
                if value + float(voltage[here] if t == times[here] else free(t)) >= threshold:
                    fired = float(brentq(above, s[-1], t, xtol=1e-12))
                    break
                s, u, slopes = [*s, t], [*u, value], [*slopes, slope]
                if t == times[here]:
                    voltage[here] += value
                    here += 1
            else:
                return spikes, voltage

    def fit(
        self, spikes: Any, *, free: Sequence[str] = ("alpha", "tau"), sigma: Any = None, absolute_sigma: bool = False
    ) -> ModelFit:
        """Fit parameters to the times of the first spikes, by least squares.

        Parameters
        ----------
        spikes : array_like, shape (n,)
            Increasing times in milliseconds.
        free : sequence of str
            The parameters to fit. Spike times cannot tell all of them apart.
        sigma, absolute_sigma
            As in :meth:`ResponseModel.fit`.

        Returns
        -------
        ModelFit
        """
        data = numbers("spikes", spikes, ndim=1, least=0.0)
        if not data.size or (np.diff(data) <= 0.0).any():
            raise InvalidInputError("spikes has to hold increasing times, at least one")
        times = np.linspace(0.0, 3.0 * float(data[-1]), _POINTS)

        def predict(*values: float) -> Array:
            try:
                found = self.replace(**dict(zip(self.names, values, strict=True)))._run(times, 1e-8, data.size)[0]
            except InvalidInputError:  # a threshold below the reset
                found = np.empty(0)
            # A neuron that fires too seldom is far from the data.
            return np.concatenate([found, np.full(data.size - found.size, times[-1])])

        index = np.arange(1.0, data.size + 1.0)
        return self.least_squares(predict, index, data, free=free, sigma=sigma, absolute_sigma=absolute_sigma)


def integrate_and_fire(
    tau: float = 20.0,
    alpha: float = 0.8,
    resistance: float = 10.0,
    current: float = 2.5,
    rest: float = -65.0,
    threshold: float = -50.0,
    reset: float = -65.0,
    drive: Callable[[float], float] | None = None,
    refractory: float = 0.0,
) -> Neuron:
    r"""The leaky integrate-and-fire neuron of fractional order.

    .. math:: \tau^\alpha D^\alpha V = -(V - V_0) + R\,(I + I_d(t)), \qquad V(0) = V_r

    At each time at which V reaches the threshold there is a spike, and V is lowered to :math:`V_r`; what the reset
    leaves behind decays like the memory of the membrane. Each reset slows the neuron down: intervals between spikes
    grow.

    With a ``refractory`` period the rule is that of Teka, Marinov and Santamaria (2014): V is held at :math:`V_r` for
    that time, and the derivative is that of the whole path with its jumps. Each reset speeds the neuron up: intervals
    shrink. The period is part of that rule, which has no limit at 0 for ``alpha < 1``: the derivative would undo the
    jump.

    Parameters
    ----------
    tau : float
        Time constant of the membrane, in milliseconds.
    alpha : float
        ``0 < alpha <= 1``; 1 is the classical neuron.
    resistance : float
        R, in megaohm.
    current : float
        The constant current I, in nanoampere.
    rest, threshold, reset : float
        :math:`V_0`, threshold and :math:`V_r`, in millivolt.
    drive : callable, optional
        ``drive(t)``, a further current :math:`I_d` in nanoampere.
    refractory : float, default 0
        Refractory period in milliseconds; above 0 it selects the second rule.

    Returns
    -------
    Neuron

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> spikes = hf.models.integrate_and_fire(alpha=1.0).simulate().spikes
    >>> print(f"{spikes[1] - spikes[0]:.6f}", f"{20.0 * np.log(25.0 / 10.0):.6f}")
    18.325815 18.325815
    """
    values = (tau, alpha, resistance, current, rest, threshold, reset)
    return Neuron(**described("integrate_and_fire", *values), drive=drive, refractory=refractory)
