"""The memory of a user's function, measured by two small trial calls."""

from __future__ import annotations

import gc
import logging
import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from hpfracc._arrays import library_of
from hpfracc.engine.backends import registry
from hpfracc.engine.primitives.base import ArraySpec

__all__ = ["LinearFit", "Probe", "fit_line", "measure_peak"]

logger = logging.getLogger("hpfracc.memory")

#: Elements of the largest operand in the two trials: enough to dominate constant overheads.
_SMALL, _LARGE = 2**14, 2**15
#: Number of calls of each size.
_TRIALS = 3
#: Number of kinds of call whose memory is remembered.
_MAX_LINES = 256


class LinearFit(NamedTuple):
    """Bytes as ``base + slope * size``."""

    base: float
    slope: float

    def __call__(self, size: float) -> float:
        """Bytes for ``size``, at least 0."""
        return max(0.0, self.base + self.slope * size)


def measure_peak(run: Callable[[], Any], device: str = "cpu", library: str = "numpy") -> int | None:
    """The peak memory allocated by ``run()``, including its result; None if it cannot be measured.

    On the host the allocations of Python and NumPy, without a library's own buffers; on a device the peak of the
    library's pool, whose high-water mark is reset.
    """
    if device != "cpu":
        adapter = registry.adapter(library)
        adapter.synchronize(device)
        adapter.reset_peak(device)
        before = adapter.peak_bytes(device)
        result = run()
        after = adapter.peak_bytes(device)
        del result
        if before is None or after is None or after[1] <= before[0]:
            return None
        return after[1] - before[0]
    nested = tracemalloc.is_tracing()
    gc.collect()
    if nested:
        tracemalloc.reset_peak()
    else:
        tracemalloc.start()
    try:
        begin = tracemalloc.get_traced_memory()[0]
        result = run()
        peak = tracemalloc.get_traced_memory()[1] - begin
        # Another library's allocations are not seen, but its results report their size.
        if library_of(result) in ("torch", "jax"):
            return None
        return max(0, peak)
    finally:
        if not nested:
            tracemalloc.stop()


def fit_line(small: float, small_bytes: float, large: float, large_bytes: float) -> LinearFit | None:
    """The line through two trials; None if it would decrease, i.e. if the trials were disturbed."""
    if large <= small or large_bytes < small_bytes:
        return None
    slope = (large_bytes - small_bytes) / (large - small)
    return LinearFit(small_bytes - slope * small, slope)


class Probe:
    """The memory of a user's operation, from two small calls of it: linear in the size of its operands.

    Parameters
    ----------
    function : callable
        Takes and returns NumPy arrays.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._lines: dict[Any, LinearFit | None] = {}

    def bytes_for(self, operands: Sequence[ArraySpec], params: Mapping[str, Any]) -> float | None:
        """Total bytes that a call takes; None if the trials failed or are inconclusive."""
        size = float(sum(operand.size * np.dtype(operand.dtype).itemsize for operand in operands))
        kinds = tuple((len(operand.shape), operand.dtype) for operand in operands)
        key = (kinds, tuple(sorted(map(repr, params.items()))))
        if key not in self._lines:
            if len(self._lines) >= _MAX_LINES:
                self._lines.clear()
            self._lines[key] = self._try(operands, params)
        line = self._lines[key]
        return None if line is None else size + line(size)

    def _try(self, operands: Sequence[ArraySpec], params: Mapping[str, Any]) -> LinearFit | None:
        try:
            small, large = (self._measure(operands, params, elements) for elements in (_SMALL, _LARGE))
        except Exception as error:  # ones may be invalid arguments, or related axes were cut differently
            logger.debug("a memory probe failed: %s", registry.describe_failure(error))
            return None
        return None if small is None or large is None else fit_line(*small, *large)

    def _measure(
        self, operands: Sequence[ArraySpec], params: Mapping[str, Any], elements: int
    ) -> tuple[float, float] | None:
        shapes = _cut(operands, elements)
        arrays = [np.ones(shape, operand.dtype) for operand, shape in zip(operands, shapes, strict=True)]
        self._function(*arrays, **params)  # a first call may cache things that are not counted
        # Allocations of other threads are counted too: the smallest of a few calls is closest to this function's.
        peaks = [measure_peak(lambda: self._function(*arrays, **params)) for _ in range(_TRIALS)]
        known = [peak for peak in peaks if peak is not None]
        return (float(sum(array.nbytes for array in arrays)), float(min(known))) if known else None


def _cut(operands: Sequence[ArraySpec], elements: int) -> list[tuple[int, ...]]:
    """Shapes with the longest axis of the largest operand cut, wherever it occurs, to leave ``elements`` elements."""
    largest = max(operands, key=lambda operand: operand.size)
    longest = max(largest.shape)
    times = largest.shape.count(longest)
    others = largest.size / longest**times
    length = max(1, min(longest, round((elements / others) ** (1 / times))))
    return [tuple(length if size == longest else size for size in operand.shape) for operand in operands]
