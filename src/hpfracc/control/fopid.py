r"""Fractional PID controllers: :math:`C(s) = K_p + K_i s^{-\lambda} + K_d s^\mu / (1 + T_f s)`.

References
----------
I. Podlubny, IEEE Trans. Autom. Control 44 (1999) 208-214.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import linalg

from hpfracc._interrupts import run_shielded
from hpfracc._reading import flag, increasing_times, number, pair, shown
from hpfracc.control.responses import Response, _without_gain, step_response
from hpfracc.control.systems import caputo_chain, feedback, single
from hpfracc.control.transfer import TransferFunction, s
from hpfracc.errors import InvalidInputError, SolveError
from hpfracc.history.exponentials import exponential_moments, moment_rule
from hpfracc.history.states import exponential_kernel

Array = np.ndarray[Any, Any]

#: Relative error of the kernels of a controller, and the longest time that they cover, in steps.
_KERNEL, _HORIZON = 1e-7, 1e9
#: States below this are set to 0 after that many samples: the smallest numbers are slow, and never decay to 0.
_NOTHING, _FLUSHED = 1e-200, 500


@dataclass(frozen=True)
class FOPID:
    r"""A fractional PID controller.

    Parameters
    ----------
    Kp, Ki, Kd : float
        Gains of the error, of its integral and of its derivative.
    lam, mu : float
        Orders of the integral and of the derivative, above 0 and below 2.
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
        limits: dict[str, dict[str, Any]] = {"lam": {"above": 0.0, "below": 2.0}, "Tf": {"least": 0.0}}
        limits["mu"] = limits["lam"]
        for name in ("Kp", "Ki", "lam", "Kd", "mu", "Tf"):
            object.__setattr__(self, name, number(name, getattr(self, name), **limits.get(name, {})))

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
        step: float,
        *,
        limits: tuple[float, float] = (-math.inf, math.inf),
        setpoint_weight: float = 1.0,
        derivative_weight: float = 0.0,
        compile: bool = False,
    ) -> FOPIDController:
        """The same controller in real time.

        Parameters
        ----------
        step : float
            Time between two samples.
        limits : tuple of float
            Range of the actuator. The integral does not grow while the output is beyond it.
        setpoint_weight, derivative_weight : float
            Weight of the setpoint in the proportional and in the derivative part.
        compile : bool
            Whether a sample is processed by code that Numba compiles now, which takes seconds; the same outputs, but
            for rounding.
        """
        return FOPIDController(self, step, limits, setpoint_weight, derivative_weight, compile)

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

        Without limits :meth:`closed_loop` and ``control.lsim`` are faster. A derivative that the filter does not make
        proper (mu above 1, or above 0 for ``Tf=0``) has an infinite output when the setpoint jumps: such a loop is
        solved by the inverse transform, without limits and with numbers for setpoint and disturbance.

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

        system, times = single(plant, "plant"), increasing_times(t)
        low, high = pair("limits", limits, infinite=True)
        if system.relative_degree <= 0.0:
            raise InvalidInputError(f"the plant {system} passes its input on at once; give one that falls like s^-q")
        target, load = _of_time("setpoint", setpoint), _of_time("disturbance", disturbance)
        if self.Kd and self.mu > bool(self.Tf):
            if math.isfinite(low) or math.isfinite(high) or callable(setpoint) or callable(disturbance):
                raise InvalidInputError(
                    f"mu={self.mu:g}, Tf={self.Tf:g}: the derivative is improper, and infinite where the setpoint "
                    "jumps; with limits, or functions of t, use mu of at most 1 and Tf above 0; or, without limits, "
                    "closed_loop and control.lsim"
                )
            return self._improper(system, times, target(0.0), load(0.0))
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
        found: Any = solve_fode(
            fun, (0.0, float(times[-1])), np.zeros(orders.size), order, t_eval=times, rtol=rtol, atol=1e-2 * rtol
        )
        if not found.success:
            raise SolveError(f"the loop could not be solved: {found.message}")
        control = [min(max(signals(when, x)[1], low), high) for when, x in zip(times, found.y.T, strict=True)]
        error = float(np.max(found.error_estimate)) * float(np.abs(outputs[:n]).sum())
        return Response(times, np.array([outputs[:n] @ found.y[:n], control]), error, "solve_fode")

    def _improper(self, plant: TransferFunction, t: Array, setpoint: float, load: float) -> Response:
        """The loop of numbers, by inverse transforms; the output of the controller is infinite at 0."""
        law = self.transfer_function()
        found = step_response([feedback(law * plant), feedback(plant, law)], t)
        control, _, method = _without_gain(feedback(law, plant), t, 1, math.copysign(math.inf, self.Kd))
        control = (setpoint * control if setpoint else 0.0) - load * found.y[0]
        error = found.error_estimate * (abs(setpoint) + abs(load))
        return Response(t, np.array([setpoint * found.y[0] + load * found.y[1], control]), error, method)


