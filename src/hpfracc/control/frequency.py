r"""Responses in frequency, margins and norms.

References
----------
K. J. Åström, R. M. Murray, Feedback Systems, Princeton, 2008, for the definitions of the margins.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from scipy import optimize

from hpfracc._optional import import_optional
from hpfracc._reading import number
from hpfracc._results import LabelledArrays, Result, SmallCurve
from hpfracc.control.stability import is_stable, principal_poles
from hpfracc.control.systems import as_systems, single
from hpfracc.control.transfer import Terms, TransferFunction, frequencies
from hpfracc.errors import InvalidInputError, ShapeError

Array = np.ndarray[Any, Any]

#: Nichols plots show magnitudes from here on, in dB.
_LOWEST = -40.0
#: Most crossings of the negative axis that are located.
_MOST_CROSSINGS = 50
#: Most peaks that are looked at closely.
_MOST_PEAKS = 100
#: Most frequencies that follow the turns of a delay, and most panels of the H2 norm that do.
_MOST_TURNS, _MOST_PANELS = 2e4, 1e5
#: Distances from a pole, in units of its distance from the axis.
_NEAR = np.append(np.linspace(0.0, 5.0, 51), 5.2 * 1.04 ** np.arange(400.0))
#: Most decades beyond the scales of a system, and points in a decade.
_LONGEST, _DENSITY = 40.0, 200.0
#: Points of Gauss and Legendre in a panel of the H2 norm.
_POINTS, _WEIGHTS = np.polynomial.legendre.leggauss(8)


@dataclass(frozen=True, slots=True, eq=False)
class FrequencyResponse(Result):
    """``G(i w)`` over frequencies.

    Attributes
    ----------
    w : numpy.ndarray, shape (n,)
        Angular frequencies.
    response : numpy.ndarray
        Complex values, of the shape of the systems and (n,).
    kind : str
        The plot it was asked for: ``"bode"``, ``"nyquist"`` or ``"nichols"``.
    systems : numpy.ndarray
        The systems.
    """

    w: Array
    response: Array
    kind: str
    systems: Array

    _parts: ClassVar[tuple[type, ...]] = (TransferFunction,)

    def _labelled(self) -> LabelledArrays:
        dims = (*(f"system_{axis}" for axis in range(self.response.ndim - 1)), "w")
        found = {"decibels": self.decibels, "degrees": self.degrees, "response": self.response}
        return LabelledArrays({name: (dims, each) for name, each in found.items()}, {"w": self.w}, "w", tuple(found))

    def _facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = {"kind": self.kind, "shape": str(self.response.shape)}
        found = self.margins
        return facts if found is None else {**facts, "gain_margin": found.gain, "phase_margin": found.phase}

    def _curves(self) -> list[SmallCurve]:
        """The curves of its plot; frequencies are logarithmic."""
        level, angle, values = (self._rows(each) for each in (self.decibels, self.degrees, self.response))
        if self.kind == "nyquist":
            return [SmallCurve(row.real, row.imag) for row in values]
        places = [np.log10(self.w)] * len(level) if self.kind == "bode" else angle
        return [SmallCurve(x, y) for x, y in zip(places, level, strict=True)]

    @property
    def margins(self) -> Margins | None:
        """The margins of a single real system; None for others."""
        return margins(self.systems) if self.systems.ndim == 0 and single(self.systems).is_real else None

    @property
    def magnitude(self) -> Array:
        """Absolute values."""
        return np.asarray(np.abs(self.response))

    @property
    def decibels(self) -> Array:
        """``20 log10 |G|``."""
        with np.errstate(divide="ignore"):
            return np.asarray(20.0 * np.log10(self.magnitude))

    @property
    def phase(self) -> Array:
        """Continuous phase in radians. That of a delay is known, however fast it turns between two frequencies."""
        lags = [[min((key[1] for key in system.numerator), default=0.0)] for system in self.systems.flat]
        turned = np.reshape(lags * self.w, self.response.shape)
        return np.asarray(np.unwrap(np.angle(self.response * np.exp(1j * turned)), axis=-1) - turned)

    @property
    def degrees(self) -> Array:
        """Continuous phase in degrees."""
        return np.asarray(np.degrees(self.phase))

    def __repr__(self) -> str:
        return (
            f"FrequencyResponse({self.kind}, w=[{self.w[0]:g} ... {self.w[-1]:g}] ({self.w.size}), response of shape "
            f"{self.response.shape})"
        )

    def plot(self, ax: Any = None, **style: Any) -> Any:
        """Draw it into ``ax`` or a new figure, and return the axes: two of them (magnitude, phase) for Bode's plot."""
        count = 2 if self.kind == "bode" else 1
        if ax is None:
            ax = import_optional("matplotlib.pyplot").subplots(count, 1, sharex=True, layout="constrained")[1]
        if np.size(ax) != count:
            wanted = ("one", "two, for magnitude and phase")[count - 1]
            raise InvalidInputError(f"ax has {np.size(ax)} elements; give {wanted}")
        axes = np.ravel(ax)
        plane = ("Re G", "Im G") if self.kind == "nyquist" else ("phase in degrees", "magnitude in dB")
        axes[0].set(xlabel="" if self.kind == "bode" else plane[0], ylabel=plane[1])
        rows = map(self._rows, (self.decibels, self.degrees, self.response))
        for level, angle, values, system in zip(*rows, self.systems.flat, strict=True):
            if self.kind == "bode":
                axes[0].semilogx(self.w, level, **style)
                axes[1].semilogx(self.w, angle, **style)
            elif self.kind == "nyquist":
                (line,) = axes[0].plot(values.real, values.imag, **style)
                mirrored = system(-1j * self.w)
                axes[0].plot(mirrored.real, mirrored.imag, color=line.get_color(), linestyle="--", linewidth=0.8)
            else:
                axes[0].plot(angle, level, **style)
        if self.kind == "bode":
            axes[1].set(xlabel=r"$\omega$", ylabel="phase in degrees")
        else:
            axes[0].plot([-1.0 if self.kind == "nyquist" else -180.0], [0.0], "k+")
        if self.kind == "nichols" and (seen := self.decibels >= _LOWEST).any():
            angles = np.append(self.degrees[seen], -180.0)  # a delay turns on where nothing is left to see
            axes[0].set(xlim=(angles.min() - 20.0, angles.max() + 20.0), ylim=(max(_LOWEST, self.decibels.min()), None))
        self._draw_margins(axes)
        for each in axes:
            each.grid(True, which="both" if self.kind == "bode" else "major", alpha=0.3)
        return ax

    def _rows(self, values: Array) -> Array:
        return values.reshape(-1, self.w.size)

    def _draw_margins(self, axes: Any) -> None:
        """Lines in Bode's plot, points on the other curves."""
        found = self.margins
        if found is None:
            return
        marks = (
            (axes[0], found.w_phase_crossing, f"gain margin {20.0 * math.log10(found.gain):.3g} dB"),
            (axes[-1], found.w_gain_crossing, f"phase margin {math.degrees(found.phase):.3g}°"),
        )
        style = {"textcoords": "offset points", "xytext": (3, 3), "fontsize": "small"}
        for ax, frequency, words in marks:
            if not self.w[0] < frequency < self.w[-1]:
                continue
            if self.kind == "bode":
                for each in axes:
                    each.axvline(frequency, color="0.4", linewidth=0.8, linestyle=":")
                ax.annotate(words, (frequency, 0.03), xycoords=("data", "axes fraction"), **style)
                continue
            value = complex(single(self.systems)(1j * frequency))
            place = value.real, value.imag
            if self.kind == "nichols":
                place = float(np.interp(frequency, self.w, self.degrees)), 20.0 * math.log10(abs(value))
            ax.plot(*place, "k.")
            ax.annotate(words, place, **style)


