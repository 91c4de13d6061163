"""E_{a,b} and its derivatives by a plan: z sorted into bands, each evaluated in blocks, in any eager array namespace.

The formulae are those of ``mittag_leffler_plan``. Sorting needs several times the memory of z. On the host it runs
chunk by chunk, so long arrays need no more than short ones in addition to their result.

The exponential part consists of residues at s* = z^(1/a), each with its factor. Only elementwise functions and
``where`` are used for it, so JAX runs it too. Derivatives are truncated power series in ``(zeta - z)/z``: lists of
coefficients, the value first.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial, reduce
from operator import add
from typing import Any

import numpy as np

from hpfracc._arrays import device_of
from hpfracc._xp import NUMPY, Namespace
from hpfracc.engine.numerics.mittag_leffler_plan import OFFSETS, Band, ContourPlan

#: Values of z that are sorted into bands at once: thousands per band, and a few megabytes in total.
CHUNK = 1 << 17
#: Values of z per block: with about 50 nodes each, the fractions of a block stay within a megabyte.
_BLOCK = 1024


def pairs_of(alpha: np.ndarray, beta: np.ndarray) -> Iterator[tuple[tuple[float, float], np.ndarray]]:
    """The distinct pairs of parameters (arrays of one shape), each with its flat indices."""
    pairs, which = np.unique(np.stack([alpha.ravel(), beta.ravel()]), axis=1, return_inverse=True)
    order = np.argsort(which.ravel(), kind="stable")
    ends = np.cumsum(np.bincount(which.ravel(), minlength=pairs.shape[1]))
    for (a, b), end, before in zip(pairs.T.tolist(), ends, [0, *ends[:-1]], strict=False):
        yield (a, b), order[before:end]


def evaluate(z: Any, plan: ContourPlan, xp: Namespace = NUMPY) -> Any:
    """The function of ``plan`` at ``z``, an array of ``xp``, in its dtype; without gradients."""
    flat = z.reshape(-1)
    count, on_host = flat.shape[0], device_of(z) == "cpu"
    block = _BLOCK if on_host else values_together(count)
    by_sign = xp.library == "numpy" and not xp.is_complex(z)
    of_chunk = xp.quiet(partial(values_on_bands, xp, plan=plan, block=block, by_sign=by_sign))
    if not on_host or count <= CHUNK:
        return xp.astype(of_chunk(flat), z.dtype).reshape(z.shape)
    result = xp.empty_like(flat)
    for begin in range(0, count, CHUNK):
        result[begin : begin + CHUNK] = of_chunk(flat[begin : begin + CHUNK])
    return result.reshape(z.shape)


def values_on_bands(xp: Namespace, z: Any, plan: ContourPlan, block: int, *, by_sign: bool = False) -> Any:
    """The values at ``z``, of one axis, in double precision, ``block`` of them at a time.

    ``by_sign`` separates positive and negative z, which have different poles: less work, but one more synchronisation
    with the device.
    """
    points = xp.astype(z, "complex128" if xp.is_complex(z) else "float64")
    values = xp.empty_like(points)
    radius = xp.abs(points)
    # nan is below every edge and goes through the power series.
    found = xp.searchsorted(xp.asarray(plan.edges, points), radius, side="right") - 1
    band_of = xp.where(radius > plan.radius, found, -1)
    for index in xp.unique(band_of).tolist():
        inside = band_of == index
        if index < 0:
            for where in _blocks(xp.nonzero(inside), block):
                values[where] = taylor_value(plan, points[where])
            continue
        for sign in (1, -1) if by_sign else (0,):
            chosen = inside if not sign else inside & (sign * points > 0)
            for where in _blocks(xp.nonzero(chosen), block):
                values[where] = band_value(xp, plan, index, points[where], sign)
    if xp.library == "numpy" and not np.isinf(radius).any():  # on a device this would synchronise
        return values
    return at_infinity(xp, plan, points, radius, values)


def _blocks(places: Any, block: int) -> Iterator[Any]:
    for begin in range(0, places.shape[0], block):
        yield places[begin : begin + block]


def at_infinity(xp: Namespace, plan: ContourPlan, points: Any, radius: Any, values: Any) -> Any:
    """Limits along the real axis: inf to the right, 0 to the left for alpha < 2; otherwise there is none."""
    right, left = xp.full_like(radius, math.inf * (-1) ** plan.logs), 0.0 if plan.alpha < 2 else math.nan
    limit = xp.where(points.real > 0, right, left)
    if xp.is_complex(points):
        limit = xp.where(points.imag == 0, limit, math.nan)
    return xp.where(xp.isinf(radius), xp.astype(limit, values.dtype), values)


# The value on one band of abs(z).


#: Values of z that a GPU processes at once: enough to fill it, and at most some hundred megabytes of fractions; between
#: these a sixth of all, which is rarely less than the largest band.
_MIN_TOGETHER, _MAX_TOGETHER, _SHARE_TOGETHER = 1 << 14, 1 << 18, 6


def values_together(count: int) -> int:
    """Number of values of one band that a GPU processes at once, so that memory does not depend on the data."""
    return max(_MIN_TOGETHER, min(_MAX_TOGETHER, count // _SHARE_TOGETHER))


def taylor_value(plan: ContourPlan, z: Any, count: int | None = None) -> Any:
    """The power series, or its first ``count`` terms."""
    total, z = z * 0.0, z * (1.0 / plan.unit)
    for coefficient in plan.taylor[:count][::-1].tolist():
        total = total * z + coefficient
    return total


def band_value(xp: Namespace, plan: ContourPlan, index: int, z: Any, sign: int = 0) -> Any:
    """The derivative that ``plan`` is for, for ``|z|`` in its band ``index``; ``z`` in double precision.

    ``sign`` is the common sign of all (real) z, which saves the other poles; 0 if they differ or are complex.
    """
    band = plan.bands[index]
    expansion = _expansion(plan, band, z)
    poles = find_poles(xp, plan, z, sign)
    if band.elementary:
        return add_residues(xp, plan, None, z, poles, None, expansion)
    value = _with_integral(xp, plan, band, z, poles, expansion)
    if not plan.wide or not poles:
        return value
    close = is_close(xp, _strip(band), poles)
    if bool(close.any()):
        near = z[close]
        value[close] = _with_integral(
            xp, plan, plan.wide[index], near, find_poles(xp, plan, near, sign), expansion[close]
        )
    return value


def _strip(band: Band) -> Strip:
    return Strip(2 * math.pi / band.step, math.sqrt(band.mu), band.reach)


def _with_integral(xp: Namespace, plan: ContourPlan, band: Band, z: Any, poles: list[Poles], expansion: Any) -> Any:
    strip = _strip(band)
    offset = choose_offset(xp, strip, poles, 4 if "complex" in str(z.dtype) else 2)
    integral = leibniz(band.terms, 1.0 / z, plan.order, _integral(xp, band, z, plan.order, offset))
    return add_residues(xp, plan, strip, z, poles, offset, expansion + integral)


def mirrored(offset: int) -> int:
    """The index of ``1 - tau``, whose conjugates are the nodes below the axis."""
    return offset if offset < 2 else 5 - offset


def leibniz(terms: Any, inverse: Any, order: int, sums: list[Any]) -> Any:
    """The ``order``-th derivative of ``z^-m sum w/(p - z)``, from sums of ``w/(p - z)^(n+1)``; ``inverse`` is 1/z."""
    total = sums[order] * float(math.factorial(order))
    rising: Any = 1.0
    for j in range(1, order + 1):
        rising = rising * (terms + j - 1.0) * -1.0
        share = rising * float(math.comb(order, j) * math.factorial(order - j))
        total = total + share * whole_power(inverse, j) * sums[order - j]
    return total * (whole_power(inverse, terms) if isinstance(terms, int) else inverse**terms)


def _expansion(plan: ContourPlan, band: Band, z: Any) -> Any:
    """``-sum_k z^-k / Gamma(b - a k)`` over the band's terms, differentiated."""
    order, inverse = plan.order, 1.0 / z
    if band.terms < 0:
        return taylor_value(plan, z, max(0, -band.terms - order))
    total = z * 0.0
    for k in range(band.terms, 0, -1):
        rising = float(math.perm(k + order - 1, order) * (-1) ** order)
        total = (total - float(plan.inverse[k]) * rising) * inverse
    return total * whole_power(inverse, order) if order else total


