"""Special functions that PyTorch lacks, for tensors, with derivative rules: Gamma and its relatives, and E_{a,b}.

E_{a,b} is an autograd function of z, and of the two parameters if they are tensors. Each rule calls the same function
one order higher, so that autograd stores only z and supports further derivatives, in forward and reverse mode; ``vmap``
folds an axis of z and of the parameters into the batch, because the function is elementwise.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch
from scipy import special
from torch import Tensor

from hpfracc._xp import namespace
from hpfracc.engine.numerics.gamma import beta_value, digamma_value, gamma_value
from hpfracc.engine.numerics.mittag_leffler_plan import ContourPlan, check_parameters, make_contour_plan
from hpfracc.engine.numerics.mittag_leffler_values import evaluate, pairs_of
from hpfracc.errors import UnsupportedDtypeError


def _operands(name: str, *values: Any) -> list[Tensor]:
    first = next(value for value in values if isinstance(value, Tensor))
    # By NumPy, because PyTorch would round numbers to float32.
    tensors = [
        value if isinstance(value, Tensor) else torch.as_tensor(np.asarray(value), device=first.device)
        for value in values
    ]
    if any(tensor.is_complex() for tensor in tensors):
        raise UnsupportedDtypeError(f"{name}: PyTorch supports real numbers only; convert the tensor to NumPy")
    typed = zip(values, tensors, strict=True)
    floating = [tensor for value, tensor in typed if hasattr(value, "dtype") and tensor.is_floating_point()]
    kinds = [tensor.dtype for tensor in floating if tensor.ndim] or [tensor.dtype for tensor in floating]
    dtype = functools.reduce(torch.promote_types, kinds) if kinds else torch.float64
    return [tensor.to(dtype) for tensor in tensors]


class _Gamma(torch.autograd.Function):
    """The Gamma function, which PyTorch has only as a logarithm."""

    generate_vmap_rule = True

    @staticmethod
    def forward(z: Tensor) -> Tensor:
        return gamma_value(namespace("torch"), z.to(torch.float64)).to(z.dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(inputs[0])
        ctx.save_for_forward(inputs[0])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (z,) = ctx.saved_tensors
        return gradients[0] * _Gamma.apply(z) * digamma(z)

    jvp = backward


def gamma(z: Any) -> Tensor:
    """Gamma(z)."""
    (z,) = _operands("gamma", z)
    return _Gamma.apply(z)


def digamma(z: Any) -> Tensor:
    """psi(z)."""
    (z,) = _operands("digamma", z)
    return digamma_value(namespace("torch"), z, torch.special.digamma)


def beta(a: Any, b: Any) -> Tensor:
    """B(a, b)."""
    a, b = torch.broadcast_tensors(*_operands("beta", a, b))
    return beta_value(namespace("torch"), a, b, gamma)


class _IncompleteBeta(torch.autograd.Function):
    """SciPy's values; the derivative in x is elementary, those in a and b are not provided."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, x: Tensor) -> Tensor:
        ctx.save_for_backward(a, b, x)
        value = special.betainc(*(tensor.detach().cpu().double().numpy() for tensor in (a, b, x)))
        return torch.as_tensor(value, dtype=x.dtype, device=x.device)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None, Tensor]:
        a, b, x = ctx.saved_tensors
        density = x ** (a - 1) * (1 - x) ** (b - 1) / beta(a, b)
        return None, None, gradients[0] * density


def incomplete_beta(a: Any, b: Any, x: Any) -> Tensor:
    """I_x(a, b), with its gradient in x."""
    a, b, x = torch.broadcast_tensors(*_operands("incomplete_beta", a, b, x))
    if torch.is_grad_enabled() and (a.requires_grad or b.requires_grad):
        raise UnsupportedDtypeError("incomplete_beta: PyTorch has no gradient in a and b; detach them, or use JAX")
    return _IncompleteBeta.apply(a, b, x)


