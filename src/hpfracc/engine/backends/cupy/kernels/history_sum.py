"""History sum in CuPy: blocks of weights, each computed, used and freed."""

from __future__ import annotations

import cupy
import numpy as np

from hpfracc._xp import namespace
from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.numerics.history_weights import block_of_weights

__all__ = ["KERNELS", "sum_direct"]

#: Weights of a block (also in the adapter): 128 MiB, enough to fill a GPU.
_HISTORY_BLOCK = 1 << 24
_XP = namespace("cupy")


def sum_direct(
    times: cupy.ndarray, signal: cupy.ndarray, *parameters: cupy.ndarray, kernel: str = "power", scaled: bool = False
) -> cupy.ndarray:
    """The sum, a block of outputs at a time."""
    n = signal.shape[-1]
    kind = signal.dtype if signal.dtype.kind in "fc" else np.dtype(np.float64)
    x = signal.astype(np.complex128 if kind.kind == "c" else np.float64)
    result = cupy.zeros(x.shape, kind)
    if not result.size:
        return result
    times = times.astype(np.float64, copy=False)
    options = tuple(parameter.astype(np.float64, copy=False) for parameter in parameters)
    if kernel != "tabulated":
        options = tuple(option.reshape(()) for option in options)
        x[..., 0] = 0.0
    operand = cupy.where(cupy.isfinite(x), x, 0)
    low = 0
    while low < n:
        high = min(n, low + max(1, _HISTORY_BLOCK // n))
        weights, first = block_of_weights(_XP, kernel, times, options, (low, high), scaled)
        result[..., low:high] = operand[..., first:high] @ weights.T.astype(x.dtype, copy=False)
        low = high
    seen = cupy.cumsum(~cupy.isfinite(x), -1) > 0
    return cupy.where(seen, kind.type(np.nan), result)


KERNELS: dict[str, Kernel] = {"direct": Kernel(sum_direct)}
