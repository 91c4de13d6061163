"""Relaxation times of a spectrum: one regularised, non-negative inverse, with bands."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from scipy import linalg, optimize, signal, special

from hpfracc import _reading
from hpfracc._results import new_axes
from hpfracc.errors import InvalidInputError, ShapeError
from hpfracc.transport import Estimate

if TYPE_CHECKING:
    from hpfracc._results import Axes

Array = np.ndarray[Any, Any]

#: Strengths that are tried, in units of those at which data and smoothness weigh the same.
_STRENGTHS = np.geomspace(1e-9, 1e2, 23)
#: Decades beyond the data, and the smallest height of a peak, as a share of the highest.
_BEYOND, _PROMINENCE = 1.0, 0.03
_LEAST = 8
#: Bands are drawn with strengths down to this share of the best one, because sharp peaks are less smooth than the rest.
_WEAKER = 0.01


@dataclass(frozen=True, slots=True)
class Peak:
    """A peak of a distribution of relaxation times.

    Attributes
    ----------
    tau : Estimate
        Its relaxation time, with ``.interval(0.95)``.
    resistance : Estimate
        The area below it: a resistance of an impedance, a strength or modulus of other data.
    """

    tau: Estimate
    resistance: Estimate


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RelaxationSpectrum:
    r"""A distribution of relaxation times.

    Attributes
    ----------
    tau : ndarray, shape (m,)
        Relaxation times.
    density : ndarray, shape (m,)
        The distribution :math:`\gamma`, per unit of :math:`\ln\tau`.
    low, high : ndarray, shape (m,)
        Band that covers it with a probability of 95 % on average over the times.
    peaks : tuple of Peak
        Arcs of Cole and Cole whose times are within ``1/w``, by increasing time.
    infinite, inductance : float
        The value at infinite frequency (for a modulus, at 0), and the inductance of an impedance.
    strength : float
        Strength of the regularisation.
    noise : float
        Standard deviation of real and imaginary residuals, in units of ``sigma``.
    w, data, fitted : ndarray, shape (n,)
        The data and the fit.
    """

    tau: Array
    density: Array
    low: Array
    high: Array
    peaks: tuple[Peak, ...]
    infinite: float
    inductance: float
    strength: float
    noise: float
    w: Array
    data: Array
    fitted: Array

    def plot(self, *, ax: Axes | None = None) -> Axes:
        """Draw the distribution with its band and its peaks; returns the axes. Needs Matplotlib (extra ``plot``)."""
        ax = new_axes(ax)
        ax.fill_between(self.tau, self.low, self.high, color="C0", alpha=0.25, linewidth=0.0, label="95 %")
        ax.plot(self.tau, self.density, color="C0")
        for peak in self.peaks:
            ax.axvline(peak.tau, color="0.6", linewidth=0.8, linestyle=":")
        ax.set(xscale="log", xlabel=r"relaxation time $\tau$", ylabel=r"$\gamma(\ln\tau)$")
        ax.legend(frameon=False)
        return ax

    def __repr__(self) -> str:
        told = "; ".join(f"tau={peak.tau!r}, resistance={peak.resistance!r}" for peak in self.peaks)
        return f"RelaxationSpectrum({len(self.peaks)} peaks: {told})"


def read_spectrum(w: Any, values: Any, name: str = "Z") -> tuple[Array, Array]:
    """Positive different frequencies in increasing order, and complex values."""
    points, data = _reading.numbers("w", w, ndim=1), np.asarray(_reading.array(name, values))
    if data.shape != points.shape or not np.isfinite(data).all():
        raise ShapeError(f"{name} has shape {data.shape} and w {points.shape}; give one finite value a frequency")
    if points.size < _LEAST:
        raise InvalidInputError(f"w has {points.size} frequencies; give at least {_LEAST}")
    order = np.argsort(points)
    points, data = points[order], data[order].astype(complex)
    if points[0] <= 0.0:
        raise InvalidInputError(f"w has a frequency of {points[0]:g}; give positive ones, in rad/s (2 pi times hertz)")
    twice = np.flatnonzero(np.diff(points) == 0.0)
    if twice.size:
        raise InvalidInputError(f"w has {points[twice[0]]:g} twice; give the mean of the values at one frequency")
    if data.imag.any() and np.mean(data.imag > 0.0) > 0.8 and name == "Z":
        raise InvalidInputError(
            f"the imaginary part of {name} is positive at {np.mean(data.imag > 0.0):.0%} of the frequencies: the data "
            "may be Re, -Im; give Re - 1j * (-Im)"
        )
    if np.any(data.real <= 0.0):
        worst = int(np.argmin(data.real))
        raise InvalidInputError(
            f"{name} has a real part of {data.real[worst]:.4g} at w={points[worst]:.4g}; of a passive sample it is "
            "positive: leave those frequencies out, or check the columns"
        )
    return points, data


@_reading.corrects_keywords
def relaxation_times(
    w: Any,
    Z: Any,  # noqa: N803
    *,
    kind: Literal["impedance", "permittivity", "modulus"] = "impedance",
    sigma: Any = None,
    strength: Literal["gcv", "evidence"] | float = "evidence",
    inductance: bool = True,
    per_decade: int = 10,
    samples: int = 200,
    rng: Any = 0,
) -> RelaxationSpectrum:
    r"""Distribution of relaxation times of a spectrum, which is not negative.

    .. math:: Z(\omega) = R_\infty + i\omega L + \int \frac{\gamma(\ln\tau)}{1 + i\omega\tau}\,d\ln\tau

    Parameters
    ----------
    w : array_like, shape (n,)
        Angular frequencies in rad/s.
    Z : array_like of complex, shape (n,)
        Impedance, with a negative imaginary part for capacitors.
    kind : {"impedance", "permittivity", "modulus"}
        A permittivity has no L; a modulus is :math:`G_0 + \int \gamma\,i\omega\tau/(1 + i\omega\tau)\,d\ln\tau`.
    sigma : array_like, optional
        Standard deviations of real and imaginary part, up to a common factor; by default proportional to ``|Z|``.
    strength : {"gcv", "evidence"} or float
        Strength of the regularisation by the second derivative: by generalised cross-validation [1], or the one that
        makes the data most likely.
    inductance : bool
        Whether an impedance has an inductance L.
    per_decade : int
        Relaxation times in a decade; they go a decade beyond the data.
    samples : int
        Random spectra behind bands and intervals.
    rng : int or numpy.random.Generator
        Their seed.

    Returns
    -------
    RelaxationSpectrum
        ``.peaks``, each with ``.tau`` and ``.resistance``; ``.density`` with a band; ``.plot()``.

    Notes
    -----
    Bands are those of the posterior distribution with the smoothness as prior: data and prior are disturbed as they
    vary, and the inverse is repeated [2], with strengths of 1 to 100 % of the best one. Maxima that stand out of the
    band of the likeliest spectrum start a fit by arcs of Cole and Cole, whose areas and times are those of the peaks.

    References
    ----------
    1. G. H. Golub, M. Heath, G. Wahba, "Generalized cross-validation as a method for choosing a good ridge parameter",
       Technometrics 21, 1979.
    2. J. M. Bardsley, A. Solonen, H. Haario, M. Laine, "Randomize-then-optimize", SIAM J. Sci. Comput. 36, 2014.

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> w = np.geomspace(1e-2, 1e5, 60)
    >>> cell = hf.models.resistor(10.0) + (hf.models.resistor(100.0) | hf.models.constant_phase(1e-4, 0.9))
    >>> found = hf.lab.relaxation_times(w, cell.impedance(w), samples=20)
    >>> print(f"{found.peaks[0].resistance:.0f}")
    100
    """
    choice = _reading.choice("kind", kind, ("impedance", "permittivity", "modulus"))
    points, data = read_spectrum(w, Z, "Z" if kind == "impedance" else kind)
    spread = np.abs(data) if sigma is None else np.broadcast_to(_reading.numbers("sigma", sigma, least=0.0), data.shape)
    if not (spread > 0.0).all():
        raise InvalidInputError("sigma has an entry of 0; give positive standard deviations")
    spread = spread[np.argsort(np.asarray(w, float))] if sigma is not None else spread
    count = _reading.whole("per_decade", per_decade, least=3, most=50)
    ends = -np.log10(points[-1]) - _BEYOND, -np.log10(points[0]) + _BEYOND
    tau = np.logspace(*ends, int(np.ceil(count * (ends[1] - ends[0]))) + 1)
    width = float(np.log(tau[1] / tau[0]))
    kernel = 1.0 / (1.0 + 1j * np.outer(points, tau))
    if choice == "modulus":
        kernel = 1.0 - kernel
    scale = float(np.abs(data).mean())
    extra = [np.ones(points.size, complex)]
    if choice == "impedance" and _reading.flag("inductance", inductance):
        extra.append(1j * points / points[-1])
    columns = np.concatenate([kernel * width, np.stack(extra, axis=1)], axis=1) * (scale / spread)[:, np.newaxis]
    inverse = _Inverse(columns, data / spread, tau.size, width)
    likeliest = inverse.best("evidence")
    if isinstance(strength, str):
        rule = _reading.choice("strength", strength, ("gcv", "evidence"))
        best = likeliest if rule == "evidence" else inverse.best(rule)
    else:
        best = _reading.number("strength", strength, above=0.0)
    found, noise = inverse.solve(best), inverse.noise(best)
    seed, count = _reading.generator(rng), _reading.whole("samples", samples, least=20)
    state = seed.bit_generator.state

    def cloud(strength: float) -> Array:
        seed.bit_generator.state = state
        shares = np.geomspace(_WEAKER, 1.0, count)
        return np.array([inverse.draw(strength * share, noise, seed)[: tau.size] * scale for share in shares])

    drawn, density = cloud(best), found[: tau.size] * scale
    low, high = np.quantile(drawn, [0.025, 0.975], axis=0)
    infinite = float(found[tau.size] * scale)
    edge = found[tau.size + 1] * scale / points[-1] if len(extra) > 1 else 0.0
    # Maxima are those of the likeliest spectrum: others have waves.
    main = density if best == likeliest else inverse.solve(likeliest)[: tau.size] * scale
    tops = _tops(main, drawn if best == likeliest else cloud(likeliest))
    cuts = [0, *(one + int(np.argmin(density[one:two])) for one, two in itertools.pairwise(tops)), tau.size]
    areas = np.array([main[one:two].sum() * width for one, two in itertools.pairwise(cuts)])
    peaks = _arcs((points, data, spread), tau[tops], areas, infinite, choice) if tops else ()
    fitted = (columns @ found) * spread
    return RelaxationSpectrum(tau, density, low, high, peaks, infinite, float(edge), best, noise, points, data, fitted)


class _Inverse:
    """Non-negative least squares with a penalty on the second derivative of the first ``m`` unknowns."""

    def __init__(self, columns: Array, values: Array, m: int, width: float) -> None:
        self.columns = np.concatenate([columns.real, columns.imag])
        self.values = np.concatenate([values.real, values.imag])
        second = np.diff(np.eye(m + 4)[:, 2:-2], 2, axis=0)  # zero outside
        self.penalty = np.zeros((len(second), columns.shape[1]))
        self.penalty[:, :m] = second / width**1.5
        self.square, self.rough = self.columns.T @ self.columns, self.penalty.T @ self.penalty
        self.balance = float(np.trace(self.square[:m, :m]) / np.trace(self.rough))

    def solve(self, strength: float, values: Array | None = None, prior: Array | None = None) -> Array:
        """The unknowns, for these values and smoothness."""
        right = self.columns.T @ (self.values if values is None else values)
        if prior is not None:
            right = right + strength**0.5 * self.penalty.T @ prior
        # The same minimum as with all rows, from a square triangular matrix.
        factor = linalg.cholesky(self._matrix(strength))
        return np.asarray(optimize.nnls(factor, linalg.solve_triangular(factor, right, trans="T"))[0])

    def _matrix(self, strength: float) -> Array:
        matrix = self.square + strength * self.rough
        return np.asarray(matrix + 1e-13 * np.trace(matrix) / len(matrix) * np.eye(len(matrix)))

    def _freedom(self, strength: float, found: Array) -> float:
        """Effective number of unknowns, of those that are positive."""
        used = found > 0.0
        matrix = self._matrix(strength)[np.ix_(used, used)]
        return float(np.trace(np.linalg.solve(matrix, self.square[np.ix_(used, used)])))

    def noise(self, strength: float) -> float:
        """Standard deviation of the residuals."""
        found = self.solve(strength)
        apart = self.columns @ found - self.values
        return float(np.sqrt(apart @ apart / max(apart.size - self._freedom(strength, found), 1.0)))

    def score(self, strength: float, rule: str) -> float:
        """What the best strength makes smallest."""
        found = self.solve(strength)
        apart, size = self.columns @ found - self.values, self.values.size
        if rule == "gcv":
            return float(apart @ apart / max(size - self._freedom(strength, found), 1e-3) ** 2)
        total = float(apart @ apart + strength * found @ self.rough @ found)
        logarithm = np.linalg.slogdet(self._matrix(strength))[1]
        return float(0.5 * (size * np.log(total) + logarithm - len(self.penalty) * np.log(strength)))

    def best(self, rule: str) -> float:
        """The best of the strengths by one of the rules."""
        tried = _STRENGTHS * self.balance
        return float(tried[int(np.argmin([self.score(each, rule) for each in tried]))])

    def draw(self, strength: float, noise: float, random: np.random.Generator) -> Array:
        """A sample of the posterior distribution."""
        values = self.values + noise * random.normal(size=self.values.size)
        return self.solve(strength, values, noise * random.normal(size=len(self.penalty)))


def _tops(density: Array, cloud: Array) -> list[int]:
    """Places of the maxima that stand out of the band."""
    low = np.quantile(cloud, 0.025, axis=0)
    least = _PROMINENCE * float(density.max())
    tops = [int(k) - 1 for k in signal.find_peaks(np.pad(density, 1), prominence=least)[0]]
    while len(tops) > 1:
        valleys = [int(one + np.argmin(density[one:two])) for one, two in itertools.pairwise(tops)]
        weak = [
            min(pair, key=lambda top: float(density[top]))
            for pair, valley in zip(itertools.pairwise(tops), valleys, strict=True)
            if min(low[top] for top in pair) < max(density[valley], least)
        ]
        if not weak:
            break
        tops.remove(min(weak, key=lambda top: float(density[top])))
    return tops


def _arcs(
    spectrum: tuple[Array, Array, Array], tau: Array, areas: Array, infinite: float, kind: str
) -> tuple[Peak, ...]:
    """Peaks by the arcs of Cole and Cole that fit the data best, from the maxima of the distribution."""
    w, data, spread = spectrum
    count = tau.size

    def predicted(x: Array) -> Array:
        sizes, times, orders = x[:count], np.exp(x[count : 2 * count]), x[2 * count : 3 * count]
        with np.errstate(over="ignore"):
            arcs = 1.0 / (1.0 + (1j * w[:, np.newaxis] * times) ** orders)
        value = (1.0 - arcs if kind == "modulus" else arcs) @ sizes + x[3 * count]
        return np.asarray(value + 1j * w / w[-1] * x[3 * count + 1])

    def residuals(x: Array) -> Array:
        apart = (predicted(x) - data) / spread
        return np.concatenate([apart.real, apart.imag])

    lower = np.concatenate([np.zeros(count), np.full(count, -np.inf), np.full(count, 0.2), [-np.inf, 0.0]])
    upper = np.concatenate(
        [np.full(2 * count, np.inf), np.ones(count), [np.inf, np.inf if kind == "impedance" else 1e-9]]
    )
    start = np.concatenate([areas, np.log(tau), np.full(count, 0.9), [infinite, 5e-10]])
    found = optimize.least_squares(residuals, start, bounds=(lower, upper), x_scale="jac")
    inside = (found.x - lower > 1e-7) & (upper - found.x > 1e-7)
    slopes, free = found.jac[:, inside], max(data.size * 2 - int(inside.sum()), 1)
    errors = np.zeros(found.x.size)
    errors[inside] = np.sqrt(np.diagonal(np.linalg.pinv(slopes.T @ slopes)) * 2.0 * found.cost / free)
    wide = special.stdtrit(free, special.ndtr(np.linspace(0.0, 3.3, 12)))
    peaks = []
    for k in np.argsort(found.x[count : 2 * count]):
        area, place = found.x[k], found.x[count + k]
        if not -np.log(w[-1]) <= place <= -np.log(w[0]):  # such as diffusion, which has no time of its own
            continue
        moved = wide * errors[count + k]
        peaks.append(
            Peak(
                Estimate.made(np.exp(place), np.exp(place - moved), np.exp(place + moved)),
                Estimate.made(area, np.maximum(area - wide * errors[k], 0.0), area + wide * errors[k]),
            )
        )
    return tuple(peaks)
