"""E_{a,b} and its derivatives in PyTorch: an autograd function of z, and of the two parameters where they are tensors.

Each rule calls the same function one order higher, so that autograd keeps z alone and goes on, forwards and backwards;
``vmap`` folds an axis of z into the batch, the function being elementwise, and takes parameters one after the other.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from hpfracc.engine.primitives._mittag_leffler_numpy import STRETCH
from hpfracc.engine.primitives._mittag_leffler_plan import Plan, check_parameters, make_plan
from hpfracc.engine.primitives._mittag_leffler_poles import Namespace
from hpfracc.engine.primitives._mittag_leffler_sum import band_value, taylor_value, values_together

__all__ = ["of_parameters", "of_z"]

#: Values of z taken at once on the host: a megabyte of fractions.
_HOST_BLOCK = 2048


class _MittagLeffler(torch.autograd.Function):
    """Differentiable in z; the parameters are numbers."""

    @staticmethod
    def forward(z: Tensor, alpha: float, beta: float, order: int) -> Tensor:
        return _evaluate(z, make_plan(alpha, beta, order))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        z, *ctx.params = inputs
        ctx.save_for_backward(z)
        ctx.save_for_forward(z)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        (z,) = ctx.saved_tensors
        alpha, beta, order = ctx.params
        return gradients[0] * _MittagLeffler.apply(z, alpha, beta, order + 1).conj(), None, None, None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        (z,) = ctx.saved_tensors
        alpha, beta, order = ctx.params
        slope: Tensor = tangents[0] * _MittagLeffler.apply(z, alpha, beta, order + 1)
        return slope

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], z: Tensor, *params: Any) -> tuple[Tensor, int | None]:
        return _MittagLeffler.apply(z, *params), in_dims[0]


class _OfParameters(torch.autograd.Function):
    """Differentiable in z, alpha and beta: ``order`` times in z so far, ``logs`` times in beta."""

    @staticmethod
    def forward(z: Tensor, alpha: Tensor, beta: Tensor, order: int, logs: int) -> Tensor:
        a, b = float(alpha), float(beta)
        check_parameters(a, b)
        return _evaluate(z, make_plan(a, b, order, logs))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        *tensors, ctx.order, ctx.logs = inputs
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        z, alpha, beta = ctx.saved_tensors
        (gradient,) = gradients
        slopes: list[Tensor | None] = [None, None, None]
        if ctx.needs_input_grad[0]:
            slopes[0] = gradient * _OfParameters.apply(z, alpha, beta, ctx.order + 1, ctx.logs).conj()
        for i, slope, parameter in ((1, _slope_in_alpha, alpha), (2, _slope_in_beta, beta)):
            if ctx.needs_input_grad[i]:
                total = (gradient * slope(z, alpha, beta, ctx.order, ctx.logs).conj()).sum()
                slopes[i] = (total.real if total.is_complex() else total).to(parameter)
        return (*slopes, None, None)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        z, alpha, beta = ctx.saved_tensors
        total = torch.zeros_like(z)
        if tangents[0] is not None:
            total = total + tangents[0] * _OfParameters.apply(z, alpha, beta, ctx.order + 1, ctx.logs)
        for tangent, slope in zip(tangents[1:3], (_slope_in_alpha, _slope_in_beta), strict=True):
            if tangent is not None:
                total = total + tangent.to(total) * slope(z, alpha, beta, ctx.order, ctx.logs)
        return total

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Tensor, int | None]:
        if in_dims[1] is None and in_dims[2] is None:
            return _OfParameters.apply(*inputs), in_dims[0]
        rows = []
        for i in range(info.batch_size):
            row = [part if dim is None else part.select(dim, i) for part, dim in zip(inputs, in_dims, strict=True)]
            rows.append(_OfParameters.apply(*row))
        return torch.stack(rows), 0


def _slope_in_beta(z: Tensor, alpha: Tensor, beta: Tensor, order: int, logs: int) -> Tensor:
    slope: Tensor = _OfParameters.apply(z, alpha, beta, order, logs + 1)
    return slope


def _slope_in_alpha(z: Tensor, alpha: Tensor, beta: Tensor, order: int, logs: int) -> Tensor:
    """``(d/da) E = z (d/dz) (d/db) E``, differentiated ``order`` times more."""
    slope: Tensor = z * _OfParameters.apply(z, alpha, beta, order + 1, logs + 1)
    return slope + order * _OfParameters.apply(z, alpha, beta, order, logs + 1) if order else slope


def of_z(z: Tensor, alpha: float, beta: float, order: int) -> Tensor:
    """The ``order``-th derivative of E_{alpha,beta} at ``z``, in its dtype and on its device."""
    value: Tensor = _MittagLeffler.apply(z, alpha, beta, order)
    return value


def of_parameters(z: Any, alpha: Any, beta: Any) -> Tensor:
    """E_{alpha,beta}(z) where a parameter is a tensor of one element, through which derivatives flow."""
    owner = next(value for value in (z, alpha, beta) if isinstance(value, Tensor))
    if not isinstance(z, Tensor):
        z = torch.as_tensor(z, device=owner.device)
    if not (z.is_floating_point() or z.is_complex()):
        z = z.to(torch.float64)
    numbers = [
        value.reshape(()) if isinstance(value, Tensor) else torch.tensor(float(value), dtype=torch.float64)
        for value in (alpha, beta)
    ]
    value: Tensor = _OfParameters.apply(z, *numbers, 0, 0)
    return value


def _evaluate(z: Tensor, plan: Plan) -> Tensor:
    flat = z.detach().reshape(-1)
    if not flat.is_cpu or flat.numel() <= STRETCH:
        return _values(flat, plan).reshape(z.shape).to(z.dtype)
    # Sorting takes several times the memory of z: on the host, where cores are few, stretch by stretch.
    result = torch.empty_like(flat)
    for begin in range(0, flat.numel(), STRETCH):
        result[begin : begin + STRETCH] = _values(flat[begin : begin + STRETCH], plan)
    return result.reshape(z.shape)


def _values(z: Tensor, plan: Plan) -> Tensor:
    """The values of one stretch, in double precision."""
    points = z.to(torch.complex128 if z.is_complex() else torch.float64)
    tools = Namespace(torch, torch.complex, lambda values: torch.as_tensor(values, device=points.device))
    values = torch.empty_like(points)
    radius = points.abs()
    edges = torch.as_tensor(plan.edges, device=points.device)
    band_of = torch.where(radius > plan.radius, torch.searchsorted(edges, radius, right=True) - 1, -1)
    size = _HOST_BLOCK if points.is_cpu else values_together(points.numel())
    for index in torch.unique(band_of).tolist():
        for where in torch.nonzero(band_of == index)[:, 0].split(size):
            if index < 0:
                values[where] = taylor_value(plan, points[where])
            else:
                values[where] = band_value(tools, plan, index, points[where])
    return _limits(plan, points, radius, values)


def _limits(plan: Plan, points: Tensor, radius: Tensor, values: Tensor) -> Tensor:
    """At infinity: inf to the right of the real axis, 0 to the left below alpha = 2; elsewhere there is no limit."""
    limit = torch.where(points.real > 0, math.inf * (-1) ** plan.logs, 0.0 if plan.alpha < 2 else math.nan).to(
        radius.dtype
    )
    if points.is_complex():
        limit = torch.where(points.imag == 0, limit, torch.nan)
    return torch.where(torch.isinf(radius), limit.to(values.dtype), values)
