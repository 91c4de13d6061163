"""The base class of methods in time, their registry, and what those of order 1 share."""

from __future__ import annotations

import abc
import functools
import importlib
import itertools
import math
import pkgutil
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, NamedTuple

import numpy as np

from hpfracc import _reading
from hpfracc.history.intervals import order_value
from hpfracc.solvers.pde import methods
from hpfracc.solvers.pde.problem import EvolutionProblem, Feature
from hpfracc.solvers.stepping.options import Options

Array = np.ndarray[Any, Any]
Save = str | int | Callable[..., Any]


class EvolutionMethod(abc.ABC):
    """A way to advance ``D^alpha u = A u + b(t) + source + reaction`` in time.

    A method is a frozen dataclass. Its fields are its parameters, all with defaults.

    Attributes
    ----------
    name : str
        The name that users pass as ``method=``.
    order : str
        The order of accuracy and where it holds, in words.
    libraries : frozenset of str
        Libraries whose arrays it can step.
    exact : bool
        Whether it has no error in time, so that the mesh only sets where values are computed.
    compiles_tensors : bool
        Whether ``compile=True`` also applies to tensors and JAX arrays.
    meets_breaks : bool
        Whether its mesh has the times ``problem.breaks`` at which the data jump.
    meets_powers : bool
        Whether it takes the power of ``problem.singular`` exactly.
    chooses_steps : bool
        Whether it chooses each step by its error, so that it takes no ``step``.
    takes : frozenset of Feature
        The features of a problem that it takes.
    """

    name: ClassVar[str]
    order: ClassVar[str]
    libraries: ClassVar[frozenset[str]] = frozenset({"numpy", "torch", "jax"})
    exact: ClassVar[bool] = False
    compiles_tensors: ClassVar[bool] = False
    meets_breaks: ClassVar[bool] = False
    meets_powers: ClassVar[bool] = False
    chooses_steps: ClassVar[bool] = False
    takes: ClassVar[frozenset[Feature]] = frozenset()

    def lacks(self, problem: EvolutionProblem) -> str | None:
        """Why it cannot solve a problem with these features; None if it can."""
        missing = [one for one in problem.features if one not in self.takes]
        return f"method={self.name!r} does not take {missing[0]}; use 'l1'" if missing else None

    @abc.abstractmethod
    def refuses(self, problem: EvolutionProblem) -> str | None:
        """Why it cannot solve ``problem``, as a sentence that says what to do instead; None if it can."""

    @abc.abstractmethod
    def advance(self, problem: EvolutionProblem, mesh: Array) -> Iterator[Any]:
        """Yield the unknowns at ``mesh[1]``, ``mesh[2]``, ... in turn.

        Each item is an array, or a :class:`~hpfracc.solvers.pde.problem.FrameBlock` that computes the values of one or
        more steps on demand. Arrays are not modified after they are yielded. A step that fails raises
        :class:`~hpfracc.solvers.stepping.system.StepFailedError`.
        """

    def steps(self, problem: EvolutionProblem, mesh: Array) -> Iterator[Any]:
        """As :meth:`advance`, with a record of the steps for delays."""
        made = self.advance(problem, mesh)
        return made if problem.delayed is None else problem.delayed.recorded(made, mesh)

    def solution(self, problem: EvolutionProblem) -> Any:
        """For exact methods: an object whose ``frame(t)`` is the solution on the whole grid; None for the others."""
        return None

    def stand_in(self, problem: EvolutionProblem) -> EvolutionMethod:
        """The method for a given number of steps: itself, unless it chooses its steps."""
        return self

    def event_times(self, problem: EvolutionProblem, rtol: float) -> Array:
        """For exact methods: times between which an event is not missed."""
        return np.array([problem.t0, problem.t1])

    def mesh(self, problem: EvolutionProblem, steps: int) -> Array:
        """Times of ``steps`` steps; uniform unless the method grades them."""
        return np.linspace(problem.t0, problem.t1, steps + 1)

    def convergence(self, problem: EvolutionProblem) -> float:
        """The order of convergence on its own mesh, for error estimates from two solutions."""
        return 2.0

    def forecast(self, problem: EvolutionProblem, steps: int) -> int:
        """Bytes held at the peak of a run, without the saved frames: by default eight states and a linear system."""
        return 8 * problem.itemsize * math.prod(problem.state_shape) + problem.space.step_bytes()

    def history(self, problem: EvolutionProblem, steps: int) -> str:
        """How the memory is summed, in one word; ``"none"`` at order 1."""
        return "none"

    def compiled(self, problem: EvolutionProblem, steps: int) -> bool:
        """Whether the loop over this number of steps would run compiled."""
        return False

    def reason(self, problem: EvolutionProblem) -> str:
        """Why ``method="auto"`` chooses it."""
        return f"{self.name} serves this equation"