@dataclass(frozen=True, slots=True)
class Margins:
    """How far a loop is from instability.

    Attributes
    ----------
    gain : float
        Factor by which the gain may grow until the curve passes -1; inf if it never does.
    phase : float
        Phase in radians that may be lost.
    delay : float
        Delay that may be added.
    w_phase_crossing, w_gain_crossing : float
        Frequencies, from 0 to inf, at which the phase is -180 degrees and the gain is 1; nan if there is none.
    sensitivity : float
        The largest ``|1/(1 + G)|``.
    """

    gain: float
    phase: float
    delay: float
    w_phase_crossing: float
    w_gain_crossing: float
    sensitivity: float


def _scales(system: TransferFunction) -> tuple[float, float, float]:
    """The lowest and the highest frequency at which a system changes, and the longest delay between its terms."""
    scales, both = [], (system.numerator, system.denominator)
    for terms in both:
        items = sorted((key[0], abs(value)) for key, value in terms.items())
        scales += [_balance(*pair) for pair in pairwise(items) if pair[1][0] > pair[0][0]]
    if system.numerator:
        for edge in (min, max):  # where the gain at one end would be 1
            one, other = (edge((key[0], abs(value)) for key, value in terms.items()) for terms in both)
            scales += [_balance(one, other)] if abs(other[0] - one[0]) > 0.05 else []
    lag = sum(max((key[1] for key in terms), default=0.0) for terms in both)
    if lag > 0.0:
        scales.append(1.0 / lag)
    return min(scales, default=1.0), max(scales, default=1.0), lag


