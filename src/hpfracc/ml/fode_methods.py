"""Neural fractional equations for both PyTorch and JAX: methods by name, and states that are tuples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

from hpfracc._arrays import library_of
from hpfracc._xp import array_namespace
from hpfracc.errors import InvalidInputError, ShapeError
from hpfracc.ml.arguments import refuse_foreign
from hpfracc.solvers.ode._fdeint import fdeint
from hpfracc.solvers.ode.method import Method, find_method
from hpfracc.solvers.ode.methods.explicit_rectangle import ExplicitRectangle
from hpfracc.solvers.ode.methods.implicit_rectangle import ImplicitRectangle
from hpfracc.solvers.ode.methods.implicit_trapezoid import ImplicitTrapezoid
from hpfracc.solvers.ode.methods.pece import PECE
from hpfracc.solvers.ode.options import CommonOptions

__all__ = ["NeuralOptions", "read_method", "solve_states"]


class NeuralOptions(CommonOptions, total=False):
    """The options of ``fdeint`` that a ``NeuralFODE`` stores, for type checkers; ``args`` belong to each call."""

    derivative: str


#: Methods with a choice of adjoints.
_TRANSPOSED: dict[str, Any] = {
    each.name: each for each in (PECE, ExplicitRectangle, ImplicitTrapezoid, ImplicitRectangle)
}


def read_method(method: Any, step: float | None, adjoint: str | None) -> str | Method:
    """Combine a method with its adjoint, for ``fdeint``.

    Parameters
    ----------
    method : str or Method
        A name, or a method, which is returned unchanged.
    step : float or None
        Without a step, the step size adapts: ``"pece"``, the default name, becomes ``"adaptive"``.
    adjoint : str or None
        Defaults to ``"stored"`` if the method has a choice.
    """
    if isinstance(method, Method):
        if adjoint is not None:
            raise InvalidInputError(f"adjoint={adjoint!r} with {method!r}: give the adjoint to the method itself")
        return method
    name = find_method(method).name
    if step is None and name == "pece":
        name = "adaptive"
    if name in _TRANSPOSED:
        if step is None:
            raise InvalidInputError(f"method={name!r} takes steps of one size; give step=")
        found: Method = _TRANSPOSED[name](adjoint="stored" if adjoint is None else adjoint)
        return found
    if adjoint is not None:
        raise InvalidInputError(
            f"adjoint={adjoint!r} is a choice for {', '.join(_TRANSPOSED)} with a step; method={name!r} has its own"
        )
    return name


def solve_states(
    library: str,
    func: Callable[..., Any],
    y0: Any,
    t: Any,
    order: Any,
    dy0: Any,
    *,
    method: str | Method,
    step: float | None,
    args: Sequence[Any],
    options: NeuralOptions,
) -> Any:
    """``fdeint`` for one state, or for a tuple of states that are joined along their last axis."""
    rest: dict[str, Any] = {**options, "method": method, "step": step, "args": tuple(args)}
    states = y0 if isinstance(y0, tuple) else (y0,)
    for place, each in enumerate(states):
        name = f"y0[{place}]" if isinstance(y0, tuple) else "y0"
        refuse_foreign(library, "neural_fode", name, each)
        if library_of(each) != library:
            what = "PyTorch tensor" if library == "torch" else "JAX array"
            raise InvalidInputError(f"{name} is not a {what}; give one of shape (..., d)")
        if isinstance(y0, tuple) and (each.ndim < 1 or each.shape[:-1] != states[0].shape[:-1]):
            shapes = f"{name} has shape {tuple(each.shape)} and y0[0] {tuple(states[0].shape)}"
            raise ShapeError(f"{shapes}: all axes but the last must agree")
    if not isinstance(y0, tuple):
        if isinstance(order, tuple):
            raise ShapeError(f"alpha has {len(order)} orders for a tuple of states, and y0 is one array")
        return fdeint(func, y0, t, order, **rest, **({} if dy0 is None else {"dy0": dy0}))
    xp = array_namespace(y0[0])
    ends = list(accumulate(each.shape[-1] for each in y0))
    split = getattr(xp.module, "tensor_split", xp.module.split)  # PyTorch's, by the ends of parts
    if isinstance(order, tuple):
        if len(order) != len(y0):
            raise ShapeError(f"alpha has {len(order)} orders and y0 {len(y0)} states")
        pairs = zip(order, y0, strict=True)
        order = xp.concatenate([xp.module.broadcast_to(xp.asarray(a), (each.shape[-1],)) for a, each in pairs])
    if dy0 is not None:
        rest["dy0"] = [xp.concatenate(tuple(each), -1) for each in dy0]

    def joined(time: Any, y: Any, *given: Any) -> Any:
        values = func(time, tuple(split(y, ends[:-1], -1)), *given)
        if not isinstance(values, tuple) or len(values) != len(ends):
            raise ShapeError(f"func(t, y) has to return a tuple of {len(ends)} arrays, like y0")
        return xp.concatenate(values, -1)

    found = fdeint(joined, xp.concatenate(y0, -1), t, order, **rest)
    return tuple(split(found, ends[:-1], -1))
