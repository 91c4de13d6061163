"""Periodic functions: each wave is multiplied by a power of its wave number, and its phase is shifted.

A callable is sampled over a period until its waves have decayed.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any, ClassVar, final

import numpy as np

from hpfracc._arrays import dtype_name, to_host
from hpfracc._reading import number
from hpfracc._xp import Namespace
from hpfracc.engine.execution.api import matmul, spectral_multiply
from hpfracc.errors import InvalidInputError
from hpfracc.operators.core.function import Function
from hpfracc.operators.core.grids import Grid, known_values, read_grid
from hpfracc.operators.core.order import Order
from hpfracc.operators.core.reporting import Outcome
from hpfracc.operators.core.rule import Rule
from hpfracc.operators.core.values import Samples, constant, join, real_dtype, scaled_weights

Ratios = tuple[float, ...]


class LaplacianRule(Rule):
    """A method for samples on a uniform grid of one or more axes."""

    one_call = True
    halves = False

    @abstractmethod
    def over(self, samples: Samples, ratios: Ratios, order: Order) -> Any:
        """The operator along the last axes.

        Parameters
        ----------
        samples : Samples
            The values, and the grid of the first of those axes.
        ratios : tuple of float
            For each axis the squared ratio of the first step to its own.
        order : Order
            The alpha of ``(-Laplacian)^(alpha/2)``.
        """

    def apply(self, samples: Samples, order: Order) -> Any:
        """Along one axis."""
        return self.over(samples, (1.0,), order)


class WaveRule(LaplacianRule):
    """Multiplies each wave by its wave number to the power alpha, and by a phase ``c + i sgn s``.

    Exact to rounding on the waves that the samples resolve; exponentially convergent for functions whose continuation
    by these waves is analytic.
    """

    usual_accuracy = math.inf
    #: The transform into the waves.
    kind: ClassVar[str] = "fft"
    #: Whether the phase is shifted, along one axis, so that the factor is complex; a skewness, if there is one.
    turns: bool = False
    theta: float = 0.0

    def numbers(self, n: int, half: bool) -> np.ndarray[Any, Any]:
        """Wave numbers times the step."""
        return np.asarray(2.0 * math.pi / n * (np.arange(n // 2 + 1) if half else np.round(np.fft.fftfreq(n) * n)))

    def phase(self, xp: Namespace, alpha: Any) -> tuple[Any, Any]:
        """The factors c and s."""
        return 1.0, 0.0

    def over(self, samples: Samples, ratios: Ratios, order: Order) -> Any:
        """One spectral multiplication over all axes."""
        values = samples.values
        axes = tuple(range(-len(ratios), 0))
        shape = tuple(values.shape[axis] for axis in axes)
        real = "complex" not in dtype_name(values)

        def make(xp: Namespace, alpha: Any, n: int) -> tuple[Any]:
            squares, waves = np.zeros(()), np.zeros(0)
            for axis, (points, ratio) in enumerate(zip(shape, ratios, strict=True)):
                waves = self.numbers(points, half=real and axis == len(shape) - 1)
                squares = squares[..., None] + ratio * waves**2
            c, s = self.phase(xp, alpha)
            powers = wave_powers(xp, alpha, np.sqrt(squares))
            if not self.turns:
                return (powers * c,)
            # For even n the highest wave is a cosine; the corresponding sine vanishes at the samples.
            sign = np.where(np.abs(waves) > math.pi * (1.0 - 0.5 / n), 0.0, np.sign(waves))
            return (xp.complex(powers * c, powers * xp.array(sign) * s),)

        scheme = (self.name, type(self).__name__, self.theta, shape, ratios, real)
        (symbol,), key, left = scaled_weights(scheme, make, order, samples, -1)
        product = spectral_multiply(
            symbol,
            values,
            axes=axes,
            kinds=self.kind,
            real=True if real and self.turns else None,
            backend=samples.backend,
            weights_key=key,
        )
        return product if left is None else product * left


class PeriodicRule(WaveRule):
    r"""A wave :math:`e^{i\kappa x}` is multiplied by :math:`|\kappa|^\alpha (c + i\,\mathrm{sgn}(\kappa)\,s)`.

    Exact to rounding on every wave that the samples resolve (up to n/2 periods). For an analytic periodic function the
    error decreases exponentially with the number of samples. The samples cover one period without its end:
    ``np.linspace(0, period, n, endpoint=False)``.

    The mean is dropped, unless alpha is 0. For an even number of samples the highest wave is treated as a cosine.
    """

    name = "spectral"
    one_call = False
    needs_step = False


def wave_powers(xp: Namespace, alpha: Any, waves: Any) -> Any:
    """``waves ** alpha`` for non-negative numbers; 0 at 0, unless alpha is 0."""
    still = waves == 0.0
    on_host = isinstance(waves, np.ndarray)
    powers = xp.power(np.where(still, 1.0, waves) if on_host else xp.where(still, 1.0, waves), alpha)
    if on_host and not still.any():
        return powers
    at_rest = xp.where(alpha == 0.0, xp.array(1.0), xp.array(0.0))
    return xp.where(xp.array(still) > 0.0, at_rest, powers)


@final
class WeylWaves(PeriodicRule):
    r"""The Weyl derivative of a periodic function: :math:`(i\kappa)^\alpha`, the principal branch.

    References
    ----------
    S. G. Samko, A. A. Kilbas, O. I. Marichev, *Fractional Integrals and Derivatives*, 1993, section 19.
    """

    turns = True

    def phase(self, xp: Namespace, alpha: Any) -> tuple[Any, Any]:
        """``exp(i pi alpha / 2)``."""
        angle = xp.array(0.5 * math.pi) * alpha
        return xp.cos(angle), xp.sin(angle)


@final
class RieszWaves(PeriodicRule):
    r"""The Riesz-Feller derivative of a periodic function; without the skewness theta the Riesz derivative.

    .. math:: -|\kappa|^\alpha e^{-i\,\mathrm{sgn}(\kappa)\,\theta\pi/2}.
    """

    def __init__(self, theta: float = 0.0) -> None:
        self.theta, self.turns = theta, theta != 0.0

    def phase(self, xp: Namespace, alpha: Any) -> tuple[Any, Any]:
        """``-exp(-i pi theta / 2)``."""
        return -math.cos(0.5 * math.pi * self.theta), math.sin(0.5 * math.pi * self.theta)


#: Numbers of samples over a period, tried in turn.
_COUNTS = (16, 32, 64, 128, 256, 512, 1024)
#: Number of samples if the values are traced and unknown; the result says so.
_BLIND = 128
#: Rounding errors of a value of f, and of a term of the sum, in units of eps.
_ROUNDED = 4.0
#: Coefficients this small relative to the largest value, in units of eps, are rounding errors.
_ROUNDING = 20.0
#: Coefficients are resolved this far below the tolerance, because differentiation amplifies the truncated ones.
_RESERVE = 1e-4
#: Largest deviation of f from its waves between the samples, in units of the truncation level.
_ALIKE = 100.0
#: Largest difference of values a period apart, relative to the largest value.
_PERIODIC = 1e-6
#: Points of the result that are processed together.
_CHUNK = 8192


def check_period(grid: Grid, period: Any, who: str) -> None:
    """Refuse samples that do not cover the given period."""
    step = grid.require_uniform(who)
    length, known = None if period is None else number("period", period, above=0.0), known_values(step)
    if length is None or known is None:
        return
    apart, covered = float(known), grid.n * float(known)
    if abs(covered - length) > 1e-6 * length:
        closed = abs(covered - apart - length) < 1e-6 * length
        raise InvalidInputError(
            f"{who}: {grid.n} samples {apart:.6g} apart cover {covered:.6g}, not the period {length:.6g}"
            f"{' (the last sample repeats the first: drop it)' if closed else ''}; "
            "use np.linspace(0, period, n, endpoint=False)"
        )


def sampled(function: Function, who: str) -> Samples:
    """A callable's values at the given points, which must form a uniform grid."""
    _refuse_factor(function, who)
    if function.shape == ():
        raise InvalidInputError(
            f"{who} of a callable is taken from its values at t, and t is a single point; give the whole grid"
        )
    grid = read_grid(function.points, None, None, len(function.points))
    return Samples(function.at(function.points), grid, function.backend)