class ExplicitPart:
    """``N(t, u) = reaction(t, u) + source(t) + b(t)``; None where all of them are absent.

    Parameters
    ----------
    problem : EvolutionProblem
        The equation.
    steady : array, optional
        Its source and boundary data, where they are constant in time and known beforehand.
    """

    def __init__(self, problem: EvolutionProblem, steady: Any = None) -> None:
        self.problem, self.steady = problem, steady

    @property
    def empty(self) -> bool:
        """Whether N is zero."""
        return self.problem.linear and not self.problem.forced

    def __call__(self, t: Any, u: Any) -> Any:
        """Evaluate N at a time and state."""
        problem = self.problem
        total = problem.known(t) if self.steady is None else self.steady
        if problem.reaction is not None:
            own = problem.reaction(t, u)
            total = own if total is None else total + own
        if total is None:
            return 0.0 * u
        return total if total.shape == u.shape else total + 0.0 * u


def needs_order_one(name: str, problem: EvolutionProblem, *, diagonal: bool = False) -> str | None:
    """Why a method for ``u_t = ...``, in eigenvectors if ``diagonal``, cannot solve this equation; None if it can."""
    if len(problem.orders) > 1:
        return f"method={name!r} takes one derivative in time, and the equation has {len(problem.orders)}; use 'l1'"
    if problem.frozen is not None:
        return f"method={name!r} takes the reaction explicitly, and Diffusion depends on t or u; use 'adaptive'"
    alpha = order_value(problem.alpha)
    if alpha != 1.0:
        return f"method={name!r} is for alpha = 1, and alpha = {alpha:g}; use method='auto'"
    if diagonal and problem.space.symbol is None:
        return f"method={name!r} needs a diagonalised operator, and {problem.space.name} is not; use 'imex_bdf2'"
    return None


def time_steps(mesh: Array) -> Iterator[tuple[float, float]]:
    """The start and length of each step.

    The steps of a uniform mesh differ by rounding. All of them are given the length of the first, so that coefficients
    that depend on the length are computed once.
    """
    last = math.nan
    for before, after in itertools.pairwise(mesh):
        h = float(after - before)
        if not abs(h - last) <= 1e-10 * h:
            last = h
        yield float(before), last


class Question(NamedTuple):
    """An equation and how to solve it, read and checked.

    Attributes
    ----------
    problem, method, options
        The equation, the method in time, and the options of all solvers.
    save : str, int or callable
        Which frames are kept.
    args : tuple
        Further arguments of the user's functions.
    reason : str
        Why the method was chosen.
    """

    problem: EvolutionProblem
    method: EvolutionMethod
    options: Options
    save: Save = "all"
    args: tuple[Any, ...] = ()
    reason: str = ""


_known: dict[str, type[EvolutionMethod]] = {}


def register_evolution_method(method: type[EvolutionMethod]) -> type[EvolutionMethod]:
    """Class decorator that registers a method under its name."""
    _known[method.name] = method
    return method


@functools.cache
def _import_methods() -> None:
    for module in pkgutil.iter_modules(methods.__path__):
        importlib.import_module(f"{methods.__name__}.{module.name}")


def all_evolution_methods() -> list[type[EvolutionMethod]]:
    """All registered methods, sorted by name."""
    _import_methods()
    return [_known[name] for name in sorted(_known)]


def find_evolution_method(name: str | EvolutionMethod) -> EvolutionMethod:
    """The method of that name; the error for an unknown name suggests similar ones."""
    if isinstance(name, EvolutionMethod):
        return name
    _import_methods()
    key = str(name).casefold().replace("-", "_")
    return _known[_reading.choice("method", key, sorted(_known))]()
