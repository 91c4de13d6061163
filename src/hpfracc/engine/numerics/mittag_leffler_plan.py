"""Tables for E_{a,b}: everything that depends only on the two parameters, computed once and cached.

E_{a,b}(z) = (1/2 pi i) int e^s s^(a-b) / (s^a - z) ds along a contour around the negative axis. One parabola
s = mu (1 + i u)^2 is used for all z of a band of |z|, and the trapezoid rule in u with nodes u = (k + tau) h. Then E is
a sum of fractions w_k / (p_k - z), p_k = s_k^a, and three effects are corrected exactly, not by moving the contour
(as Garrappa, SIAM J. Numer. Anal. 53 (2015), does for each z):

* a pole s* = z^(1/a) changes the rule's error by a known amount, so its residue R = s*^(1-b) e^(s*) / a enters as
  R / (1 - e^(2 pi i tau) q) with q = exp(-2 pi (sqrt(s*/mu) - 1)/h): one formula on both sides of the contour;
* a node that falls on a pole is avoided by another tau (0, 1/4, 1/2 or 3/4);
* small values at large |z| are not differences of large ones: 1/(s^a - z) = -sum_{k<=m} s^(a(k-1)) z^-k +
  z^-m s^(a m)/(s^a - z), so m terms of the expansion in 1/z are used directly and only the remainder is
    integrated. If the bound of the remainder is below rounding, the sum is dropped: that is the asymptotic region.

Next to integer a and b < 0, where 1/Gamma is nearly 0 and these terms too, the integral is large and its sum not. There
the first -m terms of the power series are split off, and b is raised by -m a: the same formula with a negative m.

For |z| <= radius the power series is used. With integer a and b there is no integral: E is elementary.

A derivative in b multiplies the integrand by -log s: so only the weights, the residues (log s* for log s) and 1/Gamma
(its derivative) change. One in a is (d/da) E = z (d/dz) (d/db) E.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from scipy import special

from hpfracc._reading import shown
from hpfracc.engine.numerics.gamma import reciprocal_gammas
from hpfracc.errors import InvalidInputError

#: Shifts of the nodes of the trapezoid rule, in steps. Real z needs only the first two.
OFFSETS = (0.0, 0.5, 0.25, 0.75)
_EPS = 2.0**-53
_MAX_TERMS = 100
_LARGEST_GAMMA = 100.0
_MAX_TAYLOR = 72
#: Values of abs(z) beyond this have no band of their own.
_LARGEST_SIZE = 2.0**1000
#: Logarithm of the smallest coefficient that is used as it is.
_SMALLEST = -680.0
#: Larger powers of the nodes leave the range of float64, though not their products with e^s.
_LARGEST_POWER = 60.0
#: Maximum u of the nodes, where e^s is negligible with any power of s.
_FARTHEST = 24.0
#: Relative width of the second parabola: poles on one have Im u = 0.37 on the other, and e^s is not so large that small
#: values are lost in its rounding (with 4, first derivatives near alpha = 1 lose three more digits).
_WIDENING = 2.5
_STEPS = [k / 128 for k in range(38, 8, -1)] + [k / 512 for k in range(35, 2, -1)]
#: Parameters beyond these overflow float64 in the Gamma function.
_LIMIT = 150.0


@dataclass(frozen=True, slots=True)
class Pole:
    """A direction ``theta`` in which poles ``s* = |z|^(1/a) e^(i theta)`` lie for real z of one sign."""

    cosine: float
    sine: float
    half_cosine: float
    half_sine: float
    phase: float  # theta (1 - b), reduced
    weight: float  # 2 for a pair of conjugates, 1 for a pole on the axis


@dataclass(frozen=True, slots=True)
class Band:
    """The data for ``lower <= |z|`` up to the next band.

    ``points[i]`` and ``weights[i]`` are the nodes p_k and weights w_k with u >= 0 for ``OFFSETS[i]``; those with u < 0
    are conjugates (of offset ``1 - tau``). A pole with ``log |q|`` beyond ``reach`` is negligible.
    """

    lower: float
    terms: int
    mu: float
    step: float
    reach: float
    elementary: bool
    points: tuple[np.ndarray, ...]
    weights: tuple[np.ndarray, ...]


@dataclass(frozen=True, slots=True)
class ContourPlan:
    """Everything about a derivative of E_{alpha,beta} that does not depend on z: ``order`` in z, ``logs`` in beta.

    ``wide`` has the bands again, with parabolas away from poles that are close to the usual ones. Values are not
    affected by these, but each derivative divides by the distance: the first lost 7e-14.
    """

    alpha: float
    beta: float
    order: int
    logs: int
    taylor: np.ndarray  # of z/unit, a power of two that keeps the coefficients in range
    unit: float
    radius: float
    inverse: np.ndarray  # 1/Gamma(beta - alpha k), or a derivative of it
    bands: tuple[Band, ...]
    wide: tuple[Band, ...]
    edges: np.ndarray
    positive: tuple[Pole, ...]
    negative: tuple[Pole, ...]
    correction: float  # z^(1/a) = z^r (1 + correction log z), r the float nearest to 1/a
    closed: bool  # integer parameters: poles on the cut count, and no integral remains


def check_parameters(alpha: float, beta: float) -> None:
    """Raise :class:`InvalidInputError` unless E_{alpha,beta} is supported."""
    for name, value in (("alpha", alpha), ("beta", beta)):
        # NumPy counts time differences among its integers.
        if isinstance(value, bool | np.timedelta64) or not isinstance(value, int | float | np.integer | np.floating):
            raise InvalidInputError(
                f"{name}={shown(value)}: the Mittag-Leffler function takes a real number here, not an array"
            )
    if not 0 < alpha <= _LIMIT:
        raise InvalidInputError(f"alpha={alpha!r}: the Mittag-Leffler function takes 0 < alpha <= {_LIMIT:g}")
    if not abs(beta) <= _LIMIT:
        raise InvalidInputError(f"beta={beta!r}: the Mittag-Leffler function takes -{_LIMIT:g} <= beta <= {_LIMIT:g}")


@lru_cache(maxsize=256)
@np.errstate(over="ignore", invalid="ignore")  # sizes of integrands that are then not used
def make_contour_plan(alpha: float, beta: float, order: int = 0, logs: int = 0) -> ContourPlan:
    """The tables for a derivative of E_{alpha,beta}, ``order`` times in z and ``logs`` times in beta."""
    check_parameters(alpha, beta)
    taylor, radius, unit = _power_series(alpha, beta, 0, logs, 0.0)
    closed = alpha == int(alpha) and beta == int(beta) and not logs
    if closed:
        # 1/Gamma vanishes at 0, -1, ...: the expansion in 1/z is finite, without a remainder.
        terms = max(0, math.ceil(beta / alpha) - 1)
        inverse = reciprocal_gammas(-alpha, beta, terms + 1)
        bands: tuple[Band, ...] = (Band(radius, terms, 1.0, 1.0, 0.0, True, (), ()),)
    elif beta - alpha < -_LIMIT - 20.0:
        raise InvalidInputError(
            f"beta={beta!r} with alpha={alpha!r}: 1/Gamma(beta - alpha) is beyond the range of float64; raise beta"
        )
    else:
        most = int(min(_MAX_TERMS, max(1.0, (_LARGEST_GAMMA + beta) / alpha)))
        inverse = reciprocal_gammas(-alpha, beta, most + 1, logs)
        bands = _make_bands(alpha, beta, logs, radius, inverse)
    edges = np.array([band.lower for band in bands])
    fewest = -min(band.terms for band in bands)
    if order or fewest > taylor.size:
        taylor, radius, unit = _power_series(alpha, beta, order, logs, radius, fewest)
    wide = tuple(
        band if band.elementary else _make_band(alpha, beta, logs, band.lower, band.terms, _WIDENING)
        for band in (bands if order else ())
    )
    right, left = (_poles(alpha, beta, odd, closed) for odd in (0, 1))
    correction = float(1 / Fraction(alpha) - Fraction(1 / alpha))
    return ContourPlan(
        alpha, beta, order, logs, taylor, unit, radius, inverse, bands, wide, edges, right, left, correction, closed
    )


def _power_series(
    alpha: float, beta: float, order: int, logs: int, least: float, fewest: int = 0
) -> tuple[np.ndarray, float, float]:
    """Coefficients of the derivative in z/unit, the radius (at least ``least``) of their accuracy, and ``unit``."""
    heads = _heads(alpha, beta, logs)
    count = _MAX_TAYLOR + 16 * order + heads[-1].size
    orders = np.arange(count)
    arguments = beta + alpha * (orders + order)
    factors = np.array([float(math.perm(k + order, order)) for k in range(count)])
    near = int(np.searchsorted(arguments, _LIMIT + 20.0))
    coefficients = factors[:near] * reciprocal_gammas(alpha, beta, near, logs, order)
    far = arguments[near:]
    with np.errstate(divide="ignore"):
        beyond = np.log(factors[near:]) - special.gammaln(far) + logs * np.log(special.psi(far))
        heights = np.concatenate([np.log(np.abs(coefficients)), beyond])
    last = math.log(arguments[-1]) if arguments[-1] > 0.0 else -math.inf
    # The dominant term near zero: the first, unless 1/Gamma(beta) is tiny.
    leading = next(k for k in range(count) if heights[k] > heights[: k + 2].max() - 3.0)
    radius, kept = 2.0**-12, count
    for quarter in range(-48, 4088):
        terms = heights + orders * (quarter / 4 * math.log(2.0))
        largest = float(terms[leading:].max())
        total = float(np.exp(terms[leading:] - largest).sum()) * math.exp(min(largest, 700.0))
        # For a negative beta the terms fall and rise again, to the size of the exponential term.
        turn = quarter / 4 * math.log(2.0) / alpha  # log s*
        peak = (1 - beta + order * (1 - alpha)) * turn + math.exp(min(turn, 700.0)) - (order + 1) * math.log(alpha)
        small = largest + math.log(_EPS / 8)
        ends = float(terms[-2:].max()) < small and (turn <= last or peak < small)
        start = math.exp(min(float(terms[leading]), 700.0))
        # Where the series starts to cancel, so do the integral and the exponentials.
        steady = total <= 2.5 * start
        steady = steady or (order == 0 and total <= _alternative(alpha, beta, logs, 2.0 ** (quarter / 4), heads))
        if radius >= least and (not (ends and steady) or largest > 690.0):
            break
        radius = 2.0 ** (quarter / 4)
        kept = max(fewest, int(np.nonzero(terms > largest + math.log(_EPS / 4))[0][-1]) + 1)
    known = np.isfinite(heights[1:kept])
    smallest = (heights[1:kept][known] - _SMALLEST) / orders[1:kept][known]
    shift = math.ceil(-float(smallest.min(initial=0.0)) / math.log(2.0))
    if shift or kept > near:
        coefficients = factors[:kept] * reciprocal_gammas(alpha, beta, kept, logs, order, shift)
    return coefficients[:kept], radius, 2.0**shift


def _make_bands(alpha: float, beta: float, logs: int, radius: float, inverse: np.ndarray) -> tuple[Band, ...]:
    """Bands outwards from ``radius`` until the expansion alone is sufficient."""
    orders = np.arange(float(inverse.size))
    integrand = _integrand(alpha, beta, logs, orders)
    heads = _heads(alpha, beta, logs)
    bands: list[Band] = []
    lower = radius
    while True:
        # The best number of heads changes with |z|.
        narrow = heads[-1].size > 8 and lower ** (1 / alpha) < 2 * (1 - beta)
        upper = min(lower * 2.0 ** (0.125 if narrow else max(0.5, alpha / 3)), _LARGEST_SIZE)
        rest = _remainders(*integrand, lower)
        kept = np.abs(inverse) * upper**-orders
        kept[0] = 0.0
        lasting = np.maximum.accumulate(kept)
        value = np.maximum(lasting, _least_residue(alpha, beta, logs, upper))
        # Sum of sizes, with less weight for terms that are accurate to the last place.
        losses = rest + 0.1 * np.cumsum(np.where(orders > 0, np.abs(inverse), 0.0) * lower**-orders)
        sparing = losses <= 4.0 * losses.min()
        # Below alpha = 2 residues vanish at larger |z|, and only the expansion remains.
        negligible = sparing & (rest < _EPS / 8 * (value if alpha >= 2 else lasting))
        if negligible.any() or lower == upper:
            break
        # The fewest terms for which the remainder and its rounding are small relative to the value; else the least
        # loss.
        small = sparing & (rest < 0.02 * value)
        terms = int(np.argmax(small) if small.any() else np.argmin(losses))
        split = _split(heads, lower)
        if split.min() < 0.01 * losses[terms]:
            terms = -int(np.argmin(split))
        bands.append(_make_band(alpha, beta, logs, lower, terms, 1.0))
        lower = upper
    # The expansion alone, with fewer terms at larger |z|.
    while True:
        terms = int(np.argmax(negligible))
        bands.append(Band(lower, terms, 1.0, 1.0, 0.0, True, (), ()))
        lower *= 4.0
        rest = _remainders(*integrand, lower)
        kept = np.abs(inverse) * (4.0 * lower) ** -orders
        kept[0] = 0.0
        negligible = rest < _EPS / 8 * np.maximum.accumulate(kept)
        if terms <= 4 or not negligible.any() or int(np.argmax(negligible)) >= terms:
            return tuple(bands)


def _integrand(alpha: float, beta: float, logs: int, orders: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Logarithms of the sizes of the weights and of s^a after each number of terms, to choose that number."""
    exponents = (beta - alpha * orders)[:, None]
    mu = np.maximum(1.0, exponents)
    nodes, widths = parabola(1.0, 0.1640625, np.arange(120) + 0.5)
    heights = np.log(mu * np.abs(nodes))
    sizes = np.log(2 * mu * np.abs(widths)) + mu * nodes.real - (exponents - alpha) * heights
    return sizes + logs * np.log(np.abs(heights + 1j * np.angle(nodes))), alpha * heights