def _integral(xp: Namespace, band: Band, z: Any, order: int, offset: Any) -> list[Any]:
    """The sums of fractions over the nodes of each z."""
    complex_z, chosen = "complex" in str(z.dtype), None
    for i in (offset,) if isinstance(offset, int) else range(4 if complex_z else 2):
        sums = _fractions(xp, band.points[i], band.weights[i], z, order)
        if complex_z:
            j = mirrored(i)
            below = _fractions(xp, band.points[j].conj(), band.weights[j].conj(), z, order)
            sums = [up + down for up, down in zip(sums, below, strict=True)]
        chosen = sums if chosen is None else [xp.where(offset == i, *both) for both in zip(sums, chosen, strict=True)]
    return chosen or []


def _fractions(xp: Namespace, points: Any, weights: Any, z: Any, order: int) -> list[Any]:
    """``sum_k w_k / (p_k - z)^(n+1)`` for n up to ``order``; for real z with the conjugates added."""
    complex_z, z = "complex" in str(z.dtype), z[..., None]
    if not complex_z and order == 0:
        distance = xp.asarray(points.real) - z
        size = distance * distance + xp.asarray(points.imag**2)
        above = xp.asarray(weights.real) * distance + xp.asarray(weights.imag * points.imag)
        return [2.0 * (above / size).sum(-1)]
    if order == 0:
        # One division: a reciprocal first would be a third array of this size.
        return [(xp.asarray(weights) / (xp.asarray(points) - z)).sum(-1)]
    reciprocal = 1.0 / (xp.asarray(points) - z)
    power = xp.asarray(weights) * reciprocal
    sums = [power.sum(-1)]
    for _ in range(order):
        power = power * reciprocal
        sums.append(power.sum(-1))
    return sums if complex_z else [2.0 * xp.real(total) for total in sums]


