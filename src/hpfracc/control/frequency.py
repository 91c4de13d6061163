r"""Responses in frequency, and margins.

References
----------
K. J. Åström, R. M. Murray, Feedback Systems, Princeton, 2008, for the definitions of the margins.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from scipy import optimize
from scipy.interpolate import CubicSpline

from hpfracc._optional import import_optional
from hpfracc._reading import number, shown
from hpfracc._results import LabelledArrays, Result, SmallCurve
from hpfracc.control.stability import phases, principal_poles
from hpfracc.control.systems import as_systems, measured, single
from hpfracc.control.transfer import TransferFunction, _shift, frequencies
from hpfracc.errors import InvalidInputError, ShapeError

Array = np.ndarray[Any, Any]

#: Nichols plots show magnitudes from here on, in dB.
_LOWEST = -40.0
#: Most crossings of the negative axis that are located.
_MOST_CROSSINGS = 50
#: Most peaks that are looked at closely.
_MOST_PEAKS = 100
#: Most frequencies that follow the turns of a delay.
_MOST_TURNS = 2e4
#: Distances from a pole, in units of its distance from the axis.
_NEAR = np.append(np.linspace(0.0, 5.0, 51), 5.2 * 1.04 ** np.arange(400.0))
#: Most decades beyond the scales of a system, and points in a decade.
_LONGEST, _DENSITY = 40.0, 200.0
#: Intervals between two frequencies of data in which crossings are looked for.
_BETWEEN = 16


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
        The systems; empty for data.
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
        """The margins of a single real system, or of data about one; None for others."""
        if not self.systems.size:
            return _margins_of_data(self.w, self.response) if self.response.ndim == 1 < self.w.size else None
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
        """Continuous phase in radians, from that at frequency 0 on, however fast it turns between two frequencies.

        A negative gain has a phase of +pi. Zeros and poles on the axis are passed on their right. That of data starts
        between -pi and pi.
        """
        if not self.systems.size:
            return np.asarray(np.unwrap(np.angle(self.response), axis=-1))
        rows = [_phase(*pair, self.w) for pair in zip(self.systems.flat, self._rows(self.response), strict=True)]
        return np.reshape(rows, self.response.shape)

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
        for k, (level, angle, values) in enumerate(zip(*rows, strict=True)):
            if self.kind == "bode":
                axes[0].semilogx(self.w, level, **style)
                axes[1].semilogx(self.w, angle, **style)
            elif self.kind == "nyquist":
                (line,) = axes[0].plot(values.real, values.imag, **style)
                mirrored = self.systems.flat[k](-1j * self.w) if self.systems.size else values.conj()
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
            curve = (
                single(self.systems)(1j * frequency) if self.systems.size else _curve(self.w, self.response)(frequency)
            )
            value = complex(curve)
            place = value.real, value.imag
            if self.kind == "nichols":
                place = float(np.interp(frequency, self.w, self.degrees)), 20.0 * math.log10(abs(value))
            ax.plot(*place, "k.")
            ax.annotate(words, place, **style)


def _none() -> Array:
    return np.empty(0)


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
    gain_margins, w_phase_crossings : numpy.ndarray
        Factors of the gain, also below 1, with which the curve passes -1, and the frequencies of all crossings; of
        those of a delay the 50 with the gains next to 1.
    phase_margins, delay_margins, w_gain_crossings : numpy.ndarray
        Phases, from -pi to pi, and delays that may be lost at all frequencies at which the gain is 1.
    """

    gain: float
    phase: float
    delay: float
    w_phase_crossing: float
    w_gain_crossing: float
    sensitivity: float
    gain_margins: Array = field(default_factory=_none, compare=False, repr=False)
    w_phase_crossings: Array = field(default_factory=_none, compare=False, repr=False)
    phase_margins: Array = field(default_factory=_none, compare=False, repr=False)
    delay_margins: Array = field(default_factory=_none, compare=False, repr=False)
    w_gain_crossings: Array = field(default_factory=_none, compare=False, repr=False)


