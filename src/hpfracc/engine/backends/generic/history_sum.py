"""History sum in libraries whose arrays can be written to: blocks of weights, each computed, used and freed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hpfracc._xp import Namespace
from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.numerics.history_weights import block_of_weights, output_blocks
from hpfracc.engine.workers import run_blocks

__all__ = ["make_kernels"]


def make_kernels(
    xp: Namespace, block: int, rows: int, all_finite: Callable[[Any], bool] | None = None
) -> dict[str, Kernel]:
    """The direct sum, in blocks of about ``block`` weights and at most ``rows`` outputs.

    ``all_finite(x)`` says whether no sample has to be replaced; None for a device that would have to be waited for.
    """

    def sum_direct(
        times: Any, signal: Any, *parameters: Any, kernel: str = "power", scaled: bool = False, workers: int = 1
    ) -> Any:
        kind = signal.dtype if signal.dtype.kind in "fc" else np.dtype(np.float64)
        x = signal.astype(np.complex128 if kind.kind == "c" else np.float64)
        result = xp.module.zeros(x.shape, kind)
        if not result.size:
            return result
        times = xp.array(times)
        options = tuple(map(xp.array, parameters))
        if kernel != "tabulated":
            options = tuple(option.reshape(()) for option in options)
            x[..., 0] = 0.0
        clean = all_finite is not None and all_finite(x)
        operand = x if clean else xp.where(xp.isfinite(x), x, 0)

        def work(some: list[tuple[int, int]]) -> None:
            for low, high in some:
                weights, first = block_of_weights(xp, kernel, times, options, (low, high), scaled)
                result[..., low:high] = operand[..., first:high] @ xp.astype(weights.T, x.dtype)

        blocks = output_blocks(signal.shape[-1], block, rows)
        # Distributed in turn, because later blocks take longer.
        run_blocks(xp.quiet(work), [blocks[part::workers] for part in range(workers)], workers)
        if clean:
            return result
        seen = xp.cumsum(~xp.isfinite(x), -1) > 0
        return xp.where(seen, kind.type(np.nan), result)

    return {"direct": Kernel(xp.quiet(sum_direct))}