# Residues, and the factor of each.

#: Larger exponents are factored out before exp and restored at the end, to avoid inf - inf.
_LARGE = 600.0
_HUGE = 1e300
#: With a smaller excess, the quarters of a residue's exponent and power are in range, and keep all digits.
_BEYOND = 200.0
#: Beyond the reciprocal of this (times alpha, below 1), nothing is known of the phase ``Im s*``, and the result is nan.
_BLUR = 2.0**-48
#: Im u of a pole below which derivatives are more accurate along another parabola.
_CLOSE = 0.3
_PHASES = tuple(complex(round(math.cos(2 * math.pi * t)), round(math.sin(2 * math.pi * t))) for t in OFFSETS)

Jet = list[Any]


@dataclass(frozen=True, slots=True)
class Strip:
    """Parameters of the trapezoid rule for poles: ``2 pi / h``, ``sqrt(mu)``, and the largest relevant ``log |q|``.

    Numbers, or arrays with one entry for each z.
    """

    rate: Any
    root_mu: Any
    reach: Any


@dataclass(frozen=True, slots=True)
class Poles:
    """One pole for each z: whether it exists, s*, its root, ``(s*/|s*|)^(1-b)``, ``|s*|``, and its multiplicity."""

    present: Any
    s: Any
    root: Any
    phase: Any
    size: Any
    weight: float


def find_poles(xp: Namespace, plan: ContourPlan, z: Any, sign: int = 0) -> list[Poles]:
    """All poles on the principal sheet; ``sign`` is the common sign of all (real) z, 0 if they may differ."""
    size = _root(xp, plan, xp.abs(z))
    half = xp.sqrt(size)
    if "complex" in str(z.dtype):
        return _complex_poles(xp, plan, z, size, half)
    found = []
    for side, poles in ((1, plan.positive), (-1, plan.negative)):
        for pole in poles if sign in (0, side) else ():
            s, root = size * complex(pole.cosine, pole.sine), half * complex(pole.half_cosine, pole.half_sine)
            phase = complex(math.cos(pole.phase), math.sin(pole.phase))
            found.append(Poles(z * side > 0, s, root, phase, size, pole.weight))
    return found


