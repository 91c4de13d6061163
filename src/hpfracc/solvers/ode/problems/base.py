"""Base classes of the test problems: an equation, its data, and its known solution."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import resources
from typing import Any, TypeVar, cast

import numpy as np

__all__ = ["Reference", "TestEquation", "equation", "stored_reference"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Reference:
    """Stored values of a solution, more accurate than any tolerance.

    Attributes
    ----------
    t : numpy.ndarray, shape (n,)
        Times.
    y : numpy.ndarray, shape (d, n)
        Values there.
    uncertainty : float
        The largest difference between the two resolutions they were computed with, relative to the largest value.
    """

    t: Array
    y: Array
    uncertainty: float


@dataclass(frozen=True)
class TestEquation:
    r"""An initial-value problem :math:`D^\alpha y = f(t, y)` (Caputo) with a known solution.

    Attributes
    ----------
    name : str
        Name of the problem.
    fun : callable
        ``fun(t, y)``, for ``y`` of shape (..., d).
    t_span : tuple of float
        The usual interval.
    y0 : numpy.ndarray, shape (d,)
        Initial values.
    alpha : float or tuple of float
        The order, or one for each component.
    dy0 : tuple of numpy.ndarray
        Initial derivatives, for orders above 1.
    jac : callable or None
        ``jac(t, y)``, of shape (d, d).
    solution : callable or None
        ``solution(t)`` of shape (d, n) for ``t`` of shape (n,), if it is known in closed form.
    reference : Reference or None
        Stored values, if it is not.
    chaotic : bool
        Whether errors grow exponentially, so that no solver follows the solution for long.
    source : str
        Literature reference.
    parameters : dict
        Its parameters, apart from orders, initial values and the end of the interval.
    """

    __test__ = False  # its name begins with "Test", and pytest would collect it

    name: str
    fun: Callable[[float, Array], Array]
    t_span: tuple[float, float]
    y0: Array
    alpha: float | tuple[float, ...]
    dy0: tuple[Array, ...] = ()
    jac: Callable[[float, Array], Array] | None = None
    solution: Callable[[Array], Array] | None = None
    reference: Reference | None = None
    chaotic: bool = False
    source: str = ""
    parameters: dict[str, float] = field(default_factory=dict)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle by the function that creates the problem, because its closures cannot be pickled."""
        made_by = self.__dict__.get("_made_by")
        return super().__reduce_ex__(protocol) if made_by is None else (_rebuild_equation, made_by)

    def known(self) -> tuple[Array, Array]:
        """Times after the start, and the solution there: in closed form, or stored."""
        if self.solution is not None:
            start, stop = self.t_span
            t = start + (stop - start) * np.array([1e-3, 1e-2, 0.05, 0.1, 0.25, 0.4, 0.55, 0.7, 0.85, 1.0])
            return t, self.solution(t)
        if self.reference is not None:
            return self.reference.t, self.reference.y
        raise LookupError(f"no solution of {self.name!r} is stored for the order {self.alpha}; see stored_reference()")


#: Arguments of the functions that create equations: orders, and what is not a parameter of the equation.
_ORDERS, _DATA = ("alpha", "beta"), ("y0", "v0", "t_end")

Maker = TypeVar("Maker", bound=Callable[..., TestEquation])


def equation(make: Maker) -> Maker:
    """Decorator for functions that create a test equation.

    Gives it its parameters, the stored solution if the parameters are the usual ones, and a way to be pickled.
    """
    signature = inspect.signature(make)
    usual = {name: each.default for name, each in signature.parameters.items() if name not in _ORDERS}

    @functools.wraps(make)
    def made(*args: Any, **params: Any) -> TestEquation:
        bound = signature.bind(*args, **params)
        bound.apply_defaults()
        given = {name: value for name, value in bound.arguments.items() if name not in _ORDERS}
        found = make(*args, **params)
        found = dataclasses.replace(
            found,
            reference=stored_reference(found.name, found.alpha) if given == usual else None,
            parameters={name: value for name, value in given.items() if name not in _DATA},
        )
        object.__setattr__(found, "_made_by", (made, args, params))
        return found

    return cast(Maker, made)


def _rebuild_equation(make: Callable[..., TestEquation], args: tuple[Any, ...], params: dict[str, Any]) -> TestEquation:
    return make(*args, **params)


@functools.cache
def _table() -> dict[str, Any]:
    text = resources.files(__package__).joinpath("references.json").read_text(encoding="utf-8")
    table: dict[str, Any] = json.loads(text)
    return table


def stored_reference(name: str, alpha: float | tuple[float, ...]) -> Reference | None:
    """The stored solution of a problem with its usual parameters and this order, if there is one.

    Computed by ``benchmarks/make_ode_references.py``: collocation of the Volterra equation by piecewise polynomials of
    high degree on a geometric mesh, in two resolutions.
    """
    orders = alpha if isinstance(alpha, tuple) else (alpha,)
    entry = _table().get(f"{name} {' '.join(f'{order:g}' for order in orders)}")
    if entry is None:
        return None
    return Reference(np.array(entry["t"]), np.array(entry["y"]), float(entry["uncertainty"]))
