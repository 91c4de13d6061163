"""Selects how blocks are computed: in NumPy, compiled around a Python right-hand side, or fully compiled."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from hpfracc.errors import InvalidInputError
from hpfracc.history.blocks import History
from hpfracc.solvers.ode import compilation, compiled
from hpfracc.solvers.ode.compilation import compile_problem, read_backend, solve_preference
from hpfracc.solvers.ode.compiled.on_cuda.choice import GPUOffer, MovedError
from hpfracc.solvers.ode.fixed.grid import row_orders
from hpfracc.solvers.ode.fixed.scheme import Scheme, Tableau
from hpfracc.solvers.ode.fixed.stepping import NumpyStepper
from hpfracc.solvers.ode.newton import Newton, make_newton, step_part
from hpfracc.solvers.ode.options import Options
from hpfracc.solvers.ode.problem import RightHandSide

if TYPE_CHECKING:
    from hpfracc.solvers.ode.compiled.stepper import CompiledStepper

Array = np.ndarray[Any, Any]

__all__ = ["SwitchingStepper"]

#: Seconds of a NumPy step without its right-hand side (benchmarks/ode.py).
_NUMPY_STEP = 6e-6
#: Maximum number of components of compiled implicit steps; larger systems use LAPACK.
_MAX_COMPONENTS = 64
#: Maximum number of steps that failed compiled and succeeded in Python. Each costs as much as hundreds of compiled
#: ones, so the rest then stays in Python.
_MAX_REPAIRS = 3


class SwitchingStepper:
    """Computes blocks, and switches to compiled steps, or leaves the rest to a GPU, as soon as that pays off."""

    def __init__(
        self,
        tableau: Tableau,
        scheme: Scheme,
        block: int,
        options: Options,
        fun: RightHandSide,
        offer: GPUOffer | None = None,
    ) -> None:
        self.tableau = tableau
        self.scheme = scheme
        self.block = block
        self.options = options
        self.fun = fun
        self.notes: list[str] = []
        engine = solve_preference(options) is None
        self.history = History(tableau.weights, tableau.which, tableau.f, tableau.sums, block, engine=engine)
        self.compile_seconds = 0.0
        problem = tableau.problem
        implicit = scheme.kind == "implicit"
        self.newton: Newton | None = None
        if implicit:
            part = step_part(tableau.grid.steps, float(row_orders(problem).max()))
            self.newton = make_newton(problem, options, fun, part)
        self._backend = read_backend(options)
        # A batch is solved as a whole, and its Jacobian is block-diagonal.
        self._fits = not implicit or (len(problem.shape) == 1 and problem.shape[0] <= _MAX_COMPONENTS)
        if not self._fits and (self._backend == "numba" or options.compile is True):
            asked = "compile=True" if options.compile is True else "backend='numba'"
            raise InvalidInputError(
                f"{asked}: an implicit method compiles for y of shape (d,) with d up to {_MAX_COMPONENTS}, and y has "
                f"shape {problem.shape}; omit it"
            )
        may = options.compile == "auto" and self._backend != "numpy" and self._fits
        self._price = compilation.compile_price(problem.fun) if may else None
        self._offer = offer if self._backend == "auto" else None
        #: Seconds of a step in the latest block, and whether that was compiled.
        self._rate, self._was_compiled = 0.0, False
        self._kernel = compilation.kernel_price(scheme.kind, tableau.y.dtype)
        self._lesson: compilation.KernelLesson | None = None
        self._tried = False
        self._repairs = 0
        self._counted = 0
        self._spent = 0.0
        self._done = 0
        self._stepper: Any = None

    @property
    def compiled(self) -> bool:
        """Whether the right-hand side runs compiled."""
        return bool(getattr(self._stepper, "compiled", False))

    @property
    def evaluations(self) -> int:
        """Evaluations of the right-hand side, in Python and compiled."""
        return self.fun.count + self._counted + getattr(self._stepper, "evaluations", 0)

    def start(self) -> None:
        """Compute the first points of the scheme."""
        self.scheme.starts(self.tableau, self.fun)

    def run(self, begin: int, first: int, stop: int, last: int) -> int:
        """Compute one block of a solve that ends at point ``last``; raises :class:`MovedError` if a GPU solved it."""
        self._consider_gpu(last - first)
        if begin == first and begin:
            self.history.complete(begin)
        self._choose(last - first)
        stepper = self._stepper
        if self.compiled and not stepper.unchanged():
            self._return_to_python(last - first, "a captured value changed during the solve")
            stepper = self._stepper
        started = time.perf_counter()
        reached: int = stepper.run(begin, first, stop)
        if self._lesson is not None:
            self._lesson.learn()
        if self.compiled:
            reached = self._repaired(begin, reached, stop, last)
            # The first block includes the compilation of the steps.
            self._rate = (time.perf_counter() - started) / (stop - first) if self._was_compiled else 0.0
            self._was_compiled = True
            return reached
        seconds = time.perf_counter() - started
        self._rate = seconds / max(1, reached - first)
        if self._offer is not None:
            self._offer.price.credit(seconds)
        self._spent += seconds
        self._done += reached - first
        if self._price is not None:
            self._price.credit(seconds)
        return reached

    def _consider_gpu(self, left: int) -> None:
        """Leave the problem to a GPU if that is faster than the remaining steps."""
        ahead = self._rate * left
        if self._offer is None or not self._offer.pays(ahead):
            return
        found = self._offer.solve(ahead, self.notes)
        if found is not None:
            found.nfev += self.evaluations
            raise MovedError(found)

    def _repaired(self, begin: int, reached: int, stop: int, last: int) -> int:
        """Repeat a step in Python if the compiled function is not finite, because Python may raise an error there."""
        table = self.tableau
        while reached < stop:
            found = NumpyStepper(table, self.scheme, self.block, self.fun, self.newton).run(begin, reached, reached + 1)
            if found == reached or not np.isfinite(table.f[:, reached]).all():
                return found
            self._repairs += 1
            reached = found
            if self._repairs == _MAX_REPAIRS:
                self._return_to_python(
                    last - reached, f"compiled, it failed at {_MAX_REPAIRS} steps that succeeded in Python"
                )
            if reached < stop:
                reached = self._stepper.run(begin, reached, stop)
            if not self.compiled:
                return reached
        return reached

    def _return_to_python(self, left: int, why: str) -> None:
        self.notes.append(f"the right-hand side returned to Python: {why}")
        counted = self._stepper.evaluations
        self._stepper = self._uncompiled(left)
        self._counted += counted

    def _choose(self, left: int) -> None:
        wish = self.options.compile
        if self._stepper is None and wish is True:
            self._compile(must=True)
        elif self._price is not None and not self._tried:
            rate = self._spent / self._done if self._done else 0.0
            if self._price.pays(rate * left) or (self._backend == "numba" and self._done):
                self._compile(must=False)
        if self._stepper is None:
            self._stepper = self._uncompiled(left)

    def _uncompiled(self, left: int) -> Any:
        """Steps around a function in Python, compiled if requested or if that pays off."""
        few = self.tableau.y.shape[0] <= _MAX_COMPONENTS  # larger states are left to NumPy's loops
        if self._backend == "numba" or (
            self._backend != "numpy"
            and few
            and self._fits
            and compilation.kernel_pays(self._kernel, left * _NUMPY_STEP)
        ):
            return self._make_compiled(self.fun, None)
        return NumpyStepper(self.tableau, self.scheme, self.block, self.fun, self.newton)

    def _make_compiled(self, fun: Any, jacobian: Any) -> CompiledStepper:
        compiled.load("stepper")
        from hpfracc.solvers.ode.compiled.stepper import CompiledStepper

        if self._lesson is None:
            self._lesson = compilation.KernelLesson(self._kernel)
        return CompiledStepper(self.tableau, self.scheme, self.block, fun, self.newton, jacobian)

    def _compile(self, *, must: bool) -> None:
        """Switch to a compiled right-hand side, or record why not."""
        self._tried = True
        implicit = self.newton is not None
        found, self.compile_seconds = compile_problem(
            self.tableau.problem, self._points(), self.notes, must=must, jacobian=implicit
        )
        if found is not None:
            self._counted += getattr(self._stepper, "evaluations", 0)
            self._stepper = self._make_compiled(found.fun, found.jac)

    def _points(self) -> list[tuple[float, Array]]:
        """The first and the newest point, if they are finite."""
        table, shape = self.tableau, self.tableau.problem.shape
        states = [(n, np.ascontiguousarray(table.y[:, n]).reshape(shape)) for n in sorted({0, table.known - 1})]
        return [(table.grid.time(n), y) for n, y in states if np.isfinite(y).all()]
