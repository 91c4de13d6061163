r"""Responses in time: step, impulse, and any sampled input.

``N(s)/D(s)`` without delays is inverted on a hyperbola with its poles taken out (see ``laplace.py``), to about 13
digits at any time. Delays of the numerator shift it. A loop with a delay, :math:`N/(D_0 + D_1 e^{-Ls})`, is the sum
:math:`\sum_k N (-D_1)^k D_0^{-k-1} e^{-kLs}`, of which finitely many terms have begun at any time; with many of them,
the whole is inverted by de Hoog's method instead.

A sampled input is joined by straight lines. At equal steps its response is a causal convolution with the responses to
hat functions: second differences of the ramp response near 0, and inverse transforms of their own elsewhere. At others
it is a sum of ramp responses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hpfracc._reading import numbers, shown
from hpfracc._results import LabelledArrays, Result, new_axes
from hpfracc.control.laplace import BLOCK, Factor, PartialInverse, inverse_laplace
from hpfracc.control.stability import is_stable, principal_poles
from hpfracc.control.systems import as_systems
from hpfracc.control.transfer import Terms, TransferFunction, _product
from hpfracc.engine.execution.api import causal_convolution
from hpfracc.errors import InvalidInputError, ShapeError

if TYPE_CHECKING:
    from hpfracc._results import Axes

Array = np.ndarray[Any, Any]

#: Most terms of the expansion of a loop with a delay.
_MAX_LOOPS = 24
#: Hats centred within this number of steps are second differences of the ramp response.
_NEAR = 48
#: Another method is tried at a larger error relative to the response.
_POOR = 1e-8
_EPS = float(np.finfo(float).eps)
#: Ramps that are evaluated at once.
_RAMPS = 2**20
#: Most times at which the sum of hats is compared with the step response.
_CHECKED = 500


@dataclass(frozen=True, slots=True, eq=False)
class Response(Result):
    """A response in time; unpacks to ``t, y``.

    Attributes
    ----------
    t : numpy.ndarray
        Times, shape (n,).
    y : numpy.ndarray
        Values, of the shape of the systems and (n,).
    error_estimate : float
        Estimated largest error.
    method : str
        ``"contour"`` or ``"de Hoog"``.
    """

    t: Array
    y: Array
    error_estimate: float
    method: str

    def _labelled(self) -> LabelledArrays:
        dims = (*(f"system_{axis}" for axis in range(self.y.ndim - 1)), "t")
        return LabelledArrays({"y": (dims, self.y)}, {"t": self.t}, "t")

    def _facts(self) -> dict[str, Any]:
        return {"shape": str(self.y.shape), "error_estimate": float(self.error_estimate), "method": self.method}

    def __iter__(self) -> Iterator[Array]:
        return iter((self.t, self.y))

    def __repr__(self) -> str:
        return (
            f"Response(t=[{self.t[0]:g} ... {self.t[-1]:g}] ({self.t.size}), y of shape {self.y.shape}, "
            f"error_estimate={self.error_estimate:.1e}, method={self.method!r})"
        )

    def plot(self, ax: Axes | None = None, **style: Any) -> Axes:
        """Draw the response with Matplotlib; returns the axes."""
        ax = new_axes(ax)
        ax.plot(self.t, self.y.reshape(-1, self.t.size).T, **style)
        ax.set(xlabel="t", ylabel="y")
        return ax


def step_response(systems: Any, t: Any = None) -> Response:
    """The response to a unit step at t = 0.

    Parameters
    ----------
    systems : TransferFunction or array of them
        A proper, causal system, stable or not.
    t : array_like, optional
        Times of 0 or more; by default 500 that show the transient.

    Returns
    -------
    Response
        Times, values and an error estimate.

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> s = hf.control.s
    >>> t = np.linspace(0.0, 5.0, 6)
    >>> y = hf.control.step_response(1 / (s**0.5 + 1), t).y
    >>> bool(np.allclose(y, 1 - hf.mittag_leffler(-(t**0.5), 0.5)))
    True
    """
    return _respond(systems, t, 1)


def impulse_response(systems: Any, t: Any = None) -> Response:
    """The response to a unit impulse at t = 0; infinite at 0 if G falls more slowly than 1/s.

    Parameters
    ----------
    systems : TransferFunction or array of them
        A strictly proper, causal system.
    t : array_like, optional
        Times of 0 or more; by default 500 that show the transient.

    Examples
    --------
    >>> from hpfracc import control
    >>> print(control.impulse_response(1 / (control.s + 1), [1.0]).y.round(6))
    [0.367879]
    """
    return _respond(systems, t, 0)


def lsim(systems: Any, u: Any, t: Any) -> Response:
    """The response to an input that is sampled and joined by straight lines; exact for such inputs.

    Parameters
    ----------
    systems : TransferFunction or array of them
        A proper, causal system at rest at ``t[0]``; a matrix has the shape (outputs, inputs).
    u : array_like, shape (..., n)
        The input at ``t``, of shape (..., inputs, n) for a matrix.
    t : array_like, shape (n,)
        Increasing times. The work grows like n log n for equal steps, and like n^2 for others.

    Returns
    -------
    Response
        ``y`` of shape ``G.shape + u.shape``; (..., outputs, n) for a matrix with inputs of their own, the responses of
        which are summed.

    Examples
    --------
    >>> import numpy as np
    >>> from hpfracc import control
    >>> t = np.linspace(0.0, 1.0, 101)
    >>> print(control.lsim(1 / control.s, t, t).y[-1].round(9))
    0.5
    """
    systems, times, inputs = as_systems(systems), numbers("t", t, ndim=1), numbers("u", u)
    if times.size < 2 or inputs.shape[-1:] != times.shape:
        raise ShapeError(f"u has shape {inputs.shape} and t {times.shape}; give u of shape (..., n) at n >= 2 times")
    step = float((times[-1] - times[0]) / (times.size - 1))
    if not min(float(each.min()) for each in _differences(times)) > 0.0:
        raise InvalidInputError(f"t={shown(times)} does not increase; sort it, with u, and drop repeated times")
    even = max(float(np.abs(each - step).max()) for each in _differences(times)) <= 1e-6 * step
    mixed = systems.ndim == 2 and inputs.ndim > 1
    if mixed and inputs.shape[-2] != systems.shape[1]:
        raise ShapeError(
            f"systems has shape {systems.shape} and u {inputs.shape}; give u of shape (..., {systems.shape[1]}, n), a "
            "row for each input"
        )
    shape = (systems.shape[0], *inputs.shape[:-2]) if mixed else (*systems.shape, *inputs.shape[:-1])
    y = None if systems.size == 1 else np.zeros((*shape, times.size), _kind(systems))
    errors, methods = np.zeros(systems.shape), set()
    for place in np.ndindex(systems.shape):
        given = inputs[..., place[1], :] if mixed else inputs
        row, errors[place], method = (_of_hats if even else _of_ramps)(systems[place], given, times)
        if y is None:
            y = row.reshape((*shape, times.size))
        else:
            y[place[0] if mixed else place] += row
        methods.add(method)
    assert y is not None
    if mixed:
        y, errors = np.moveaxis(y, 0, -2), errors.sum(axis=1)
    return Response(times, y, float(errors.max(initial=0.0)), " and ".join(sorted(methods)))


def _differences(x: Array) -> Iterator[Array]:
    """Differences along the last axis, in blocks that stay in the cache."""
    return (np.diff(x[..., k : k + BLOCK + 1]) for k in range(0, x.shape[-1] - 1, BLOCK))


def _kind(systems: Array) -> type:
    return float if all(g.is_real for g in systems.flat) else complex


# -- one system -------------------------------------------------------------------------------------------------------

#: Adds the values at times above 0 of the inverse of a transform times a factor to an array; returns the error.
Inverse = Callable[[Array, Factor, Array], float]


def _power(power: int) -> Factor:
    return lambda s: 1.0 / s**power


def _inverses(system: TransferFunction, end: float) -> tuple[list[tuple[float, Inverse]], str]:
    """Inverses from a time on, which add up to that of a strictly proper system until ``end``; and the method."""
    delayed = {key: value for key, value in system.denominator.items() if key[1]}
    plain = {key: value for key, value in system.denominator.items() if not key[1]}
    if end > (longest := _longest_sum(system)):
        if not system.is_real:
            raise InvalidInputError(
                f"{system} has complex coefficients and t reaches {end / longest * _MAX_LOOPS:.3g} delays of its loop; "
                f"use times below {longest:g}"
            )
        return [_along_line(system)], "de Hoog"
    found: list[tuple[float, Inverse]] = []
    loop: Terms = {(0.0, 0.0): 1.0}
    count = 1
    while loop:
        # Numerators by delay, over a power of the denominator without delays.
        pieces: dict[float, Terms] = {}
        for (p, lag), value in _product(system.numerator, loop).items():
            if lag <= end:
                pieces.setdefault(lag, {})[(p, 0.0)] = value
        found += [(lag, PartialInverse(above, plain, count)) for lag, above in pieces.items()]
        loop = {key: -v for key, v in _product(loop, delayed).items() if key[1] <= end}
        count += 1
    return found, "contour"


def _longest_sum(system: TransferFunction) -> float:
    """The time until which a loop with delays is a sum over its rounds."""
    return _MAX_LOOPS * min((key[1] for key in system.denominator if key[1]), default=math.inf)


def _along_line(system: TransferFunction) -> tuple[float, Inverse]:
    """The delay of a system, and its inversion along one line, right of all poles."""
    right, ((top, value), *others) = 0.0, system.denominator.items()
    stable = is_stable(TransferFunction({0.0: 1.0}, system.denominator))
    # No zero of the denominator lies where its first term is the largest.
    while not stable and abs(value) * right ** top[0] <= sum(abs(v) * right ** key[0] for key, v in others):
        right = max(2.0 * right, 0.1)
    lag = min((key[1] for key in system.numerator), default=0.0)
    rest = system * TransferFunction({(0.0, -lag): 1.0}, {0.0: 1.0})

    def invert(t: Array, factor: Factor, total: Array) -> float:
        values, errors = inverse_laplace(lambda s: rest(s) * factor(s), t, abscissa=right, full_output=True)
        total += values
        return float(errors.max(initial=0.0))

    return lag, invert


def _since(lag: float, t: Array) -> Array:
    """The time since a delay; what rounding leaves of it is 0."""
    return np.where(t - lag > 1e-13 * t, t - lag, 0.0) if lag else t


def _evaluate(inverse: Inverse, t: Array, factor: Factor, total: Array) -> float:
    """Add an inverse to ``total`` where t is above 0; returns the error."""
    begun = t > 0.0
    values = total[begun]
    error = inverse(t[begun], factor, values)
    total[begun] = values
    return error


def _split(system: TransferFunction) -> tuple[TransferFunction, dict[float, complex]]:
    """The strictly proper part, and the direct gain of each delay."""
    degree = system.relative_degree
    if degree < 0.0:
        raise InvalidInputError(
            f"{system} is improper: its numerator has the higher power, so that it has no causal response; add a "
            "filter, such as 1/(0.01*s + 1)"
        )
    if not system.is_causal:
        raise InvalidInputError(f"{system} is not causal: its response comes before its input; check the delays")
    direct: dict[float, complex] = {}
    highest = max(key[0] for key in system.denominator)
    leading = {key[1]: value for key, value in system.denominator.items() if key[0] == highest}
    if degree == 0.0:
        if len(leading) > 1:
            raise InvalidInputError(f"{system} has a delay in the highest power of its denominator; lower its gain")
        direct = {lag: v / leading[0.0] for (p, lag), v in system.numerator.items() if p == highest}
        for lag, gain in direct.items():
            system = system - gain * TransferFunction({(0.0, lag): 1.0}, {0.0: 1.0})
        kept = {key: v for key, v in system.numerator.items() if key[0] < highest}
        system = TransferFunction(kept, system.denominator)
    return system, direct


def _respond(systems: Any, t: Any, power: int) -> Response:
    systems = as_systems(systems)
    times = _default_times(systems) if t is None else numbers("t", t, ndim=1, least=0.0)
    y = np.empty((*systems.shape, times.size), _kind(systems))
    errors, methods = [], set()
    for place in np.ndindex(systems.shape):
        rest, direct = _split(systems[place])
        if direct and power == 0:
            raise InvalidInputError(
                f"{systems[place]} passes its input on directly, so that its response has an impulse; use a strictly "
                "proper system, or step_response"
            )
        degree = rest.relative_degree + power
        start: complex = math.inf if degree < 1.0 else 0.0
        if degree == 1.0:
            start = next(iter(rest.numerator.values())) / next(iter(rest.denominator.values()))
        if any(key[1] for key in rest.numerator):
            start = 0.0
        early = times <= _longest_sum(rest)  # what is said of late times does not spoil these
        for part in filter(np.any, (early, ~early)):
            y[place][part], error, method = _without_gain(rest, times[part], power, start)
            errors.append(error)
            methods.add(method)
        for lag, gain in direct.items():
            y[place] += np.where(times >= lag, gain if y.dtype.kind == "c" else np.real(gain), 0.0)
    return Response(
        times, y, float(np.nan_to_num(errors, nan=math.inf).max(initial=0.0)), " and ".join(sorted(methods))
    )


def _without_gain(system: TransferFunction, t: Array, power: int, start: complex) -> tuple[Array, float, str]:
    """The response of a strictly proper system, ``start`` at time 0, with its error and method."""
    parts, method = _inverses(system, float(t.max(initial=0.0)))
    y = np.zeros(t.shape, float if system.is_real else complex)
    y[t == 0.0] = np.real(start) if system.is_real else start
    begin = y.copy()
    with np.errstate(over="ignore", invalid="ignore"):  # rounds of a loop with a large gain
        error = sum(_evaluate(inverse, _since(lag, t), _power(power), y) for lag, inverse in parts)
    if system.is_real and error > _POOR * float(np.abs(y).max(initial=0.0, where=t > 0.0)):
        # Poles in clusters cannot be taken out well.
        lag, inverse = _along_line(system)
        other = _evaluate(inverse, _since(lag, t), _power(power), begin)
        if other < error:
            return begin, other, "de Hoog"
    return y, error, method


def _default_times(systems: Array) -> Array:
    """500 times until the slowest of the systems has settled, as far as its time scales tell."""
    end = 0.0
    for system in systems.flat:
        ((top, first), *_), ((bottom, last), *_) = system.denominator.items(), reversed(system.denominator.items())
        scale = abs(first / last) ** (1.0 / (top[0] - bottom[0])) if top[0] > bottom[0] else 1.0
        if not any(key[1] for key in system.denominator):
            found = principal_poles(system.denominator)
            scale = max([scale, *(1.0 / np.abs(found.real)[np.abs(found.real) > 1e-3 * np.abs(found)]).tolist()])
        lags = [key[1] for key in (*system.numerator, *system.denominator)]
        end = max(end, 10.0 * scale + 5.0 * max(lags))
    return np.linspace(0.0, end or 1.0, 500)


# -- hats -------------------------------------------------------------------------------------------------------------


def _of_hats(system: TransferFunction, u: Array, times: Array) -> tuple[Array, float, str]:
    """The response to an input at equal steps, its error, and the method."""
    hats, first, direct, error, method = _hats(system, times.size, float((times[-1] - times[0]) / (times.size - 1)))
    parts = [hats] if hats.dtype.kind == "f" else [hats.real.copy(), hats.imag.copy()]
    rows = [np.asarray(causal_convolution(part, u)) for part in parts]
    row = np.require(rows[0] if len(rows) == 1 else rows[0] + 1j * rows[1], requirements="W")
    for k in range(0, times.size, BLOCK):
        row[..., k : k + BLOCK] += u[..., :1] * first[k : k + BLOCK]
    _pass(direct, times - times[0], u, row)
    variation = sum((np.abs(each).sum(axis=-1) for each in _differences(u)), np.abs(u[..., 0]))
    return row, error * float(variation.max(initial=0.0)), method


def _of_ramps(system: TransferFunction, u: Array, times: Array) -> tuple[Array, float, str]:
    """The response to an input at any times, as a step and a ramp from each of them on where its slope changes."""
    rest, direct = _split(system)
    elapsed = times - times[0]
    parts, method = _inverses(rest, float(elapsed[-1]))
    kind = float if system.is_real else complex
    changes = np.diff(np.diff(u) / np.diff(times), axis=-1, prepend=0.0)
    row, error, step = np.zeros(u.shape, kind), 0.0, np.zeros(times.size, kind)
    for lag, inverse in parts:
        error += _evaluate(inverse, elapsed - lag, _power(1), step) * float(np.abs(u[..., 0]).max(initial=0.0))
        count, worst, size = max(1, _RAMPS // times.size), 0.0, 0.0
        for k in range(0, times.size, count):
            apart = (elapsed[k : k + count, np.newaxis] - elapsed[:-1]) - lag
            ramps = np.zeros(apart.size, kind)
            worst = max(worst, _evaluate(inverse, apart.ravel(), _power(2), ramps))
            row[..., k : k + count] += changes @ ramps.reshape(apart.shape).T
            size = max(size, float(np.abs(ramps).max(initial=0.0)))
        # Errors of the contour change slowly, so that those of a rise and of its end cancel; rounding does not.
        swing, bends = (float(np.abs(each).sum(axis=-1).max(initial=0.0)) for each in (np.diff(u), changes))
        error += 8.0 * worst / elapsed[-1] * swing + 16.0 * _EPS * size * bends
    row += u[..., :1] * step
    _pass(direct, elapsed, u, row)
    return row, error, method


def _pass(direct: dict[float, complex], elapsed: Array, u: Array, total: Array) -> None:
    """Add what passes at once, or after a delay, with nothing before the first time."""
    for lag, gain in direct.items():
        gain = gain if total.dtype.kind == "c" else np.real(gain)
        if not lag:
            total += gain * u
            continue
        moved = elapsed - lag
        places = np.clip(np.searchsorted(elapsed, moved, "right") - 1, 0, elapsed.size - 2)
        share = (moved - elapsed[places]) / (elapsed[places + 1] - elapsed[places])
        value = u[..., places] * (1.0 - share) + u[..., places + 1] * share
        total += gain * np.where(moved >= -1e-9 * elapsed[1], value, 0.0)


def _hats(system: TransferFunction, count: int, step: float) -> tuple[Array, Array, dict[float, complex], float, str]:
    """The response to a hat at 0, what half a hat from 0 on adds to it, the direct gains, a hat's error, the method."""
    rest, direct = _split(system)
    parts, method = _inverses(rest, step * (count + 1))
    hats, first = (np.zeros(count, float if system.is_real else complex) for _ in range(2))
    # A constant input is a sum of hats: how far that is from the step response, at some times.
    some = np.unique(np.linspace(1, count - 1, min(count - 1, _CHECKED)).astype(int))
    unit, error = np.zeros(some.size, hats.dtype), 0.0
    for lag, inverse in parts:
        t = np.arange(count, dtype=float)
        t *= step
        t -= lag
        error += _evaluate(inverse, t[some], _power(1), unit)
        begin, later = (int(np.searchsorted(t, limit)) for limit in (-step * (1.0 - 1e-12), _NEAR * step))
        near, far = slice(begin, later), slice(later, None)
        before, now, after, jump = (np.zeros(later - begin, hats.dtype) for _ in range(4))
        for total, shift in ((before, -step), (now, 0.0), (after, step)):
            _evaluate(inverse, t[near] + shift, _power(2), total)
        _evaluate(inverse, t[near], _power(1), jump)
        hats[near] += (after - 2.0 * now + before) / step
        first[near] += jump - (after - now) / step
        # Later, differences would cancel. A hat is (1 - exp(-h s))^2/(h s^2) a step later, half of it less a hat
        # -(exp(h s) - 1 - h s)/(h s^2).
        inverse(t[far], lambda s: (step * s - np.expm1(step * s)) / (step * s**2), first[far])
        t += step
        inverse(t[far], lambda s: np.expm1(-step * s) ** 2 / (step * s**2), hats[far])

    sums = np.cumsum(np.add.reduceat(hats, np.r_[0, some]))[:-1] + hats[some]
    apart = np.abs(sums + first[some] - unit)
    return hats, first, direct, float(apart.max()) + error, method
