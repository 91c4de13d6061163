"""Gamma and related functions that PyTorch lacks, for tensors, with derivative rules."""

from __future__ import annotations

from typing import Any

import torch
from scipy import special
from torch import Tensor

from hpfracc._xp import namespace
from hpfracc.engine.numerics.gamma import beta_value, gamma_value
from hpfracc.errors import UnsupportedDtypeError


def _operands(name: str, *values: Any) -> list[Tensor]:
    first = next(value for value in values if isinstance(value, Tensor))
    tensors = [value if isinstance(value, Tensor) else torch.as_tensor(value, device=first.device) for value in values]
    if any(tensor.is_complex() for tensor in tensors):
        raise UnsupportedDtypeError(f"{name}: PyTorch supports real numbers only; convert the tensor to NumPy")
    floating = [tensor.dtype for tensor in tensors if tensor.is_floating_point() and tensor.ndim] or [
        tensor.dtype for tensor in tensors if tensor.is_floating_point()
    ]
    dtype = floating[0] if floating else torch.float64
    for other in floating:
        dtype = torch.promote_types(dtype, other)
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
        return gradients[0] * _Gamma.apply(z) * torch.special.digamma(z)

    jvp = backward


def gamma(z: Any) -> Tensor:
    """Gamma(z)."""
    (z,) = _operands("gamma", z)
    return _Gamma.apply(z)


def digamma(z: Any) -> Tensor:
    """psi(z)."""
    (z,) = _operands("digamma", z)
    return torch.special.digamma(z)


def beta(a: Any, b: Any) -> Tensor:
    """B(a, b), by Gamma if that stays in range, otherwise by its logarithm."""
    a, b = torch.broadcast_tensors(*_operands("beta", a, b))
    return beta_value(namespace("torch"), a, b, gamma, torch.special.gammaln)


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
