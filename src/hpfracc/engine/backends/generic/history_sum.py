"""History sum: blocks of weights, each computed, used and freed.

Compositions of library functions, differentiable in times, signal and parameters; the weights of a block are computed
again for a derivative and not stored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hpfracc._arrays import dtype_name
from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.backends.generic.library import Library
from hpfracc.engine.numerics.history_sums import block_of_weights, output_blocks
from hpfracc.engine.primitives.base import INEXACT
from hpfracc.engine.workers import run_blocks

#: ``sum_of(times, x, options)``: the values from operands in double precision.
SumOf = Callable[[Any, Any, tuple[Any, ...]], Any]


def make_kernels(library: Library) -> dict[str, Kernel]:
    """The direct sum, in blocks of the library's size."""
    xp = library.xp

    def sum_direct(
        times: Any, signal: Any, *parameters: Any, kernel: str = "power", scaled: bool = False, **threads: int
    ) -> Any:
        def sum_of(times: Any, x: Any, options: tuple[Any, ...]) -> Any:
            n = x.shape[-1]

            def block(times: Any, x: Any, low: int, high: int, *options: Any) -> Any:
                places = np.arange(low, high)
                weights, first = block_of_weights(xp, kernel, times[:high], options, times[low:high], places, scaled)
                return xp.matmul(x[..., first:high], xp.astype(weights.T, x.dtype))

            work = library.recomputed(block, times, x, *options) if n > 256 else block
            blocks = output_blocks(n, library.history_block, library.history_rows)
            parts = run_blocks(lambda ends: quiet(work)(times, x, *ends, *options), blocks, threads.get("workers", 1))
            return xp.concatenate(parts, -1)

        return sum_causally(library, sum_of, times, signal, parameters, kernel)

    quiet = xp.quiet  # in each thread
    return {"direct": Kernel(library.finished(sum_direct, threads=True))}


def sum_causally(
    library: Library, sum_of: SumOf, times: Any, signal: Any, parameters: tuple[Any, ...], kernel: str
) -> Any:
    """The sum in double precision of finite samples, nan from the first non-finite one on; in the caller's dtype."""
    xp = library.xp
    kind = dtype_name(signal) if dtype_name(signal) in INEXACT else "float64"
    x = xp.astype(signal, "complex128" if xp.is_complex(signal) else "float64")
    if 0 in x.shape:
        return xp.astype(x * 0, kind)
    options = tuple(xp.astype(parameter, "float64") for parameter in parameters)
    if kernel != "tabulated":
        options = tuple(option.reshape(()) for option in options)
        x = xp.concatenate([xp.zeros_like(x[..., :1]), x[..., 1:]], -1)
    clean = library.all_finite(x)
    y = sum_of(xp.astype(times, "float64"), x if clean else xp.where(xp.isfinite(x), x, 0.0), options)
    if not clean:
        y = xp.where(xp.cumsum(~xp.isfinite(xp.stop_gradient(x)), -1) > 0, np.nan, y)
    return xp.astype(y, kind)
