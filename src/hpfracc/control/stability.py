r"""Poles on the principal sheet, and stability.

Powers are cut along the negative axis. A commensurate denominator is a polynomial in :math:`\lambda = s^q`, whose roots
with :math:`|\arg \lambda| \le q\pi` are poles; it is stable if all roots have :math:`|\arg \lambda| > q\pi/2`
(Matignon). Otherwise zeros in a sector of s are counted by the argument principle for :math:`z = \log s`, in which the
denominator is entire, and parted by halving the sector until each part has one.

References
----------
D. Matignon, Proc. CESA'96, 963-968; C. Bonnet, J. R. Partington, Automatica 38 (2002) 1133-1138, for delays.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.special import logsumexp

from hpfracc.control.systems import as_systems
from hpfracc.control.transfer import Terms, TransferFunction, commensurate_order, derivative, evaluate_terms
from hpfracc.errors import InvalidInputError, SolveError

Array = np.ndarray[Any, Any]

#: Poles of several entries that are this close, relatively, are one; and rounding of polynomials.
_SAME, _EPS = 1e-9, 8.0 * float(np.finfo(float).eps)
#: Multiplicities of a root that are considered are below this.
_MOST_EQUAL = 7
#: Legs of a path at first, at once, in all where phases and where zeros are wanted.
_FIRST, _LEGS, _FEW_LEGS, _MOST_LEGS = 256, 2**15, 2**18, 2**24
#: The logarithm of the largest power of s at a pole.
_LARGEST = 690.0


@dataclass(frozen=True, slots=True)
class Stability:
    """Whether a system is stable; true and false as that.

    Attributes
    ----------
    stable : bool
        Whether bounded inputs have bounded outputs.
    criterion : str
        ``"Matignon"`` or ``"argument principle"``.
    reason : str
        What decided, in words.
    """

    stable: bool
    criterion: str
    reason: str

    def __bool__(self) -> bool:
        return self.stable


def poles(system: Any) -> Array:
    r"""Poles on the principal sheet, :math:`|\arg s| \le \pi`; a system with none decays like a power of t.

    Parameters
    ----------
    system : TransferFunction or array of them
        Without delays in its denominator, which has infinitely many poles with them. Those of an array are the poles
        of its entries, each once.

    Returns
    -------
    numpy.ndarray
        Complex poles, those furthest to the right first. Among them is 0 as often as the lowest power of the
        denominator says if that is whole; otherwise 0 is a branch point, and no pole.

    Examples
    --------
    >>> from hpfracc import control
    >>> control.poles(1 / (control.s**1.5 + 1)).round(3) + 0.0
    array([-0.5+0.866j, -0.5-0.866j])
    """
    found: Array = np.empty(0, complex)
    for each in as_systems(system, "system").flat:
        if any(key[1] for key in each.denominator):
            raise InvalidInputError(
                f"{each} has delays in its denominator, and so infinitely many poles; use control.is_stable, or "
                "replace the delay by control.pade"
            )
        lowest = min(key[0] for key in each.denominator)
        own = np.append(principal_poles(each.denominator), np.zeros(int(lowest) if lowest % 1.0 == 0.0 else 0))
        known = np.abs(own[:, np.newaxis] - found) <= _SAME * np.abs(own)[:, np.newaxis]
        found = np.concatenate([found, own[~known.any(axis=1)]])
    return found[np.lexsort((-found.imag, -(found.real / (np.abs(found).max(initial=0.0) or 1.0)).round(12)))]


def is_stable(system: Any) -> Stability:
    """Whether bounded inputs have bounded outputs, by Matignon's criterion or by the argument principle.

    Parameters
    ----------
    system : TransferFunction or array of them
        Delays are allowed, also in the denominator. An array is stable if all its entries are.

    Examples
    --------
    >>> from hpfracc import control
    >>> s = control.s
    >>> control.is_stable(1 / (s - 2 * s**0.5 + 4))
    Stability(stable=True, criterion='Matignon', reason='the smallest |arg| of a root in s^0.5 is 60 degrees, above 45')
    """
    systems = as_systems(system, "system")
    verdicts = {place: _stability(each) for place, each in np.ndenumerate(systems)}
    place = next((place for place, each in verdicts.items() if not each), next(iter(verdicts)))
    found = verdicts[place]
    where = f"entry {', '.join(map(str, place))}: " if place and not found else ""
    return replace(found, reason=where + found.reason)


def _stability(system: TransferFunction) -> Stability:
    if system.relative_degree < 0.0:
        return Stability(False, "argument principle", "the function is improper: it grows with the frequency")
    found = system.polynomials()
    if found is not None:
        q, row = found[0], found[2]
        if len(row) == 1:
            return Stability(True, "Matignon", "there is no pole")
        if q > 2.0:
            return Stability(False, "Matignon", f"the smallest power, s^{q:g}, has an order above 2")
        angle, low, high = _smallest_angle(row)
        limit = 90.0 * q
        if not low <= limit <= high or not high:
            digits = 4 if abs(angle - limit) > 0.01 * limit else 12
            words = f"the smallest |arg| of a root in s^{q:g} is {angle:.{digits}g} degrees"
            return Stability(low > limit, "Matignon", f"{words}, {'' if low > limit else 'not '}above {limit:g}")
    terms = system.denominator
    if min(key[0] for key in terms) > 0.0:
        return Stability(False, "argument principle", "there is a pole at s = 0")
    if not system.is_causal:
        raise InvalidInputError(
            f"{system} is not causal: its response comes before its input; check the signs of delays"
        )
    top, chains = max(key[0] for key in terms), _fastest(terms)
    if chains < 0.0:
        return Stability(False, "argument principle", "infinitely many poles have a real part above 0")
    if chains == 0.0:
        # G grows along them unless it falls faster than they approach the axis.
        if system.relative_degree >= top - max((key[0] for key in terms if key[0] < top), default=-math.inf):
            raise SolveError(f"infinitely many poles of {system} approach the imaginary axis; change its gain a little")
        return Stability(False, "argument principle", "infinitely many poles approach the imaginary axis")
    count = _count(terms, 0.5 * math.pi)
    if count is None:
        return Stability(False, "argument principle", "the denominator vanishes on the imaginary axis")
    return Stability(count == 0, "argument principle", f"{count} poles have a real part of 0 or more")


def _smallest_angle(row: Array) -> tuple[float, float, float]:
    """The smallest argument of a root in degrees, and its bounds given the rounding; all 0 for a root at 0."""
    roots = np.roots(row).astype(complex)
    if len(roots) < len(row) - 1 or np.any(roots == 0.0):
        return 0.0, 0.0, 0.0
    slopes = np.polyder(row)
    with np.errstate(all="ignore"):
        for _ in range(2):
            values = np.polyval(row, roots)
            moved = roots - values / np.polyval(slopes, roots)
            roots = np.where(np.abs(np.polyval(row, moved)) < 0.1 * np.abs(values), moved, roots)
        # A root of multiplicity m moves by the power 1/m of a change.
        change, errors = _EPS * np.polyval(np.abs(row), np.abs(roots)), np.full(roots.size, math.pi)
        for m in range(1, min(len(row), _MOST_EQUAL)):
            size = np.abs(np.polyval(np.polyder(row, m), roots)) / math.factorial(m)
            errors = np.fmin(errors, (change / size) ** (1.0 / m) / np.abs(roots))
    angles = np.abs(np.angle(roots))
    found = angles.min(), (angles - errors).min(), (angles + errors).min()
    return math.degrees(found[0]), math.degrees(found[1]), math.degrees(found[2])


def principal_poles(terms: Terms) -> Array:
    """Zeros of a denominator without delays on the principal sheet, the origin left out."""
    lowest = min(key[0] for key in terms)
    terms = {(key[0] - lowest, 0.0): value for key, value in terms.items()}
    if len(terms) == 1:
        return np.empty(0, complex)
    system = TransferFunction({0.0: 1.0}, terms)
    found = system.polynomials()
    logs = _zeros(terms) if found is None else _polish(terms, _logarithms(np.roots(found[2]), found[0]))
    return np.asarray(np.exp(logs))


def _logarithms(roots: Array, q: float) -> Array:
    """Logarithms of all s on the principal sheet with ``s^q`` among the roots; for q > 1 a root may have several."""
    logs = np.log(roots[roots != 0.0].astype(complex))
    turns = 2j * math.pi * np.arange(-math.ceil(q), math.ceil(q) + 1)
    found = (logs[:, np.newaxis] + turns).reshape(-1) / q
    return np.asarray(found[(found.imag <= math.pi * (1.0 + 1e-9)) & (found.imag > -math.pi * (1.0 - 1e-9))])


def _polish(terms: Terms, logs: Array) -> Array:
    """Newton's method, kept where it moves little and helps."""
    moved = _newton(terms, logs, 3)
    sizes = [np.abs(evaluate_terms(terms, np.exp(each), each)) for each in (moved, logs)]
    with np.errstate(invalid="ignore"):
        return np.where((sizes[0] <= sizes[1]) & (np.abs(moved - logs) < 1e-3), moved, logs)


