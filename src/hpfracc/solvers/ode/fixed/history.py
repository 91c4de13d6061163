"""History sums in O(N log^2 N): contributions of past blocks to later blocks by FFT."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import fft

from hpfracc.engine.execution.api import spectral_multiply

__all__ = ["BLOCK", "DIRECT_BELOW", "ENGINE_FROM", "History"]

Array = np.ndarray[Any, Any]

#: Length of blocks within which sums are direct, a power of two (benchmarks/ode.py --tuning: 1024 is as fast, 256 is
#: 10 % slower).
BLOCK = 512
#: Up to this number of steps the sums are direct, in one block (benchmarks/ode.py --tuning).
DIRECT_BELOW = 1600
#: Number of sums from which the engine computes a contribution to them: that is in solves of 2 million steps for one
#: equation with two kinds of weights. They take 1 % longer on a processor, and the engine's first call in a process
#: takes 36 ms of about 2 s (benchmarks/history_sums.py).
ENGINE_FROM = 1 << 21


class History:
    r"""Sums ``S_k[n] = s_k[n] + sum_{j<n} w_k[n-j] f_j``, completed as far as needed while ``f`` becomes known.

    Time is split into blocks. Each pair of blocks is handled at the level of the binary tree at which they lie in
    neighbouring halves of length L: when the left half is complete, its contribution to the whole right half is one
    convolution by FFT. Values in the same block are summed by the stepper. In total there are N/BLOCK transforms of
    lengths BLOCK to N: O(N log^2 N) time, and O(N) memory for each row.

    Parameters
    ----------
    weights : array, shape (K, U, N + 1)
        K kinds of weights for each of U distinct orders.
    which : array of int or None, shape (rows,)
        Index of the order of each row; None if U = 1.
    values : array, shape (rows, N + 1)
        ``f``, filled by the stepper.
    sums : array, shape (K, rows, N + 1)
        ``s`` at first, then S; changed in place.
    block : int
        Length of the stepper's blocks.
    engine : bool
        Whether the engine may choose where long contributions are computed.

    Notes
    -----
    Contributions to at least ``ENGINE_FROM`` sums are computed by the engine's ``spectral_multiply``, on several
    cores or a GPU if that is faster. Shorter ones are transformed here: through ``spectral_multiply`` a contribution
    of length 512 takes 2.2 times as long, one of length 4,096 1.4 times, and a solve of a million steps 1.2 times.
    The engine's ``causal_convolution`` would need values padded with ``reach`` zeros, and transforms of twice the
    length, because it must not wrap around: a solve takes 2.0 to 2.5 times as long (benchmarks/history_sums.py).

    References
    ----------
    E. Hairer, C. Lubich, M. Schlichte, SIAM J. Sci. Stat. Comput. 6 (1985) 532-541.
    """

    def __init__(
        self, weights: Array, which: Array | None, values: Array, sums: Array, block: int, *, engine: bool = False
    ) -> None:
        self.weights = weights
        self.which = which
        self.values = values
        self.sums = sums
        self.block = block
        self.engine = engine
        self._spectra: dict[tuple[int, int], Array] = {}

    def complete(self, known: int) -> None:
        """Add the contribution of ``values[:, :known]``, an integer number of blocks, to the sums that need it next."""
        count = known // self.block
        length = (count & -count) * self.block
        reach = min(length, self.sums.shape[-1] - known)
        if reach <= 0:
            return
        size = fft.next_fast_len(length + reach, real=True)
        spectrum = self._spectrum(length, reach, size)
        past = self.values[:, known - length : known]
        target = self.sums[:, :, known : known + reach]
        if self.engine and target.size >= ENGINE_FROM:
            found = _multiply(spectrum, past, size)
        elif past.dtype.kind == "c":
            found = fft.ifft(spectrum * fft.fft(past, size)[None], size)
        else:
            found = fft.irfft(spectrum * fft.rfft(past, size)[None], size)
        target += found[:, :, length : length + reach]

    def _spectrum(self, length: int, reach: int, size: int) -> Array:
        kept = self._spectra.get((length, reach))
        if kept is None:
            segment = self.weights[:, :, : length + reach]
            kept = fft.fft(segment, size) if self.values.dtype.kind == "c" else fft.rfft(segment, size)
            if self.which is not None:
                kept = kept[:, self.which]
            if reach == length:  # shorter only at the end
                self._spectra[length, reach] = kept
        return kept


def _multiply(spectrum: Array, past: Array, size: int) -> Array:
    """The cyclic convolution of length ``size`` by the engine."""
    signal = np.zeros((len(past), size), past.dtype)
    signal[:, : past.shape[1]] = past
    return np.asarray(spectral_multiply(spectrum, signal, real=None if past.dtype.kind == "c" else True))
