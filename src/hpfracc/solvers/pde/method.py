"""What a method in time is, and how one is found by name."""

from __future__ import annotations

import abc
import difflib
import functools
import importlib
import math
import pkgutil
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from hpfracc.errors import InvalidInputError
from hpfracc.solvers.pde import methods
from hpfracc.solvers.pde.problem import EvolutionProblem

__all__ = ["EvolutionMethod", "all_evolution_methods", "find_evolution_method", "register_evolution_method"]

Array = np.ndarray[Any, Any]


class EvolutionMethod(abc.ABC):
    """A way to advance ``D^alpha u = A u + b(t) + source + reaction`` in time.

    A method is a frozen dataclass whose fields are its own parameters, all with defaults.

    Attributes
    ----------
    name : str
        What a user writes as ``method=``.
    order : str
        The order of accuracy and where it holds, in words.
    libraries : frozenset of str
        Whose arrays it steps.
    exact : bool
        Whether it has no error in time, so that the mesh is only where values are wanted.
    compiles_tensors : bool
        Whether ``compile=True`` is for tensors and JAX arrays too.
    """

    name: ClassVar[str]
    order: ClassVar[str]
    libraries: ClassVar[frozenset[str]] = frozenset({"numpy"})
    exact: ClassVar[bool] = False
    compiles_tensors: ClassVar[bool] = False

    @abc.abstractmethod
    def refuses(self, problem: EvolutionProblem) -> str | None:
        """Why it cannot advance ``problem``, as a sentence with what to do instead; None if it can."""

    @abc.abstractmethod
    def advance(self, problem: EvolutionProblem, mesh: Array) -> Iterator[Any]:
        """The unknowns at ``mesh[1]``, ``mesh[2]``, ..., one after the other.

        Each is an array, or a :class:`~hpfracc.solvers.pde.forms.FrameBlock` that makes those of one or more steps when
        they are asked for. What is yielded is not written to later. A step that cannot be made raises
        :class:`~hpfracc.solvers.pde.problem.StepFailedError`.
        """

    def mesh(self, problem: EvolutionProblem, steps: int) -> Array:
        """Times of ``steps`` steps; uniform unless the method grades them."""
        return np.linspace(problem.t0, problem.t1, steps + 1)

    def convergence(self, problem: EvolutionProblem) -> float:
        """The order on its own mesh, by which an error is told from two solutions."""
        return 2.0

    def forecast(self, problem: EvolutionProblem, steps: int) -> int:
        """Bytes it holds at the peak of a run, without what is saved of the solution."""
        return 8 * problem.itemsize * math.prod(problem.state_shape)

    def history(self, problem: EvolutionProblem, steps: int) -> str:
        """How the memory is summed, in a word; ``"none"`` at order 1."""
        return "none"

    def compiled(self, problem: EvolutionProblem, steps: int) -> bool:
        """Whether the loop over that number of steps would run compiled."""
        return False

    def reason(self, problem: EvolutionProblem) -> str:
        """Why ``method="auto"`` takes it where it does."""
        return f"{self.name} serves this equation"


_known: dict[str, type[EvolutionMethod]] = {}


def register_evolution_method(method: type[EvolutionMethod]) -> type[EvolutionMethod]:
    """Class decorator that makes a method known by its name."""
    _known[method.name] = method
    return method


@functools.cache
def _import_methods() -> None:
    for module in pkgutil.iter_modules(methods.__path__):
        importlib.import_module(f"{methods.__name__}.{module.name}")


def all_evolution_methods() -> list[type[EvolutionMethod]]:
    """Every method there is, by name."""
    _import_methods()
    return [_known[name] for name in sorted(_known)]


def find_evolution_method(name: str | EvolutionMethod) -> EvolutionMethod:
    """The method of that name, or an error with the names that are close."""
    if isinstance(name, EvolutionMethod):
        return name
    _import_methods()
    key = str(name).casefold().replace("-", "_")
    if key in _known:
        return _known[key]()
    names = sorted(_known)
    close = difflib.get_close_matches(key, names, n=2, cutoff=0.5)
    hint = f"did you mean {' or '.join(map(repr, close))}? " if close else ""
    raise InvalidInputError(f"no method is called {name!r}; {hint}There are: auto, {', '.join(names)}")