def _zeros(terms: Terms) -> list[complex]:
    """Logarithms of the zeros of an incommensurate denominator on the principal sheet, those on its edge left out."""
    low, high = _radii(terms)
    if max(-low, high) * max(1.0, *(key[0] for key in terms)) > _LARGEST:
        p, q = min(pairwise(sorted({key[0] for key in terms})), key=lambda pair: pair[1] - pair[0])
        raise SolveError(f"s^{p!r} and s^{q!r} are too close: zeros may be beyond all numbers; make these powers equal")
    for angle in (math.pi, (1.0 - 1e-6) * math.pi):
        count = _count(terms, angle)
        if count is not None:
            return _search(terms, (low, high), (-angle, angle), count)
    raise SolveError("a pole lies on the negative axis; use powers that are multiples of one number")


def _newton(terms: Terms, logs: Array, iterations: int) -> Array:
    slopes = derivative(terms)
    for _ in range(iterations):
        points = np.exp(logs)
        with np.errstate(all="ignore"):
            change = evaluate_terms(terms, points, logs) / (evaluate_terms(slopes, points, logs) * points)
            logs = logs - change / np.maximum(1.0, np.abs(change) / 0.3)
    return logs


def _search(terms: Terms, real: tuple[float, float], imaginary: tuple[float, float], count: int) -> list[complex]:
    """The zeros in a rectangle of logarithms, which is halved until each part has one."""
    if count == 0:
        return []
    width, height = real[1] - real[0], imaginary[1] - imaginary[0]
    small = max(width, height) < 1e-6
    if count == 1 or small:
        found = complex(_newton(terms, np.array([complex(sum(real), sum(imaginary)) / 2.0]), 40)[0])
        if small or (real[0] <= found.real <= real[1] and imaginary[0] <= found.imag <= imaginary[1]):
            return [found] * count
    for share in (0.5, 0.4567, 0.5432, 0.3891):  # no zero may lie on the line that parts them
        if width >= height:
            middle = real[0] + share * width
            parts = [((real[0], middle), imaginary), ((middle, real[1]), imaginary)]
        else:
            middle = imaginary[0] + share * height
            parts = [(real, (imaginary[0], middle)), (real, (middle, imaginary[1]))]
        counts = [_winding(terms, *part) for part in parts]
        if None not in counts and sum(map(int, counts)) == count:  # type: ignore[arg-type]
            return [z for part, n in zip(parts, counts, strict=True) for z in _search(terms, *part, int(n or 0))]
    raise SolveError("the poles could not be separated; use powers that are multiples of one number")


