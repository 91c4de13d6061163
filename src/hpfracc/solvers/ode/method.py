"""The base class of methods, and lookup by name. Each file in ``methods/`` registers one method."""

from __future__ import annotations

import abc
import dataclasses
import difflib
import functools
import importlib
import pkgutil
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, ClassVar

from hpfracc._reading import text
from hpfracc.errors import InvalidInputError
from hpfracc.solvers.ode import methods
from hpfracc.solvers.ode.options import MAX_STEPS, Options
from hpfracc.solvers.ode.problem import Problem, starts_infinite
from hpfracc.solvers.ode.result import FODEResult

__all__ = ["Method", "all_methods", "find_method", "noting", "refuse_plain", "register_method"]


#: Replaces every method's ``solve`` while a solve is only explained.
noting: ContextVar[Callable[[Any, Problem, Options], FODEResult] | None] = ContextVar("hpfracc_noting", default=None)


class Method(abc.ABC):
    """A method for ``D^alpha y = f(t, y)``.

    A method is a frozen dataclass. Its fields are its parameters, all with defaults: ``method="pece"`` uses the
    defaults, ``method=PECE(corrections=3)`` does not.

    Attributes
    ----------
    name : str
        Name of the method, for ``method=``.
    aliases : tuple of str
        Other names for it.
    order : str
        The order of accuracy and where it holds, in words, for the documentation.
    libraries : frozenset of str
        Libraries whose arrays it supports: ``"numpy"``, ``"torch"``, ``"jax"``. Two methods may share a name if these
        differ.
    implicit : bool
        Whether it is meant for stiff equations.
    fixed : bool
        Whether it takes equal steps, given as ``step``.
    search_limit : int
        Maximum number of steps in a search for a step, unless ``max_steps`` is given.
    """

    name: ClassVar[str]
    aliases: ClassVar[tuple[str, ...]] = ()
    order: ClassVar[str]
    libraries: ClassVar[frozenset[str]] = frozenset({"numpy"})
    implicit: ClassVar[bool] = False
    fixed: ClassVar[bool] = True
    search_limit: ClassVar[int] = MAX_STEPS

    def __init_subclass__(cls, **options: Any) -> None:
        """Wrap ``solve`` so that it can be explained: it then records the call and does not solve."""
        super().__init_subclass__(**options)
        solve = cls.__dict__.get("solve")
        if solve is None or hasattr(solve, "__wrapped__"):
            return

        @functools.wraps(solve)
        def solve_or_note(self: Method, problem: Problem, options: Options, **more: Any) -> FODEResult:
            note = noting.get()
            found: FODEResult = solve(self, problem, options, **more) if note is None else note(self, problem, options)
            if note is not None and found.decision is not None and "reason" in more:
                found.decision = dataclasses.replace(found.decision, reason=more["reason"])
            return found

        cls.solve = solve_or_note  # type: ignore[method-assign]

    @abc.abstractmethod
    def refuses(self, problem: Problem, options: Options) -> str | None:
        """Reason why this method cannot solve ``problem``, with a remedy, as a sentence; None if it can."""

    @abc.abstractmethod
    def solve(self, problem: Problem, options: Options) -> FODEResult:
        """Solve the problem. NaN, no convergence or too few steps give ``success=False`` and a message with advice."""


_known: dict[str, type[Method]] = {}


def register_method(method: type[Method]) -> type[Method]:
    """Class decorator that registers a method under its name and aliases."""
    for library in method.libraries:
        for name in (method.name, *method.aliases):
            _known[f"{library}:{_plain(name)}"] = method
    return method


def all_methods() -> list[type[Method]]:
    """All methods by name. Imports the files of ``methods/``."""
    for name in _files():
        importlib.import_module(f"{methods.__name__}.{name}")
    return sorted(set(_known.values()), key=lambda method: (method.name, sorted(method.libraries)))


@functools.cache
def _files() -> tuple[str, ...]:
    """The files of ``methods/``, listed once, because that takes a fifth of a short solve."""
    return tuple(module.name for module in pkgutil.iter_modules(methods.__path__))


def find_method(name: str | Method, library: str = "numpy") -> Method:
    """The method of that name for arrays of ``library``; raises an error with similar names if there is none."""
    if isinstance(name, Method):
        return name
    name = text("method", name)
    key = f"{library}:{_plain(str(name))}"
    if key not in _known and _plain(str(name)) in _files():
        importlib.import_module(f"{methods.__name__}.{_plain(str(name))}")
    found = [] if key in _known else all_methods()
    if key in _known:
        return _known[key]()
    names = sorted({method.name for method in found if library in method.libraries})
    elsewhere = sorted({one for method in found if _plain(str(name)) in _names(method) for one in method.libraries})
    if elsewhere:
        raise InvalidInputError(
            f"method={name!r} takes arrays of {' and '.join(elsewhere)}, and y0 is of {library}; for {library} there "
            f"are: {', '.join(names) or 'none'}"
        )
    close = difflib.get_close_matches(_plain(str(name)), names, n=2, cutoff=0.5)
    hint = f"did you mean {' or '.join(map(repr, close))}? " if close else ""
    raise InvalidInputError(f"no method is called {name!r}; {hint}There are: auto, {', '.join(names)}")


def _names(method: type[Method]) -> set[str]:
    return {_plain(name) for name in (method.name, *method.aliases)}


def _plain(name: str) -> str:
    return name.casefold().replace("-", "_").replace(" ", "_")


def refuse_plain(problem: Problem, name: str, *, infinite: bool = False) -> str | None:
    """Reason why a method for a single equation with a finite start cannot solve ``problem``, or None."""
    if problem.terms:
        return f"method={name!r} takes one derivative, and the equation has {1 + len(problem.terms)} terms"
    if problem.orders.function is not None:
        return f"method={name!r} takes constant orders; use method='variable_order'"
    if problem.delays and starts_infinite(problem):
        return f"method={name!r} takes no delays where a Riemann-Liouville solution is infinite at t0; give y0 = 0"
    if not infinite and starts_infinite(problem):
        return (
            f"method={name!r} evaluates the right-hand side at t0, where a Riemann-Liouville solution with y0 != 0 is "
            "infinite; use method='adaptive' without a step, 'bdf2' or 'implicit_rectangle'"
        )
    return None
