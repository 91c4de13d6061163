"""Intervals and half-lines, and the effect of their ends on a jump that would cross them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy import special

from hpfracc import _reading
from hpfracc.errors import InvalidInputError
from hpfracc.solvers.sde.noise.source import RandomSource

Boundary = Literal["absorb", "mirror", "stop", "reject"]


class Domain(NamedTuple):
    """The open interval from ``low`` to ``high``; at most one of them is infinite."""

    low: float
    high: float

    @property
    def bounded(self) -> bool:
        """Whether both ends are finite."""
        return math.isfinite(self.low) and math.isfinite(self.high)

    def outside(self, place: np.ndarray) -> np.ndarray:
        """Whether positions are outside; the ends count as outside."""
        return np.asarray((place <= self.low) | (place >= self.high))


def read_domain(domain: Any) -> Domain:
    """``(low, high)`` with low < high, one of which may be infinite."""
    low, high = _reading.pair("domain", domain, infinite=True)
    if math.isinf(low) and math.isinf(high):
        raise InvalidInputError(f"domain={domain!r} has no finite end; give at least one")
    return Domain(low, high)


def read_start(start: Any, domain: Domain | None) -> float:
    """Read a finite position inside the domain."""
    place = _reading.number("start", start)
    if domain is not None and not domain.low < place < domain.high:
        raise InvalidInputError(f"start={start!r} must be inside the domain {tuple(domain)}")
    return place


def land(domain: Domain, boundary: Boundary, place: np.ndarray, jump: np.ndarray) -> np.ndarray:
    """End of a jump in a domain with reflecting ends."""
    target = place + jump
    if boundary == "stop":
        return np.asarray(np.clip(target, domain.low, domain.high))
    if boundary == "reject":
        left = (target < domain.low) | (target > domain.high)
        return np.where(left, place, target)
    if math.isinf(domain.high):
        return np.asarray(domain.low + np.abs(target - domain.low))
    if math.isinf(domain.low):
        return np.asarray(domain.high - np.abs(domain.high - target))
    width = domain.high - domain.low
    turned = np.mod(target - domain.low, 2.0 * width)
    return np.asarray(domain.low + np.minimum(turned, 2.0 * width - turned))


#: Streams of the rounds.
_STREAM = 1 << 52
#: Rounds whose numbers are drawn together; a path needs two on average, or fewer.
_ROUNDS = 4
#: Terms of the series for the law of the exit time. At the median the next one is below 1e-40.
_TERMS = 5

#: One round: from the position and two uniform numbers to the time spent, the new position, and whether it is outside.
_Round = Callable[[np.ndarray, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray]]


def brownian_exits(host: RandomSource, domain: Domain, start: float, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Times at which standard Brownian motion leaves, and the ends through which it does; exact."""
    if not domain.bounded:
        end = domain.low if math.isfinite(domain.low) else domain.high
        times = (abs(start - end) / host.numbers(0, count, 1, stream=_STREAM)[:, 0]) ** 2
        return times, np.full(count, end)

    def leave(place: np.ndarray, first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        below, above = place - domain.low, domain.high - place
        radius = np.minimum(below, above)
        up = second < 0.5
        gone = np.where(up, above <= below, below <= above)
        moved = np.where(gone, np.where(up, domain.high, domain.low), place + np.where(up, radius, -radius))
        return radius**2 * exit_quantile(first), moved, gone

    return _run(host, start, count, leave)


def stable_exits(
    host: RandomSource, alpha: float, domain: Domain, start: float, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Mean times given the intervals left, and landing positions of symmetric stable motion of scale 1; exact."""
    half = 0.5 * alpha

    def leave(place: np.ndarray, first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        radius = np.minimum(place - domain.low, domain.high - place)
        far = radius / np.sqrt(special.betaincinv(half, 1.0 - half, first))
        moved = np.where(second < 0.5, place + far, place - far)
        return radius**alpha / math.gamma(1.0 + alpha), moved, domain.outside(moved)

    return _run(host, start, count, leave)


def _run(host: RandomSource, start: float, count: int, leave: _Round) -> tuple[np.ndarray, np.ndarray]:
    times, ends, going, place = np.zeros(count), np.empty(count), np.arange(count), np.full(count, start)
    for block in itertools.count():
        numbers = host.numbers_of(going, 2 * _ROUNDS, kind="uniform", stream=_STREAM + block)
        for k in range(0, 2 * _ROUNDS, 2):
            spent, place, gone = leave(place, numbers[:, k], numbers[:, k + 1])
            times[going] += spent
            ends[going[gone]] = place[gone]
            going, place, numbers = going[~gone], place[~gone], numbers[~gone]
        if not going.size:
            break
    return times, ends


def exit_quantile(probability: np.ndarray) -> np.ndarray:
    r"""Quantiles of the time at which standard Brownian motion from 0 leaves (-1, 1).

    Newton's method for the logarithm of

    .. math:: P(T \le t) = 2 \sum_{k \ge 0} (-1)^k \mathrm{erfc}\frac{2k+1}{\sqrt{2t}}, \qquad
        P(T > t) = \frac4\pi \sum_{k \ge 0} \frac{(-1)^k}{2k+1}\,e^{-(2k+1)^2 \pi^2 t / 8},

    the first below the median, the second above.
    """
    early = probability < 0.5
    result = np.empty(probability.shape)
    odd = 2.0 * np.arange(_TERMS)[:, None] + 1.0
    sign = np.where(odd % 4.0 == 1.0, 1.0, -1.0)
    goal = probability[early]
    t = special.ndtri(0.25 * goal) ** -2.0
    for _ in range(3):
        value = 2.0 * np.sum(sign * special.erfc(odd / np.sqrt(2.0 * t)), 0)
        density = math.sqrt(2.0 / math.pi) * t**-1.5 * np.sum(sign * odd * np.exp(-0.5 * odd**2 / t), 0)
        t = t * np.exp(np.log(goal / value) * value / (density * t))
    result[early] = t
    goal = 1.0 - probability[~early]
    t = (-8.0 / math.pi**2) * np.log(0.25 * math.pi * goal)
    for _ in range(3):
        waves = np.exp((-0.125 * math.pi**2) * odd**2 * t)
        value = (4.0 / math.pi) * np.sum(sign / odd * waves, 0)
        density = 0.5 * math.pi * np.sum(sign * odd * waves, 0)
        t = t + np.log(value / goal) * value / density
    result[~early] = t
    return result
