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

__all__ = ["hybrid_kernel", "sample_hybrid"]


def hybrid_kernel(hurst: float, n: int, step: float) -> tuple[np.ndarray, float]:
    """Factors of standard normal increments by their age, the newest first, and of other numbers in the newest cell.

    The process is their sum: older steps have the mean of the kernel, the newest one its exact law.
    """
    power, age = hurst + 0.5, np.arange(1.0, n)
    # Without cancellation: (k + 1)^p - k^p.
    older = age**power * np.expm1(power * np.log1p(1.0 / age))
    kernel = math.sqrt(2.0 * hurst) * step**hurst / power * np.concatenate([[1.0], older])
    return kernel, math.sqrt(max(step ** (2.0 * hurst) - kernel[0] ** 2, 0.0))


def sample_hybrid(source: RandomSource, hurst: float, n: int, step: float, count: int) -> Any:
    """The process at ``n + 1`` points, shape ``(count, n + 1)``.

    The numbers are drawn in float64 on the host and converted to the precision and library of the source.
    """
    kernel, across = hybrid_kernel(hurst, n, step)
    size = fft.next_fast_len(2 * n, real=True)
    spectrum = fft.rfft(kernel, size)
    host = source.on_host()
    paths = np.zeros((count, n + 1))
    for low, high in host.chunks(count, 4 * n):
        normals = host.numbers(low, high - low, 2 * n)
        along = fft.irfft(fft.rfft(normals[:, :n], size, axis=-1) * spectrum, size, axis=-1)[:, :n]
        paths[low:high, 1:] = along + across * normals[:, n:]
    return source.array(paths)
