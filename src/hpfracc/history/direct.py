"""History sums with all steps kept: products of blocks of weights with blocks of increments."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from hpfracc._arrays import tracks_gradient
from hpfracc._xp import Namespace
from hpfracc.history.blocks import steps_together

Array = np.ndarray[Any, Any]


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
        if self._past is not None and tracks_gradient(x):
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