def _balance(one: tuple[float, float], other: tuple[float, float]) -> float:
    """The frequency at which two powers with their coefficients have one size, from 1e-60 to 1e60."""
    return float(10.0 ** np.clip((math.log10(one[1]) - math.log10(other[1])) / (other[0] - one[0]), -60.0, 60.0))


def _grid(system: TransferFunction) -> Array:
    """Frequencies over all scales of a system, dense about poles near the axis, and in each turn of a delay."""
    low, high, lag = _scales(system)
    # The smaller the difference of two powers, the longer one takes to outweigh the other.
    powers = [sorted({key[0] for key in terms}) for terms in (system.numerator, system.denominator)]
    reach = 10.0 ** min(4.0 / min([1.0, *(q - p for row in powers for p, q in pairwise(row))]), _LONGEST)
    low, high = low / reach, high * reach
    grid = [np.geomspace(low, high, max(2000, math.ceil(_DENSITY * math.log10(high / low))))]
    if lag > 0.0 and system.numerator:
        sizes = np.abs(system(1j * grid[0]))
        last = grid[0][np.flatnonzero(sizes >= 0.1 * min(1.0, sizes.max()))[-1]]
        grid.append(0.2 / lag * np.arange(1.0, min(_MOST_TURNS, 5.0 * last * lag)))
        level, place = np.log(sizes), np.flatnonzero(np.diff(sizes > 1.0))  # where the gain passes 1
        ones = grid[0][place] * (grid[0][1] / grid[0][0]) ** (level[place] / (level[place] - level[place + 1]))
        grid.append((ones[:, np.newaxis] + 0.2 / lag * np.arange(-200.0, 201.0)).ravel())
    if not any(key[1] for key in system.denominator):
        for pole in principal_poles(system.denominator):
            if pole.imag > 0.0:
                near = max(abs(pole.real), 1e-12 * pole.imag) * _NEAR
                grid += [pole.imag - near, pole.imag + near]
    found = np.unique(np.concatenate(grid))
    return np.asarray(found[(found >= low) & (found <= high)])


