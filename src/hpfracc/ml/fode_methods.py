"""The methods of neural fractional equations by name, for both PyTorch and JAX."""

from __future__ import annotations

from typing import Any

from hpfracc.errors import InvalidInputError
from hpfracc.solvers.ode.method import Method, find_method
from hpfracc.solvers.ode.methods.explicit_rectangle import ExplicitRectangle
from hpfracc.solvers.ode.methods.implicit_rectangle import ImplicitRectangle
from hpfracc.solvers.ode.methods.implicit_trapezoid import ImplicitTrapezoid
from hpfracc.solvers.ode.methods.pece import PECE
from hpfracc.solvers.ode.options import CommonOptions

__all__ = ["NeuralOptions", "read_method"]


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
