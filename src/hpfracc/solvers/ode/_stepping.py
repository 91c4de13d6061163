"""Steps within one block, in NumPy: for a right-hand side that stays in Python, and for batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hpfracc.solvers.ode._newton import Newton
from hpfracc.solvers.ode._scheme import Scheme, Tableau

__all__ = ["NumpyStepper"]

Array = np.ndarray[Any, Any]


class NumpyStepper:
    """Walks through a block; all rows at once, time along the first axis so that a step is contiguous.

    Parameters
    ----------
    tableau : Tableau
        What is filled in.
    scheme : Scheme
        How.
    block : int
        The longest block.
    evaluate : callable
        ``evaluate(t, y)`` for y of the problem's shape, checked.
    newton : Newton or None
        For an implicit scheme.
    """

    def __init__(
        self,
        tableau: Tableau,
        scheme: Scheme,
        block: int,
        evaluate: Callable[[float, Array], Array],
        newton: Newton | None,
    ) -> None:
        self.tableau = tableau
        self.scheme = scheme
        self.block = block
        self.evaluate = evaluate
        self.newton = newton
        weights = tableau.weights if tableau.which is None else tableau.weights[:, tableau.which]
        #: ``(K, block, rows or 1)``, newest last: the slice for m past values is one piece of memory.
        near = np.zeros((*weights.shape[:2], block + 1))
        near[:, :, : min(block + 1, weights.shape[2])] = weights[:, :, : block + 1]
        self._shared = tableau.which is None
        reverse = near[:, :, :0:-1]
        self._past = np.ascontiguousarray(reverse[:, 0] if self._shared else reverse.transpose(0, 2, 1))
        self._now = weights[:, 0, 0] if self._shared else weights[:, :, 0]
        #: What the newest value weighs in an implicit step.
        self._newest: Any = float(self._now[0]) if self._shared else self._now[0]

    def run(self, begin: int, first: int, stop: int) -> int:
        """Steps ``first .. stop-1`` of the block that begins at ``begin``; the number of points then known."""
        table = self.tableau
        shape, rows = table.problem.shape, len(table.y)
        f = np.zeros((stop - begin, rows), table.f.dtype)
        f[: first - begin] = table.f[:, begin:first].T
        y = np.empty_like(f)
        sums = np.ascontiguousarray(table.sums[:, :, begin:stop].transpose(2, 0, 1))
        times = table.grid.t0 + table.grid.elapsed(begin, stop)
        step = {"explicit": self._explicit, "corrected": self._corrected, "implicit": self._implicit}[self.scheme.kind]
        reached = first
        y[: first - begin] = table.y[:, begin:first].T
        try:
            for n in range(first, stop):
                m = n - begin
                past = sums[m]
                if m:
                    past += self._sum(f, m)
                before = y[m - 1] if m else table.y[:, n - 1]
                if not step(float(times[m]), past, before, y, f, m, shape):
                    break
                reached = n + 1
        finally:
            table.f[:, first:reached] = f[first - begin : reached - begin].T
            table.y[:, first:reached] = y[first - begin : reached - begin].T
            table.known = reached
        return reached

    def _sum(self, f: Array, m: int) -> Any:
        past = self._past[:, self.block - m :]
        if self._shared:
            return past @ f[:m]
        return np.einsum("kmr,mr->kr", past, f[:m])

    def _explicit(
        self, t: float, past: Array, before: Array, y: Array, f: Array, m: int, shape: tuple[int, ...]
    ) -> bool:
        y[m] = past[0]
        f[m] = self.evaluate(t, past[0].reshape(shape)).reshape(-1)
        return True

    def _corrected(
        self, t: float, past: Array, before: Array, y: Array, f: Array, m: int, shape: tuple[int, ...]
    ) -> bool:
        weight, corrected = self._now[1], past[1]
        value = self.evaluate(t, past[0].reshape(shape)).reshape(-1)
        for _ in range(self.scheme.corrections):
            point = corrected + weight * value
            value = self.evaluate(t, point.reshape(shape)).reshape(-1)
        y[m] = point
        f[m] = value
        return True

    def _implicit(
        self, t: float, past: Array, before: Array, y: Array, f: Array, m: int, shape: tuple[int, ...]
    ) -> bool:
        assert self.newton is not None
        found = self.newton.solve(t, past[0], self._newest, before)
        if found is None:
            return False
        y[m], f[m] = found
        return True
