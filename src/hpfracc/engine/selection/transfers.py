"""What copies cost: latency plus bytes over bandwidth, learned from the copies that are made."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TypeVar

from hpfracc.engine.locks import Guarded

__all__ = ["TransferModel"]

T = TypeVar("T")

#: Copies remembered per route and size class, and the sizes that tell latency from bandwidth.
_KEPT = 32
_SMALL, _LARGE = 2**16, 2**20
#: Where nothing at all is known of a route: a PCIe 3 link through a driver.
_DEFAULT = (20e-6, 6e9)


class TransferModel(Guarded):
    """Seconds per route (``"host->cuda:0"``) and size. Thread-safe."""

    def __init__(self) -> None:
        super().__init__()
        self._priors: dict[str, tuple[float, float]] = {}
        self._small: dict[str, deque[float]] = {}
        self._large: dict[str, deque[tuple[int, float]]] = {}

    def set_prior(self, route: str, latency: float, rate: float) -> None:
        """Expect ``latency + bytes / rate`` of a route, or of a kind of route (``"host->cuda"``)."""
        self._priors[route] = latency, rate

    def observe(self, route: str, nbytes: int, seconds: float) -> None:
        """Learn from a copy."""
        with self._lock:
            if nbytes <= _SMALL:
                self._small.setdefault(route, deque(maxlen=_KEPT)).append(seconds)
            elif nbytes >= _LARGE:
                self._large.setdefault(route, deque(maxlen=_KEPT)).append((nbytes, seconds))

    def estimate(self, route: str, nbytes: int) -> float:
        """Seconds to expect of a copy."""
        latency, rate = self.rates(route)
        return latency + nbytes / rate

    def rates(self, route: str) -> tuple[float, float]:
        """Latency in seconds and bytes a second of a route."""
        kind = "->".join(end.partition(":")[0] for end in route.split("->"))
        latency, rate = self._priors.get(route) or self._priors.get(kind) or _DEFAULT
        with self._lock:
            small, large = list(self._small.get(route, ())), list(self._large.get(route, ()))
        if small:
            latency = _quarter(small, lambda seconds: seconds)
        if large:
            rate = 1.0 / _quarter(large, lambda copy: max(copy[1] - latency, 1e-3 * copy[1]) / copy[0])
        return latency, rate


def _quarter(values: list[T], of: Callable[[T], float]) -> float:
    """The 25th percentile: what undisturbed copies take."""
    found = sorted(map(of, values))
    return found[len(found) // 4]
