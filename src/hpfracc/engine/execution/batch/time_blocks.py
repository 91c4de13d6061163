"""A causal convolution in blocks of time and parts of the weights: exactly the same sum in another order.

``y[n] = sum_p sum_{k in part p} w[k] x[n - k]``. For one block of outputs and one part of the weights, this is the
convolution of the part with the samples it reaches back to (overlap-save).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from hpfracc.engine.execution.batch.driver import ChunkTooLargeError
from hpfracc.engine.execution.batch.jobs import Job, Prediction
from hpfracc.engine.numerics.lengths import fast_length

__all__ = ["CHUNK_SECONDS", "TimeBlocks", "TimeSizer", "choose_blocks", "convolve_block", "run_block"]

#: ``predict(weights, samples)`` predicts the time of a convolution with these numbers of points.
Predict = Callable[[int, int], Prediction]
#: ``convolve(weights, samples, first_weight)``; the number identifies the part of the weights.
Convolve = Callable[[Any, Any, int], Any]

#: Overhead of a chunk beside its kernel: it is described, decided and bound as a separate call.
CHUNK_SECONDS = 1e-3
#: Parts are at least one in this many of a block, or all weights.
_MIN_PART = 4
#: Plans that transform this many times the points of one that fits are not faster, regardless of cache effects.
_MORE_WORK = 4.0
#: How often blocks that ran out of memory are made smaller.
_MAX_FAILURES = 40


@dataclass(frozen=True, slots=True)
class TimeBlocks:
    """The outputs of a block, the weights of a part, and the numbers of both.

    ``seconds`` is the predicted time of all blocks; ``quick`` says that no arm without room for such a block would be
    much faster.
    """

    block: int
    part: int
    blocks: int
    parts: int
    seconds: float = 0.0
    quick: bool = True


def choose_blocks(
    length: int, taps: int, predict: Predict, scale: float = 1.0, *, whole: bool = True
) -> TimeBlocks | None:
    """The blocks with the shortest predicted time, or None if not even one sample with one weight fits.

    Sizes of blocks and of parts halve. They are tried in the order of the number of points they transform, until the
    remaining ones transform too many points to be faster.

    Parameters
    ----------
    length, taps : int
        Total number of points of the signal and of weights.
    predict : callable
        ``predict(weights, samples)``.
    scale : float
        Fraction of what fits that may be used.
    whole : bool
        Whether a single block with all weights is allowed.
    """
    best: TimeBlocks | None = None
    least_work = math.inf
    refused: list[tuple[int, int]] = []
    for work, pieces, block, part in sorted(_possible(length, taps)):
        if work > _MORE_WORK * least_work:
            break
        if not whole and (block, part) == (length, taps):
            continue
        samples = min(length, block + part - 1)
        if any(part >= some and samples >= points for some, points in refused):
            continue  # a smaller one has no room, or only on a slow arm
        found = predict(part, samples)
        seconds = pieces * (found.seconds + CHUNK_SECONDS)
        if found.slow or found.seconds == math.inf:
            refused.append((part, samples))
        else:
            least_work = min(least_work, work)
        if seconds < (math.inf if best is None else best.seconds):
            best = TimeBlocks(block, part, -(-length // block), -(-taps // part), seconds, not found.slow)
    if best is None or scale >= 1.0 or best.block <= 1:
        return best
    block = max(1, int(best.block * scale))
    return replace(best, block=block, blocks=-(-length // block))


def _possible(length: int, taps: int) -> Iterator[tuple[float, float, int, int]]:
    """The work (points transformed, times the logarithm), the number of pieces, and the sizes of block and part."""
    for block in _halves(length):
        for part in _halves(taps):
            if _MIN_PART * part < block and part < taps:
                break  # parts much shorter than a block only add pieces
            blocks, parts = -(-length // block), -(-taps // part)
            # The first blocks start before the end of the weights: they need only some of the parts, or some samples.
            early = min(blocks, max(1, taps // block))
            pieces = blocks * parts - early * (parts - 1) / 2
            seen = min(length, block + part - 1) + part
            yield pieces * seen * math.log2(seen + 1), pieces, block, part


def _halves(size: int) -> Iterator[int]:
    while size >= 1:
        yield size
        size //= 2


def convolve_block(
    convolve: Convolve, weights: Any, signal: Any, begin: int, end: int, part: int, taps: int, extra: int = 0
) -> Iterator[tuple[int, Any]]:
    """Contributions to outputs ``begin`` to ``end``, each with its first output; the first one covers all of them.

    Parameters
    ----------
    convolve : callable
        Convolves a part of the weights with some samples.
    weights, signal : array
        Cut along their last axes.
    begin, end : int
        The range of outputs.
    part, taps : int
        Number of weights of one part, and in total.
    extra : int
        Samples before those that a part reaches back to: differences need one.
    """
    for first in range(0, min(taps, end), part):
        some = weights[..., first : min(first + part, taps)]
        low, high = max(0, begin - first - some.shape[-1] + 1 - extra), end - first
        skipped = max(0, begin - first - low)
        result = convolve(some, signal[..., low:high], first)
        yield low + skipped + first, result[..., skipped:]


def run_block(
    job: Job, arrays: tuple[Any, Any], plan: TimeBlocks, block: tuple[int, int], key: Any, kept: float
) -> Any:
    """Outputs of one block, from weights and signal.

    Transforms of the parts of the weights are cached under ``key`` for the next block if all of them fit into ``kept``
    bytes; otherwise each would be evicted before it is needed.
    """
    weights, signal = arrays
    call, begin = job.request.call, block[0]
    taps, extra = min(weights.shape[-1], call.length), int(call.facts["differences"])
    rows = math.prod(weights.shape[:-1])
    size = fast_length(plan.block + 2 * plan.part) * call.itemsize * rows
    keeps = key is not None and plan.parts * size <= kept

    def convolve(some: Any, samples: Any, first: int) -> Any:
        # A cached transform belongs to one part of the weights and one length of samples.
        return job.run((some, samples), (key, "part", first, some.shape[-1]) if keeps else None, quick=plan.quick)

    total = None
    for start, result in convolve_block(convolve, weights, signal, *block, plan.part, taps, extra):
        if total is None:
            total = result
        elif job.request.placement.library == "jax":
            total = total.at[..., start - begin :].add(result)
        else:
            total[..., start - begin :] += result
    return total


class TimeSizer:
    """Blocks of time that shrink when memory runs out.

    Parameters
    ----------
    plan : TimeBlocks
        The initial blocks.
    replan : callable
        Returns the best plan for the memory that is free now, or None.
    """

    def __init__(self, plan: TimeBlocks, replan: Callable[[], TimeBlocks | None]) -> None:
        self.plan = plan
        self._replan = replan
        self._failures = 0

    def next(self, left: int) -> int:
        """Number of outputs of the next block."""
        return min(self.plan.block, left)

    def succeeded(self, size: int) -> None:
        """The size of blocks does not change."""

    def failed(self, size: int, short: ChunkTooLargeError) -> bool:
        """Continue with a smaller plan; returns False if there is none."""
        self._failures += 1
        smaller = _smaller(self.plan, self._replan(), short)
        if smaller is None or self._failures > _MAX_FAILURES:
            return False
        self.plan = smaller
        return True


def _smaller(plan: TimeBlocks, best: TimeBlocks | None, short: ChunkTooLargeError) -> TimeBlocks | None:
    """The plan after a block that did not fit, given the best one for the memory that is free now.

    After an actual failure blocks are at most half as long.
    """
    if short.slow and best is not None:
        # If the best plan is the one just tried, run it without the demand for a faster arm.
        return replace(best, quick=best.quick and (best.block, best.part) != (plan.block, plan.part))
    if plan.block <= 1:
        return None
    block = plan.block // 2 if best is None else min(plan.block // 2, best.block)
    part = plan.part if best is None else min(plan.part, best.part)
    part = max(1, part // 2) if part > block else part
    length, taps = plan.block * plan.blocks, plan.part * plan.parts
    return TimeBlocks(block, part, -(-length // block), -(-taps // part), quick=plan.quick)
