"""The cost of copies: latency plus bytes over bandwidth, learned from the copies that are made."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable

from hpfracc.engine.locks import Guarded
from hpfracc.engine.selection.curve import check_seconds
from hpfracc.errors import InvalidInputError

__all__ = ["TransferModel"]

#: Copies remembered per route and size class.
_KEPT = 32
#: Copies up to the first size give the latency, larger ones the bandwidth. Once there are copies above the second size,
#: only those are used for the bandwidth.
_SMALL, _LARGE = 2**16, 2**20
#: For a route of which nothing is known: a PCIe 3 link.
_DEFAULT = (20e-6, 6e9)
#: At least this share of a copy's time is attributed to its bytes, whatever the latency.
_LEAST_SHARE = 1e-3


class _Route:
    """The last copies along one route."""

    __slots__ = ("large", "medium", "rates", "small")

    def __init__(self) -> None:
        self.small: deque[float] = deque(maxlen=_KEPT)
        self.medium: deque[tuple[int, float]] = deque(maxlen=_KEPT)
        self.large: deque[tuple[int, float]] = deque(maxlen=_KEPT)
        #: Derived from the above; None after a new copy.
        self.rates: tuple[float, float] | None = None


class TransferModel(Guarded):
    """Seconds per route (``"host->cuda:0"``) and size. Thread-safe."""

    def __init__(self) -> None:
        super().__init__()
        self._priors: dict[str, tuple[float, float]] = {}
        self._routes: dict[str, _Route] = {}

    def set_prior(self, route: str, latency: float, rate: float) -> None:
        """Expect ``latency + bytes / rate`` of a route, or of a kind of route (``"host->cuda"``)."""
        if not (0.0 <= latency < math.inf and 0.0 < rate < math.inf):
            raise InvalidInputError(f"latency={latency!r}, rate={rate!r}: use seconds >= 0 and bytes a second > 0")
        with self._lock:
            self._priors[route] = latency, rate
            for known in self._routes.values():
                known.rates = None

    def observe(self, route: str, nbytes: int, seconds: float) -> None:
        """Learn from a copy."""
        check_seconds(seconds)
        with self._lock:
            known = self._routes.get(route)
            if known is None:
                known = self._routes[route] = _Route()
            if nbytes <= _SMALL:
                known.small.append(seconds)
            else:
                (known.large if nbytes >= _LARGE else known.medium).append((nbytes, seconds))
            known.rates = None

    def estimate(self, route: str, nbytes: int) -> float:
        """Predicted seconds of a copy."""
        latency, rate = self.rates(route)
        return latency + nbytes / rate

    def rates(self, route: str) -> tuple[float, float]:
        """Latency in seconds and bytes a second of a route."""
        known = self._routes.get(route)
        if known is None:
            return self._prior(route)
        rates = known.rates
        if rates is None:
            with self._lock:
                rates = known.rates = self._learned(known, *self._prior(route))
        return rates

    def _prior(self, route: str) -> tuple[float, float]:
        kind = "->".join(end.partition(":")[0] for end in route.split("->"))
        return self._priors.get(route) or self._priors.get(kind) or _DEFAULT

    def _learned(self, known: _Route, latency: float, rate: float) -> tuple[float, float]:
        if known.small:
            latency = _quarter(known.small)
        copies = known.large or known.medium
        if copies:
            per_byte = _quarter(max(seconds - latency, _LEAST_SHARE * seconds) / nbytes for nbytes, seconds in copies)
            # Times of 0 say nothing about the bandwidth.
            rate = 1.0 / per_byte if per_byte > 0.0 else rate
        return latency, rate


def _quarter(values: Iterable[float]) -> float:
    """The 25th percentile: the time of undisturbed copies."""
    found = sorted(values)
    return found[len(found) // 4]
