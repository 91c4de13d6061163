r"""Fractional PID controllers: :math:`C(s) = K_p + K_i s^{-\lambda} + K_d s^\mu / (1 + T_f s)`.

References
----------
I. Podlubny, IEEE Trans. Autom. Control 44 (1999) 208-214; C. A. Monje, B. M. Vinagre, V. Feliu, Y. Q. Chen, Control
Eng. Pract. 16 (2008) 798-812, for tuning.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import linalg, optimize

from hpfracc._interrupts import run_shielded
from hpfracc._reading import choice, flag, instance, number, numbers, pair, shown, whole
from hpfracc.control.frequency import margins
from hpfracc.control.laplace import fourier_inverse
from hpfracc.control.responses import Response
from hpfracc.control.stability import is_stable
from hpfracc.control.systems import caputo_chain, feedback, single
from hpfracc.control.transfer import TransferFunction, s
from hpfracc.errors import InvalidInputError, SolveError
from hpfracc.history.states import exponential_kernel, exponential_moments, moment_rule

Array = np.ndarray[Any, Any]

#: Relative error of the kernels of a controller, and the longest time that they cover, in steps.
_KERNEL, _HORIZON = 1e-7, 1e9
#: States below this are set to 0 after that many samples: the smallest numbers are slow, and never decay to 0.
_NOTHING, _FLUSHED = 1e-200, 500
#: Parameters that are tuned, and those of them that are positive.
_TUNED, _GAINS = ("Kp", "Ki", "lam", "Kd", "mu"), ("Kp", "Ki", "Kd")


@dataclass(frozen=True)
class FOPID:
    r"""A fractional PID controller.

    Parameters
    ----------
    Kp, Ki, Kd : float
        Gains of the error, of its integral and of its derivative.
    lam, mu : float
        Orders of the integral and of the derivative, above 0 and below 2 (mu below 1 + the filter's degree).
    Tf : float
        Time constant of the filter of the derivative; 0 for none.

    Examples
    --------
    >>> from hpfracc import control
    >>> print(control.FOPID(Kp=2.0, Ki=1.0, lam=0.5, Kd=0.5, mu=0.8).transfer_function())
    (0.5 s^1.3 + 2 s^0.5 + 1)/(s^0.5)
    """

    Kp: float
    Ki: float = 0.0
    lam: float = 1.0
    Kd: float = 0.0
    mu: float = 1.0
    Tf: float = 0.0

    def __post_init__(self) -> None:
        for name in ("Kp", "Ki", "Kd"):
            number(name, getattr(self, name))
        for name in ("lam", "mu"):
            number(name, getattr(self, name), above=0.0, below=2.0)
        number("Tf", self.Tf, least=0.0)

    def transfer_function(self) -> TransferFunction:
        """The controller as a transfer function."""
        total = TransferFunction({0.0: self.Kp}, {0.0: 1.0})
        if self.Ki:
            total = total + self.Ki / s**self.lam
        if self.Kd:
            total = total + self.Kd * s**self.mu / (1 + self.Tf * s)
        return total

    def controller(
        self,
        dt: float,
        *,
        limits: tuple[float, float] = (-math.inf, math.inf),
        setpoint_weight: float = 1.0,
        derivative_weight: float = 0.0,
        compile: bool = False,
    ) -> FOPIDController:
        """The same controller in real time.

        Parameters
        ----------
        dt : float
            Time between two samples.
        limits : tuple of float
            Range of the actuator. The integral does not grow while the output is beyond it.
        setpoint_weight, derivative_weight : float
            Weight of the setpoint in the proportional and in the derivative part.
        compile : bool
            Whether a sample is processed by code that Numba compiles now, which takes seconds; the same outputs, but
            for rounding.
        """
        return FOPIDController(self, dt, limits, setpoint_weight, derivative_weight, compile)

    def closed_loop(self, plant: Any) -> TransferFunction:
        """The transfer function from setpoint to output of the loop with a plant."""
        found: TransferFunction = feedback(self.transfer_function() * single(plant))
        return found

    def simulate(
        self,
        plant: Any,
        t: Any,
        *,
        setpoint: float | Callable[[float], float] = 1.0,
        disturbance: float | Callable[[float], float] = 0.0,
        limits: tuple[float, float] = (-math.inf, math.inf),
        rtol: float = 1e-5,
    ) -> Response:
        """The loop in continuous time, as an equation that :func:`hpfracc.solve_fode` solves.

        Without limits :meth:`closed_loop` and ``control.lsim`` are faster.

        Parameters
        ----------
        plant : TransferFunction
            A plant without delays that falls with the frequency; at rest at 0.
        t : array_like
            Increasing times from 0 on.
        setpoint, disturbance : float or callable
            Numbers, or functions of t. The disturbance is added to the output of the controller.
        limits : tuple of float
            Range of the actuator. What the output is beyond it, over Kp, is taken from the integral's input.
        rtol : float
            Relative tolerance. Orders that differ by less than about 0.1 take long.

        Returns
        -------
        Response
            ``y`` of shape (2, n): the output of the plant, and that of the controller within its limits. The error
            estimate is that of the former.
        """
        from hpfracc.solvers.ode.solve import solve_fode

        system, times = single(plant, "plant"), numbers("t", t, ndim=1, least=0.0)
        low, high = pair("limits", limits, infinite=True)
        if system.relative_degree <= 0.0:
            raise InvalidInputError(f"the plant {system} passes its input on at once; give one that falls like s^-q")
        if not times.size or times[-1] == 0.0 or (np.diff(times) <= 0.0).any():
            raise InvalidInputError("t has to increase, from 0 or later, to a time above 0")
        target, load = _of_time("setpoint", setpoint), _of_time("disturbance", disturbance)
        laws = [self.Ki / s**self.lam, self.Kd * s**self.mu / (1 + self.Tf * s)]
        parts = [caputo_chain(each) for each in (system, *(law for law in laws if law.numerator))]
        orders, inputs, outputs = (np.concatenate([part[k] for part in parts]) for k in (0, 2, 3))
        matrix, n = linalg.block_diag(*(part[1] for part in parts)), len(parts[0][0])
        through = self.Kp + sum(part[4] for part in parts[1:])
        integral, back = slice(n, n + len(parts[1][0]) if self.Ki else n), 1.0 / (self.Kp or 1.0)

        def signals(t: float, x: Array) -> tuple[float, float]:
            error = target(t) - float(outputs[:n] @ x[:n])
            return error, float(outputs[n:] @ x[n:]) + through * error

        def fun(t: float, x: Array) -> Array:
            error, wanted = signals(t, x)
            output = min(max(wanted, low), high)
            slopes = matrix @ x
            slopes[:n] += inputs[:n] * (output + load(t))
            slopes[n:] += inputs[n:] * error
            slopes[integral] += inputs[integral] * (output - wanted) * back
            return np.asarray(slopes)

        order = orders if np.ptp(orders) else float(orders[0])
        found = solve_fode(
            fun, (0.0, float(times[-1])), np.zeros(orders.size), order, t_eval=times, rtol=rtol, atol=1e-2 * rtol
        )
        if not found.success:
            raise SolveError(f"the loop could not be solved: {found.message}")
        control = [min(max(signals(when, x)[1], low), high) for when, x in zip(times, found.y.T, strict=True)]
        error = float(np.max(found.error_estimate)) * float(np.abs(outputs[:n]).sum())
        return Response(times, np.array([outputs[:n] @ found.y[:n], control]), error, "solve_fode")


def _of_time(name: str, given: Any) -> Callable[[float], float]:
    value = given if callable(given) else number(name, given)
    return value if callable(value) else lambda t: value


#: Rows of weights of the states, their values, how many are plain, weights of the ends of the newest step.
_Memory = tuple[Array, Array, int, float, float]


def _memory(order: float, dt: float) -> _Memory:
    """A fractional integral of a piecewise linear input, as a sum of exponentials with a last step done exactly."""
    if order <= 1e-12:  # the input itself
        return np.empty((4, 0)), np.empty(0), 0, 0.0, 1.0
    kernel = exponential_kernel(order, dt, _HORIZON * dt, _KERNEL)
    count = kernel.needed(dt)
    rates, powers = np.meshgrid(kernel.rates[:count], np.arange(kernel.power + 1))
    moments = exponential_moments(np, rates[0] * dt, moment_rule(kernel.power + 2)).T
    # Of an input that falls to 0, or rises to 1, over a step: x in the moments counts back from its end.
    early = dt ** (powers + 1) * moments[1:]
    late = dt ** (powers + 1) * moments[:-1] - early
    past = kernel.weights[:count] * np.exp(-rates * dt) * dt ** powers[::-1]
    scale = dt**order / math.gamma(order + 2.0)
    rows = np.stack([each.ravel() for each in (past, early, late, np.exp(-rates * dt))])
    # States are moments of the past, those with the first power of the distance behind.
    return rows, np.zeros(rates.size), count, scale * order, scale


def _step(
    error: float,
    proportional: float,
    derived: float,
    own: tuple[float, ...],
    law: tuple[float, ...],
    integral: _Memory,
    derivative: _Memory,
) -> tuple[float, tuple[float, ...]]:
    """The output for a sample and what is kept for the next one; changes the states. Numba compiles this text too."""
    before, past, earlier, _, _, filtered, shift, count = own
    kp, ki, kd, share, low, high, dt, differences = law
    rows, states, plain, first, last = integral
    integrated = float(rows[0] @ states) + first * before + last * error if count > 0.0 else 0.0
    slope = (derived - past) / dt if differences < 2.0 else (derived - 2.0 * past + earlier) / dt**2
    slope_rows, slope_states, slope_plain, slope_first, slope_last = derivative
    filtered += share * (float(slope_rows[0] @ slope_states) + (slope_first + slope_last) * slope - filtered)
    wanted = kp * proportional + ki * integrated + kd * filtered + shift
    output = min(max(wanted, low), high)
    if count > 0.0:
        # Conditional integration: an error that drives the output further beyond its limits is not added.
        held = (wanted - output) * error * ki > 0.0
        if states.size > plain:
            states[plain:] += dt * states[:plain]
        states *= rows[3]
        if not held:
            states += rows[1] * before + rows[2] * error
    if slope_states.size > slope_plain:
        slope_states[slope_plain:] += dt * slope_states[:slope_plain]
    slope_states *= slope_rows[3]
    slope_states += slope_rows[1] * slope + slope_rows[2] * slope
    return output, (error, derived, past, proportional, integrated, filtered, shift, count + 1.0)


class FOPIDController:
    r"""A fractional PID controller that takes one sample at a time, at the same cost at any time.

    Before the first sample everything is at rest, so that outputs are those of the transfer function: an error that
    starts with a jump is differentiated with it, unless ``derivative_weight=0`` and the measurement is given. The
    memory of :math:`I^\lambda` and of the derivative :math:`D^\mu = D\,I^{1-\mu}` is a sum of exponentials with a
    relative error of 1e-7 over :math:`10^9` samples.
    """

    def __init__(
        self, law: FOPID, dt: float, limits: Any, setpoint_weight: float, derivative_weight: float, compile: bool
    ) -> None:
        self.dt = number("dt", dt, above=0.0)
        self.limits = pair("limits", limits, infinite=True)
        self.setpoint_weight = number("setpoint_weight", setpoint_weight)
        self.derivative_weight = number("derivative_weight", derivative_weight)
        self.law = law
        # D^mu y = I^(n - mu) D^n y with n = ceil(mu), and differences for D^n
        self._differences = math.ceil(law.mu - 1e-12)
        self._integral = _memory(law.lam, self.dt)
        self._derivative = _memory(self._differences - law.mu, self.dt)
        # The error that was integrated last, two values of what is differenced, the proportional, the integral and the
        # filtered derivative part, what changes of gains take from the output, and the number of samples.
        self._own: tuple[float, ...] = (0.0,) * 8
        self._step = _step
        if flag("compile", compile):
            from hpfracc.solvers.ode.compiled import compile_as_it_is

            self._step, saved = compile_as_it_is(_step), self.state()
            run_shielded(lambda: self.push(0.0))
            self.restore(saved)

    @property
    def gains(self) -> FOPID:
        """The present gains."""
        return self.law

    @gains.setter
    def gains(self, law: FOPID) -> None:
        if (law.lam, law.mu) != (self.law.lam, self.law.mu):
            raise InvalidInputError(
                f"lam={law.lam}, mu={law.mu}: the memory belongs to the orders {self.law.lam}, {self.law.mu}; make a "
                "new controller for others"
            )
        # Bumpless: what the change of gains would add at once is taken from the output.
        self._own = (*self._own[:6], self._own[6] + self._output(self.law) - self._output(law), self._own[7])
        self.law = law

    def push(self, error: float, measurement: float | None = None, setpoint: float = 0.0) -> float:
        """The output for the next sample.

        Parameters
        ----------
        error : float
            Setpoint minus measurement.
        measurement, setpoint : float
            Needed if the weights of the setpoint differ from 1: the proportional and the derivative part then take
            ``weight * setpoint - measurement``. Without ``measurement`` they take the error.
        """
        if type(error) is not float or not math.isfinite(error):
            error = number("error", error)
        proportional = derived = error
        if measurement is not None:
            measured, target = number("measurement", measurement), number("setpoint", setpoint)
            proportional = self.setpoint_weight * target - measured
            derived = self.derivative_weight * target - measured
        own = self._own if self._own[7] else (error, *self._own[1:])  # at rest before: integrals of a jump are 0
        output, own = self._step(error, proportional, derived, own, self._numbers(), self._integral, self._derivative)
        self._own = own
        if not own[7] % _FLUSHED:
            for states in self._states().values():
                states[np.abs(states) < _NOTHING] = 0.0
        return output

    def _numbers(self) -> tuple[float, ...]:
        law, (low, high), dt = self.law, self.limits, self.dt
        gains = float(law.Kp), float(law.Ki), float(law.Kd)
        return (*gains, dt / (law.Tf + dt), low, high, dt, float(self._differences))

    def _output(self, law: FOPID) -> float:
        proportional, integral, derived, shift = self._own[3:7]
        return law.Kp * proportional + law.Ki * integral + law.Kd * derived + shift

    def state(self) -> dict[str, Any]:
        """Everything that the next outputs depend on, of plain numbers and lists."""
        before, past, earlier, *parts, shift, count = self._own
        plain = {"past": [past, earlier], "before": before, "shift": shift, "count": int(count), "parts": parts}
        return {name: each.tolist() for name, each in self._states().items()} | plain

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state."""
        try:
            found = {name: np.asarray(state[name], float) for name in self._states()}
            for name, states in self._states().items():
                if states.shape != found[name].shape:
                    raise ValueError(f"its {name} has another shape; restore one with the same orders and dt")
            (past, earlier), parts = state["past"], state["parts"]
            kept = state["before"], past, earlier, *parts, state["shift"], state["count"]
            if len(kept) != len(self._own):
                raise ValueError("its parts are not three")
            self._own = tuple(map(float, kept))
            for name, states in self._states().items():
                states[:] = found[name]
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInputError(
                f"state={shown(state)} is not that of a controller ({error}); use state()"
            ) from None

    def _states(self) -> dict[str, Array]:
        found = {"integral": self._integral[1], "derivative": self._derivative[1]}
        return {name: states for name, states in found.items() if states.size}


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
    seed: int = 0,
) -> Tuning:
    """Choose gains and orders of a FOPID for a step of the setpoint.

    Parameters
    ----------
    plant : TransferFunction
        The plant; delays are allowed.
    objective : {"itae", "ise", "iae"} or callable
        Integral of ``t |e|``, ``e^2`` or ``|e|`` over the horizon, or a function of the controller.
    horizon : float
        Length of the step response that counts.
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
    seed : int
        Seed of the starts.

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
    random = np.random.default_rng(whole("seed", seed, least=0))
    limit, least = number("max_sensitivity", max_sensitivity, above=1.0), number("min_phase_margin", min_phase_margin)
    gain = abs(complex(system(1j / end)))
    # The sign of the gain of a stable plant; other plants need that of their highest power.
    terms = (system.numerator, system.denominator)
    ends = [next(iter(each.values())) for each in terms]
    shown_gain = complex(system(1j / end)) if is_stable(system) else complex(ends[0] / ends[1])
    sign = -1.0 if shown_gain.real < 0.0 else 1.0
    gain *= sign
    base = FOPID(0.5 / gain, 2.0 / gain / end, 1.0, 0.02 * end / gain, 0.9, 1e-3 * end)
    if start is not None:
        base = instance("start", start, FOPID, "control.FOPID(1.0, 0.5)")
        sign = -1.0 if base.Kp + base.Ki < 0.0 else 1.0
    elif not is_stable(system):  # as much gain as a stable loop needs
        more = (replace(base, **{name: 2.0**k * getattr(base, name) for name in _GAINS}) for k in range(8))
        base = next((each for each in more if is_stable(each.closed_loop(system))), base)
    base = replace(base, **kept)
    names = [name for name in _TUNED if name not in kept]
    times = np.concatenate([np.geomspace(1e-3, 0.1, 40), np.linspace(0.1, 1.0, 121)[1:]]) * end
    # Rows of times of similar size, each filled up with its last one.
    groups = np.split(times, np.searchsorted(times, [0.005 * end, 0.03 * end, 0.2 * end]))
    longest = max(map(len, groups))
    rows = np.stack([np.pad(each, (0, longest - each.size), mode="edge") for each in groups])
    inside = np.arange(longest) < np.array([[each.size] for each in groups])
    w = np.geomspace(1e-2 / end, 1e5 / end, 400)
    plain, count = system(1j * w), 0

    def law_of(values: Array) -> FOPID | None:
        found = {n: sign * math.exp(v) if n in _GAINS else v for n, v in zip(names, values.tolist(), strict=True)}
        if not all(0.05 < found.get(name, 1.0) < 1.95 for name in ("lam", "mu")):
            return None
        law = replace(base, **found)
        return None if max(abs(law.Kp), abs(law.Kd)) > most else law

    lowest = math.inf

    def loss(values: Array) -> float:
        """The objective; a loop that would be the best one so far has to be stable."""
        nonlocal lowest
        found, law = value_of(values), law_of(values)
        if law is not None and found < lowest:
            if not is_stable(law.closed_loop(system)):
                return 1e6 + found
            lowest = found
        return found

    def value_of(values: Array) -> float:
        nonlocal count
        count += 1
        law = law_of(values)
        if law is None:
            return 1e9
        open_loop = plain * law.transfer_function()(1j * w)
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
            e = 1.0 - fourier_inverse(lambda z: loop(z) / z, rows, 0.0, 24, 2.0)[inside]
        if not np.isfinite(e).all() or np.abs(e).max() > 1e3:
            return 1e6
        weight = {"itae": times * np.abs(e), "iae": np.abs(e), "ise": e**2}[objective]
        # A loop that swings or grows at the end is not stable.
        late = float(np.abs(e[-30:]).max() / max(np.abs(e).max(), 1e-12))
        return float(np.trapezoid(weight, times)) * (1.0 + penalty + 10.0 * max(0.0, late - 0.2))

    first = np.array([math.log(max(sign * getattr(base, n), 1e-6)) if n in _GAINS else getattr(base, n) for n in names])
    spread = [0.8 if n in _GAINS else 0.2 for n in names]
    starting = [first, *(first + random.normal(0.0, spread) for _ in range(tries - 1))]
    options = {"maxfev": 250, "xatol": 1e-3, "fatol": 1e-6}
    tried = [optimize.minimize(loss, each, method="Nelder-Mead", options=options) for each in starting]
    best = min(tried, key=lambda found: float(np.nan_to_num(found.fun, nan=np.inf)))
    law = law_of(best.x) or base
    held, stable = margins(law.transfer_function() * system), is_stable(law.closed_loop(system))
    good = bool(stable) and held.sensitivity <= 1.01 * limit and held.phase >= 0.99 * least
    words = "the loop is stable and all constraints hold"
    if not stable:
        words = f"the loop is not stable ({stable.reason})"
    elif not good:
        words = f"constraints are not met: sensitivity {held.sensitivity:.3g}, phase margin {held.phase:.3g}"
    return Tuning(law, float(best.fun), held.phase, held.gain, held.sensitivity, count, good, words)
