"""The base class of methods, and lookup by name. Each file in ``methods/`` registers one method."""

from __future__ import annotations

import abc
import functools
import importlib
import math
import pkgutil
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, ClassVar, cast

import numpy as np

from hpfracc._arrays import library_of
from hpfracc._reading import hint, text
from hpfracc.errors import InvalidInputError
from hpfracc.solvers.ode import methods
from hpfracc.solvers.ode.compilation import refuse_compiled
from hpfracc.solvers.ode.problem import Problem, starts_infinite
from hpfracc.solvers.ode.result import FODEResult, because
from hpfracc.solvers.stepping.options import Options

#: Replaces every method's ``solve`` while a solve is only explained.
noting: ContextVar[Callable[[Any, Problem, Options], FODEResult] | None] = ContextVar("hpfracc_noting", default=None)

#: Methods of SciPy and of solvers like it.
_INTEGER = frozenset({"rk45", "rk23", "dop853", "dopri5", "tsit5", "radau", "bdf"})


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
        Libraries whose arrays it supports: ``"numpy"``, ``"torch"``, ``"jax"``.
    implicit : bool
        Whether it is meant for stiff equations.
    fixed : bool
        Whether it takes equal steps, given as ``step``.
    search_limit : int
        Maximum number of steps in a search for a step, unless ``max_steps`` is given: about half a minute of steps.
    takes : frozenset of str
        What it takes beyond one constant order below 1 of the Caputo derivative: ``"delays"``, ``"riemann_liouville"``,
        ``"infinite"`` (solutions that are infinite at t0), ``"several orders"``, ``"variable orders"``, ``"order 1"``,
        ``"orders above 1"``, ``"compiled"`` (functions).
    """

    name: ClassVar[str]
    aliases: ClassVar[tuple[str, ...]] = ()
    order: ClassVar[str]
    libraries: ClassVar[frozenset[str]] = frozenset({"numpy"})
    implicit: ClassVar[bool] = False
    fixed: ClassVar[bool] = True
    search_limit: ClassVar[int] = 1 << 18
    takes: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(cls, **options: Any) -> None:
        """Wrap ``solve`` so that it can be explained: it then records the call and does not solve."""
        super().__init_subclass__(**options)
        solve = cls.__dict__.get("solve")
        if solve is None or hasattr(solve, "__wrapped__"):
            return

        @functools.wraps(solve)
        def solve_or_note(self: Method, problem: Problem, options: Options, **more: Any) -> FODEResult:
            note = noting.get()
            if note is None:
                return cast(FODEResult, solve(self, problem, options, **more))
            found = note(self, problem, options)
            return because(found, more["reason"]) if "reason" in more else found

        cls.solve = solve_or_note  # type: ignore[method-assign]

    def refuses(self, problem: Problem, options: Options) -> str | None:
        """Reason why this method cannot solve ``problem``, with a remedy, as a sentence; None if it can."""
        if problem.library not in self.libraries:
            others = ", ".join(each.name for each in all_methods() if problem.library in each.libraries)
            taken = " and ".join(sorted(self.libraries))
            return f"method={self.name!r} takes arrays of {taken}; convert y0, or for {problem.library} use: {others}"
        if problem.library != "numpy":
            from hpfracc.solvers.ode.tensors.solve import refuse_tensors

            if (refusal := refuse_tensors(problem, options, self.name)) is not None:
                return refusal
        for word, asks, refusal in _ASKED:
            if word not in self.takes and asks(problem):
                return f"method={self.name!r} {refusal}"
        return None if "compiled" in self.takes else refuse_compiled(options, self.name)

    def promised_order(self, alpha: float, *, rough: bool = False) -> float | None:
        """Order of the error at a fixed t for solutions that are smooth, or ``rough``: that start like t^alpha.

        None if the method has no step that the error falls with. On a graded mesh, the order of the largest error.
        """
        return None

    @abc.abstractmethod
    def solve(self, problem: Problem, options: Options) -> FODEResult:
        """Solve the problem. NaN, no convergence or too few steps give ``success=False`` and a message with advice."""


def _has_several_orders(problem: Problem) -> bool:
    orders = problem.orders
    if orders.function is None and library_of(orders.value) not in ("torch", "jax"):
        return orders.single is None
    return bool(math.prod(np.shape(orders.value if orders.function is None else orders.function(problem.t0))) != 1)


def _reaches_one(problem: Problem) -> bool:
    known = problem.orders.known
    return problem.orders.ceiling > 1 or (known is not None and bool(np.any(known >= 1.0)))


def _starts_infinite(problem: Problem) -> bool:
    return problem.library == "numpy" and starts_infinite(problem)


_INFINITE = "a Riemann-Liouville solution is infinite; use 'adaptive' without a step, 'bdf2' or 'implicit_rectangle'"
#: What a problem may ask of a method: the word in ``takes``, whether this one asks for it, and the refusal.
_ASKED: tuple[tuple[str, Callable[[Problem], bool], str], ...] = (
    ("delays", lambda each: bool(each.delays), "takes no delays"),
    ("memory", lambda each: each.memory is not None, "takes Caputo's derivative; use 'adaptive' without a step"),
    ("riemann_liouville", lambda each: each.derivative != "caputo", "takes Caputo's derivative; omit derivative="),
    ("variable orders", lambda each: each.orders.function is not None, "takes constant orders; use 'variable_order'"),
    (
        "several orders",
        _has_several_orders,
        "takes one order for all components; use 'l1', or 'variable_order' for functions of t",
    ),
    ("order 1", _reaches_one, "takes orders below 1, and alpha reaches 1"),
    ("orders above 1", lambda each: each.orders.ceiling > 1, "takes orders up to 1, and alpha exceeds 1"),
    ("infinite", _starts_infinite, f"evaluates the right-hand side at t0, where {_INFINITE}"),
    ("infinite with delays", lambda each: bool(each.delays) and _starts_infinite(each), "has delays; give y0 = 0"),
)

_known: dict[str, type[Method]] = {}


def register_method(method: type[Method]) -> type[Method]:
    """Class decorator that registers a method under its name and aliases."""
    _known.update(dict.fromkeys(map(_plain, (method.name, *method.aliases)), method))
    return method


def all_methods() -> list[type[Method]]:
    """All methods by name. Imports the files of ``methods/``.

    Examples
    --------
    >>> from hpfracc.solvers.ode import all_methods
    >>> [method.name for method in all_methods() if method().promised_order(0.5) == 1.0]
    ['explicit_rectangle', 'implicit_rectangle']
    """
    for name in _files():
        importlib.import_module(f"{methods.__name__}.{name}")
    return sorted(set(_known.values()), key=lambda method: method.name)


@functools.cache
def _files() -> tuple[str, ...]:
    """The files of ``methods/``, listed once, because that takes a fifth of a short solve."""
    return tuple(module.name for module in pkgutil.iter_modules(methods.__path__))


def find_method(name: str | Method) -> Method:
    """The method of that name; raises an error with similar names if there is none."""
    if isinstance(name, Method):
        return name
    key = _plain(text("method", name))
    if key not in _known and key in _files():
        importlib.import_module(f"{methods.__name__}.{key}")
    names = [] if key in _known else [method.name for method in all_methods()]
    if key in _known:
        return _known[key]()
    if key in _INTEGER:
        raise InvalidInputError(f"method={name!r} is for integer orders; here it is 'adaptive', or leave it out")
    raise InvalidInputError(f"no method is called {name!r}; {hint(key, names)}: auto, {', '.join(names)}")


def _plain(name: str) -> str:
    return name.casefold().replace("-", "_").replace(" ", "_")