def _radii(terms: Terms) -> tuple[float, float]:
    """Logarithms of the sizes of s below and above which no zero lies, because one power outweighs the others.

    The first is -inf at a zero at 0. With delays they hold for real parts of 0 and more.
    """
    top = next(iter(terms))[0]
    high = _outweighed(_fastest(terms), [(top - key[0], abs(v)) for key, v in terms.items() if key[0] < top])
    return _smallest(terms), high


def _smallest(terms: Terms) -> float:
    """Logarithm of the size of s below which the lowest power outweighs the others; -inf at a zero at 0."""
    lowest = min(key[0] for key in terms)
    least = abs(sum(v for key, v in terms.items() if key[0] == lowest))
    if least <= 1e-14 * sum(abs(v) for v in terms.values()):
        return -math.inf
    rest = [(key[0] - lowest, abs(v)) if key[0] > lowest else (1.0, abs(v * key[1])) for key, v in terms.items()]
    return -_outweighed(least, rest)


def _outweighed(limit: float, sizes: list[tuple[float, float]]) -> float:
    """A number x of 0 or more from which on the sum of ``size exp(-rate x)`` is below a quarter of ``limit``."""
    rates, logs = np.array([(rate, math.log(size)) for rate, size in sizes if size]).reshape(-1, 2).T
    x = 0.0
    for _ in range(200):  # Newton's method, from the left: the logarithm of the sum is convex
        level = float(logsumexp(logs - rates * x)) if rates.size else -math.inf
        if level <= math.log(0.25 * limit):
            break
        weights = np.exp(logs - rates * x - level)
        x += (level - math.log(0.249 * limit)) / float(rates @ weights)
    return x


def _fastest(terms: Terms) -> float:
    """The least size, for real parts of 0 and more, of the sum of the delays that the highest power has.

    With several of them it is a polynomial in ``exp(-L s)``, whose zeros belong to chains of poles (Bonnet and
    Partington): below 0 if chains lie to the right of the imaginary axis, 0 if one approaches it.
    """
    top = next(iter(terms))[0]
    factors = {key[1]: v for key, v in terms.items() if key[0] == top}
    if len(factors) > 1 and (unit := commensurate_order(factors)) is not None:
        row = np.zeros(round(max(factors) / unit) + 1, complex)
        row[[round(lag / unit) for lag in factors]] = list(factors.values())
        sizes = np.abs(np.roots(row[::-1]))
        apart = float(sizes.min()) - 1.0
        return abs(row[-1]) * float(np.prod(sizes - 1.0)) if apart > _SAME else min(apart + _SAME, 0.0)
    found = abs(factors[0.0]) - sum(abs(v) for lag, v in factors.items() if lag)
    if found <= 0.0 and len(factors) > 3:
        raise SolveError("delays of the highest power are no multiples of one number; make them so")
    return found


