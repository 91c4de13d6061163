"""A causal convolution in blocks of time and parts of the weights: exactly the sum, in another order.

``y[n] = sum_p sum_{k in part p} w[k] x[n - k]``. For one block of outputs and one part of the weights, that is the
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

#: ``predict(weights, samples)`` says what a convolution of that many takes.
Predict = Callable[[int, int], Prediction]
#: ``convolve(weights, samples, first_weight)``; the number names the part of the weights.
Convolve = Callable[[Any, Any, int], Any]

#: What a chunk takes beside its kernel: it is described, decided and bound as a call of its own.
CHUNK_SECONDS = 1e-3
#: Parts are at least this share of a block, or all weights.
_LEAST_PART = 4
#: Plans that transform this many times the points of one that fits are not quicker, whatever their size does to caches.
_MORE_WORK = 4.0
#: Times that blocks which ran out of memory are made smaller.
_MOST_FAILURES = 40


@dataclass(frozen=True, slots=True)
class TimeBlocks:
    """Outputs of a block, weights of a part, and how many there are of each.

    ``seconds`` is what all blocks are predicted to take; ``quick`` says that no arm that lacks room for such a block
    would be much quicker.
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
    """The blocks that are predicted to be quickest, or None where not even one sample with one weight fits.

    Sizes of blocks and of parts halve. They are asked about in the order of the points they transform, until those that
    are left transform too many points to be quicker.

    Parameters
    ----------
    length, taps : int
        Points of the signal and weights in all.
    predict : callable
        ``predict(weights, samples)``.
    scale : float
        Share of what fits that may be used.
    whole : bool
        Whether one block with all weights is a plan.
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
            if _LEAST_PART * part < block and part < taps:
                break  # parts much shorter than a block only make pieces of it
            blocks, parts = -(-length // block), -(-taps // part)
            # The first blocks lie before the end of the weights: they meet some of the parts, or some samples only.
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
    """Contributions to outputs ``begin`` to ``end``: each with the output it starts at; the first covers all of them.

    Parameters
    ----------
    convolve : callable
        Convolves a part of the weights with some samples.
    weights, signal : array
        Cut along their last axes.
    begin, end : int
        The outputs that are wanted.
    part, taps : int
        Weights of one part, and in all.
    extra : int
        Samples before those that a part reaches back to: the differences of neighbours need one.
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

    Under ``key`` transforms of the parts of the weights are kept for the next block, where all of them fit into
    ``kept`` bytes: of more, each would be gone before it is needed.
    """
    weights, signal = arrays
    call, begin = job.request.call, block[0]
    taps, extra = min(weights.shape[-1], call.length), int(call.facts["differences"])
    rows = math.prod(weights.shape[:-1])
    size = fast_length(plan.block + 2 * plan.part) * call.itemsize * rows
    keeps = key is not None and plan.parts * size <= kept

    def convolve(some: Any, samples: Any, first: int) -> Any:
        # A kept transform belongs to a part of the weights and to one length of samples.
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
    """Blocks of time that become smaller when memory runs out.

    Parameters
    ----------
    plan : TimeBlocks
        The blocks to begin with.
    replan : callable
        Gives the best plan for the memory that is free now, or None.
    """

    def __init__(self, plan: TimeBlocks, replan: Callable[[], TimeBlocks | None]) -> None:
        self.plan = plan
        self._replan = replan
        self._failures = 0

    def next(self, left: int) -> int:
        """Outputs of the next block."""
        return min(self.plan.block, left)

    def succeeded(self, size: int) -> None:
        """Blocks stay as they are."""

    def failed(self, size: int, short: ChunkTooLargeError) -> bool:
        """Go on with a smaller plan; False where there is none."""
        self._failures += 1
        smaller = _smaller(self.plan, self._replan(), short)
        if smaller is None or self._failures > _MOST_FAILURES:
            return False
        self.plan = smaller
        return True


def _smaller(plan: TimeBlocks, best: TimeBlocks | None, short: ChunkTooLargeError) -> TimeBlocks | None:
    """The plan after a block for which there was no room, given the best one for the memory that is free now.

    After a real failure blocks are at most half as long.
    """
    if short.slow and best is not None:
        # Where the best is what has just been tried, it is run as it is.
        return replace(best, quick=best.quick and (best.block, best.part) != (plan.block, plan.part))
    if plan.block <= 1:
        return None
    block = plan.block // 2 if best is None else min(plan.block // 2, best.block)
    part = plan.part if best is None else min(plan.part, best.part)
    part = max(1, part // 2) if part > block else part
    length, taps = plan.block * plan.blocks, plan.part * plan.parts
    return TimeBlocks(block, part, -(-length // block), -(-taps // part), quick=plan.quick)