class _MittagLeffler(torch.autograd.Function):
    """Differentiable in z, alpha and beta: ``order`` times in z so far, ``logs`` times in beta.

    The parameters are both scalars, or both of the shape of z, a pair for each of its elements.
    """

    @staticmethod
    def forward(z: Tensor, alpha: Tensor, beta: Tensor, order: int, logs: int) -> Tensor:
        if alpha.ndim:
            return _evaluate_pairs(z, alpha, beta, order, logs)
        a, b = float(alpha), float(beta)
        check_parameters(a, b)
        return _evaluate(z, make_contour_plan(a, b, order, logs))

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
            slopes[0] = gradient * _MittagLeffler.apply(z, alpha, beta, ctx.order + 1, ctx.logs).conj()
        for i, slope, parameter in ((1, _slope_in_alpha, alpha), (2, _slope_in_beta, beta)):
            if ctx.needs_input_grad[i]:
                total = gradient * slope(z, alpha, beta, ctx.order, ctx.logs).conj()
                total = total if parameter.ndim else total.sum()
                slopes[i] = (total.real if total.is_complex() else total).to(parameter)
        return (*slopes, None, None)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        z, alpha, beta = ctx.saved_tensors
        total = torch.zeros_like(z)
        if tangents[0] is not None:
            total = total + tangents[0] * _MittagLeffler.apply(z, alpha, beta, ctx.order + 1, ctx.logs)
        for tangent, slope in zip(tangents[1:3], (_slope_in_alpha, _slope_in_beta), strict=True):
            if tangent is not None:
                total = total + tangent.to(total) * slope(z, alpha, beta, ctx.order, ctx.logs)
        return total

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Tensor, int | None]:
        z, alpha, beta, order, logs = inputs
        if in_dims[1] is None and in_dims[2] is None and not alpha.ndim:
            return _MittagLeffler.apply(*inputs), in_dims[0]
        # All with the batch first and then the axes of z.
        parts = [
            part.unsqueeze(0) if dim is None else part.movedim(dim, 0)
            for part, dim in zip((z, alpha, beta), in_dims[:3], strict=True)
        ]
        shape = (info.batch_size, *parts[0].shape[1:])
        whole = [part.reshape(part.shape + (1,) * (len(shape) - part.ndim)).expand(shape) for part in parts]
        return _MittagLeffler.apply(*whole, order, logs), 0


def _slope_in_beta(z: Tensor, alpha: Tensor, beta: Tensor, order: int, logs: int) -> Tensor:
    return _MittagLeffler.apply(z, alpha, beta, order, logs + 1)


def _slope_in_alpha(z: Tensor, alpha: Tensor, beta: Tensor, order: int, logs: int) -> Tensor:
    """``(d/da) E = z (d/dz) (d/db) E``, differentiated ``order`` times more."""
    slope: Tensor = z * _MittagLeffler.apply(z, alpha, beta, order + 1, logs + 1)
    return slope + order * _MittagLeffler.apply(z, alpha, beta, order, logs + 1) if order else slope


def of_z(z: Tensor, *, alpha: float, beta: float = 1.0, order: int = 0) -> Tensor:
    """The ``order``-th derivative of E_{alpha,beta} at ``z``, in its dtype and on its device."""
    numbers = (torch.tensor(float(value), dtype=torch.float64) for value in (alpha, beta))
    return _MittagLeffler.apply(z, *numbers, int(order), 0)


def of_parameters(z: Any, alpha: Any, beta: Any) -> Tensor:
    """E_{alpha,beta}(z) with differentiable array parameters; all broadcast."""
    owner = next(value for value in (z, alpha, beta) if isinstance(value, Tensor))
    if not isinstance(z, Tensor):
        z = torch.as_tensor(z, device=owner.device)
    if not (z.is_floating_point() or z.is_complex()):
        z = z.to(torch.float64)
    numbers = [
        value if isinstance(value, Tensor) else torch.as_tensor(np.asarray(value, dtype=np.float64))
        for value in (alpha, beta)
    ]
    if all(number.numel() == 1 and number.ndim <= z.ndim for number in numbers):
        numbers = [number.reshape(()) for number in numbers]
    else:
        z, *numbers = torch.broadcast_tensors(z, *(number.to(z.device) for number in numbers))
    return _MittagLeffler.apply(z, *numbers, 0, 0)


def _evaluate_pairs(z: Tensor, alpha: Tensor, beta: Tensor, order: int, logs: int) -> Tensor:
    flat = z.detach().reshape(-1)
    result = torch.empty_like(flat)
    host = (number.detach().to("cpu", torch.float64).numpy() for number in (alpha, beta))
    for (a, b), where in pairs_of(*host):
        check_parameters(a, b)
        place = torch.as_tensor(where, device=z.device)
        result[place] = _evaluate(flat[place], make_contour_plan(a, b, order, logs))
    return result.reshape(z.shape)


def _evaluate(z: Tensor, plan: ContourPlan) -> Tensor:
    return evaluate(z.detach(), plan, namespace("torch", z.device))
