r"""Responses in time: step, impulse, and any sampled input.

``N(s)/D(s)`` without delays is inverted on a hyperbola with its poles taken out (see ``laplace.py``), to about 13
digits at any time. Delays of the numerator shift it. A loop with a delay, :math:`N/(D_0 + D_1 e^{-Ls})`, is the sum
:math:`\sum_k N (-D_1)^k D_0^{-k-1} e^{-kLs}`, of which finitely many terms have begun at any time; with many of them,
the whole is inverted by de Hoog's method instead.

A sampled input is joined by straight lines. Its response is a causal convolution with the responses to hat functions:
second differences of the ramp response near 0, and integrals of the impulse response elsewhere, which piecewise
polynomials of log t represent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.polynomial import chebyshev

from hpfracc._optional import import_optional
from hpfracc._reading import numbers
from hpfracc._results import LabelledArrays, Result
from hpfracc.control.laplace import PartialInverse, inverse_laplace
from hpfracc.control.stability import is_stable, principal_poles
from hpfracc.control.transfer import Terms, TransferFunction, _product, as_systems
from hpfracc.engine.execution.api import causal_convolution
from hpfracc.errors import InvalidInputError, ShapeError

__all__ = ["Response", "impulse_response", "lsim", "step_response"]

Array = np.ndarray[Any, Any]

#: Most terms of the expansion of a loop with a delay.
_MAX_LOOPS = 24
#: Hats centred within this number of steps are second differences of the ramp response.
_NEAR = 48
#: Nodes of a piece of the impulse response, the relative size of its last coefficients, and the most halvings.
_NODES, _RESOLVED, _MAX_SPLITS = 20, 1e-11, 24


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

    def plot(self, ax: Any = None, **style: Any) -> Any:
        """Draw the response with Matplotlib; returns the axes."""
        if ax is None:
            _, ax = import_optional("matplotlib.pyplot").subplots()
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
    return _respond(systems, t, 1.0)


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
    return _respond(systems, t, 0.0)


def lsim(systems: Any, u: Any, t: Any) -> Response:
    """The response to an input sampled at equal steps and joined by straight lines; exact for such inputs.

    Parameters
    ----------
    systems : TransferFunction or array of them
        A proper, causal system at rest at ``t[0]``.
    u : array_like, shape (..., n)
        The input at ``t``.
    t : array_like, shape (n,)
        Equally spaced times.

    Returns
    -------
    Response
        ``y`` of shape ``G.shape + u.shape``.

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
    if not step > 0.0 or np.abs(np.diff(times) - step).max() > 1e-6 * step:
        raise InvalidInputError("t has steps of different lengths, or does not increase; interpolate u to equal steps")
    y = np.empty((*systems.shape, *inputs.shape), float if all(g.is_real for g in systems.flat) else complex)
    errors, methods = [], set()
    for place in np.ndindex(systems.shape):
        hats, first, direct, error, method = _hats(systems[place], times.size, step)
        late = np.array(inputs)
        late[..., 0] = 0.0
        parts = [hats] if hats.dtype.kind == "f" else [hats.real.copy(), hats.imag.copy()]
        rows = [np.asarray(causal_convolution(part, late)) for part in parts]
        y[place] = rows[0] if len(rows) == 1 else rows[0] + 1j * rows[1]
        y[place] += inputs[..., :1] * first + direct(inputs)
        errors.append(error * float(np.abs(np.diff(inputs, prepend=0.0)).sum(axis=-1).max(initial=0.0)))
        methods.add(method)
    return Response(times, y, max(errors, default=0.0), " and ".join(sorted(methods)))


# -- one system -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class _Inverse:
    """The inverse transform of ``G(s)/s^power`` at any times; 0 before the delays."""

    evaluate: Callable[[Array], Array]
    error: Callable[[Array], float]
    method: str


def _inverse(system: TransferFunction, power: float, end: float) -> _Inverse:
    """How to invert a system without its direct part, up to the time ``end``."""
    below = {(key[0] + power, key[1]): value for key, value in system.denominator.items()}
    delayed = {key: value for key, value in below.items() if key[1]}
    plain = {key: value for key, value in below.items() if not key[1]}
    shortest = min((key[1] for key in delayed), default=math.inf)
    real = system.is_real
    if end / shortest > _MAX_LOOPS:
        if not real:
            raise InvalidInputError(
                f"{system} has complex coefficients and t reaches {end / shortest:.3g} delays of its loop; use times "
                f"below {_MAX_LOOPS * shortest:g}"
            )
        return _whole(system, power)
    # Numerators by delay, for each power of the delay-free denominator.
    pieces: dict[tuple[float, int], Terms] = {}
    loop: Terms = {(0.0, 0.0): 1.0}
    for count in range(_MAX_LOOPS + 2):
        for (p, lag), value in _product(system.numerator, loop).items():
            if lag <= end:
                pieces.setdefault((lag, count), {})[(p, 0.0)] = value
        loop = {key: v for key, v in _product(loop, {k: -v for k, v in delayed.items()}).items() if key[1] <= end}
        if not loop:
            break
    inverses = []
    for (lag, count), above in pieces.items():
        terms = plain
        for _ in range(count):
            terms = _product(terms, plain)
        inverses.append((lag, PartialInverse.of(above, terms, real, 2 * count)))

    def evaluate(t: Array) -> Array:
        total = np.zeros(t.shape, float if real else complex)
        for lag, inverse in inverses:
            begun = t > lag
            total[begun] += inverse(t[begun] - lag)
        return total

    def error(t: Array) -> float:
        return sum(inverse.error(t[t > lag] - lag) for lag, inverse in inverses)

    return _Inverse(evaluate, error, "contour")


