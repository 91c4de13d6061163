"""L1 and L2-1sigma on graded meshes, for subdiffusion."""

from __future__ import annotations

import abc
import copy
import dataclasses
import importlib
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, final

import numpy as np

from hpfracc import _reading
from hpfracc._optional import is_installed
from hpfracc.engine.selection.rent_or_buy import KernelPrice
from hpfracc.engine.selection.request import numba_wish, read_preference
from hpfracc.errors import BackendUnavailableError, InvalidInputError
from hpfracc.history.blocks import DirectHistory, steps_together
from hpfracc.history.interval_states import ExponentialHistory, count_exponentials
from hpfracc.history.intervals import IntervalWeights, order_value, orders_of_steps
from hpfracc.solvers.pde.changes import RESOLVED, behind_start
from hpfracc.solvers.pde.marching import MARCHING, can_march, can_scan, march, march_jax
from hpfracc.solvers.pde.method import EvolutionMethod, register_evolution_method
from hpfracc.solvers.pde.nonlinear import ReactionSolver
from hpfracc.solvers.pde.problem import EvolutionProblem, Feature, StepForm, in_blocks

Array = np.ndarray[Any, Any]

#: Number of steps from which a sum of exponentials is used; the break-even point lies between 400 and 1,000.
EXPONENTIALS_FROM = 700
#: Relative tolerance of the kernel.
KERNEL_RTOL = 1e-10
#: Estimated seconds for a step and for an unknown in a step without compilation (rough figures of one machine).
_SECONDS_A_STEP = 2.5e-5
_SECONDS_AN_UNKNOWN = 4e-8
#: The price of compiled updates of exponentials, as for :data:`~hpfracc.solvers.pde.marching.MARCHING`.
_UPDATES = KernelPrice(
    family="pde exponentials",
    item="pde exponentials",
    cold=1.5,
    cached=0.3,
    source=Path(__file__).parents[1] / "compiled" / "marching.py",
    function="_update",
)
#: The name of a solve in ``config(pin=..., never=...)``.
_OPERATION = "solve_fpde"
MEMORIES = ("auto", "direct", "exponentials")
REACTIONS = ("newton", "imex")