def _of(systems: Any, w: Any, kind: str) -> FrequencyResponse:
    systems = as_systems(systems)
    if w is None:
        lows, highs, _ = zip(*map(_scales, systems.flat), strict=True)
        w = np.geomspace(max(1e-3 * min(lows), 1e-12), 1e3 * max(highs), 1000)
    points = frequencies(w)
    response = np.empty((*systems.shape, points.size), complex)
    for place in np.ndindex(systems.shape):
        response[place] = systems[place](1j * points)
    return FrequencyResponse(points, response, kind, systems)


def bode(systems: Any, w: Any = None) -> FrequencyResponse:
    """Magnitude and phase over frequencies; its plot shows the margins of a single system.

    Parameters
    ----------
    systems : TransferFunction or array of them
    w : array_like, optional
        Angular frequencies, positive and increasing; by default all scales of G.

    Examples
    --------
    >>> from hpfracc import control
    >>> found = control.bode(1 / control.s**0.5, [1.0, 100.0])
    >>> print(found.decibels.round(6), found.degrees.round(6))
    [  0. -20.] [-45. -45.]
    """
    return _of(systems, w, "bode")


def nyquist(systems: Any, w: Any = None) -> FrequencyResponse:
    """The curve ``G(i w)`` in the complex plane; see :func:`bode`."""
    return _of(systems, w, "nyquist")


def nichols(systems: Any, w: Any = None) -> FrequencyResponse:
    """Magnitude over phase; see :func:`bode`."""
    return _of(systems, w, "nichols")


def _crossings(fun: Callable[[Any], Any], grid: Array, rank: Array | None = None) -> list[float]:
    """Frequencies at which a function changes its sign between two points of the grid; those of the lowest ranks."""
    values = fun(grid)
    found = []
    places = np.flatnonzero(np.sign(values[:-1]) * np.sign(values[1:]) < 0)
    for k in places if rank is None else places[np.argsort(rank[places])[:_MOST_CROSSINGS]]:
        low, high = float(grid[k]), float(grid[k + 1])
        if fun(low) * fun(high) < 0.0:  # rounding may depend on the number of points
            low = float(optimize.brentq(fun, low, high, xtol=1e-15 * high))
        found.append(low)
    return found


def margins(system: Any) -> Margins:
    """Gain, phase and delay margins of the loop that negative feedback closes around G.

    Parameters
    ----------
    system : TransferFunction
        The open loop, with real coefficients.

    Examples
    --------
    >>> from hpfracc import control
    >>> s = control.s
    >>> print(round(control.margins(1 / (s * (s + 1) * (s + 2))).gain, 6))
    6.0
    """
    system = single(system)
    if not system.is_real:
        raise InvalidInputError(f"{system} has complex coefficients; margins belong to real ones")
    if not system.numerator:
        return Margins(math.inf, math.inf, math.inf, math.nan, math.nan, 1.0)
    grid = _grid(system)
    # Where the curve crosses the negative axis, and the unit circle.
    # A delay turns it very often; the margin is where the gain is near 1.
    rank = np.abs(np.log(np.abs(system(1j * grid))))
    ends = [w for w in (0.0, math.inf) if np.isfinite(system(1j * w))]
    turns = [*_crossings(lambda w: system(1j * w).imag, grid, rank), *ends]
    gains = [(1.0 / abs(complex(system(1j * w))), w) for w in turns if system(1j * w).real < 0.0]
    gain, w_phase = min((each for each in gains if each[0] > 1.0 + 1e-12), default=(math.inf, math.nan))
    ones = _crossings(lambda w: np.log(np.abs(system(1j * w))), grid)
    phases = [((math.pi + float(np.angle(system(1j * w)))) % (2.0 * math.pi), w) for w in ones]
    signed = [(each if each <= math.pi else each - 2.0 * math.pi, w) for each, w in phases]
    phase, w_gain = min(signed, key=lambda pair: abs(pair[0]), default=(math.inf, math.nan))
    delays = [each / w for each, w in phases]
    with np.errstate(divide="ignore"):
        peaks = [1.0 / np.abs(1.0 + system(1j * w)) for w in ends]
    sensitivity = float(max([_peak(lambda w: 1.0 / np.abs(1.0 + system(1j * w)), grid), *peaks]))
    return Margins(gain, phase, min(delays, default=math.inf), w_phase, w_gain, sensitivity)


