"""Intervals and half-lines, and the effect of their ends on a jump that would cross them."""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

import numpy as np

from hpfracc import _reading
from hpfracc.errors import InvalidInputError

__all__ = ["BOUNDARIES", "Boundary", "Domain", "land", "read_domain", "read_start"]

Boundary = Literal["absorb", "mirror", "stop", "reject"]
BOUNDARIES = ("absorb", "mirror", "stop", "reject")


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
    if not domain.bounded:
        if math.isfinite(domain.low):
            return np.asarray(domain.low + np.abs(target - domain.low))
        return np.asarray(domain.high - np.abs(domain.high - target))
    width = domain.high - domain.low
    turned = np.mod(target - domain.low, 2.0 * width)
    return np.asarray(domain.low + np.minimum(turned, 2.0 * width - turned))