@dataclass(frozen=True, slots=True)
class DifferenceMethod(EvolutionMethod):
    """A difference formula on a mesh ``t_j = t0 + (t1 - t0) (j / steps)^r``, graded towards the start."""

    grading: float | None = None
    memory: str = "auto"
    reaction: str = "newton"
    stabilisation: float = 0.0

    meets_breaks: ClassVar[bool] = True
    meets_powers: ClassVar[bool] = True
    takes: ClassVar[frozenset[Feature]] = frozenset(Feature)
    #: Whether u is interpolated by a parabola on each step but the last; otherwise linearly.
    parabola: ClassVar[bool]

    def __post_init__(self) -> None:
        name = self.name
        _reading.choice(f"{name}: memory", self.memory, MEMORIES)
        _reading.choice(f"{name}: reaction", self.reaction, REACTIONS)
        _reading.number(f"{name}: stabilisation", self.stabilisation, least=0.0)
        if self.stabilisation and self.reaction != "imex":
            raise InvalidInputError(f"{name}: stabilisation={self.stabilisation!r} belongs to reaction='imex'")
        if self.grading is not None:
            _reading.number(f"{name}: grading", self.grading, least=1.0)

    @abc.abstractmethod
    def best_order(self, alpha: float) -> float:
        """The order of the formula where the solution is smooth."""

    def exponent(self, problem: EvolutionProblem) -> float:
        """The grading exponent r: as given, or that at which the start has the same order as the rest."""
        alpha = _leading_order(problem)
        return max(1.0, self.best_order(alpha) / alpha) if self.grading is None else self.grading

    def convergence(self, problem: EvolutionProblem) -> float:
        """The order on this mesh, limited by the start, ``r alpha``."""
        alpha = problem.alpha_value
        if math.isnan(alpha):
            return 1.0
        return min(self.best_order(alpha), max(0.3, self.exponent(problem) * _leading_order(problem)))

    @abc.abstractmethod
    def place(self, alpha: Any) -> Any:
        """The point within a step of length 1 at which the equation is imposed."""

    def mesh(self, problem: EvolutionProblem, steps: int) -> Array:
        """A mesh graded towards the start, and behind each jump of the data."""
        bounds = [problem.t0, *problem.breaks, problem.t1]
        pieces = len(bounds) - 1
        found = [np.array([problem.t0])]
        for number, (begin, end) in enumerate(itertools.pairwise(bounds)):
            count = (number + 1) * steps // pieces - number * steps // pieces
            part = np.arange(1, count + 1) / count
            # Steps stay above the spacing of floating-point times, at up to a million steps.
            least = min(1.0, RESOLVED * float(np.spacing(abs(begin))) / (end - begin))
            found.append(begin + (end - begin) * np.maximum(part ** self.exponent(problem), least * part))
            found[-1][-1] = end
        return np.concatenate(found)

    def history(self, problem: EvolutionProblem, steps: int) -> str:
        """Direct sums for few steps; exponentials for many, and for the scan of JAX over the steps."""
        if problem.varying is not None:  # whose rates serve all orders
            return "exponentials"
        if problem.integrals:  # whose kernels grow
            return "direct"
        if self.memory != "auto":
            return self.memory
        scans = can_scan(problem, StepForm(problem))
        return "direct" if steps < EXPONENTIALS_FROM and not scans else "exponentials"

    def compiled(self, problem: EvolutionProblem, steps: int) -> bool:
        """True for linear equations in eigenfunctions that are worth compiling."""
        return _wants_compiled(problem, steps) and can_march(problem, StepForm(problem))

    def forecast(self, problem: EvolutionProblem, steps: int) -> int:
        """The history or the exponentials, plus the arrays of a step or of a block of steps."""
        size = problem.itemsize * math.prod(problem.state_shape)
        together = steps_together(size, steps)
        marches, form = self.compiled(problem, steps), StepForm(problem)
        # A block exists as coefficients, as values, and as an intermediate array.
        block = 3 * together * size if form.modal else 0
        if self.history(problem, steps) == "direct":
            own = DirectHistory.forecast(steps, size, 12)
        else:
            orders = tuple((1.0, _plain(alpha)) for _, alpha in problem.orders)
            if problem.varying is not None:
                orders += ((1.0, problem.varying.least),)
            times = self.mesh(problem, steps) - problem.t0
            weights = IntervalWeights(orders, times, self.place(orders[0][1]), parabola=self.parabola)
            own = ExponentialHistory.forecast(count_exponentials(weights, KERNEL_RTOL), size)
            own += 2 * together * size if marches else 0
        own += 0 if problem.integrated is None else DirectHistory.forecast(steps, size, 12)
        return own + block + 8 * size + problem.space.step_bytes()

    def advance(self, problem: EvolutionProblem, mesh: Array) -> Iterator[Any]:
        """Solve one linear or nonlinear equation per step."""
        return _advance(self, problem, mesh)


def _wants_compiled(problem: EvolutionProblem, steps: int, price: KernelPrice = MARCHING) -> bool:
    """Whether the loop over this number of steps is compiled: on request, or if that pays off."""
    wish = _read_wish(problem)
    return price.pays(_predict(problem, steps)) if wish is None else wish


def _read_wish(problem: EvolutionProblem) -> bool | None:
    """Whether the arguments and settings ask for compilation or rule it out; None if they leave it open."""
    if problem.xp.library != "numpy" or problem.compile is False:
        return False
    runs_on = "u0 is of NumPy, and its steps run on 'numpy' and 'numba'"
    preference = read_preference(_OPERATION, problem.backend)
    wish = numba_wish(_OPERATION, preference, runs_on, compile=problem.compile)
    if wish == "numpy":
        return False
    if wish == "auto" and problem.compile is not True:
        return None
    if not is_installed("numba"):
        raise BackendUnavailableError(
            "compile=True or backend='numba' needs Numba, which is not installed; pip install hpfracc[numba]"
        )
    return True


