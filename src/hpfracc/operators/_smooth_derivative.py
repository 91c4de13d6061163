"""Fractional derivatives of noisy samples, with a band."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hpfracc._reading import choice, count, number, numbers
from hpfracc.errors import InvalidInputError, ShapeError
from hpfracc.operators._smoothing import NODES, SampleNoise, SmoothingFit, relative_roughness
from hpfracc.operators._wiener_filter import WienerFilter, mixed
from hpfracc.operators.core.grids import require_increasing
from hpfracc.profiling.recorder import watched

Array = np.ndarray[Any, Any]

#: Number of processes by which a smoother represents the uncertainty of noise and roughness, and a stream.
_PROCESSES, _STREAM_PROCESSES = 15, 5
#: The longest time that a stream remembers, in steps.
_HORIZON = 1e9


@dataclass(frozen=True, slots=True, eq=False)
class SmoothDerivative:
    r"""A derivative of noisy samples.

    Attributes
    ----------
    t : numpy.ndarray, shape (N,)
        The times.
    value, standard_error : numpy.ndarray, shape (N,)
        The derivative, and its standard error.
    smooth : numpy.ndarray, shape (N,)
        The samples without their noise.
    noise : float
        Standard deviation of the noise, given or estimated.
    degrees_of_freedom : float
        Of the smooth curve; N for a curve through all samples.
    roughness : float
        Standard deviation of the change of :math:`f^{(p)}` over a unit of time, estimated; its root mean square if it
        changes.
    autoregression : numpy.ndarray, shape (q,)
        Estimated coefficients of the noise's autoregression, of samples a mean step apart; empty if it has none.
    """

    t: Array
    value: Array
    standard_error: Array
    smooth: Array
    noise: float
    degrees_of_freedom: float
    roughness: float
    autoregression: Array = field(default_factory=lambda: np.zeros(0))

    def band(self, width: float = 2.0) -> tuple[Array, Array]:
        """The value minus and plus ``width`` standard errors."""
        margin = number("width", width, above=0.0) * self.standard_error
        return self.value - margin, self.value + margin

    def __repr__(self) -> str:
        return (
            f"SmoothDerivative({self.t.size} points, noise {self.noise:.2g}, "
            f"{self.degrees_of_freedom:.1f} degrees of freedom)"
        )


@watched
def smooth_derivative(
    f: Any,
    t: Any,
    alpha: float,
    *,
    noise: Any = "estimate",
    method: str = "tikhonov",
    nodes: int = NODES,
) -> SmoothDerivative:
    r"""Caputo derivative of noisy samples :math:`y_i = f(t_i) + \varepsilon_i`, with a standard error.

    The curve that minimises

    .. math:: J(f) = \sum_i (y_i - f(t_i))^2 + \lambda \int f^{(p+1)}(t)^2\,dt, \quad p = \max(1, \lceil\alpha\rceil),

    is differentiated. It is the mean of a Wiener process that is integrated p times, given the samples, and the
    standard error is the deviation from that mean. Value and standard error are averages over the weights
    :math:`\lambda`, by their restricted likelihood and with a constant density of the roughness
    :math:`\sigma/\sqrt\lambda`. (Generalised cross-validation takes too small a weight now and then, and the
    derivative is then noise; the likeliest weight alone gives too narrow a band if the samples leave it open.) They
    are averages too over a roughness, and with it :math:`1/\lambda`, that is the same at all times, or falls or rises
    like a power of the time from one end, by up to six decades, because many curves are livelier there; one that is the
    same is taken as seven times likelier. The constant density is that of the largest roughness.

    Parameters
    ----------
    f : array_like, shape (N,)
        The samples, real.
    t : array_like, shape (N,)
        Their times, increasing; at least p + 3 of them.
    alpha : float
        The order, above 0 and at most 3. An integer gives the ordinary derivative.
    noise : "estimate", "ar(1)" to "ar(5)", float or array_like, shape (N, N)
        Standard deviation of the noise, if it is known. The noise is then independent from sample to sample; otherwise
        give its covariance, or the order of an autoregression whose coefficients are estimated (for ``"ar(1)"`` the
        correlation decays exponentially with time; higher orders take equal steps). Not for ``"kalman"``.
    method : {"tikhonov", "spline", "kalman"}
        ``"tikhonov"``: :math:`f^{(p)}` is linear between nodes. ``"spline"``: :math:`f^{(p-1)}` is a cubic spline, with
        a node at each sample the smoothing spline itself if p = 1. ``"kalman"``: the process at all samples, by a
        filter and a smoother, in O(N) steps, with the roughness of ``"tikhonov"``; see
        :class:`SmoothDerivativeStream` for samples that come one by one.
    nodes : int
        Largest number of nodes. More are needed for curves with more than about a quarter as many swings, and for
        samples with so little noise that each one counts.

    Returns
    -------
    SmoothDerivative
        The value, its standard error and ``band()``.

    See Also
    --------
    caputo, SmoothDerivative, SmoothDerivativeStream

    Warns
    -----
    AccuracyWarning
        If the curve needs more than half of the nodes, or if correlated noise is much likelier than the independent
        noise that was assumed.

    Notes
    -----
    The band of two standard errors covers the true derivative at about 95 % of the points, on average over them, if
    :math:`f^{(p)}` is continuous up to the start. It does not for :math:`f = t^\beta` with a small
    :math:`\beta - \alpha`. Correlated noise and a curve look the same to the extent that the correlation lasts as long
    as the curve's swings. The cost is proportional to N times the number of nodes squared, and for ``"kalman"`` 0.5 ms
    for each sample are added.

    References
    ----------
    G. Wahba, J. R. Statist. Soc. B 45 (1983) 133-150; G. Wahba, Ann. Statist. 13 (1985) 1378-1402; C. H. Reinsch,
    Numer. Math. 10 (1967) 177-183 (splines); C. C. Paige, M. A. Saunders, SIAM J. Numer. Anal. 14 (1977) 180-193.

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> t = np.linspace(0.0, 6.0, 200)
    >>> noisy = np.sin(t) + 0.01 * np.random.default_rng(0).standard_normal(200)
    >>> found = hf.smooth_derivative(noisy, t, 0.5)
    >>> exact = hf.caputo(np.sin, t, 0.5)
    >>> bool(np.abs(found.value - exact).max() < 0.05 < np.abs(hf.caputo(noisy, t, 0.5) - exact).max())
    True
    """
    order, degree = _read_order(alpha)
    samples, times = numbers("f", f, ndim=1), numbers("t", t, ndim=1)
    if samples.size != times.size:
        raise ShapeError(f"f has {samples.size} samples and t {times.size} times; give one time for each sample")
    if times.size < degree + 3:
        raise ShapeError(f"{times.size} samples are too few; give at least {degree + 3}")
    require_increasing(times)
    kind = choice("method", method, ("tikhonov", "spline", "kalman"))
    length = times[-1] - times[0]
    x, given = (times - times[0]) / length, SampleNoise.read(noise, times)
    if kind == "kalman" and (given.order or given.factor is not None):
        raise InvalidInputError("method='kalman' takes independent noise; give method='tikhonov' or 'spline'")
    # A power of two near the samples, whose squares may not be numbers.
    size = math.ldexp(1.0, math.frexp(float(np.abs(samples).max()))[1] - 1)
    samples = samples / size
    fit = SmoothingFit(x, samples, degree, given.scaled(size), count("nodes", nodes, least=4), kind == "spline")
    found = _smoothed(x, samples, order, degree, fit) if kind == "kalman" else fit.derivative(x, order)
    value, error, smooth = found
    unit = size / length**order
    roughness = size * fit.roughness / length ** (degree + 0.5)
    return SmoothDerivative(
        times, value * unit, error * unit, size * smooth, size * fit.noise, fit.freedom, roughness, fit.autoregression
    )


class SmoothDerivativeStream:
    r"""Caputo derivative of noisy samples that come one by one, each time given the samples so far.

    The model is that of :func:`smooth_derivative` with ``method="kalman"``, with a roughness that does not change.
    The past is kept as a sum of exponentials, so that every sample takes the same time, some 0.3 ms.

    Parameters
    ----------
    alpha : float
        The order, above 0 and at most 3.
    step : float
        Time from sample to sample.
    noise : "estimate" or float
        Standard deviation of the noise.
    roughness : "estimate" or float
        Standard deviation of the change of :math:`f^{(p)}` over a unit of time, where p is the order rounded up;
        ``roughness`` of a :class:`SmoothDerivative` of earlier samples, for instance. If it is given, so is the noise.
    warmup : int
        Number of samples from which they are estimated. They should move as much as the later ones do.

    Attributes
    ----------
    noise, roughness : float
        As given or estimated; nan before.
    count : int
        Number of samples so far.

    See Also
    --------
    smooth_derivative, OperatorStream

    Notes
    -----
    The newest sample has no successor to confirm it: its standard error is larger than that of
    :func:`smooth_derivative` at points with samples on both sides. A stream can be pickled at any time.

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> stream = hf.SmoothDerivativeStream(0.5, 0.05, noise=0.01, roughness=0.5)
    >>> noisy = np.sin(0.05 * np.arange(200)) + 0.01 * np.random.default_rng(0).standard_normal(200)
    >>> for sample in noisy:
    ...     value, error = stream.push(sample)
    >>> bool(abs(value - hf.caputo(np.sin, 0.05 * 199, 0.5)) < 2 * error < 0.1)
    True
    """

    def __init__(
        self,
        alpha: float,
        step: float,
        *,
        noise: str | float = "estimate",
        roughness: str | float = "estimate",
        warmup: int = 200,
    ) -> None:
        self.alpha, self._degree = _read_order(alpha)
        self.step = number("step", step, above=0.0)
        estimated = isinstance(noise, str) and noise == "estimate"
        self._known = None if estimated else number("noise", noise, above=0.0)
        self._warmup = count("warmup", warmup, least=self._degree + 3)
        self.noise = self.roughness = math.nan
        self.count = 0
        self._first: list[float] = []
        self._filter: WienerFilter | None = None
        if not (isinstance(roughness, str) and roughness == "estimate"):
            if self._known is None:
                raise InvalidInputError("roughness is given, and noise is to be estimated; give both, or none")
            self._begin(np.array([self._known]), np.array([number("roughness", roughness, above=0.0)]))

    def _begin(self, noises: Array, roughnesses: Array) -> WienerFilter:
        self.noise, self.roughness = float(noises.mean()), float(roughnesses.mean())
        # Times are counted in steps.
        rough = roughnesses * self.step ** (self._degree + 0.5)
        self._filter = WienerFilter(self.alpha, self._degree, 1.0, _HORIZON, noises, rough)
        return self._filter

    def push(self, value: float) -> tuple[float, float]:
        """The derivative at the next sample and its standard error; nan until they are known.

        Parameters
        ----------
        value : float
            The sample.
        """
        sample = number("value", value)
        self.count += 1
        filtered = self._filter
        if filtered is None:
            self._first.append(sample)
            if self.count < self._warmup:
                return math.nan, math.nan
            x = np.linspace(0.0, 1.0, self.count)
            # What comes next is as rough as what came so far.
            first, known = np.array(self._first), SampleNoise(self._known)
            fit = SmoothingFit(x, first, self._degree, known, max(NODES, self.count), False, changes=(0.0,))
            noises, roughnesses, _ = fit.quantiles(_STREAM_PROCESSES)
            length = self.step * (self.count - 1)
            filtered = self._begin(noises, roughnesses / length ** (self._degree + 0.5))
            for each in self._first[:-1]:
                filtered.push(each, 1.0)
            self._first = []
        filtered.push(sample, 1.0)
        means, variances = filtered.functionals().given(*filtered.newest())
        found, error = mixed(means[:, 0], variances[:, 0], np.full(len(means), 1.0 / len(means)))
        unit = self.step**self.alpha
        return float(found) / unit, float(error) / unit

    def __repr__(self) -> str:
        return (
            f"SmoothDerivativeStream(alpha={self.alpha:g}, step={self.step:g}, {self.count} samples, "
            f"noise {self.noise:.2g}, roughness {self.roughness:.2g})"
        )


def _read_order(alpha: Any) -> tuple[float, int]:
    order = number("alpha", alpha, above=0.0, most=3.0)
    return order, max(1, math.ceil(order))


def _smoothed(x: Array, samples: Array, order: float, degree: int, fit: SmoothingFit) -> tuple[Array, Array, Array]:
    """The derivative, its standard error and the curve, of an integrated Wiener process given all samples."""
    steps = np.diff(x, prepend=0.0)
    noises, roughnesses, changes = fit.quantiles(_PROCESSES)
    shares = np.array([relative_roughness(x - 0.5 * steps, change) for change in changes]).T
    filtered = WienerFilter(order, degree, float(steps[1:].min()), 1.0, noises, roughnesses)
    passed = []
    for sample, step, share in zip(samples.tolist(), steps.tolist(), shares, strict=True):
        filtered.push(sample, step, share)
        passed.append((filtered.functionals(), filtered.eliminated))
    values, errors = np.empty((x.size, 2)), np.empty((x.size, 2))
    state, covariance = filtered.newest()
    for k in range(x.size - 1, -1, -1):
        functionals, eliminated = passed[k]
        means, variances = functionals.given(state, covariance)
        values[k], errors[k] = mixed(means.T, variances.T, np.full(len(means), 1.0 / len(means)))
        if eliminated is not None:
            state, covariance = eliminated.before(state, covariance)
    return values[:, 0], errors[:, 0], values[:, 1]
