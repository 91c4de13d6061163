"""Differences and starting weights around a causal convolution, for every backend that does not fuse them with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hpfracc.engine.backends.base import Kernel

__all__ = ["add_starts", "take_differences", "with_starts", "with_starts_on_host"]

Array = np.ndarray[Any, Any]

# inf - inf between samples needs no warning.
_QUIET = np.errstate(all="ignore")


def with_starts(
    kernel: Kernel, differences: Callable[[Any], Any], add_starts: Callable[[Any, Any, Any, Any, int], Any]
) -> Kernel:
    """Wrap a kernel of the plain sum with the options of the primitive.

    Parameters
    ----------
    kernel : Kernel
        ``run(weights, signal)`` and, perhaps, ``prepare`` and ``apply(prepared, signal)``.
    differences : callable
        ``differences(signal)``: differences of neighbours along the last axis, 0 at the first point.
    add_starts : callable
        ``add_starts(result, signal, summands, starts, first)``: the result, which may be modified, with ``starts[j] *
        summands[..., first + j]`` added from that point on; for the first sample, which has no difference, ``starts[0]
        * signal[..., 0]``.
    """

    def around(sum_of: Callable[..., Any]) -> Callable[..., Any]:
        def call(
            weights: Any, signal: Any, *starts: Any, differences: bool = False, starts_from: int = 0, **options: Any
        ) -> Any:
            summands = difference(signal) if differences else signal
            result = sum_of(weights, summands, **options)
            return add_starts(result, signal, summands, starts[0], starts_from) if starts else result

        return call

    difference = differences
    apply = None if kernel.apply is None else around(kernel.apply)
    return Kernel(around(kernel.run), kernel.prepare, apply, plain=kernel)


@_QUIET
def take_differences(signal: Array) -> Array:
    """``signal[n] - signal[n-1]`` along the last axis, 0 at the first point, into one buffer."""
    result = np.empty(signal.shape, signal.dtype)
    np.subtract(signal[..., 1:], signal[..., :-1], out=result[..., 1:])
    # Computed, not set to 0: it is nan if the first sample is not finite.
    np.subtract(signal[..., :1], signal[..., :1], out=result[..., :1])
    return result


@_QUIET
def add_starts(result: Array, signal: Array, summands: Array, starts: Array, first: int) -> Array:
    """Add ``starts[j] * summands[..., first + j]`` to ``result`` in place from that point on.

    The first sample has no difference: it is multiplied itself.
    """
    for j, row in enumerate(starts, first):
        result[..., j:] += (summands if j else signal)[..., j : j + 1] * row[j:]
    return result


def with_starts_on_host(kernel: Kernel) -> Kernel:
    """:func:`with_starts` for kernels of NumPy's arrays."""
    return with_starts(kernel, take_differences, add_starts)
