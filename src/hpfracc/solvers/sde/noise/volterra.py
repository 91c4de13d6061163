"""The Riemann-Liouville process on a uniform grid, together with the Brownian motion that drives it.

The hybrid scheme with one exact cell [1]: the integral over the newest step is drawn jointly with the increment of
the Brownian motion; on older steps the kernel is replaced by its mean.

References
----------
1. M. Bennedsen, A. Lunde, M. S. Pakkanen, "Hybrid scheme for Brownian semistationary processes", Finance Stoch. 21,
   2017.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import fft

from hpfracc.solvers.sde.noise.source import RandomSource

__all__ = ["sample_hybrid", "sample_hybrid_pair"]


def sample_hybrid(source: RandomSource, hurst: float, n: int, step: float, count: int) -> Any:
    """The process at ``n + 1`` points, shape ``(count, n + 1)``."""
    return sample_hybrid_pair(source, hurst, n, step, count)[0]


def sample_hybrid_pair(source: RandomSource, hurst: float, n: int, step: float, count: int) -> tuple[Any, Any]:
    """The process at ``n + 1`` points, and the ``n`` increments of its Brownian motion.

    The numbers are drawn in float64 on the host and converted to the precision and library of the source.
    """
    power = hurst - 0.5
    # Cov of (dW, int_0^1 (1-s)^power dW) for a step of 1.
    cross, variance = 1.0 / (power + 1.0), 1.0 / (2.0 * power + 1.0)
    rest = math.sqrt(max(0.0, variance - cross * cross))
    # Means of the kernel over older steps, without cancellation.
    lags = np.arange(2.0, n + 1.0)
    means = -np.expm1((power + 1.0) * np.log1p(-1.0 / lags)) * lags ** (power + 1.0) / (power + 1.0)
    kernel = np.concatenate([[0.0], means])
    size = fft.next_fast_len(2 * n, real=True)
    spectrum = fft.rfft(kernel[:n], size)
    scale = math.sqrt(2.0 * hurst) * step**hurst
    host = source.on_host()
    paths = np.zeros((count, n + 1))
    increments = np.empty((count, n))
    for low, high in host.chunks(count, 4 * n):
        normals = host.numbers(low, high - low, 2 * n)
        own, other = normals[:, :n], normals[:, n:]
        past = fft.irfft(fft.rfft(own, size, axis=-1) * spectrum, size, axis=-1)[:, :n]
        paths[low:high, 1:] = scale * (past + cross * own + rest * other)
        increments[low:high] = math.sqrt(step) * own
    return source.array(paths), source.array(increments)
