"""A causal convolution in blocks of time and parts of the weights: exactly the sum, in another order.

``y[n] = sum_p sum_{k in part p} w[k] x[n - k]``. For one block of outputs and one part of the weights, that is the
convolution of the part with the samples it reaches back to (overlap-save). Nothing here knows where arrays live: they
are cut by slices, and what convolves two of them is handed in.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from hpfracc.engine.execution.batching.sizes import largest_that_fits

__all__ = ["BlockPlan", "choose_blocks", "convolve_block", "time_blocks"]

#: ``fits(weights, samples, quick)`` says whether a convolution of so many fits into memory; ``quick`` asks that no arm
#: without room for it would be much quicker.
Fits = Callable[..., bool]
#: ``convolve(weights, samples, first_weight)``; the number names the part of the weights.
Convolve = Callable[[Any, Any, int], Any]


@dataclass(frozen=True, slots=True)
class BlockPlan:
    """Outputs of a block, weights of a part, and how many there are of each.

    ``quick`` says that no arm that lacks room for such a block would be much quicker.
    """

    block: int
    part: int
    blocks: int
    parts: int
    quick: bool = True


def choose_blocks(length: int, taps: int, fits: Fits, scale: float = 1.0) -> BlockPlan | None:
    """The cheapest blocks that fit, or None where not even one sample with one weight does.

    Parameters
    ----------
    length, taps : int
        Points of the signal and weights in all.
    fits : callable
        ``fits(weights, samples, quick)``.
    scale : float
        Share of what fits that may be used.
    """
    quick = True
    plans = _possible(length, taps, partial(fits, quick=True))
    if not plans:
        quick = False
        plans = _possible(length, taps, partial(fits, quick=False))
    if not plans:
        return None
    best = replace(min(plans, key=lambda plan: _work(plan, length)), quick=quick)
    if scale >= 1.0 or best.block <= 1:
        return best
    block = max(1, int(best.block * scale))
    return replace(best, block=block, blocks=-(-length // block))


def _possible(length: int, taps: int, fits: Callable[[int, int], bool]) -> list[BlockPlan]:
    """The longest blocks for all weights at once, and for as many weights as outputs."""
    whole = largest_that_fits(lambda size: fits(taps, min(length, size + taps - 1)), length)
    size = largest_that_fits(lambda size: fits(min(size, taps), min(length, size + min(size, taps) - 1)), length)
    plans = (_plan(length, taps, whole, taps), _plan(length, taps, size, min(size, taps)))
    return [plan for plan in plans if plan is not None]


def _plan(length: int, taps: int, block: int, part: int) -> BlockPlan | None:
    if block < 1 or part < 1:
        return None
    return BlockPlan(block, part, -(-length // block), max(1, -(-taps // part)))


def _work(plan: BlockPlan, length: int) -> float:
    """Points transformed in all, times the logarithm: blocks shorter than the weights they meet waste most of it."""
    seen = plan.block + plan.part
    return plan.blocks * plan.parts * seen * math.log2(seen + 1)


def time_blocks(length: int, block: int, *, backwards: bool = False) -> Iterator[tuple[int, int]]:
    """``(begin, end)`` of each block; ``backwards`` where results go where the samples were."""
    starts = range(0, length, block)
    for begin in reversed(starts) if backwards else starts:
        yield begin, min(length, begin + block)


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