def _complex_poles(xp: Namespace, plan: ContourPlan, z: Any, size: Any, half: Any) -> list[Poles]:
    """One pole for each rotation by 2 pi that can be on the principal sheet."""
    angle = xp.angle(z)
    # With integer parameters there is no cut, and angles that differ by 2 pi count once.
    slack = math.pi * 2.0**-20 / plan.alpha if plan.closed else 0.0
    most = math.floor((plan.alpha + 1) / 2)
    found = []
    for turn in range(-most, most + 1):
        theta = (angle + 2 * math.pi * turn) / plan.alpha
        present = (theta > -math.pi + slack) & (theta < math.pi + slack)
        theta = xp.where(present, theta, 0.0 * theta)
        phase = _unit(xp, theta * (1 - plan.beta))
        found.append(Poles(present, size * _unit(xp, theta), half * _unit(xp, theta / 2), phase, size, 1.0))
    return found


def _unit(xp: Namespace, theta: Any) -> Any:
    return xp.complex(xp.cos(theta), xp.sin(theta))


def _root(xp: Namespace, plan: ContourPlan, size: Any) -> Any:
    """``size**(1/a)`` accurate to the last place although 1/a is not a float, and finite."""
    if plan.alpha == 1:
        return size
    root = size ** (1 / plan.alpha)
    if plan.correction:
        root = root + root * (plan.correction * xp.log(size))
    return xp.where(root < _HUGE, root, _HUGE)


def _log_q(xp: Namespace, strip: Strip, root: Any) -> Any:
    """``log q``, without overflow."""
    value = (root / strip.root_mu - 1.0) * (-strip.rate)
    return xp.where(xp.real(value) < _LARGE, value, _LARGE + 0j)


def choose_offset(xp: Namespace, strip: Strip, poles: list[Poles], count: int) -> Any:
    """The index into OFFSETS, one for all or one for each z, whose nodes are away from the poles."""
    if not poles:
        return 1
    near = [(pole.present, xp.exp(_log_q(xp, strip, pole.root))) for pole in poles]
    best: Any = None
    choice: Any = None
    for i in (1, 0, 2, 3)[:count]:
        score: Any = None
        for present, q in near:
            distance = xp.where(present, xp.abs(1.0 - _PHASES[i] * q), 2.0)
            score = distance if score is None else xp.where(distance < score, distance, score)
        if best is None:
            best, choice = score, 0.0 * score + i
        else:
            better = (score > best) & (best < 0.7)  # the first is used unless it is close
            best, choice = xp.where(better, score, best), xp.where(better, 0.0 * score + i, choice)
    return choice


def is_close(xp: Namespace, strip: Strip, poles: list[Poles]) -> Any:
    """Whether a pole is near the parabola, for each z; False for all if there is none."""
    close: Any = False
    for pole in poles:
        distance = xp.real(_log_q(xp, strip, pole.root)) / strip.rate
        close = close | (pole.present & (xp.abs(distance) < _CLOSE))
    return close


def add_residues(
    xp: Namespace, plan: ContourPlan, strip: Strip | None, z: Any, poles: list[Poles], offset: Any, total: Any
) -> Any:
    """``total`` plus the poles; overflow gives inf and not nan. Without ``strip`` the full residues are added."""
    if not poles:
        return total
    order, complex_z = plan.order, "complex" in str(z.dtype)
    excess = 0.0 * xp.abs(z)
    for pole in poles:
        beyond = xp.real(pole.s) + (1 - plan.beta) * xp.log(pole.size) - _LARGE
        excess = xp.where(pole.present & (beyond > excess), beyond, excess)
    total = total * xp.exp(-excess)
    for pole in poles:
        # The rounding of s* moves the exponent too.
        least = -750.0 - _BLUR * (1 + 1 / plan.alpha) * pole.size
        alive = pole.present & (xp.real(pole.s) + (1 - plan.beta) * xp.log(pole.size) > least)
        jet = _residue(xp, plan, order, pole, excess)
        if strip is not None:
            log_q = _log_q(xp, strip, pole.root)
            alive = alive & (xp.real(log_q) < strip.reach)
            jet = _multiply(jet, _share(xp, plan, strip, order, pole, log_q, offset), order)
        value = jet[order] * float(math.factorial(order))
        value = value if complex_z else xp.real(value)
        value = xp.where(xp.abs(xp.imag(pole.s)) * _BLUR > min(1.0, plan.alpha), math.nan, value)
        if order:
            value = value * whole_power(1.0 / z, order)
        total = total + xp.where(alive, pole.weight * value, 0.0 * total)
    factor = xp.exp(excess / 2)
    if not complex_z:
        return xp.where(excess > 0, total * factor * factor, total)
    real, imag = xp.real(total), xp.imag(total)
    grown = xp.complex(
        xp.where(real == 0, real, real * factor * factor), xp.where(imag == 0, imag, imag * factor * factor)
    )
    return xp.where(excess > 0, grown, total)