def _phase(system: TransferFunction, values: Array, w: Array) -> Array:
    """The continuous phase of values at ``w``."""
    lag = min((key[1] for key in system.numerator), default=0.0)
    found = np.angle(values * np.exp(1j * lag * w))
    above = phases(_shift(system.numerator, 0.0, lag), w) if system.numerator else np.zeros(w.size)
    below = phases(system.denominator, w)
    if above is None or below is None:
        return np.asarray(np.unwrap(found) - lag * w)
    turn = 2.0 * math.pi
    return np.asarray(found + turn * np.round((above - below - found) / turn) - lag * w)


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
    data = measured(systems)
    if data is not None:
        if w is not None:
            raise InvalidInputError(f"w={shown(w)}: the data have frequencies of their own; leave w out")
        return FrequencyResponse(*data, kind, np.empty(0, object))
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
    systems : TransferFunction, array of them, or FRD of python-control
    w : array_like, optional
        Angular frequencies, positive and increasing; by default all scales of G, or those of the data.

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
    kept = values != 0.0  # a point may be a crossing
    grid, values, rank = grid[kept], values[kept], None if rank is None else rank[kept]
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
    system : TransferFunction or FRD of python-control
        The open loop, with real coefficients; or its data, between which it is interpolated.

    Examples
    --------
    >>> from hpfracc import control
    >>> s = control.s
    >>> print(round(control.margins(1 / (s * (s + 1) * (s + 2))).gain, 6))
    6.0
    """
    data = measured(system, "system")
    if data is not None:
        return _margins_of_data(*data)
    system = single(system)
    if not system.is_real:
        raise InvalidInputError(f"{system} has complex coefficients; margins belong to real ones")
    if not system.numerator:
        return Margins(math.inf, math.inf, math.inf, math.nan, math.nan, 1.0)
    ends = [w for w in (0.0, math.inf) if np.isfinite(system(1j * w))]
    return _margins(lambda w: system(1j * w), _grid(system), ends)


def _margins_of_data(w: Array, values: Array) -> Margins:
    """The margins of samples of a curve, within their frequencies."""
    if values.ndim > 1 or w.size < 2 or not values.all():
        raise ShapeError(
            f"data of shape {values.shape} at {w.size} frequencies: margins need one input and output, two frequencies "
            "at least, and no value of 0"
        )
    places = np.arange((w.size - 1) * _BETWEEN + 1) / _BETWEEN
    return _margins(_curve(w, values), np.exp(np.interp(places, np.arange(w.size), np.log(w))), [])


def _curve(w: Array, values: Array) -> Callable[[Any], Any]:
    """The curve through values: the logarithms of gains and the phases are splines of that of the frequency."""
    logs = CubicSpline(np.log(w), np.log(np.abs(values)) + 1j * np.unwrap(np.angle(values)))
    return lambda x: np.exp(logs(np.log(x)))


def _margins(curve: Callable[[Any], Any], grid: Array, ends: list[float]) -> Margins:
    """The margins of a curve over frequencies, of which the grid shows all turns; ``ends`` may be 0 and inf."""
    # Where the curve crosses the negative axis, and the unit circle.
    # A delay turns it very often; the margin is where the gain is near 1.
    rank = np.abs(np.log(np.abs(curve(grid))))
    crossings = [*_crossings(lambda w: curve(w).imag, grid, rank), *ends]
    gains = sorted((w, 1.0 / abs(complex(curve(w)))) for w in crossings if curve(w).real < 0.0)
    gain, w_phase = min(((each, w) for w, each in gains if each > 1.0 + 1e-12), default=(math.inf, math.nan))
    ones = _crossings(lambda w: np.log(np.abs(curve(w))), grid)
    angles = np.array([(math.pi + float(np.angle(curve(w)))) % (2.0 * math.pi) for w in ones])
    signed = np.where(angles <= math.pi, angles, angles - 2.0 * math.pi)
    phase, w_gain = min(
        zip(signed.tolist(), ones, strict=True), key=lambda pair: abs(pair[0]), default=(math.inf, math.nan)
    )
    delays = angles / ones
    with np.errstate(divide="ignore"):
        peaks = [1.0 / np.abs(1.0 + curve(w)) for w in ends]
    sensitivity = float(max([_peak(lambda w: 1.0 / np.abs(1.0 + curve(w)), grid), *peaks]))
    at, factors = np.array(gains).reshape(-1, 2).T
    every = factors, at, signed, delays, np.array(ones)
    return Margins(gain, phase, float(delays.min(initial=math.inf)), w_phase, w_gain, sensitivity, *every)


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
