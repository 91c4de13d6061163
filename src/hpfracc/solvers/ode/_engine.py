"""Which stepping a solve uses: NumPy, compiled with the right-hand side in Python, or compiled altogether."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from hpfracc._config import current_backend, get_settings
from hpfracc.errors import BackendUnavailableError, InvalidInputError
from hpfracc.solvers.ode import _compile_policy as policy
from hpfracc.solvers.ode import compiled
from hpfracc.solvers.ode._compilation import try_to_compile
from hpfracc.solvers.ode._evaluation import RightHandSide
from hpfracc.solvers.ode._history import History
from hpfracc.solvers.ode._newton import Newton, make_newton
from hpfracc.solvers.ode._options import Options
from hpfracc.solvers.ode._scheme import Scheme, Tableau
from hpfracc.solvers.ode._stepping import NumpyStepper

if TYPE_CHECKING:
    from hpfracc.solvers.ode.compiled.functions import CompiledFunction

__all__ = ["Engine", "read_backend"]

#: Seconds a step of the NumPy stepping takes beyond its right-hand side (benchmarks/ode.py).
_NUMPY_STEP = 6e-6
#: Beyond so many components an implicit step is left to LAPACK.
_MOST_COMPONENTS = 64


class Stepper(Protocol):
    """Walks through a block."""

    def run(self, begin: int, first: int, stop: int) -> int:
        """Steps ``first .. stop-1`` of the block that begins at ``begin``; the number of points then known."""


def read_backend(options: Options) -> str:
    """``"auto"``, ``"numpy"`` or ``"numba"``: the argument, ``use_backend``, or the environment; others are refused."""
    settings = get_settings()
    wish, source = options.backend, "backend="
    if wish == "auto":
        wish, source = current_backend() or settings.force or "auto", "use_backend or HPFRACC_FORCE_*: "
    if wish not in ("auto", "numpy", "numba"):
        raise BackendUnavailableError(
            f"{source}{wish!r} cannot step a NumPy problem; use 'numpy' or 'numba', or give y0 as an array of {wish}"
        )
    if "numba" in settings.disabled:
        if wish == "numba" or options.compile is True:
            raise BackendUnavailableError("Numba is asked for, and HPFRACC_DISABLE_NUMBA forbids it; unset one of them")
        wish = "numpy"
    if wish == "numpy" and options.compile is True:
        raise InvalidInputError("compile=True needs Numba, and backend='numpy' forbids it; leave one of them out")
    return wish


class Engine:
    """Steps blocks, and changes to compiled stepping as soon as that pays."""

    def __init__(self, tableau: Tableau, scheme: Scheme, block: int, options: Options, fun: RightHandSide) -> None:
        self.tableau = tableau
        self.scheme = scheme
        self.block = block
        self.options = options
        self.fun = fun
        self.notes: list[str] = []
        self.history = History(tableau.weights, tableau.which, tableau.f, tableau.sums, block)
        self.compile_seconds = 0.0
        problem = tableau.problem
        implicit = scheme.kind == "implicit"
        self.newton: Newton | None = make_newton(problem, options, fun) if implicit else None
        self._backend = read_backend(options)
        # A batch is stepped as a whole, and its Jacobian is block-diagonal.
        self._fits = not implicit or (len(problem.shape) == 1 and problem.shape[0] <= _MOST_COMPONENTS)
        self._price = policy.compile_price(problem.fun)
        self._tried = False
        self._spent = 0.0
        self._done = 0
        self._stepper: Any = None

    @property
    def compiled(self) -> bool:
        """Whether the right-hand side runs compiled."""
        return bool(getattr(self._stepper, "compiled", False))

    @property
    def evaluations(self) -> int:
        """Of the right-hand side, in Python and compiled."""
        return self.fun.count + getattr(self._stepper, "evaluations", 0)

    def start(self) -> None:
        """The first points, as the scheme finds them."""
        self.scheme.starts(self.tableau, self.fun)

    def run(self, begin: int, first: int, stop: int, last: int) -> int:
        """One block of a solve that ends at point ``last``."""
        if begin == first and begin:
            self.history.complete(begin)
        self._choose(last - first)
        started = time.perf_counter()
        reached: int = self._stepper.run(begin, first, stop)
        if self.compiled:
            return self._mended(begin, first, stop, reached)
        seconds = time.perf_counter() - started
        self._spent += seconds
        self._done += reached - first
        if self._price is not None:
            self._price.rent(seconds)
        return reached

    def _mended(self, begin: int, first: int, stop: int, reached: int) -> int:
        """Steps that a compiled right-hand side spoiled are done again in Python: it is there that it may raise."""
        table = self.tableau
        while True:
            bad = table.finite_until(first, reached)
            if bad == stop:
                return stop
            table.known = bad
            again = NumpyStepper(table, self.scheme, self.block, self.fun, self.newton).run(begin, bad, bad + 1)
            if again in (bad, stop) or not np.isfinite(table.f[:, bad]).all():
                return again
            first = again
            reached = self._stepper.run(begin, first, stop)

    def _choose(self, left: int) -> None:
        wish = self.options.compile
        if self._stepper is None and wish is True:
            if not self._fits:
                raise InvalidInputError(
                    f"compile=True: an implicit method compiles for y of shape (d,) with d up to {_MOST_COMPONENTS}, "
                    f"and y has shape {self.tableau.problem.shape}; leave compile out"
                )
            compiled.require()
            self._compile(must=True)
        elif wish == "auto" and not self._tried and self._backend != "numpy" and self._fits and self._price is not None:
            rate = self._spent / self._done if self._done else 0.0
            if self._price.pays(rate * left) or (self._backend == "numba" and self._done):
                self._compile(must=False)
        if self._stepper is None:
            self._stepper = self._uncompiled(left)

    def _uncompiled(self, left: int) -> Any:
        asked = self._backend == "numba"
        price = policy.kernel_price(self.scheme.kind, self.tableau.y.dtype, asked=asked)
        wanted = asked or (price is not None and left * _NUMPY_STEP > price)
        few = self.tableau.y.shape[0] <= _MOST_COMPONENTS  # for more, NumPy's own loops do the work
        if self._backend != "numpy" and wanted and self._fits and few and price is not None:
            from hpfracc.solvers.ode.compiled.stepper import CompiledStepper

            policy.note_kernel(self.scheme.kind, self.tableau.y.dtype)
            return CompiledStepper(self.tableau, self.scheme, self.block, self.fun, self.newton)
        return NumpyStepper(self.tableau, self.scheme, self.block, self.fun, self.newton)

    def _compile(self, *, must: bool) -> None:
        """Change to a compiled right-hand side, or note why not."""
        from hpfracc.solvers.ode.compiled.functions import compile_function
        from hpfracc.solvers.ode.compiled.stepper import CompiledStepper

        self._tried = True
        problem = self.tableau.problem
        jacobian: CompiledFunction | None = None

        def make() -> CompiledFunction:
            nonlocal jacobian
            start = problem.t0, np.array(problem.y0)
            fun = compile_function(problem.fun, problem.args, *start, problem.shape)
            if self.newton is not None and problem.jac is not None:
                jacobian = compile_function(problem.jac, problem.args, *start, (*problem.shape, problem.shape[-1]))
            self._compare(fun)
            return fun

        fun, self.compile_seconds = try_to_compile(make, self.notes, must=must)
        if fun is None:
            return
        policy.note_kernel(self.scheme.kind, self.tableau.y.dtype)
        counted = getattr(self._stepper, "evaluations", 0)
        self._stepper = CompiledStepper(self.tableau, self.scheme, self.block, fun, self.newton, jacobian)
        self._stepper.evaluations = counted

    def _compare(self, fun: CompiledFunction) -> None:
        """The compiled function has to agree with the one that was given, at the start and at the newest point."""
        from hpfracc.solvers.ode.compiled.functions import compare

        table, problem = self.tableau, self.tableau.problem
        for n in {0, table.known - 1}:
            y = np.ascontiguousarray(table.y[:, n]).reshape(problem.shape)
            if np.isfinite(y).all():
                t = table.grid.time(n)
                compare(fun, self.fun(t, y.copy()), t, y)
