"""What the first call of an arm costs beyond its run time, and what is compiled already."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
from fnmatch import fnmatchcase
from statistics import median

from hpfracc.engine.selection.curve import log_work

__all__ = ["CompileTimes"]

#: A compilation not seen yet is expected to take the median of this many nearest in size: the very first one carries
#: what the library does once (``timings-h200.json``: CuPy 350 ms at the first size, 1 to 8 ms after), so a mean or a
#: straight line between two would be far too much for the sizes beside it.
_NEAREST = 3
#: Compilations that are remembered: those of each key, and those made in this process. A forgotten one is only weighed
#: as if it had yet to be made.
_MOST_SEEN, _MOST_DONE = 1024, 16_384


class CompileTimes:
    """Compile times by key and compile key. Not locked: its owner is.

    A compile key names one compilation; options that share it share the compilation, whatever their keys.
    """

    def __init__(self) -> None:
        self._seen: dict[Hashable, dict[Hashable, tuple[float | None, float]]] = {}
        self._done: dict[Hashable, None] = {}
        self._priors: dict[Hashable, float] = {}
        self._patterns: dict[str, float] = {}

    def learn(self, key: Hashable, compile_key: Hashable, seconds: float, x: float | None, *, done: bool) -> None:
        """Note what a compilation took at work ``x``; ``done``: it was made in this very process."""
        seen = self._seen.setdefault(key, {})
        seen[compile_key] = (x, seconds)
        if len(seen) > _MOST_SEEN:
            del seen[next(iter(seen))]
        if done:
            self._done[compile_key] = None
            if len(self._done) > _MOST_DONE:
                del self._done[next(iter(self._done))]

    def set_prior(self, key_or_pattern: Hashable, seconds: float) -> None:
        """What to expect before anything was seen: of one key, or of arms whose name fits a pattern (``numba:*``)."""
        if isinstance(key_or_pattern, str):
            self._patterns[key_or_pattern] = seconds
        self._priors[key_or_pattern] = seconds

    def is_done(self, compile_key: Hashable) -> bool:
        """Whether this process has compiled it."""
        return compile_key is None or compile_key in self._done

    def cost(self, key: Hashable, compile_key: Hashable, x: float | None = None) -> float:
        """Seconds that compiling would take now; 0 once it was done."""
        if compile_key is None or compile_key in self._done:
            return 0.0
        seen = self._seen.get(key)
        if not seen:
            return self._prior(key)
        known = seen.get(compile_key)
        if known is not None:
            return known[1]
        found = list(seen.values())
        if x is not None and len(found) > _NEAREST:
            place = log_work(x)
            found.sort(key=lambda pair: math.inf if pair[0] is None else abs(log_work(pair[0]) - place))
            found = found[:_NEAREST]
        return median(seconds for _, seconds in found)

    def __iter__(self) -> Iterator[tuple[Hashable, Hashable, float | None, float]]:
        for key, seen in self._seen.items():
            for compile_key, (x, seconds) in seen.items():
                yield key, compile_key, x, seconds

    def _prior(self, key: Hashable) -> float:
        known = self._priors.get(key)
        if known is not None:
            return known
        arm = key[1] if isinstance(key, tuple) and len(key) > 1 else key
        if isinstance(arm, str):
            for pattern, seconds in self._patterns.items():
                if fnmatchcase(arm, pattern):
                    return seconds
        return 0.0