def _residue(xp: Namespace, plan: ContourPlan, order: int, pole: Poles, excess: Any) -> Jet:
    """``s^(1-b) e^s / a``, times a power of ``-log s``, as a series, without the factor ``exp(excess)``."""
    alpha, power = plan.alpha, 1 - plan.beta
    real, imag = xp.real(pole.s), xp.imag(pole.s)
    quarter = pole.size ** (power / 4) * xp.exp(real / 4) * xp.exp(-excess / 4)
    joined = xp.exp(real + power * xp.log(pole.size) - excess)
    size = xp.where(excess < _BEYOND, (quarter * quarter) * (quarter * quarter), joined)
    value = _unit(xp, imag) * pole.phase * (size / alpha)
    jet: Jet = [value]
    if order:
        exponent = [pole.s * c for c in _binomials(1 / alpha, order)]
        jet = _multiply(_exponential(exponent, value, order), _binomials(power / alpha, order), order)
    if plan.logs:
        height = [-xp.log(pole.s), *((-1.0) ** k / (k * alpha) for k in range(1, order + 1))]
        for _ in range(plan.logs):
            jet = _multiply(jet, height, order)
    return jet


def _share(xp: Namespace, plan: ContourPlan, strip: Strip, order: int, pole: Poles, log_q: Any, offset: Any) -> Jet:
    """``1 / (1 - e^(2 pi i tau) q)`` as a series."""
    if isinstance(offset, int):
        turn: Any = _PHASES[offset]
    else:
        turn = _PHASES[0] + 0.0 * offset
        for i in (1, 2, 3):
            turn = xp.where(offset == i, _PHASES[i], turn)
    slope = pole.root * (-strip.rate / strip.root_mu)
    exponent = [slope * c for c in _binomials(0.5 / plan.alpha, order)]
    q = _exponential(exponent, turn * xp.exp(log_q), order)
    first = 1.0 / (1.0 - q[0])
    share: Jet = [first]
    for n in range(1, order + 1):
        share.append(_coefficient(q, share, n, 1) * first)
    return share


def whole_power(base: Any, exponent: int) -> Any:
    """Integer power by multiplication; libraries use the logarithm for complex powers, which loses digits."""
    power: Any = None
    base, exponent = (base, exponent) if exponent >= 0 else (1.0 / base, -exponent)
    while exponent:
        if exponent & 1:
            power = base if power is None else power * base
        base = base * base
        exponent >>= 1
    return 1.0 if power is None else power


def _binomials(exponent: float, order: int) -> list[float]:
    """Coefficients of ``(1 + t)**exponent``."""
    values = [1.0]
    for k in range(order):
        values.append(values[-1] * (exponent - k) / (k + 1))
    return values


def _exponential(exponent: Jet, value: Any, order: int) -> Jet:
    """``exp`` of a series, given the exponential ``value`` of its first coefficient."""
    jet: Jet = [value]
    rising = [k * coefficient for k, coefficient in enumerate(exponent)]
    for n in range(1, order + 1):
        jet.append(_coefficient(rising, jet, n, 1) / n)
    return jet


def _multiply(left: Jet, right: Jet, order: int) -> Jet:
    """The product of two series."""
    return [_coefficient(left, right, n) for n in range(order + 1)]


def _coefficient(left: Jet, right: Jet, n: int, first: int = 0) -> Any:
    """The ``n``-th coefficient of the product of two series, without those of the left one below ``first``."""
    return reduce(add, (left[k] * right[n - k] for k in range(first, n + 1)))
