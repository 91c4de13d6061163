"""The memory of a user's function, measured by calls of it."""

from __future__ import annotations

import gc
import logging
import math
import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from hpfracc._arrays import library_of
from hpfracc.engine.backends import registry
from hpfracc.engine.primitives.base import ArraySpec

T = TypeVar("T")

logger = logging.getLogger("hpfracc.memory")

#: Elements of the largest operand in the two trials: enough to dominate constant overheads.
_SMALL, _LARGE = 2**14, 2**15
#: Number of calls of each size.
_TRIALS = 3
#: Number of kinds of call whose memory is remembered.
_MAX_LINES = 256


def measure_peak(run: Callable[[], T], device: str = "cpu", library: str = "numpy") -> tuple[T, int | None]:
    """The result of ``run()``, and the peak memory it allocated, with its result; None if it cannot be measured.

    On the host the allocations of Python and NumPy, without a library's own buffers; on a device the peak of the
    library's pool, whose high-water mark is reset.
    """
    if device != "cpu":
        adapter = registry.adapter(library)
        adapter.synchronize(device)
        adapter.reset_peak(device)
        before, result, after = adapter.memory(device), run(), adapter.memory(device)
        peak = None if before is None or after is None or after[1] is None else after[1] - before[0]
        return result, peak if peak is not None and peak > 0 else None
    nested = tracemalloc.is_tracing()
    gc.collect()
    if nested:
        tracemalloc.reset_peak()
    else:
        tracemalloc.start()
    try:
        begin = tracemalloc.get_traced_memory()[0]
        result = run()
        peak = max(0, tracemalloc.get_traced_memory()[1] - begin)
        # Another library's allocations are not seen.
        return result, None if library_of(result) in ("torch", "jax") else peak
    finally:
        if not nested:
            tracemalloc.stop()


class Probe:
    """The memory of a user's operation, from two small calls of it: linear in the size of its operands.

    Parameters
    ----------
    function : callable
        Takes and returns NumPy arrays.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        #: Bytes as ``base + slope * size``, by kind of call.
        self._lines: dict[Any, tuple[float, float] | None] = {}

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
        return None if line is None else size + max(0.0, line[0] + line[1] * size)

    def _try(self, operands: Sequence[ArraySpec], params: Mapping[str, Any]) -> tuple[float, float] | None:
        try:
            (small, low), (large, high) = (self._measure(operands, params, elements) for elements in (_SMALL, _LARGE))
        except Exception as error:  # ones may be invalid arguments, or related axes were cut differently
            logger.debug("a memory probe failed: %s", registry.describe_failure(error))
            return None
        if not (large > small and high >= low):  # disturbed, or nan: not measured
            return None
        slope = (high - low) / (large - small)
        return low - slope * small, slope

    def _measure(self, operands: Sequence[ArraySpec], params: Mapping[str, Any], elements: int) -> tuple[float, float]:
        """Bytes of the operands, and the peak; nan if it cannot be measured."""
        shapes = _cut(operands, elements)
        arrays = [np.ones(shape, operand.dtype) for operand, shape in zip(operands, shapes, strict=True)]
        self._function(*arrays, **params)  # a first call may cache things that are not counted
        # Allocations of other threads are counted too: the smallest of a few calls is closest to this function's.
        peaks = [measure_peak(lambda: self._function(*arrays, **params))[1] for _ in range(_TRIALS)]
        size = float(sum(array.nbytes for array in arrays))
        return size, min((float(peak) for peak in peaks if peak is not None), default=math.nan)


def _cut(operands: Sequence[ArraySpec], elements: int) -> list[tuple[int, ...]]:
    """Shapes with the longest axis of the largest operand cut, wherever it occurs, to leave ``elements`` elements."""
    largest = max(operands, key=lambda operand: operand.size)
    longest = max(largest.shape)
    times = largest.shape.count(longest)
    others = largest.size / longest**times
    length = max(1, min(longest, round((elements / others) ** (1 / times))))
    return [tuple(length if size == longest else size for size in operand.shape) for operand in operands]
