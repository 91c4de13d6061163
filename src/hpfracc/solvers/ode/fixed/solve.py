"""One solve with a fixed step, from the first block to the result."""

from __future__ import annotations

import abc
import dataclasses
import time
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from hpfracc._reading import choice
from hpfracc._xp import NUMPY, Namespace
from hpfracc.history.blocks import BLOCK, DIRECT_BELOW
from hpfracc.solvers.ode import compiled
from hpfracc.solvers.ode.compiled import on_cuda
from hpfracc.solvers.ode.compiled.on_cuda.choice import GPUOffer, MovedError, may_move
from hpfracc.solvers.ode.fixed.dense import DelayedStates, without_delays
from hpfracc.solvers.ode.fixed.error_estimate import estimate_errors
from hpfracc.solvers.ode.fixed.grid import make_grid, order_groups, row_orders
from hpfracc.solvers.ode.fixed.scheme import Evaluate, Tableau, evaluate_first, make_tableau
from hpfracc.solvers.ode.fixed.stepping import SwitchingStepper
from hpfracc.solvers.ode.fixed.walk import FixedWalk, Guard
from hpfracc.solvers.ode.method import Method
from hpfracc.solvers.ode.problem import Problem, RightHandSide, starts_infinite
from hpfracc.solvers.ode.result import FODEResult
from hpfracc.solvers.ode.stiffness import GROWTH, StiffnessGuard, unstable_growth
from hpfracc.solvers.stepping.options import Options

Array = np.ndarray[Any, Any]

#: Estimated errors above this fraction of a component's maximum are reported in the message.
DOUBTFUL = 0.1

#: Number of first steps that may skip a boundary layer.
_FIRST_STEPS = 8


@dataclass(frozen=True, slots=True)
class StepMethod(Method):
    r"""Equal steps by sums over the past, written once for arrays of every library.

    .. math:: y_n = T(t_n) + h^\alpha \Big[ c_n f_0 + \sum_{j=0}^{n} w_{n-j} f_j \Big]

    A subclass gives the weights; the rest follows. It is explicit if :math:`w_0 = 0`; ``implicit`` if the equation is
    solved for :math:`y_n`; with ``corrections`` m, a first sequence predicts :math:`y_n`, and a second one, with
    :math:`f(t_n, y_n)` from the state before, corrects it m times.

    Parameters
    ----------
    adjoint : {"auto", "recomputed", "stored", "direct"}
        How gradients of tensors and JAX arrays are computed; see :class:`PECE`.
    """

    adjoint: str = field(default="auto", kw_only=True)

    libraries: ClassVar[frozenset[str]] = frozenset({"numpy", "torch", "jax"})
    takes: ClassVar[frozenset[str]] = frozenset(
        {"delays", "riemann_liouville", "several orders", "order 1", "orders above 1", "compiled"}
    )
    #: Whether the right-hand side at t0 has no weight and is not evaluated.
    starts_blind: ClassVar[bool] = False

    def __post_init__(self) -> None:
        choice("adjoint", self.adjoint, ("auto", "recomputed", "stored", "direct"))

    @property
    def corrections(self) -> int:
        """Number of corrector iterations; none by default."""
        return 0

    @abc.abstractmethod
    def weights(self, xp: Namespace, alpha: Any, n: int) -> tuple[tuple[Any, ...], Any]:
        """Weights for step 1 of the values 0 .. n-1 steps back, and the additional weights ``c`` of the first value.

        In the library ``xp`` of the order, each of shape (n,) + alpha.shape: one sequence, or two with ``corrections``.
        The additional weights belong to the last; None if there are none.
        """

    def refuses(self, problem: Problem, options: Options) -> str | None:
        """From what it takes; other adjoints than ``"auto"`` are for PyTorch and JAX."""
        if problem.library == "numpy" and self.adjoint != "auto":
            return f"adjoint={self.adjoint!r} is for PyTorch and JAX, and y0 is of NumPy; leave it out"
        return Method.refuses(self, problem, options)

    def solve(
        self,
        problem: Problem,
        options: Options,
        *,
        guard: Guard | None = None,
        reason: str = "asked for",
    ) -> FODEResult:
        """One history sum for each sequence and step; implicit equations by Newton's method."""
        if problem.library == "numpy":
            return solve_fixed(problem, options, self, reason, guard=guard)
        if self.implicit:
            from hpfracc.solvers.ode.tensors.solve import solve_tensors

            return solve_tensors(problem, options, self, reason)
        from hpfracc.solvers.ode.tensors.stability import solve_explicit

        return solve_explicit(problem, options, self, reason, guard)

    def start(self, table: Tableau, evaluate: Evaluate, options: Options) -> None:
        """For NumPy: fill in the first points. Here ``f_0``, with its additional weights."""
        if self.starts_blind:
            return
        evaluate_first(table, evaluate)
        for alpha, mine in order_groups(table.problem):
            first = self.weights(NUMPY, alpha, table.grid.count)[1]
            if first is not None:
                table.sums[-1, mine] += table.grid.step**alpha * table.f[mine, :1] * first