def _predict(problem: EvolutionProblem, steps: int) -> float:
    """Seconds that compiling saves in this number of steps."""
    return steps * (_SECONDS_A_STEP + _SECONDS_AN_UNKNOWN * math.prod(problem.state_shape))


def _compiled_update(problem: EvolutionProblem, steps: int) -> Callable[..., Any] | None:
    """The compiled update of a sum of exponentials; None for the uncompiled one."""
    if not _wants_compiled(problem, steps, _UPDATES):
        if _read_wish(problem) is None:
            _UPDATES.credit(_predict(problem, steps))
        return None
    module = importlib.import_module("hpfracc.solvers.pde.compiled.marching")
    found: Callable[..., Any] = module.update
    return _UPDATES.time_first(found)


def _plain(alpha: Any) -> float:
    value = order_value(alpha)
    return 0.5 if math.isnan(value) else value


def _leading_order(problem: EvolutionProblem) -> float:
    """The largest order, which determines how the solution starts, bounded below for the grading."""
    return max(0.1, _plain(problem.alpha) if problem.start_power is None else problem.start_power)


def _advance(method: DifferenceMethod, problem: EvolutionProblem, mesh: Array) -> Iterator[Any]:
    r"""Steps of :math:`\sum_k A_{n,k} \Delta u_k = A u^* + F(t_n^*, u^*)`.

    With :math:`u^* = (1-\sigma) u_{n-1} + \sigma u_n`, the equation is solved for :math:`u^*`:
    :math:`(A_{n,n}/\sigma - A) u^* = A_{n,n}/\sigma\, u_{n-1} - h_n + F`.
    """
    form = StepForm(problem)
    steps = len(mesh) - 1
    breaks = np.flatnonzero(np.isin(mesh, problem.breaks)).tolist()
    place, each = method.place(problem.alpha), None
    if problem.varying is not None:
        at, shape = problem.varying.at, form.encode(problem.u0).shape
        # A number for each unknown, unless the order is one of time alone.
        spread = at if problem.varying.kind == "time" else lambda t: np.broadcast_to(at(t), shape).reshape(-1)
        each, place = orders_of_steps(spread, mesh, parabola=method.parabola)
    weights = IntervalWeights(
        problem.orders, mesh - mesh[0], place, parabola=method.parabola, xp=problem.xp, breaks=breaks, each=each
    )
    memory = method.history(problem, steps)
    if problem.singular is not None:
        past: DirectHistory | ExponentialHistory = DirectHistory(weights.rows, steps, np.zeros(1), problem.xp)
        if memory == "exponentials":
            past = ExponentialHistory(weights, np.zeros(1), KERNEL_RTOL)
        powers = problem.singular.on_mesh(mesh, past)
        problem = dataclasses.replace(problem, source=problem.singular.rest, added=powers)
        form = StepForm(problem)
    marches = can_march(problem, form)
    compiles = marches and _wants_compiled(problem, steps)
    if compiles or (can_scan(problem, form) and memory == "exponentials"):
        kept = None
        if memory == "exponentials":
            kept = ExponentialHistory(weights, form.encode(problem.u0), KERNEL_RTOL)
            problem.stats["exponentials"] = len(kept.rates)
        if compiles:
            problem.stats["compiled"] = True
            yield from march(problem, form, weights, mesh, kept)
        else:
            assert kept is not None
            yield from march_jax(problem, form, weights, mesh, kept)
        return
    if marches and _read_wish(problem) is None:
        MARCHING.credit(_predict(problem, steps))
    yield from in_blocks(form, _states(method, problem, form, weights, mesh), steps)


