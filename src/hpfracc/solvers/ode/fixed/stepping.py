"""Steps within one block in NumPy, for right-hand sides in Python and for batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from hpfracc.solvers.ode.fixed.scheme import Scheme, Tableau
from hpfracc.solvers.ode.newton import Newton, extrapolate
from hpfracc.solvers.ode.problem import RightHandSide

__all__ = ["NumpyStepper"]

Array = np.ndarray[Any, Any]


class NumpyStepper:
    """Steps through a block, all rows at once. Time runs along the first axis, so that a step is contiguous.

    Parameters
    ----------
    tableau : Tableau
        The arrays to fill.
    scheme : Scheme
        The method.
    block : int
        Length of the longest block.
    fun : RightHandSide
        The right-hand side; implicit schemes evaluate it through ``newton``.
    newton : Newton or None
        Newton's method, for an implicit scheme.
    """

    def __init__(self, tableau: Tableau, scheme: Scheme, block: int, fun: RightHandSide, newton: Newton | None) -> None:
        self.tableau, self.scheme, self.block, self.fun, self.newton = tableau, scheme, block, fun, newton
        weights = tableau.weights if tableau.which is None else tableau.weights[:, tableau.which]
        #: ``(K, block, rows or 1)``, newest last: the slice for m past values is contiguous.
        near = np.zeros((*weights.shape[:2], block + 1))
        near[:, :, : min(block + 1, weights.shape[2])] = weights[:, :, : block + 1]
        self._shared = tableau.which is None
        reverse = near[:, :, :0:-1]
        self._past = np.ascontiguousarray(reverse[:, 0] if self._shared else reverse.transpose(0, 2, 1))
        #: Weights of the newest value: a number, or one for each row.
        self._now: list[Any] = [float(each[0]) if self._shared else each for each in weights[:, :, 0]]
        #: Right-hand sides and states of a block, with its begin and the number of known points.
        self._rows: tuple[int, int, Array, Array] | None = None

    def run(self, begin: int, first: int, stop: int) -> int:
        """Take steps ``first .. stop-1`` of the block that starts at ``begin``; returns the number of known points."""
        table = self.tableau
        f, y = self._open_block(begin, first)
        sums = np.ascontiguousarray(table.sums[:, :, first:stop].transpose(2, 0, 1))
        steps = self._implicit if self.scheme.kind == "implicit" else self._explicit
        reached = first
        try:
            for reached in steps(begin, first, stop, sums, y, f):  # noqa: B007 - read after the loop
                pass
        finally:
            table.f[:, first:reached] = f[first - begin : reached - begin].T
            table.y[:, first:reached] = y[first - begin : reached - begin].T
            table.known = reached
            self._rows = (begin, reached, f, y)
        return reached

    def _open_block(self, begin: int, first: int) -> tuple[Array, Array]:
        """Right-hand sides and states of a block, with those before point ``first`` filled in.

        A block of a large batch may take many calls with few steps each, so they are kept from one call to the next.
        """
        if self._rows is not None and self._rows[:2] == (begin, first):
            return self._rows[2:]
        table, self._rows = self.tableau, None  # the old ones are free before there are new ones
        f = np.empty((min(self.block, table.y.shape[1] - begin), len(table.y)), table.f.dtype)
        y = np.empty_like(f)
        f[: first - begin] = table.f[:, begin:first].T
        y[: first - begin] = table.y[:, begin:first].T
        return f, y

    def _add_history(self, f: Array, past: Array, m: int) -> None:
        """Add the contribution of the values of this block to ``past``."""
        if self._shared:
            past += self._past[:, self.block - m :].dot(f[:m])
        else:
            past += np.einsum("kmr,mr->kr", self._past[:, self.block - m :], f[:m])

    def _explicit(self, begin: int, first: int, stop: int, sums: Array, y: Array, f: Array) -> Iterator[int]:
        """Predict, and correct if the scheme does; yields the number of known points after each step.

        ``sums`` begins at ``first``, ``y`` and ``f`` begin at ``begin``.

        The right-hand side receives arrays that nothing else reads, so it may store or change them. Its value is used
        before the next call, so it may return the same array each time.
        """
        shape, dtype = self.tableau.problem.shape, self.tableau.problem.dtype
        fun, read, evaluations = self.fun.bare, self.fun.read, 0
        corrections = self.scheme.corrections if self.scheme.kind == "corrected" else 0
        weight = self._now[-1] if self._shared else self._now[-1].reshape(shape)
        shaped = sums.reshape(len(sums), -1, *shape)
        points, values = y.reshape(-1, *shape), f.reshape(-1, *shape)
        value: Any = None
        try:
            for n, t in zip(range(first, stop), self._times(first, stop), strict=True):
                m, k = n - begin, n - first
                if m:
                    self._add_history(f, sums[k], m)
                point = shaped[k, 0]
                for turn in range(corrections + 1):
                    if turn:
                        point = weight * value
                        point += shaped[k, 1]
                    if turn == corrections:
                        points[m] = point
                    evaluations += 1
                    value = fun(t, point)
                    if type(value) is not np.ndarray or value.shape != shape or value.dtype != dtype:
                        value = read(value)
                values[m] = value
                yield n + 1
        finally:
            self.fun.count += evaluations

    def _implicit(self, begin: int, first: int, stop: int, sums: Array, y: Array, f: Array) -> Iterator[int]:
        """Solve the equation of each step; stops early if there is no solution."""
        assert self.newton is not None
        before = y[first - begin - 1] if first > begin else self.tableau.y[:, first - 1]
        for n, t in zip(range(first, stop), self._times(first, stop), strict=True):
            m, k = n - begin, n - first
            if m:
                self._add_history(f, sums[k], m)
            guess = extrapolate(y[m - 1], y[m - 2], y[m - 3]) if m > 3 else None
            found = self.newton.solve(t, sums[k, 0], self._now[0], before, guess)
            if found is None:
                return
            y[m], f[m] = found
            before = y[m]
            yield n + 1

    def _times(self, first: int, stop: int) -> list[float]:
        times: list[float] = (self.tableau.grid.t0 + self.tableau.grid.elapsed(first, stop)).tolist()
        return times