def solve_fixed(
    problem: Problem, options: Options, rule: StepMethod, reason: str, *, guard: Guard | None = None
) -> FODEResult:
    """Solve ``problem`` by ``rule`` with the step of ``options``.

    ``guard(t, y)`` is called from time to time, and may raise ``StiffError`` to end the solve.
    """
    if on_cuda.is_asked(options):
        from hpfracc.solvers.ode.compiled.on_cuda.device import load_cuda

        cuda = load_cuda()
        compiled.load("on_cuda.solve")
        from hpfracc.solvers.ode.compiled.on_cuda.solve import solve_members

        return solve_members(cuda, problem, options, rule, reason)
    started = time.perf_counter()
    assert options.step is not None
    grid = make_grid(problem.t0, problem.t1, options.step, options.max_steps)
    delayed: DelayedStates | None = None
    if problem.delays:
        problem, delayed = without_delays(problem, options, rule.name)
        options = dataclasses.replace(options, compile=False, backend="numpy")
    table = make_tableau(problem, grid, rule)
    if delayed is not None:
        table.stepwise, delayed.table = True, table
    history = "fft" if grid.count - 1 > DIRECT_BELOW else "direct"
    block = BLOCK if history == "fft" else grid.count
    movable = grid.steps <= options.max_steps and may_move(problem, options, rule.name)
    offer = GPUOffer(table, options, reason, guard) if movable else None
    stepper = SwitchingStepper(table, block, options, RightHandSide(problem), offer)
    try:
        result = FixedWalk(table, options, stepper, block, guard).result(rule.name, reason, history, started)
    except MovedError as moved:
        moved.result.stats["seconds"] = time.perf_counter() - started
        return moved.result
    if result.success:
        _check_growth(result, table)
    if result.success and options.estimate is not False and not starts_infinite(problem):
        _judge(result, table, options, delayed)
    return result


def _check_growth(result: FODEResult, table: Tableau) -> None:
    r"""Fail if the solution has grown where the equation does not let it: the steps are not stable.

    Up to order 1, :math:`\tfrac12 D^\alpha |y|^2 \le \mathrm{Re}(\bar y f)` (A. Alikhanov, Differ. Equ. 46 (2010)
    660-666), so that a component cannot reach a new maximum of its magnitude where that product is negative. In general
    the eigenvalues of the Jacobian lie outside of the region of stability.
    """
    problem, y, f = table.problem, table.y[:, : table.known], table.f[:, : table.known]
    if np.abs(y).max() <= GROWTH * np.abs(y[:, :2]).max():  # the usual case; false if a value is not finite
        return
    sizes = np.abs(np.where(np.isfinite(y), y, 0.0))
    highest = (sizes > GROWTH * sizes[:, :2].max()) & (sizes == np.maximum.accumulate(sizes, axis=1))
    highest &= row_orders(problem)[:, None] <= 1.0
    with np.errstate(over="ignore", invalid="ignore"):
        turned = (highest & (np.real(np.conj(y) * f) < 0.0)).sum(axis=1)
    count = highest.sum(axis=1)
    many = bool(np.any((count > 2) & (turned > 0.5 * count)))
    guard = StiffnessGuard(problem, table.grid.step, table.rule)

    def number(n: int) -> float:
        return guard.number(table.grid.time(n), np.array(y[:, n]).reshape(problem.shape))

    message = unstable_growth(sizes.max(axis=0), table.grid.time, number, table.rule.name, turned=many)
    result.nfev += guard.evaluations
    if message is not None:
        result.success, result.message = False, message


def _judge(result: FODEResult, table: Tableau, options: Options, delayed: DelayedStates | None) -> None:
    """Estimate the error, and report where the solution is inaccurate."""
    result.message += _find_jump(table)
    if options.estimate == "auto" and result.decision is not None and result.decision.compiled:
        result.message += " No error estimate was computed for compiled steps; estimate=True requests one."
        return
    fun, started = RightHandSide(table.problem), time.perf_counter()
    found = estimate_errors(table, fun, delayed)
    result.stats |= {"estimate_evaluations": fun.count, "estimate_seconds": time.perf_counter() - started}
    if found is None:
        result.message += " No error estimate could be computed."
        return
    times, errors = found
    largest, sizes = errors.max(axis=1), np.abs(table.y[:, : table.known]).max(axis=1)
    result.error_estimate = float(largest.max())
    result.stats["component_errors"] = largest.reshape(table.problem.shape)
    shares = errors / np.maximum(sizes, 1e-300)[:, None]
    if np.any(largest > DOUBTFUL * sizes):
        row = int(shares.max(axis=1).argmax())
        when = times[shares[row] > DOUBTFUL]
        result.message += (
            f" The solution cannot be trusted: the error of component {_name(row, table)} may be {largest[row]:.2g}, "
            f"and its largest value is {sizes[row]:.2g}; this was found from t = {when[0]:g} to t = {when[-1]:g}. Take "
            "a smaller step, a graded mesh (method='l1' or 'l2_1sigma'), or no step."
        )


def _find_jump(table: Tableau) -> str:
    """Message if a component crosses half of its range within one step, except for the first few.

    A step over the jump of a relaxation oscillator has no large defect, so the error estimate misses it.
    """
    y = table.y[:, _FIRST_STEPS : table.known]
    if y.shape[1] < 2 * _FIRST_STEPS:
        return ""
    changes = np.abs(np.diff(y, axis=1))
    ranges = np.maximum(0.5 * np.abs(y - y[:, :1]).max(axis=1), DOUBTFUL * np.abs(y).max(axis=1))
    crossed = changes.max(axis=1) > ranges
    if not crossed.any():
        return ""
    row = int(np.argmax(crossed))
    n = _FIRST_STEPS + 1 + int(np.argmax(changes[row]))
    return (
        f" Component {_name(row, table)} crosses more than half of its range within the step to "
        f"t = {table.grid.time(n):g}, which does not resolve that: compare with a smaller step, or with none."
    )


def _name(row: int, table: Tableau) -> str:
    """The index of a flat component as a user writes it."""
    index = tuple(int(each) for each in np.unravel_index(row, table.problem.shape))
    return str(index[0] if len(index) == 1 else index)