def _states(
    method: DifferenceMethod, problem: EvolutionProblem, form: StepForm, weights: IntervalWeights, mesh: Array
) -> Iterator[Any]:
    """The states after all steps, one by one."""
    xp, steps = problem.xp, len(mesh) - 1
    times, memory = weights.mesh, method.history(problem, steps)
    u = start = form.encode(problem.u0)
    past: DirectHistory | ExponentialHistory
    if memory == "direct":
        past = DirectHistory(weights.rows, steps, u, xp)
    else:
        past = ExponentialHistory(weights, u, KERNEL_RTOL, _compiled_update(problem, steps))
        problem.stats["exponentials"] = len(past.rates)
    outside = None if problem.integrated is None else _IntegratedData(problem, form, weights, float(mesh[0]))
    stepped = problem if outside is None else outside.step_problem
    react, integrals = stepped.reaction, problem.integrals
    solver = None if react is None else ReactionSolver(stepped)
    before: Any = None
    whole = weights.parabola
    for n in range(1, steps + 1):
        sigma = weights.sigma_of(n)
        own, history = past.begin(n)
        t = mesh[0] + weights.place(n)
        shift = own / sigma if whole else own
        rhs = shift * u if history is None else shift * u - history
        if form.forced:
            rhs = rhs + form.known(t)
        for coefficient, order in integrals:  # of u0, that of the increments is in the history
            rhs = rhs - coefficient * float(weights.place(n)) ** -order / math.gamma(1.0 - order) * start
        if outside is not None:
            rhs = rhs + outside.begin(n, t)
        if solver is None or react is None:
            star = form.solve(shift, rhs, u)
        else:
            guess = u
            if n > 1:  # linear extrapolation to the point within the step
                guess = u + sigma * float((times[n] - times[n - 1]) / (times[n - 1] - times[n - 2])) * (u - before)
            if method.reaction == "newton":
                star = solver.solve(t, shift, rhs, guess)
            else:
                # The reaction at the extrapolated state; twice in the first step, which has no earlier states.
                star, s = guess, method.stabilisation
                for _ in range(2 if n == 1 else 1):
                    star = form.solve(shift + s, rhs + react(t, star) + s * star, star)
            before = u
        change = (star - u) / sigma if whole else star - u
        u = u + change
        past.remember(change)
        if outside is not None:
            outside.end(float(mesh[n]), u)
        yield u


class _IntegratedData:
    r""":math:`I^\beta G` at the points of the steps, for source and reaction G that are interpolated as u is.

    Of order :math:`-\beta`, the weights of the derivative are those of an integral: with G' piecewise,
    :math:`I^\beta G = G(t_0)\,t^\beta/\Gamma(1+\beta) + \sum_k A_{n,k} \Delta G_k`. The newest increment is
    :math:`(G^* - G_{n-1})/\sigma` with the value at the point within the step, so that the reaction is implicit.
    """

    def __init__(self, problem: EvolutionProblem, form: StepForm, weights: IntervalWeights, t0: float) -> None:
        self.problem, self.form, self.sigma, self.t0 = problem, form, weights.sigma, t0
        own = copy.copy(weights)
        own.orders = [(1.0, -problem.integrated)]
        begin = behind_start(problem, t0 + float(weights.mesh[1]))
        self.start = self.newest = form.outside(begin, problem.u0)
        self.past = DirectHistory(own.rows, len(weights.steps), self.start, weights.xp)
        self.weight: Any = 0.0
        reaction, jacobian = problem.reaction, problem.jacobian
        #: The equation whose reaction has the weight of the newest increment.
        self.step_problem = dataclasses.replace(
            problem,
            reaction=None if reaction is None else lambda t, u: self.weight * reaction(t, u),
            jacobian=None if jacobian is None else lambda t, u: lambda v: self.weight * jacobian(t, u)(v),
        )

    def begin(self, n: int, t: float) -> Any:
        """The integral in step n at its time t, without the reaction there."""
        problem, (own, history) = self.problem, self.past.begin(n)
        self.weight, power = own / self.sigma, problem.integrated
        spread = (t - self.t0) ** power * problem.xp.rgamma(problem.xp.array(1.0 + power))
        total = spread * self.start + self.weight * (self.form.source(t) - self.newest)
        return total if history is None else total + history

    def end(self, t: float, u: Any) -> None:
        """Append the value at the end of the step."""
        value = self.form.outside(t, u)
        self.past.remember(value - self.newest)
        self.newest = value


