"""Time in blocks: contributions of past blocks to later blocks, by FFT for weights that depend on the distance alone.

:class:`History` completes the sums of rows of values in O(N log^2 N); :class:`ToeplitzHistory` those of whole states,
one step at a time. :class:`DirectHistory` keeps all steps, for any weights. :func:`steps_together` is the length of the
blocks of states.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import fft

from hpfracc._arrays import tracks_gradient
from hpfracc._xp import Namespace
from hpfracc.engine.execution.api import spectral_multiply

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
#: Number of steps of whole states from which transforms are faster than products of blocks; a guess, not measured.
TRANSFORMS_FROM = 2048
#: Steps whose mutual contributions are summed directly.
_STATES = 128
#: Steps in a block of states, the bytes that limit it, and the fewest steps in a block.
_STEPS, _BYTES, _FEWEST = 32, 1 << 25, 4


def steps_together(size: int, steps: int) -> int:
    """The number of steps in a block, for states of ``size`` bytes."""
    return min(steps, max(_FEWEST, min(_STEPS, _BYTES // max(1, size))))


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


class ToeplitzHistory:
    """``h_n = sum_{k<n} b[n - k] x_k``, completed block by block.

    Parameters
    ----------
    weights : numpy.ndarray
        The weights b, from distance 0 on.
    steps : int
        Number of steps.
    like : numpy.ndarray
        A state with the shape and dtype of the x.
    """

    name = "fft"

    def __init__(self, weights: Array, steps: int, like: Array) -> None:
        self._shape, self._complex = like.shape, like.dtype.kind == "c"
        rows = math.prod(self._shape) * (2 if self._complex else 1)
        self._weights = weights
        # x_k has index k - 1 and h_n has index n - 1, so that the distance is the same.
        self._values = np.zeros((rows, steps))
        self._sums = np.zeros((1, rows, steps))
        self._history = History(weights[None, None, :], None, self._values, self._sums, _STATES)
        self._known = 0

    def begin(self, n: int) -> tuple[float, Any]:
        """The weight of the newest x, and the sum over the earlier ones; None for the first step."""
        first = (n - 1) // _STATES * _STATES
        if n == 1:
            return float(self._weights[0]), None
        total = self._sums[0, :, n - 1]
        if n - 1 > first:
            total = total + self._values[:, first : n - 1] @ self._weights[n - 1 - first : 0 : -1]
        flat = np.ascontiguousarray(total)
        flat = flat.view(np.complex128) if self._complex else flat
        return float(self._weights[0]), flat.reshape(self._shape)

    def remember(self, x: Array) -> None:
        """Append the newest x."""
        flat = np.ascontiguousarray(x).reshape(-1)
        self._values[:, self._known] = flat.view(np.float64) if self._complex else flat
        self._known += 1
        if self._known % _STATES == 0 and self._known < self._values.shape[1]:
            self._history.complete(self._known)

    @staticmethod
    def forecast(steps: int, size: int) -> int:
        """Bytes for a state of ``size`` bytes: values, sums, and the transforms of the longest block."""
        return 5 * steps * size


class DirectHistory:
    """``h_n = sum_{k<n} A[n, k] x_k`` for n = 1, 2, ..., as the x become known.

    Parameters
    ----------
    rows : callable
        ``rows(first, stop)``: the weights ``A[n, k]`` of steps ``first`` to ``stop - 1``, k from 1 to ``stop - 1``.
    steps : int
        Number of steps.
    like : array
        A state with the shape, dtype and library of the x.
    xp : Namespace
        Its library.
    """

    name = "direct"

    def __init__(self, rows: Callable[[int, int], Any], steps: int, like: Any, xp: Namespace) -> None:
        self._rows, self._steps, self._xp = rows, steps, xp
        self._shape = tuple(like.shape)
        self._complex = xp.is_complex(like)
        self._first = self._stop = 1
        #: Steps whose sums over all earlier blocks are computed together, as one matrix product.
        self._block = steps_together(math.prod(self._shape) * (16 if self._complex else 8), steps)
        self._weights: Any = None
        self._far: Any = None
        self._kept: list[Any] = []
        self._known = 0
        self._own: list[Any] = []
        self._columns: Any = None
        #: All x as rows of real numbers, unless one carries a gradient; the weights are real.
        self._past: Any = None
        self._width = math.prod(self._shape) * (2 if self._complex else 1)
        if xp.library == "numpy":
            self._past = np.empty((steps, self._width))

    def begin(self, n: int) -> tuple[Any, Any]:
        """The weight of the newest x, and the sum over the earlier ones; None for the first step."""
        if self._xp.library == "jax":
            return self._of_one_shape(n)
        if n >= self._stop:
            self._open(n)
        place, before = n - self._first, self._first - 1
        row = self._weights[place]
        total = None if self._far is None else self._far[place]
        if n - 1 > before:
            if self._past is not None:
                near = row[before : n - 1] @ self._past[before : n - 1]
            else:
                near = self._sum(row[None, before : n - 1], self._kept[before : n - 1])[0]
            total = near if total is None else total + near
        return row[n - 1], None if total is None else self._shaped(total)

    def _of_one_shape(self, n: int) -> tuple[Any, Any]:
        """The same with zero weights for steps to come, because JAX compiles every operation for each new shape."""
        xp = self._xp
        if self._weights is None:
            whole = self._rows(1, self._steps + 1)
            self._own = [whole[k, k] for k in range(self._steps)]
            self._weights = whole * xp.array(np.tri(self._steps, k=-1))
            kind = "complex128" if self._complex else "float64"
            self._columns = xp.zeros((self._steps, math.prod(self._shape)), kind)
        if n == 1:
            return self._own[0], None
        self._columns = self._columns.at[n - 2].set(self._kept[-1].reshape(-1))
        row, columns = self._weights[n - 1], self._columns
        if self._complex:
            total = xp.complex(xp.matmul(row, columns.real), xp.matmul(row, columns.imag))
        else:
            total = xp.matmul(row, columns)
        return self._own[n - 1], total.reshape(self._shape)

    def remember(self, x: Any) -> None:
        """Append the newest x."""
        if self._xp.library == "jax":
            self._kept = [x]
            return
        if self._xp.library == "torch" and not self._known and not tracks_gradient(x) and not self._kept:
            self._past = x.new_empty((self._steps, self._width), dtype=self._xp.module.float64)
        if self._past is not None and self._xp.library != "numpy" and tracks_gradient(x):
            self._kept = [self._shaped(row) for row in self._past[: self._known]]
            self._past = None
        if self._past is None:
            self._kept.append(x)
            return
        self._past[self._known] = self._flat(x)
        self._known += 1

    def _flat(self, x: Any) -> Any:
        if self._xp.library == "torch":
            return (self._xp.module.view_as_real(x) if self._complex else x).reshape(-1)
        flat = np.ascontiguousarray(x).reshape(-1)
        return flat.view(np.float64) if self._complex else flat

    def _open(self, n: int) -> None:
        """Compute the weights of the next block and the contribution of all earlier steps to its sums."""
        self._first, self._stop = n, min(n + self._block, self._steps + 1)
        self._weights = self._rows(self._first, self._stop)
        before = n - 1
        if not before:
            self._far = None
        elif self._past is not None:
            self._far = self._weights[:, :before] @ self._past[:before]
        else:
            self._far = self._sum(self._weights[:, :before], self._kept)

    def _sum(self, weights: Any, kept: list[Any]) -> Any:
        xp = self._xp
        flat = xp.stack([x.reshape(-1) for x in kept])
        if self._complex:
            return xp.complex(xp.matmul(weights, flat.real), xp.matmul(weights, flat.imag))
        return xp.matmul(weights, flat)

    def _shaped(self, flat: Any) -> Any:
        if self._past is not None and self._complex:
            if self._xp.library == "torch":
                flat = self._xp.module.view_as_complex(flat.reshape(-1, 2))
            else:
                flat = flat.view(np.complex128)
        return flat.reshape(self._shape)

    @staticmethod
    def forecast(steps: int, size: int, copies: int = 12) -> int:
        """Bytes for states of ``size`` bytes: all increments, the sums of a block, and ``copies`` of its weights."""
        return steps * size + steps_together(size, steps) * (size + 8 * copies * steps)
