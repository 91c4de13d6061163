"""A causal convolution in blocks of time and parts of the weights: exactly the sum, in another order.

``y[n] = sum_p sum_{k in part p} w[k] x[n - k]``. For one block of outputs and one part of the weights, that is the
convolution of the part with the samples it reaches back to (overlap-save). Nothing here knows where arrays live: they
are cut by slices, and what convolves two of them is handed in.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from hpfracc.engine.execution.batching.sizes import PIECE_SECONDS, Prediction

__all__ = ["BlockPlan", "choose_blocks", "convolve_block"]

#: ``predict(weights, samples)`` says what a convolution of so many takes.
Predict = Callable[[int, int], Prediction]
#: ``convolve(weights, samples, first_weight)``; the number names the part of the weights.
Convolve = Callable[[Any, Any, int], Any]


#: Parts are at least this share of a block, or all weights.
_LEAST_PART = 4
#: Plans that transform this many times the points of one that fits are not quicker, whatever their size does to caches.
_MORE_WORK = 4.0


@dataclass(frozen=True, slots=True)
class BlockPlan:
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
) -> BlockPlan | None:
    """The blocks that are predicted to be quickest, or None where not even one sample with one weight fits.

    Sizes of blocks and of parts halve. They are asked about in the order of the points they transform, until those that
    are left transform so many more that they cannot be quicker.

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
    best: BlockPlan | None = None
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
        seconds = pieces * (found.seconds + PIECE_SECONDS)
        if found.slow or found.seconds == math.inf:
            refused.append((part, samples))
        else:
            least_work = min(least_work, work)
        if seconds < (math.inf if best is None else best.seconds):
            best = BlockPlan(block, part, -(-length // block), -(-taps // part), seconds, not found.slow)
    if best is None or scale >= 1.0 or best.block <= 1:
        return best
    block = max(1, int(best.block * scale))
    return replace(best, block=block, blocks=-(-length // block))


def _possible(length: int, taps: int) -> Iterator[tuple[float, float, int, int]]:
    """Points transformed in all, times the logarithm; how many pieces that are; and the sizes of block and part."""
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
