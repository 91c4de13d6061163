r"""Residuals of fractional equations for physics-informed training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import torch
from torch import Tensor, nn

from hpfracc import _reading
from hpfracc._config import check_backend
from hpfracc.errors import InvalidInputError, ShapeError
from hpfracc.ml.torch.opaque import opaque
from hpfracc.ml.torch.order import OrderLike, as_order, check_tensor, joined_order, shown_order, split_order
from hpfracc.operators._fractional_laplacian import fractional_laplacian
from hpfracc.operators.core.registry import find_definition

__all__ = ["FractionalResidual", "LaplacianResidual", "graded_points", "whole_derivative"]


def graded_points(n: int, end: float, grading: float = 2.0, *, dtype: torch.dtype = torch.float64) -> Tensor:
    """``n`` points ``end (j/(n-1))^grading`` from 0 on: dense where fractional solutions are not smooth.

    Parameters
    ----------
    n : int
        Number of points, at least 2.
    end : float
        The last point, positive.
    grading : float
        1 for uniform points; ``2 / alpha`` suits the piecewise linear rule for Caputo's derivative of order alpha.
    dtype : torch.dtype
        The dtype of the points.

    Examples
    --------
    >>> from hpfracc.ml import graded_points
    >>> graded_points(3, 1.0, 2.0).tolist()
    [0.0, 0.25, 1.0]
    """
    n, end = _reading.whole("n", n, least=2), _reading.number("end", end, above=0)
    grading = _reading.number("grading", grading, least=1)
    _reading.instance("dtype", dtype, torch.dtype, "torch.float64")
    return (end * torch.linspace(0.0, 1.0, n, dtype=torch.float64) ** grading).to(dtype)


def whole_derivative(u: Tensor, x: Tensor, order: int = 1) -> Tensor:
    """The derivative of integer order of ``u``, an elementwise function of ``x``, by autograd.

    Parameters
    ----------
    u : Tensor
        Computed from ``x``, each element from its own element of ``x``.
    x : Tensor
        Must require a gradient.
    order : int
        Order of the derivative, at least 1.
    """
    order = _reading.whole("order", order, least=1)
    for name, tensor in (("u", u), ("x", x)):
        if not _reading.instance(name, tensor, Tensor, "torch.linspace(0, 1, 9)").requires_grad:
            raise InvalidInputError(f"{name} does not require a gradient; compute u from x.requires_grad_()")
    for _ in range(order):
        (u,) = torch.autograd.grad(u.sum(), x, create_graph=True)
    return u


@final
class FractionalResidual(nn.Module):
    r"""The residual :math:`D^\alpha u - r` of an equation, at given times.

    ``u`` contains the values of a network at all points. The derivative uses hpfracc's rules for arbitrary grids, and
    gradients flow to the values and to the order. For integer derivatives in other variables see
    :func:`whole_derivative`.

    Parameters
    ----------
    points : Tensor, shape (n,)
        Increasing; see :func:`graded_points`.
    alpha : float, Tensor, Parameter or LearnableOrder
        The order.
    definition : {"caputo", "riemann_liouville"}
        Definition of the derivative. That of Riemann and Liouville is infinite at the first point unless the value
        there is 0; leave that point out of the loss.
    axis : int
        The axis of ``u`` along which the points lie.

    Examples
    --------
    >>> import torch
    >>> from hpfracc.ml import FractionalResidual, graded_points
    >>> t = graded_points(65, 1.0, 3.0)
    >>> residual = FractionalResidual(t, alpha=0.5)(t, 2 * torch.sqrt(t / torch.pi))  # D^0.5 t = 2 sqrt(t / pi)
    >>> bool(residual.abs().max() < 1e-12)
    True
    """

    points: Tensor

    def __init__(self, points: Tensor, alpha: OrderLike = 0.5, *, definition: str = "caputo", axis: int = -1) -> None:
        super().__init__()
        _reading.instance("points", points, Tensor, "graded_points(65, 1.0, 3.0)")
        if points.ndim != 1 or points.shape[0] < 2 or not bool((points[1:] > points[:-1]).all()):
            raise InvalidInputError("the points of a residual are not increasing along one axis; sort them")
        _reading.choice("definition", definition, ("caputo", "riemann_liouville"))
        self.order = as_order(alpha)
        if self.order.channels is not None:
            raise ShapeError("a residual has one order; give a single number")
        self.definition = definition
        self.axis = axis
        self.register_buffer("points", points.detach().double())

    def forward(self, u: Tensor, right: Tensor | float = 0.0) -> Tensor:
        """The residual at every point, the first included."""
        check_tensor(u)
        if u.shape[self.axis] != self.points.shape[0]:
            raise ShapeError(
                f"values of shape {tuple(u.shape)} at {self.points.shape[0]} points along axis {self.axis}; give one "
                "value for each point"
            )
        order, value = split_order(self.order)
        return _derivative([u, self.points, *order], value, self.order.ceiling, self.definition, self.axis)[0] - right

    def extra_repr(self) -> str:
        """Order, definition and number of points."""
        return (
            f"alpha={shown_order(self.order)}, definition={self.definition!r}, points={self.points.shape[0]}, "
            f"axis={self.axis}"
        )


def _like_first(tensors: list[Tensor], *_: Any) -> list[Tensor]:
    return [torch.empty_like(tensors[0], memory_format=torch.contiguous_format)]


@opaque(_like_first)
def _derivative(tensors: list[Tensor], value: Any, ceiling: int | None, definition: str, axis: int) -> tuple[Tensor]:
    u, points, *order = tensors
    kind: Any = find_definition(definition, "derivative")
    options: dict[str, Any] = {} if ceiling is None else {"ceiling": ceiling}
    with torch.autocast(u.device.type, enabled=False):
        found: Tensor = kind(joined_order(order, value), **options)(u, points.detach().cpu().numpy(), axis=axis)
    return (found,)


@final
class LaplacianResidual(nn.Module):
    r"""The residual :math:`(-\Delta)^{\alpha/2} u - r` in space, on a uniform grid.

    Computed by :func:`hpfracc.fractional_laplacian`, with its constants.

    Parameters
    ----------
    alpha : float, Tensor, Parameter or LearnableOrder
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

    def __init__(
        self,
        alpha: OrderLike = 1.0,
        *,
        step: float = 1.0,
        method: str = "auto",
        axis: int | Sequence[int] | None = None,
        backend: Any = None,
    ) -> None:
        super().__init__()
        self.order = as_order(alpha)
        if self.order.channels is not None:
            raise ShapeError("a residual has one order; give a single number")
        self.step = _reading.number("step", step, above=0)
        self.options: dict[str, Any] = {
            "method": method,
            "axis": axis,
            "backend": None if backend is None else check_backend(backend, auto=True),
        }

    def forward(self, u: Tensor, right: Tensor | float = 0.0) -> Tensor:
        """The residual at every point."""
        check_tensor(u)
        order, value = split_order(self.order)
        return _laplacian([u, *order], value, self.step, *self.options.values())[0] - right

    def extra_repr(self) -> str:
        """Order and step."""
        return f"alpha={shown_order(self.order)}, step={self.step:g}"


@opaque(_like_first)
def _laplacian(tensors: list[Tensor], value: Any, step: float, method: str, axis: Any, backend: Any) -> tuple[Tensor]:
    u, *order = tensors
    alpha = joined_order(order, value)
    with torch.autocast(u.device.type, enabled=False):
        found: Tensor = fractional_laplacian(u, alpha=alpha, step=step, method=method, axis=axis, backend=backend)
    return (found,)