def _whole(system: TransferFunction, power: float) -> _Inverse:
    """Inversion along one line, right of all poles."""
    right = 0.0
    stable = is_stable(TransferFunction({0.0: 1.0}, system.denominator))
    while not stable and any(_beyond(system, right, angle) for angle in np.linspace(0.0, 0.5 * math.pi, 9)):
        right = max(2.0 * right, 0.1)
    lag = min((key[1] for key in system.numerator), default=0.0)
    shifted = {(key[0], key[1] - lag): value for key, value in system.numerator.items()}
    rest = TransferFunction(shifted, system.denominator)

    def transform(s: Array) -> Array:
        return np.asarray(rest(s) / s**power)

    def evaluate(t: Array) -> Array:
        total = np.zeros(t.shape)
        total[t > lag] = inverse_laplace(transform, t[t > lag] - lag, abscissa=right)
        return total

    def error(t: Array) -> float:
        late = t[t > lag] - lag
        return float(inverse_laplace(transform, late, abscissa=right, full_output=True)[1].max(initial=0.0))

    return _Inverse(evaluate, error, "de Hoog")


def _beyond(system: TransferFunction, right: float, angle: float) -> bool:
    """Whether a zero of the denominator may lie right of a line: its first term is not the largest there."""
    (top, value), *others = system.denominator.items()
    size = max(right, 1e-3)
    return bool(
        abs(value) * size ** top[0]
        <= sum(abs(v) * size ** key[0] * math.exp(-key[1] * size * math.cos(angle)) for key, v in others)
    )


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


def _respond(systems: Any, t: Any, power: float) -> Response:
    systems = as_systems(systems)
    times = _default_times(systems) if t is None else numbers("t", t, ndim=1, least=0.0)
    y = np.empty((*systems.shape, times.size), float if all(g.is_real for g in systems.flat) else complex)
    errors, methods = [], set()
    for place in np.ndindex(systems.shape):
        rest, direct = _split(systems[place])
        if direct and power == 0.0:
            raise InvalidInputError(
                f"{systems[place]} passes its input on directly, so that its response has an impulse; use a strictly "
                "proper system, or step_response"
            )
        degree = rest.relative_degree + power
        start = math.inf if degree < 1.0 else 0.0 if degree > 1.0 else rest.numerator and _leading(rest)
        inverse = _inverse(rest, power, float(times.max(initial=0.0)))
        late = times > 0.0
        y[place] = start if not any(key[1] for key in rest.numerator) else 0.0
        y[place][late] = inverse.evaluate(times[late])
        for lag, gain in direct.items():
            y[place] += np.where(times >= lag, gain if y.dtype.kind == "c" else np.real(gain), 0.0)
        errors.append(inverse.error(times[late]))
        methods.add(inverse.method)
    return Response(times, y, max(errors, default=0.0), " and ".join(sorted(methods)))


def _leading(system: TransferFunction) -> Any:
    """The ratio of the leading coefficients."""
    value = next(iter(system.numerator.values())) / next(iter(system.denominator.values()))
    return value.real if system.is_real else value


def _default_times(systems: Array) -> Array:
    """500 times until the slowest of the systems has settled, as far as its time scales tell."""
    end = 0.0
    for system in systems.flat:
        terms = list(system.denominator.items())
        powers = [key[0] for key, _ in terms]
        scale = 1.0
        if max(powers) > min(powers):
            scale = abs(terms[0][1] / terms[-1][1]) ** (1.0 / (max(powers) - min(powers)))
        if not any(key[1] for key in system.denominator):
            found = principal_poles(system.denominator)
            rates = np.abs(found.real)[np.abs(found.real) > 1e-3 * np.abs(found)]
            scale = max([scale, *(1.0 / rates).tolist()])
        lags = [key[1] for key in (*system.numerator, *system.denominator)]
        end = max(end, 10.0 * scale + 5.0 * max(lags))
    return np.linspace(0.0, end or 1.0, 500)


# -- hats -------------------------------------------------------------------------------------------------------------