def _of_time(name: str, given: Any) -> Callable[[float], float]:
    value = given if callable(given) else number(name, given)
    return value if callable(value) else lambda t: value


#: Rows of weights of the states, their values, how many are plain, weights of the ends of the newest step.
_Memory = tuple[Array, Array, int, float, float]


def _memory(order: float, step: float) -> _Memory:
    """A fractional integral of a piecewise linear input, as a sum of exponentials with a last step done exactly."""
    if order <= 1e-12:  # the input itself
        return np.empty((4, 0)), np.empty(0), 0, 0.0, 1.0
    kernel = exponential_kernel(order, step, _HORIZON * step, _KERNEL)
    count = kernel.needed(step)
    rates, powers = np.meshgrid(kernel.rates[:count], np.arange(kernel.power + 1))
    moments = exponential_moments(np, rates[0] * step, moment_rule(kernel.power + 2)).T
    # Of an input that falls to 0, or rises to 1, over a step: x in the moments counts back from its end.
    early = step ** (powers + 1) * moments[1:]
    late = step ** (powers + 1) * moments[:-1] - early
    past = kernel.weights[:count] * np.exp(-rates * step) * step ** powers[::-1]
    scale = step**order / math.gamma(order + 2.0)
    rows = np.stack([each.ravel() for each in (past, early, late, np.exp(-rates * step))])
    # States are moments of the past, those with the first power of the distance behind.
    return rows, np.zeros(rates.size), count, scale * order, scale


def _advance(
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
    kp, ki, kd, share, low, high, step, differences = law
    rows, states, plain, first, last = integral
    integrated = float(rows[0] @ states) + first * before + last * error if count > 0.0 else 0.0
    slope = (derived - past) / step if differences < 2.0 else (derived - 2.0 * past + earlier) / step**2
    slope_rows, slope_states, slope_plain, slope_first, slope_last = derivative
    filtered += share * (float(slope_rows[0] @ slope_states) + (slope_first + slope_last) * slope - filtered)
    wanted = kp * proportional + ki * integrated + kd * filtered + shift
    output = min(max(wanted, low), high)
    if count > 0.0:
        # Conditional integration: an error that drives the output further beyond its limits is not added.
        held = (wanted - output) * error * ki > 0.0
        if states.size > plain:
            states[plain:] += step * states[:plain]
        states *= rows[3]
        if not held:
            states += rows[1] * before + rows[2] * error
    if slope_states.size > slope_plain:
        slope_states[slope_plain:] += step * slope_states[:slope_plain]
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
        self, law: FOPID, step: float, limits: Any, setpoint_weight: float, derivative_weight: float, compile: bool
    ) -> None:
        if not isinstance(law, FOPID):
            raise InvalidInputError(f"law={shown(law)} is not a FOPID; call FOPID(...).controller(step)")
        self.step = number("step", step, above=0.0)
        self.limits = pair("limits", limits, infinite=True)
        self.setpoint_weight = number("setpoint_weight", setpoint_weight)
        self.derivative_weight = number("derivative_weight", derivative_weight)
        self.law = law
        # D^mu y = I^(n - mu) D^n y with n = ceil(mu), and differences for D^n
        self._differences = math.ceil(law.mu - 1e-12)
        self._integral = _memory(law.lam, self.step)
        self._derivative = _memory(self._differences - law.mu, self.step)
        # The error that was integrated last, two values of what is differenced, the proportional, the integral and the
        # filtered derivative part, what changes of gains take from the output, and the number of samples.
        self._own: tuple[float, ...] = (0.0,) * 8
        self._advance = _advance
        if flag("compile", compile):
            from hpfracc.solvers.ode.compiled import compile_as_it_is

            self._advance, saved = compile_as_it_is(_advance), self.state()
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
        output, own = self._advance(
            error, proportional, derived, own, self._numbers(), self._integral, self._derivative
        )
        self._own = own
        if not own[7] % _FLUSHED:
            for states in self._states().values():
                states[np.abs(states) < _NOTHING] = 0.0
        return output

    def _numbers(self) -> tuple[float, ...]:
        law, (low, high), step = self.law, self.limits, self.step
        gains = float(law.Kp), float(law.Ki), float(law.Kd)
        return (*gains, step / (law.Tf + step), low, high, step, float(self._differences))

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
                    raise ValueError(f"its {name} has another shape; restore one with the same orders and step")
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