def _remainders(sizes: np.ndarray, powers: np.ndarray, radius: float, sign: int = 1) -> np.ndarray:
    """Bounds of the remainders at ``radius``."""
    terms = sign * np.arange(len(sizes))[:, None]
    return np.asarray(np.exp(sizes - np.maximum(powers, math.log(radius)) - terms * math.log(radius)).sum(axis=1))


def _alternative(alpha: float, beta: float, logs: int, radius: float, heads: tuple[np.ndarray, ...]) -> float:
    """Size of the summands of the value at ``-radius`` outside the power series."""
    size = _least_residue(alpha, beta, logs, radius)
    if alpha == int(alpha) and beta == int(beta) and not logs:
        return size
    return size + float(_split(heads, radius).min())


def _heads(alpha: float, beta: float, logs: int) -> tuple[np.ndarray, ...]:
    """Sizes of the terms of the power series next to poles of Gamma, last, and of the integrands without them."""
    near = beta <= 0 and alpha > 0.9 and max(abs(alpha - round(alpha)), abs(beta - round(beta))) < 0.01
    heads = np.abs(reciprocal_gammas(alpha, beta, int(-beta // alpha) + 1 if near else 0, logs))
    return *_integrand(alpha, beta, logs, -np.arange(heads.size + 1.0)), heads


def _split(heads: tuple[np.ndarray, ...], radius: float) -> np.ndarray:
    """Size of the summands at ``radius`` with each number of ``heads``."""
    sizes, powers, terms = heads
    sums = np.append(0.0, np.cumsum(terms * radius ** np.arange(terms.size)))
    return _remainders(sizes, powers, radius, -1) + 0.1 * sums


def _least_residue(alpha: float, beta: float, logs: int, radius: float) -> float:
    """Size of the fewest exponential terms that exist for any direction of z; none below alpha = 1."""
    if alpha < 1:
        return 0.0
    s, angles = radius ** (1 / alpha), np.arange(1.0, max(2.0, alpha), 2.0) * (math.pi / alpha)
    sizes = np.exp(np.minimum((1 - beta) * math.log(s) + s * np.cos(angles), 690.0))
    return float((sizes * np.abs(math.log(s) + 1j * angles) ** logs).sum()) / alpha


def _make_band(alpha: float, beta: float, logs: int, lower: float, terms: int, widening: float) -> Band:
    exponent = beta - terms * alpha
    mu, step, reach = choose_parabola(math.ceil(4 * max(exponent, 0.0)) / 4, widening)
    points, weights = [], []
    for offset in OFFSETS:
        nodes, heights, factors, decay = _line(mu, step, offset)
        sizes = decay - (exponent - alpha) * heights.real
        count = int(np.nonzero(sizes > sizes.max() + math.log(_EPS / 16))[0][-1]) + 1
        weight = factors[:count]
        parts = max(1, math.ceil(abs(alpha - exponent) / _LARGEST_POWER))
        for _ in range(parts):
            weight = weight * _power(nodes[:count], heights[:count], (alpha - exponent) / parts)
        weight = weight * (-heights[:count]) ** logs
        if offset == 0.0:
            weight[0] *= 0.5  # on the axis, and its own conjugate
        points.append(_power(nodes[:count], heights[:count], alpha))
        weights.append(weight)
    return Band(lower, terms, mu, step, reach, False, tuple(points), tuple(weights))


@lru_cache(maxsize=1024)
def _line(mu: float, step: float, offset: float) -> tuple[np.ndarray, ...]:
    """Nodes s, log s, e^s ds, and the logarithm of the size of that."""
    nodes, widths = parabola(mu, step, np.arange(math.ceil(_FARTHEST / step)) + offset)
    return nodes, np.log(nodes), widths * np.exp(nodes), nodes.real + np.log(np.abs(widths))


def _power(base: np.ndarray, logs: np.ndarray, exponent: float) -> np.ndarray:
    """``base**exponent``; integer powers by multiplication, because exp(n log) would lose digits in proportion to n."""
    whole = round(exponent)
    powers = np.exp((exponent - whole) * logs)
    factor = base if whole >= 0 else 1 / base
    for bit in bin(abs(whole))[:1:-1]:
        if bit == "1":
            powers = powers * factor
        factor = factor * factor
    return np.asarray(powers)


def parabola(mu: float, step: float, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Nodes s_k, and h/(2 pi i) ds/du there. With dyadic ``mu`` and ``step`` the nodes are exact."""
    u = step * indices
    turn = 1 + 1j * u
    return mu * (1 - u * u + 2j * u), step / math.pi * mu * turn


@lru_cache(maxsize=1024)
def choose_parabola(exponent: float, widening: float) -> tuple[float, float, float]:
    """``mu``, the largest step with an error below rounding, and the range of relevant poles; for e^s s^-exponent.

    The error is the minimum, over lines Im u = d, of the integrand there times e^(-2 pi |d| / h). Upwards the lines
    end at the branch point (d = 1), downwards e^s grows.
    """
    best = max(1.0, exponent)
    mu = widening * best
    up = np.linspace(0.02, 0.98, 97)
    down = np.linspace(0.1, 60.0, 600)
    s_up, s_down = mu * (1 - up) ** 2, mu * (1 + down) ** 2
    size_up = s_up - exponent * np.log(s_up)
    size_down = s_down - exponent * np.log(s_down)
    allowed = math.log(_EPS / 4) + best - exponent * math.log(best)
    for step in _STEPS:
        rate = 2 * math.pi / step
        if max(float(np.min(size_up - rate * up)), float(np.min(size_down - rate * down))) < allowed:
            break
    return mu, step, rate * float(up[np.argmin(size_up - rate * up)])


def _poles(alpha: float, beta: float, odd: int, closed: bool) -> tuple[Pole, ...]:
    """Directions of the poles for z > 0 (``odd = 0``) or z < 0 (``odd = 1``), conjugates joined."""
    found: list[Pole] = []
    a, b = Fraction(alpha), Fraction(beta)
    turn = Fraction(odd)
    while turn <= a:
        angle = turn / a  # in units of pi
        if angle < 1 or closed:
            cosine, sine = _cos_sin_pi(angle)
            half_cosine, half_sine = _cos_sin_pi(angle / 2)
            phase = math.pi * float((angle * (1 - b) + 1) % 2 - 1)
            found.append(Pole(cosine, sine, half_cosine, half_sine, phase, 2.0 if 0 < angle < 1 else 1.0))
        turn += 2
    return tuple(found)


def _cos_sin_pi(x: Fraction) -> tuple[float, float]:
    """``cos(pi x)`` and ``sin(pi x)``, accurate for small values too."""
    quarter = round(2 * x)
    rest = math.pi * float(x - Fraction(quarter, 2))
    cosine, sine = math.cos(rest), math.sin(rest)
    return [(cosine, sine), (-sine, cosine), (-cosine, -sine), (sine, -cosine)][quarter % 4]
