"""Blocks of steps: in NumPy, compiled around a Python right-hand side, or fully compiled, as it pays off."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from hpfracc._config import get_settings
from hpfracc.errors import InvalidInputError
from hpfracc.history.blocks import History
from hpfracc.solvers.ode import compiled
from hpfracc.solvers.ode.compilation import CompileSwitch, compile_problem, kernel_price, solve_preference
from hpfracc.solvers.ode.compiled.on_cuda.choice import GPUOffer, MovedError
from hpfracc.solvers.ode.fixed.grid import row_orders
from hpfracc.solvers.ode.fixed.scheme import Tableau
from hpfracc.solvers.ode.problem import RightHandSide, make_newton
from hpfracc.solvers.stepping.newton import Newton, extrapolate, step_part
from hpfracc.solvers.stepping.options import Options

Array = np.ndarray[Any, Any]

#: Seconds of a NumPy step without its right-hand side (benchmarks/ode.py).
_NUMPY_STEP = 6e-6
#: Maximum number of components of compiled implicit steps; larger systems use LAPACK.
_MAX_COMPONENTS = 64
#: Maximum number of steps that failed compiled and succeeded in Python. Each costs as much as hundreds of compiled
#: ones, so the rest then stays in Python.
_MAX_REPAIRS = 3


class NumpyStepper:
    """Steps through a block, all rows at once. Time runs along the first axis, so that a step is contiguous.

    Parameters
    ----------
    tableau : Tableau
        The arrays to fill.
    block : int
        Length of the longest block.
    fun : RightHandSide
        The right-hand side; implicit methods evaluate it through ``newton``.
    newton : Newton or None
        Newton's method, for an implicit one.
    """

    def __init__(self, tableau: Tableau, block: int, fun: RightHandSide, newton: Newton | None) -> None:
        self.tableau, self.block, self.fun, self.newton = tableau, block, fun, newton
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
        steps = self._implicit if self.newton is not None else self._explicit
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
        """Predict, and correct if the method does; yields the number of known points after each step.

        ``sums`` begins at ``first``, ``y`` and ``f`` begin at ``begin``.

        The right-hand side receives arrays that nothing else reads, so it may store or change them. Its value is used
        before the next call, so it may return the same array each time.
        """
        shape, dtype = self.tableau.problem.shape, self.tableau.problem.dtype
        fun, read, evaluations = self.fun.bare, self.fun.read, 0
        corrections = self.tableau.rule.corrections
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


class SwitchingStepper(CompileSwitch):
    """Computes blocks, and switches to compiled steps, or leaves the rest to a GPU, as soon as that pays off."""

    def __init__(
        self, tableau: Tableau, block: int, options: Options, fun: RightHandSide, offer: GPUOffer | None
    ) -> None:
        problem, implicit = tableau.problem, tableau.rule.implicit
        super().__init__(problem, options)
        self._kernel = kernel_price("implicit" if implicit else "corrected", np.dtype(problem.dtype))
        self.tableau, self.block, self.fun = tableau, block, fun
        engine = solve_preference(options) is None
        self.history = History(tableau.weights, tableau.which, tableau.f, tableau.sums, block, engine=engine)
        self.newton: Newton | None = None
        if implicit:
            part = step_part(tableau.grid.steps, float(row_orders(problem).max()))
            self.newton = make_newton(problem, options, fun, part)
        # A batch is solved as a whole, and its Jacobian is block-diagonal.
        self._fits = not implicit or (len(problem.shape) == 1 and problem.shape[0] <= _MAX_COMPONENTS)
        if not self._fits and (self._backend == "numba" or options.compile is True):
            asked = "compile=True" if options.compile is True else "backend='numba'"
            limit = f"y of shape (d,) with d up to {_MAX_COMPONENTS}, and y has shape {problem.shape}"
            raise InvalidInputError(f"{asked}: an implicit method compiles for {limit}; omit it")
        if not self._fits:
            self._price = None
        self._offer = offer if self._backend == "auto" else None
        #: Seconds of a step in the latest block, and whether that was compiled.
        self._rate, self._was_compiled = 0.0, False
        self._repairs = 0
        self._stepper: Any = None

    @property
    def compiled(self) -> bool:
        """Whether the right-hand side runs compiled."""
        return getattr(self._stepper, "functions", None) is not None

    def run(self, begin: int, first: int, stop: int, last: int) -> int:
        """Compute one block of a solve that ends at point ``last``; raises :class:`MovedError` if a GPU solved it."""
        self._consider_gpu(last - first)
        if begin == first and begin:
            self.history.complete(begin)
        self._choose(last - first)
        if self.compiled and not self._stepper.unchanged():
            self._return_to_python(last - first, "a captured value changed during the solve")
        started = time.perf_counter()
        reached: int = self._stepper.run(begin, first, stop)
        if self.compiled:
            reached = self._repaired(begin, reached, stop, last)
            # The first block includes the compilation of the steps.
            self._rate = (time.perf_counter() - started) / (stop - first) if self._was_compiled else 0.0
            self._was_compiled = True
            return reached
        seconds = time.perf_counter() - started
        self._rate = seconds / max(1, reached - first)
        for price in (self._price, getattr(self._offer, "price", None)):
            if price is not None:
                price.credit(seconds)
        return reached

    def _consider_gpu(self, left: int) -> None:
        """Leave the problem to a GPU if that is faster than the remaining steps."""
        ahead = self._rate * left
        if self._offer is None or not self._offer.pays(ahead):
            return
        found = self._offer.solve(ahead, self.notes)
        if found is not None:
            found.nfev += self.fun.count
            raise MovedError(found)

    def _repaired(self, begin: int, reached: int, stop: int, last: int) -> int:
        """Repeat a step in Python if the compiled function is not finite, because Python may raise an error there."""
        while reached < stop and self.compiled:
            found = self._in_numpy().run(begin, reached, reached + 1)
            if found == reached or not np.isfinite(self.tableau.f[:, reached]).all():
                return found
            self._repairs += 1
            reached = found
            if self._repairs == _MAX_REPAIRS:
                why = f"compiled, it failed at {_MAX_REPAIRS} steps that succeeded in Python"
                self._return_to_python(last - reached, why)
            if reached < stop:
                reached = self._stepper.run(begin, reached, stop)
        return reached

    def _return_to_python(self, left: int, why: str) -> None:
        self.notes.append(f"the right-hand side returned to Python: {why}")
        self._stepper = self._uncompiled(left)

    def _choose(self, left: int) -> None:
        """Compile the right-hand side if requested or if that pays off, and select how steps are computed."""
        if self._stepper is None and self.options.compile is True:
            self._switch(must=True)
        elif (
            self._price is not None
            and not self._tried
            and (self._price.pays(self._rate * left) or (self._backend == "numba" and self._rate))
        ):
            self._switch(must=False)
        if self._stepper is None:
            self._stepper = self._uncompiled(left)

    def _switch(self, *, must: bool) -> None:
        """Switch to a compiled right-hand side, or record why not."""
        table, shape = self.tableau, self.tableau.problem.shape
        states = [(n, np.ascontiguousarray(table.y[:, n]).reshape(shape)) for n in sorted({0, table.known - 1})]
        points = [(table.grid.time(n), y) for n, y in states if np.isfinite(y).all()]
        self._tried, implicit = True, self.newton is not None
        found, self.compile_seconds = compile_problem(table.problem, points, self.notes, must=must, jacobian=implicit)
        if found is not None:
            self._stepper = self._make_compiled(found)

    def _in_numpy(self) -> NumpyStepper:
        return NumpyStepper(self.tableau, self.block, self.fun, self.newton)

    def _uncompiled(self, left: int) -> Any:
        """Steps around a function in Python, compiled if requested or if that pays off."""
        few = self.tableau.y.shape[0] <= _MAX_COMPONENTS  # larger states are left to NumPy's loops
        may = self._backend == "auto" and few and self._fits and not get_settings().deterministic
        may = may and self._kernel.pays(left * _NUMPY_STEP)
        return self._make_compiled(None) if may or self._backend == "numba" else self._in_numpy()

    def _make_compiled(self, functions: Any) -> Any:
        steps: Any = compiled.load("stepper")
        made = steps.CompiledStepper(self.tableau, self.block, self.fun, self.newton, functions)
        made.run = self._kernel.time_first(made.run, self.notes)
        return made