def _hats(
    system: TransferFunction, count: int, step: float
) -> tuple[Array, Array, Callable[[Array], Array], float, str]:
    """Responses to a hat at 0, to half a hat from 0 on, the direct part, the error of a hat, and the method."""
    rest, direct = _split(system)
    ends = step * (count + 1)
    ramp, impulse = _inverse(rest, 2.0, ends), _inverse(rest, 0.0, ends)
    hats, first = (np.zeros(count, float if system.is_real else complex) for _ in range(2))
    lags = sorted({key[1] for key in rest.numerator} | {0.0})
    elapsed = step * np.arange(count)
    kinks = _kinks(rest, lags, ends)
    near = np.zeros(count, bool)
    for kink in kinks:
        near |= np.abs(elapsed - kink) < _NEAR * step
    at = elapsed[near]
    before, now, after = (_at(ramp, at + k * step) for k in (-1.0, 0.0, 1.0))
    hats[near] = (after - 2.0 * now + before) / step
    unit = _inverse(rest, 1.0, ends)
    first[near] = _at(unit, at) - (now - before) / step
    far = np.flatnonzero(~near)
    if far.size:
        hats[far], first[far] = _Pieces(impulse, step, ends, kinks, far.size)(elapsed[far])

    def passed(u: Array) -> Array:
        total = np.zeros(u.shape, complex)
        for lag, gain in direct.items():
            shifted = lag / step
            whole = math.floor(shifted + 1e-9)
            share = max(shifted - whole, 0.0)
            for k, weight in ((whole, 1.0 - share), (whole + 1, share)):
                if weight > 1e-9 and k < u.shape[-1]:
                    total[..., k:] += gain * weight * u[..., : u.shape[-1] - k]
        return total.real if system.is_real else total

    # A constant input is a sum of hats: how far that is from the step response.
    some = np.unique(np.linspace(1, count - 1, min(count - 1, 100)).astype(int))
    apart = np.cumsum(hats)[some - 1] + first[some] - unit.evaluate(elapsed[some])
    return hats, first, passed, float(np.abs(apart).max()) + unit.error(elapsed[some]), unit.method


def _kinks(system: TransferFunction, lags: list[float], end: float) -> list[float]:
    """Times at which the impulse response is not smooth: sums of delays."""
    loops = sorted({key[1] for key in system.denominator if key[1]})
    found = set(lags)
    for _ in range(_MAX_LOOPS if loops else 0):
        found |= {each + lag for each in found for lag in loops if each + lag < end}
    return sorted(found)


def _at(inverse: _Inverse, t: Array) -> Array:
    positive = t > 0.0
    values = inverse.evaluate(t[positive])
    found = np.zeros(t.shape, values.dtype)
    found[positive] = values
    return found


class _Pieces:
    """Responses to a hat and to half a hat, some steps behind each kink, as polynomials of the logarithm of time."""

    def __init__(self, impulse: _Inverse, step: float, end: float, kinks: list[float], count: int) -> None:
        self._impulse, self._step = impulse, step
        self._edges: list[float] = []
        self._rows: list[tuple[float, float, float, Array]] = []
        nodes = np.cos(math.pi * (np.arange(_NODES) + 0.5) / _NODES)
        size, spent = 0.0, 0
        for kink, following in zip(kinks, [*kinks[1:], math.inf], strict=True):
            low, high = (_NEAR - 2) * step, min(following, end) - kink
            if high <= low:
                continue
            edges = np.geomspace(low, high, max(2, math.ceil(math.log2(high / low)) + 1))
            waiting = [(a, b, 0) for a, b in pairwise(edges.tolist())]
            while waiting:
                a, b, depth = waiting.pop(0)
                middle, half = 0.5 * math.log(a * b), 0.5 * math.log(b / a)
                row = chebyshev.chebfit(nodes, self._values(kink + np.exp(middle + half * nodes)), _NODES - 1)
                spent += _NODES
                size = max(size, float(np.abs(row).max()))
                if np.abs(row[-3:]).max() > _RESOLVED * size and depth < _MAX_SPLITS and spent < 4 * count + 4000:
                    centre = math.exp(middle)
                    waiting[:0] = [(a, centre, depth + 1), (centre, b, depth + 1)]
                else:
                    self._rows.append((kink, middle, half, row))
                    self._edges.append(kink + b)

    def _values(self, t: Array) -> Array:
        """Integrals of the impulse response over a hat and over its later half, shape (n, 2)."""
        places, weights = np.polynomial.legendre.leggauss(3)
        places, weights = 0.5 + 0.5 * places, 0.5 * self._step * weights
        shifts = self._step * np.concatenate([places, -places])
        g = self._impulse.evaluate((t[:, np.newaxis] + shifts).reshape(-1)).reshape(t.size, -1)
        ahead, back = g[:, :3] @ (weights * (1.0 - places)), g[:, 3:] @ (weights * (1.0 - places))
        return np.stack([ahead + back, back], axis=-1)

    def __call__(self, t: Array) -> Array:
        """The two responses at increasing times, shape (2, n)."""
        rows = np.minimum(np.searchsorted(self._edges, t), len(self._rows) - 1)
        found = np.zeros((2, t.size), self._rows[0][3].dtype)
        bounds = np.flatnonzero(np.diff(rows, prepend=-1, append=-2))
        for first, last in pairwise(bounds.tolist()):
            kink, middle, half, row = self._rows[rows[first]]
            for start in range(first, last, 8192):  # so that all fits in the cache
                part = slice(start, min(start + 8192, last))
                x = (np.log(t[part] - kink) - middle) / half
                found[:, part] = chebyshev.chebval(x, row)
        return found
