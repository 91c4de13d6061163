"""Residuals of fractional equations for physics-informed training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from hpfracc import _reading
from hpfracc.errors import InvalidInputError, ShapeError
from hpfracc.ml.jax.order import OrderLike, as_order
from hpfracc.ml.jax.pytrees import as_samples, pytree
from hpfracc.operators._fractional_laplacian import fractional_laplacian
from hpfracc.operators.core.registry import find_definition

__all__ = ["FractionalResidual", "LaplacianResidual"]


@final
@pytree("order")
@dataclass(init=False, frozen=True)
class FractionalResidual:
    r"""The residual :math:`D^\alpha u - r` at given times; see :class:`hpfracc.ml.FractionalResidual`.

    Parameters
    ----------
    points : array, shape (n,)
        Increasing; known when the layer is created.
    alpha : float, array or LearnableOrder
        The order.
    definition : {"caputo", "riemann_liouville"}
        Definition of the derivative.
    axis : int
        The axis of ``u`` along which the points lie.
    """

    order: Any
    points: tuple[float, ...]
    definition: str
    axis: int

    def __init__(self, points: Any, alpha: OrderLike = 0.5, *, definition: str = "caputo", axis: int = -1) -> None:
        known = _reading.numbers("points", points)
        if known.ndim != 1 or known.size < 2 or not (np.diff(known) > 0.0).all():
            raise InvalidInputError("the points of a residual are not increasing along one axis; sort them")
        _reading.choice("definition", definition, ("caputo", "riemann_liouville"))
        fields = (
            ("order", as_order(alpha)),
            ("points", tuple(known.tolist())),
            ("definition", definition),
            ("axis", axis),
        )
        for name, value in fields:
            object.__setattr__(self, name, value)

    def __call__(self, u: Any, right: Any = 0.0) -> Any:
        """The residual at every point, including the first."""
        u = as_samples(u)
        if u.shape[self.axis] != len(self.points):
            raise ShapeError(
                f"values of shape {u.shape} at {len(self.points)} points along axis {self.axis}; give one value for "
                "each point"
            )
        kind: Any = find_definition(self.definition, "derivative")
        options = {} if self.order.ceiling is None else {"ceiling": self.order.ceiling}
        return kind(self.order(), **options)(u, np.array(self.points), axis=self.axis) - right


@final
@pytree("order")
@dataclass(init=False, frozen=True)
class LaplacianResidual:
    r"""The residual :math:`(-\Delta)^{\alpha/2} u - r` on a uniform grid; see :class:`hpfracc.ml.LaplacianResidual`.

    Parameters
    ----------
    alpha : float, array or LearnableOrder
        The order, in (0, 2].
    step : float
        The spacing of the points.
    method : str
        As for :class:`hpfracc.FractionalLaplacian`: ``"integral"``, ``"periodic"``, ``"dirichlet"`` or ``"neumann"``.
    axis : int or sequence of int, optional
        The axes of space; the last one by default.
    backend : str, optional
        Backend of the engine.
    """

    order: Any
    step: float
    options: tuple[tuple[str, Any], ...]

    def __init__(
        self,
        alpha: OrderLike = 1.0,
        *,
        step: float = 1.0,
        method: str = "auto",
        axis: int | Sequence[int] | None = None,
        backend: Any = None,
    ) -> None:
        options = (("axis", axis), ("backend", backend), ("method", method))
        fields = (("order", as_order(alpha)), ("step", _reading.number("step", step, above=0)), ("options", options))
        for name, value in fields:
            object.__setattr__(self, name, value)

    def __call__(self, u: Any, right: Any = 0.0) -> Any:
        """The residual at every point."""
        u = as_samples(u)
        return fractional_laplacian(u, alpha=self.order(), step=self.step, **dict(self.options)) - right