def _count(terms: Terms, angle: float) -> int | None:
    """Number of zeros with ``|arg s| <= angle``, by the argument principle; None if one is on the boundary."""
    low, high = _radii(terms)
    return None if low == -math.inf else _winding(terms, (low, high), (-angle, angle))


def _winding(terms: Terms, real: tuple[float, float], imaginary: tuple[float, float]) -> int | None:
    """Number of zeros in a rectangle of logarithms; None if one is on its boundary."""
    (left, right), (lower, upper) = real, imaginary
    corners = [complex(left, lower), complex(right, lower), complex(right, upper), complex(left, upper)]
    found = turns(terms, np.array([*corners, corners[0]])).sum()
    return None if math.isnan(found) else round(found / (2.0 * math.pi))


def phases(terms: Terms, w: Array) -> Array | None:
    """Arguments of terms at ``i w``, to about 0.3, continuous from that of the lowest power at 0 on.

    Zeros on the axis are passed on their right. None where delays turn too often.
    """
    lowest, low = min(key[0] for key in terms), _smallest(terms)
    start = min(float(np.log(w[0])), max(low, -15.0 - math.log1p(max(key[1] for key in terms))))
    found = np.zeros(w.size)
    for angle in (0.5 * math.pi, (0.5 - 1e-6) * math.pi):
        path = np.append(start, np.log(w)) + 1j * angle
        try:
            found = turns(terms, path, _FEW_LEGS)
        except SolveError:  # the caller has another way
            return None
        if not np.isnan(found).any():
            break
    lead = sum(v for key, v in terms.items() if key[0] == lowest)
    first = np.angle(lead) + lowest * 0.5 * math.pi
    if low == -math.inf:
        first = np.angle(evaluate_terms(terms, np.exp(path[:1]), path[:1]))[0]
    return np.asarray(first + np.cumsum(found))


def turns(terms: Terms, path: Array, budget: int = _MOST_LEGS) -> Array:
    """Changes of the argument of terms along a path of logarithms of s, leg by leg; nan where they vanish on a leg.

    Legs are halved until the terms cannot come near 0 between their ends. With delays, real parts are 0 or more.
    """
    powers, lags = np.array(list(terms)).T[..., np.newaxis]
    logs, found = np.log(np.array([*terms.values()], complex))[:, np.newaxis], np.zeros(len(path) - 1)
    parts = max(1, _FIRST // found.size)
    fine = np.append((path[:-1, np.newaxis] + np.outer(np.diff(path), np.arange(parts) / parts)).ravel(), path[-1])
    legs, left, right = np.repeat(np.arange(found.size), parts), fine[:-1].astype(complex), fine[1:].astype(complex)
    while legs.size:
        budget -= legs.size
        if budget < 0:
            raise SolveError(
                "delays are too long, or have too large coefficients, for zeros to be counted; use control.pade"
            )
        some = [each[:_LEGS] for each in (legs, left, right)]
        legs, left, right = (each[_LEGS:] for each in (legs, left, right))
        middle, reach = 0.5 * (some[1] + some[2]), 0.5 * np.abs(some[2] - some[1])
        sizes = logs.real + powers * middle.real
        largest = sizes.argmax(axis=0)
        rates, level = powers - powers[largest, 0], logs.real[largest, 0]

        def values(z: Array) -> Array:
            """The terms over the size and the power of the largest of them in the middle of a leg."""
            waits = lags * np.exp(np.minimum(z.real, 700.0) + 1j * z.imag)
            return np.asarray(np.exp(logs - level + rates * z - waits).sum(axis=0))  # noqa: B023

        shares, moved = np.exp(sizes - sizes.max(axis=0)), np.abs(rates) * reach
        with np.errstate(over="ignore", invalid="ignore"):
            swung = lags * np.exp(np.minimum(middle.real, 700.0)) * np.expm1(reach)
            change = (shares * (np.exp(moved) * np.minimum(swung, 2.0) + np.expm1(moved))).sum(axis=0)
            size = np.abs(values(middle))
            turn = np.angle(values(some[2]) / values(some[1])) + powers[largest, 0] * (some[2] - some[1]).imag
        known, lost = change < 0.8 * size, (size <= 1e-13 * shares.sum(axis=0)) | np.isnan(found[some[0]])
        np.add.at(found, some[0][known], turn[known])
        found[some[0][lost & ~known]] = math.nan
        more = ~known & ~lost
        halves = [np.concatenate([each[more], each[more]]) for each in some]
        count = int(more.sum())
        halves[1][count:] = halves[2][:count] = middle[more]
        legs, left, right = (np.concatenate(pair) for pair in zip(halves, (legs, left, right), strict=True))
    return found