@final
@register_evolution_method
@dataclass(frozen=True, slots=True)
class DiffusionL1(DifferenceMethod):
    r"""L1: u is linear on each step. Of order :math:`2 - \alpha` on its graded mesh, also for rough data.

    :math:`t_j = T (j/N)^r` with :math:`r = (2-\alpha)/\alpha` by default. On a uniform mesh (``grading=1``) the largest
    error is of order :math:`\alpha`, and the error at a fixed time of order 1. It damps stiff modes, unlike L2-1sigma.
    For orders up to 1 (where it is backward Euler), and for sums of derivatives.

    Parameters
    ----------
    grading : float, optional
        The exponent r.
    memory : {"auto", "direct", "exponentials"}
        How the history is summed.
    reaction : {"newton", "imex"}
        Whether the reaction is implicit, or extrapolated from earlier steps.
    stabilisation : float
        With ``"imex"``: the factor S of the term :math:`S (u_n - \tilde u_n)` added on the left, with the extrapolated
        state :math:`\tilde u_n`. Half the largest slope of the reaction makes explicit steps stable.
    """

    name: ClassVar[str] = "l1"
    order: ClassVar[str] = "2 - alpha on the graded mesh; 1 on a uniform one away from t0"
    parabola: ClassVar[bool] = False

    def refuses(self, problem: EvolutionProblem) -> str | None:
        """Needs orders up to 1."""
        for _, alpha in problem.orders:
            if order_value(alpha) > 1.0:
                return (
                    f"method='l1' takes orders up to 1, and alpha={order_value(alpha):g}; use 'convolution_quadrature'"
                )
        return None

    def best_order(self, alpha: float) -> float:
        """``2 - alpha``; 1 for backward Euler."""
        return 2.0 - alpha if alpha < 1.0 else 1.0

    def place(self, alpha: Any) -> float:
        """The equation is imposed at the end of the step."""
        return 1.0

    def reason(self, problem: EvolutionProblem) -> str:
        """Several derivatives."""
        return "the equation has several derivatives in time, whose order of convergence L1 keeps on a graded mesh"


@final
@register_evolution_method
@dataclass(frozen=True, slots=True)
class DiffusionL2Sigma(DifferenceMethod):
    r"""L2-1sigma (Alikhanov): the equation at :math:`t_{n-1} + (1-\alpha/2)\tau_n`. Of order 2 on its graded mesh.

    :math:`t_j = T (j/N)^r` with :math:`r = 2/\alpha` by default; of order :math:`\min(2, r\alpha)` in general. It damps
    stiff modes only by :math:`\alpha/(2-\alpha)` per step, so use it for data that are compatible with the boundary,
    and L1 otherwise.

    Parameters
    ----------
    grading, memory, reaction, stabilisation
        As for :class:`DiffusionL1`.
    """

    name: ClassVar[str] = "l2_1sigma"
    order: ClassVar[str] = "2 on the graded mesh, min(2, r alpha) with grading r"
    parabola: ClassVar[bool] = True

    def refuses(self, problem: EvolutionProblem) -> str | None:
        """Needs a single order below 1."""
        if len(problem.orders) > 1:
            return "method='l2_1sigma' takes one derivative in time; use 'l1' or 'convolution_quadrature' for several"
        if problem.varying is not None and problem.varying.kind != "time":
            return "method='l2_1sigma' takes one order for all unknowns, because its points depend on it; use 'l1'"
        if problem.alpha_value >= 1.0:
            return f"method='l2_1sigma' takes orders below 1, and alpha={problem.alpha_value:g}"
        return None

    def best_order(self, alpha: float) -> float:
        """2."""
        return 2.0

    def place(self, alpha: Any) -> Any:
        """The point at which the formula gains one order."""
        return 1.0 - 0.5 * alpha

    def reason(self, problem: EvolutionProblem) -> str:
        """Order 2."""
        return "it has order 2 on a graded mesh for subdiffusion with data that fit the boundary"