def bandwidth(system: Any, drop: float = 3.0) -> float:
    """The first frequency at which ``|G|`` is ``drop`` decibels below its value at 0; inf if there is none."""
    system = single(system)
    start = abs(complex(system(0.0)))
    if not 0.0 < start < math.inf:
        raise InvalidInputError(
            f"|G(0)| = {start:g}: the bandwidth of {system} is not defined; its gain at 0 must be finite"
        )
    limit = start * 10.0 ** (-number("drop", drop, above=0.0) / 20.0)
    return min(_crossings(lambda w: np.log(np.abs(system(1j * w)) / limit), _grid(system)), default=math.inf)


def h2_norm(systems: Any) -> float:
    r""":math:`(\pi^{-1} \int_0^\infty |G(i\omega)|^2 d\omega)^{1/2}`, the energy of the impulse response.

    Parameters
    ----------
    systems : TransferFunction or array of them
        Stable, and falling faster than :math:`s^{-1/2}`. The squares of an array's entries are summed.

    Returns
    -------
    float
        To about 10 digits; to about 7 with delays that do not only shift the response.

    Examples
    --------
    >>> from hpfracc import control
    >>> print(round(control.h2_norm(1 / (control.s + 1)) ** 2, 9))
    0.5
    """
    total = 0.0
    for system in as_systems(systems).flat:
        _require_stable(system, "h2_norm")
        if system.relative_degree <= 0.5:
            raise InvalidInputError(
                f"{system} falls like s^-{system.relative_degree:g}, and its impulse response has infinite energy; the "
                "relative degree must be above 1/2"
            )
        both = [system] if system.is_real else [system, _conjugate(system)]  # negative frequencies too
        total += sum(map(_energy, both)) / len(both)
    return math.sqrt(total / math.pi)


def _conjugate(system: TransferFunction) -> TransferFunction:
    """The system with conjugate coefficients, whose responses are those at negative frequencies."""
    rows = [{key: np.conj(v) for key, v in terms.items()} for terms in (system.numerator, system.denominator)]
    return TransferFunction(*rows)


def _energy(system: TransferFunction) -> float:
    """The integral of ``|G|^2`` over positive frequencies."""
    if not system.numerator:
        return 0.0
    # A delay of everything changes nothing.
    wait = min(key[1] for key in system.numerator)
    system = system * TransferFunction({(0.0, -wait): 1.0}, {0.0: 1.0})
    grid = _grid(system)
    _, high, lag = _scales(system)
    if lag > 0.0:
        turns = 1.5 / lag * np.arange(1.0, max(2.0, min(_MOST_PANELS, 1e4 * high * lag / 1.5)))
        grid = np.unique(np.concatenate([grid[grid < turns[-1]], turns]))
    grid = np.log(grid)
    edges = np.concatenate([grid[0] - np.arange(40.0, 0.0, -0.5), grid])
    inside = _gauss(edges, lambda w: np.abs(system(1j * w)) ** 2)
    # Beyond all turns of delays, their average.
    parts: dict[float, Terms] = {}
    for (power, lag), value in system.numerator.items():
        parts.setdefault(lag, {})[power, 0.0] = value
    below = {key: value for key, value in system.denominator.items() if not key[1]}
    means = [TransferFunction(above, below) for above in parts.values()]
    far = grid[-1] + np.arange(0.0, 80.5, 0.5)
    beyond = _gauss(far, lambda w: sum((np.abs(mean(1j * w)) ** 2 for mean in means), np.zeros(())))
    # Powers of the frequency at the ends.
    low = min(key[0] for key in system.numerator) - min(key[0] for key in system.denominator)
    first, last = np.exp(edges[0]), np.exp(far[-1])
    ends = abs(complex(system(1j * first))) ** 2 * first / (1.0 + 2.0 * low)
    rest = sum(abs(complex(mean(1j * last))) ** 2 for mean in means) * last / (2.0 * system.relative_degree - 1.0)
    return float(inside + beyond + ends + rest)


