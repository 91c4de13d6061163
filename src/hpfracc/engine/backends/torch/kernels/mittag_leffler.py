"""``mittag_leffler`` in PyTorch: z sorted into the plan's bands, with its own derivative rule.

The rule calls the same function one order higher, so that autograd keeps one tensor and goes on to any order, forwards
and backwards; ``vmap`` folds its axis into the batch, the function being elementwise.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.primitives._mittag_leffler_plan import make_plan
from hpfracc.engine.primitives._mittag_leffler_poles import Namespace
from hpfracc.engine.primitives._mittag_leffler_sum import band_value, taylor_value

__all__ = ["KERNELS", "mittag_leffler_contour"]

#: Values of z taken at once, on the host (a megabyte of fractions) and on a device (some hundred megabytes).
_HOST_BLOCK = 2048
_DEVICE_BLOCK = 1 << 18


class _MittagLeffler(torch.autograd.Function):
    @staticmethod
    def forward(z: Tensor, alpha: float, beta: float, order: int) -> Tensor:
        return _evaluate(z, alpha, beta, order)

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


def mittag_leffler_contour(z: Tensor, *, alpha: float, beta: float = 1.0, order: int = 0) -> Tensor:
    """The ``order``-th derivative of E_{alpha,beta} at ``z``, in the dtype and on the device of ``z``."""
    value: Tensor = _MittagLeffler.apply(z, float(alpha), float(beta), int(order))
    return value


def _evaluate(z: Tensor, alpha: float, beta: float, order: int) -> Tensor:
    plan = make_plan(alpha, beta, order)
    points = z.detach().reshape(-1).to(torch.complex128 if z.is_complex() else torch.float64)
    tools = Namespace(torch, torch.complex, lambda values: torch.as_tensor(values, device=points.device))
    values = torch.empty_like(points)
    radius = points.abs()
    edges = torch.as_tensor(plan.edges, device=points.device)
    band_of = torch.where(radius > plan.radius, torch.searchsorted(edges, radius, right=True) - 1, -1)
    size = _HOST_BLOCK if points.is_cpu else _DEVICE_BLOCK
    for index in torch.unique(band_of).tolist():
        for where in torch.nonzero(band_of == index)[:, 0].split(size):
            if index < 0:
                values[where] = taylor_value(plan, points[where])
            else:
                values[where] = band_value(tools, plan, index, points[where])
    values = _limits(alpha, points, radius, values)
    return values.reshape(z.shape).to(z.dtype)


def _limits(alpha: float, points: Tensor, radius: Tensor, values: Tensor) -> Tensor:
    """At infinity: inf to the right of the real axis, 0 to the left below alpha = 2; elsewhere there is no limit."""
    limit = torch.where(points.real > 0, torch.inf, 0.0 if alpha < 2 else torch.nan).to(radius.dtype)
    if points.is_complex():
        limit = torch.where(points.imag == 0, limit, torch.nan)
    return torch.where(torch.isinf(radius), limit.to(values.dtype), values)


KERNELS: dict[str, Kernel] = {"contour": Kernel(mittag_leffler_contour)}