def _refuse_factor(function: Function, who: str) -> None:
    if function.factor != 0.0:
        raise InvalidInputError(f"factor={function.factor:g}: {who} has no origin for a power to start from")


def of_periodic_function(function: Function, rule: PeriodicRule, order: Order, period: Any, who: str) -> Outcome:
    """Sample a period more and more finely until the waves have decayed, and apply ``rule`` to them at every point.

    The points may lie anywhere.
    """
    _refuse_factor(function, who)
    if period is None:
        raise InvalidInputError(
            f"{who} of a callable needs its period; give period= (such as 2 * np.pi), or samples of one period"
        )
    length = number("period", period, above=0.0)
    start = function.origin
    values, level, resolved, looked = _fit(function, start, length)
    count = values.shape[-1]
    if looked:
        _refuse_jump(function, start, length, float(np.abs(to_host(values)).max(initial=0.0)))
    waves = np.arange(1, (count - 1) // 2 + 1)
    # Whole turns are left out exactly: an angle of many turns has the rounding error of all of them.
    angles = 2.0 * math.pi / count * (np.outer(np.arange(count), waves) % count)
    # The mean, the cosines and the sines.
    analysis = np.concatenate([np.full((count, 1), 0.5), np.cos(angles), np.sin(angles)], 1) * (2.0 / count)
    coefficients = matmul(values, constant(analysis, values), backend=function.backend)
    xp, alpha = order.xp, order.value
    parts = []
    for first in range(0, len(function.points), _CHUNK):
        places = (function.points[first : first + _CHUNK] - start) / length
        turns = 2.0 * math.pi * np.outer(waves, places - np.floor(places))
        with xp.scope():
            c, s = rule.phase(xp, alpha)
            powers = wave_powers(xp, alpha, 2.0 * math.pi / length * waves).reshape(-1, 1)
            cosine, sine = xp.array(np.cos(turns)), xp.array(np.sin(turns))
            rest = wave_powers(xp, alpha, np.zeros(1)) * c * xp.array(np.ones((1, len(places))))
            table = xp.concatenate([rest, powers * (cosine * c - sine * s), powers * (sine * c + cosine * s)])
        parts.append(matmul(coefficients, constant(table, coefficients), backend=function.backend))
    value = parts[0] if len(parts) == 1 else join(parts)

    def error() -> float:
        known = order.known if order.known is not None else 0.0
        size = (2.0 * math.pi / length * waves) ** known
        left_out = float(level * np.sqrt((size**2).sum()))
        sizes = np.abs(to_host(coefficients)).reshape(-1, 1 + 2 * len(waves))[:, 1:]
        heights = (sizes[:, : len(waves)] + sizes[:, len(waves) :]).max(axis=0)
        # Rounding of a point, in periods, moves wave k by k turns of its size; that of f reaches all waves alike.
        periods = max(1.0, float(np.abs(function.points - start).max(initial=0.0)) / length, abs(start) / length)
        moved = ((_ROUNDED + 2.0 * math.pi * waves * periods) * size * heights).sum()
        noise = float(np.abs(to_host(values)).max(initial=0.0)) * float(np.sqrt((size**2).sum() / count))
        return left_out + float(np.finfo(real_dtype(values)).eps) * (float(moved) + _ROUNDED * noise)

    if not looked:
        message = f"{count} samples of a period; f is traced, so that its waves are unknown"
    elif resolved:
        message = f"{count} samples of a period, whose highest waves fell to rounding"
    else:
        message = f"{count} samples of a period did not resolve f to the tolerance: it is not smooth enough"
    return Outcome(value, "spectral", error, resolved, message, looked=looked and order.known is not None)


def _fit(function: Function, start: float, length: float) -> tuple[Any, float, bool, bool]:
    """Values over a period, the size of their highest waves, whether that is small, and whether it is known."""
    values, level = None, math.nan
    for count in _COUNTS:
        values = function.at(start + length * np.arange(count) / count)
        host = known_values(values)
        if host is None:  # choose without the values
            if count < _BLIND:
                continue
            return values, math.nan, False, False
        largest = float(np.abs(host).max(initial=0.0))
        waves = np.abs(np.fft.fft(host)).reshape(-1, count).max(axis=0) / count
        level = float(waves[count // 2 - count // 8 : count // 2 + count // 8 + 1].max())
        rounding = _ROUNDING * float(np.finfo(real_dtype(values)).eps)
        allowed = max(rounding, _RESERVE * function.rtol)
        if level <= allowed * largest and _confirmed(function, host, start, length, _ALIKE * allowed):
            return values, max(level, 0.01 * rounding * largest), True, True
    return values, level, False, True


def _confirmed(function: Function, host: np.ndarray[Any, Any], start: float, length: float, allowed: float) -> bool:
    """Whether f agrees with its waves at 16 points, a third of a step from the samples of every finer grid."""
    count = host.shape[-1]
    shift = (np.arange(_COUNTS[0]) + 1.0 / 3.0) / _COUNTS[0]
    values = to_host(function.at(start + length * shift))
    waves = np.fft.fft(host) / count
    numbers = np.fft.fftfreq(count, 1.0 / count)
    said = waves @ np.exp(2j * math.pi * np.outer(numbers, shift))
    gap = np.abs(values - (said if np.iscomplexobj(host) else said.real)).max(initial=0.0)
    size = max(float(np.abs(host).max(initial=0.0)), float(np.abs(values).max(initial=0.0)))
    return bool(gap <= allowed * math.sqrt(count) * size)


def _refuse_jump(function: Function, start: float, length: float, largest: float) -> None:
    """Refuse a function that differs a period later."""
    ends = to_host(function.at(np.array([start, start + length])))
    jump = float(np.abs(ends[..., 1] - ends[..., 0]).max(initial=0.0))
    if jump > max(_PERIODIC, function.rtol) * largest:
        raise InvalidInputError(
            f"f changes by {jump:.3g} from t={start:g} to t={start + length:g}, a period={length:g} later; "
            "give its true period, or use an operator that does not need one"
        )