def _gauss(edges: Array, density: Callable[[Array], Array]) -> float:
    """The integral over frequencies, in panels of their logarithm."""
    half = 0.5 * np.diff(edges)[:, np.newaxis]
    w = np.exp(edges[:-1, np.newaxis] + half * (_POINTS + 1.0))
    return float((density(w) * w * half * _WEIGHTS).sum())


def hinf_norm(systems: Any) -> float:
    """The largest ``|G(i w)|``, of a stable system; the largest singular value of an array of systems.

    Examples
    --------
    >>> from hpfracc import control
    >>> print(round(control.hinf_norm(1 / (control.s**2 + 0.1 * control.s + 1)), 6))
    10.012523
    """
    systems = as_systems(systems)
    if systems.ndim > 2:
        raise ShapeError(f"systems has shape {systems.shape}; give one system, or a matrix (outputs, inputs)")
    grid = np.unique(np.concatenate([_grid(_require_stable(each, "hinf_norm")) for each in systems.flat]))
    found = [_largest(systems, grid)]
    if not all(each.is_real for each in systems.flat):  # negative frequencies too
        found.append(_largest(np.array([_conjugate(each) for each in systems.flat]).reshape(systems.shape), grid))
    return max(found)


def _largest(systems: Array, grid: Array) -> float:
    """The largest gain over positive frequencies, 0 and infinity."""

    def gain(w: Array) -> Array:
        return size(np.array([each(1j * w) for each in systems.flat]))

    def size(values: Array) -> Array:
        matrices = np.moveaxis(values.reshape(*systems.shape, -1), -1, 0)
        if systems.ndim < 2:
            return np.asarray(np.linalg.norm(matrices.reshape(len(matrices), -1), axis=1))
        return np.asarray(np.linalg.svd(matrices, compute_uv=False).max(axis=-1))

    ends = np.array([[each(0.0), _limit(each)] for each in systems.flat])
    return max(_peak(gain, grid), float(size(ends).max()))


def _limit(system: TransferFunction) -> float:
    """The largest gain at infinite frequencies, for some turn of each delay."""
    highest = max(key[0] for key in system.denominator)
    above = sum(abs(value) for (power, _), value in system.numerator.items() if power == highest)
    below = [abs(value) for (power, _), value in system.denominator.items() if power == highest]
    return above / (below[0] - sum(below[1:]))


def _peak(gain: Callable[[Array], Array], grid: Array) -> float:
    """The largest value over frequencies, by golden sections about the largest ones of the grid."""
    values = gain(grid)
    around = np.pad(values, 1, constant_values=-math.inf)
    tops = np.flatnonzero((values >= around[:-2]) & (values >= around[2:]))
    tops = tops[np.argsort(values[tops])[-_MOST_PEAKS:]]
    low, high, best = grid[np.maximum(tops - 1, 0)], grid[np.minimum(tops + 1, grid.size - 1)], float(values.max())
    for _ in range(45):
        reach = 0.6180339887498949 * (high - low)
        left, right = gain(high - reach), gain(low + reach)
        best = max(best, float(left.max()), float(right.max()))
        low, high = np.where(left > right, low, high - reach), np.where(left > right, low + reach, high)
    return best


def _require_stable(system: TransferFunction, what: str) -> TransferFunction:
    found = is_stable(system)
    if not found:
        raise InvalidInputError(
            f"{what} of {system}: it is not stable ({found.reason}); close a loop that is stable first"
        )
    return system
