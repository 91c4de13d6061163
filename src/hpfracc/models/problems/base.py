"""The class of model equations, with their exact solutions where known."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict, TypeVar, Unpack, cast

import numpy as np

from hpfracc.solvers.pde.method import EvolutionMethod
from hpfracc.solvers.pde.result import FPDEResult

Array = np.ndarray[Any, Any]

Maker = TypeVar("Maker", bound=Callable[..., "MadeProblem"])


class MadeProblem:
    """A data class of functions that are closures: pickled as a call of the function that made it."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        made_by = self.__dict__.get("_made_by")
        return super().__reduce_ex__(protocol) if made_by is None else (made_by, ())


def maker(complete: Callable[[Any, dict[str, Any], dict[str, Any]], dict[str, Any]]) -> Callable[[Maker], Maker]:
    """Decorator of a function that makes a problem, so that what it makes can be pickled.

    ``complete(problem, given, usual)`` are fields to replace; ``given`` are the arguments, ``usual`` their defaults.
    """

    def decorate(make: Maker) -> Maker:
        signature = inspect.signature(make)
        usual = {name: each.default for name, each in signature.parameters.items()}

        @functools.wraps(make)
        def made(*args: Any, **params: Any) -> Any:
            given = signature.bind(*args, **params)
            given.apply_defaults()
            found: Any = make(*args, **params)
            found = dataclasses.replace(found, **complete(found, dict(given.arguments), usual))
            object.__setattr__(found, "_made_by", functools.partial(made, *args, **params))
            return found

        return cast(Maker, made)

    return decorate


_ARGUMENTS = ("reaction", "t_span", "u0", "x", "space", "boundary", "alpha", "source", "terms", "method")


class EvolutionOptions(TypedDict, total=False):
    """All arguments of ``solve_fpde`` by name, for type checkers: those of a model equation can be replaced."""

    reaction: Callable[..., Any] | None
    t_span: Sequence[float]
    u0: Any
    x: Any
    space: Any
    boundary: Any
    alpha: Any
    form: Literal["caputo", "fokker_planck"]
    du0: Any
    source: Any
    method: str | EvolutionMethod
    rtol: float
    atol: float
    step: float | None
    max_step: float | None
    max_seconds: float | None
    first_step: float | None
    breakpoints: Sequence[float]
    t_eval: Any
    args: Any
    jac: Callable[..., Any] | None
    terms: Sequence[tuple[Any, Any]]
    delays: Sequence[float]
    history: Any
    events: Any
    dense_output: bool
    save: str | int | Callable[..., Any]
    max_steps: int
    backend: Any
    compile: bool | str
    progress: bool | Callable[..., Any]
    estimate: bool | str


@dataclass(frozen=True)
class ModelEquation(MadeProblem):
    r"""A partial differential equation, ready to be solved, with its exact solution if known.

    Attributes
    ----------
    name : str
        Name of the equation.
    x : array or tuple of arrays
        The grid.
    space : SpaceTerm, TermSum or list
        The terms in space.
    boundary : str, condition or sequence
        The boundary conditions.
    u0 : array
        The initial state on the whole grid.
    t_span : (float, float)
        The interval of time on which it is usually solved.
    alpha : float or DistributedOrder
        The order in time.
    reaction, source, du0, terms
        As for :func:`hpfracc.solve_fpde`.
    method : str
        The method usually used.
    solution : callable or None
        ``solution(t, x)`` (``solution(t, x, y)``), if it is known.
    reference : str
        Source in the literature.
    parameters : dict
        The parameters it was created with.
    """

    name: str
    x: Any
    space: Any
    boundary: Any
    u0: Any
    t_span: tuple[float, float]
    alpha: Any = 1.0
    reaction: Callable[..., Any] | None = None
    source: Callable[..., Any] | None = None
    du0: Any = None
    terms: tuple[tuple[float, float], ...] = ()
    method: str = "auto"
    solution: Callable[..., Array] | None = None
    reference: str = ""
    parameters: dict[str, Any] = field(default_factory=dict)

    @property
    def arguments(self) -> dict[str, Any]:
        """The keyword arguments of :func:`hpfracc.solve_fpde` for this equation."""
        given = {name: getattr(self, name) for name in _ARGUMENTS}
        return given if self.du0 is None else {**given, "du0": self.du0}

    def solve(self, **options: Unpack[EvolutionOptions]) -> FPDEResult:
        """Solve the equation.

        Parameters
        ----------
        **options
            Arguments of :func:`hpfracc.solve_fpde`, such as ``alpha`` or ``rtol``. They replace the equation's own.

        Returns
        -------
        FPDEResult
            The solution.
        """
        from hpfracc.solvers.pde.solve import solve_fpde

        given = self.arguments
        given.update(options)
        return solve_fpde(**given)

    def exact(self, t: float) -> Array:
        """The exact solution on the grid, if it is known."""
        if self.solution is None:
            raise LookupError(f"no solution of {self.name!r} is known with the parameters {self.parameters}")
        axes = self.x if isinstance(self.x, tuple) else (self.x,)
        return np.asarray(self.solution(t, *np.meshgrid(*axes, indexing="ij", sparse=True)))


#: Decorates a function that creates an equation, so that its results know its arguments, and can be pickled.
model_equation = maker(lambda found, given, usual: {"parameters": given})
