"""Exponential recurrence in PyTorch: segments of the signal in parallel.

Compositions of PyTorch operations, which support autograd (also twice) and ``torch.func``, in rates, weights and steps
too. For non-uniform steps autograd would store the states of every step, so the signal is processed in parts whose
states are recomputed in the backward pass.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from hpfracc._torch_transforms import is_wrapped
from hpfracc._xp import namespace
from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.backends.torch.nonfinite import clean
from hpfracc.engine.backends.torch.tracking import is_eager
from hpfracc.engine.numerics.recurrence import own_steps, taint, uniform_steps

__all__ = ["KERNELS", "recur_blocked"]

#: States that are processed together on the host, where they should stay in cache, and on a GPU.
_STATES_TOGETHER = {True: 1 << 14, False: 1 << 19}


_XP = namespace("torch")
#: Steps of a part, of which autograd stores only the ends.
_PART = 1 << 14


def recur_blocked(
    rates: Tensor,
    weights: Tensor,
    steps: Tensor,
    signal: Tensor,
    initial: Tensor,
    *,
    degree: int | None = None,
    lagged: bool = False,
    final: bool = False,
) -> Tensor:
    """Values, followed by the final states if requested."""
    rates, weights, steps = (tensor.to(torch.float64) for tensor in (rates, weights, steps))
    complex_ = signal.is_complex() or initial.is_complex()
    inexact = signal.is_floating_point() or signal.is_complex()
    kind = signal.dtype if inexact else torch.float64
    kind = kind.to_complex() if complex_ else kind
    wide = torch.complex128 if complex_ else torch.float64
    batch = torch.broadcast_shapes(signal.shape[:-1], initial.shape[:-1])
    n, terms = signal.shape[-1], rates.shape[0]
    x = signal.to(wide).expand((*batch, n))
    start = initial.to(wide).expand((*batch, terms))
    if not n or not terms or 0 in batch:
        parts = [x * 0, start] if final else [x * 0]
        return torch.cat(parts, -1).to(kind).clone()
    operand, from_ = clean(x), clean(start)
    if steps.numel() == 1:
        y, last = uniform_steps(_XP, rates, weights, steps.reshape(()), operand, from_, degree, lagged)
    else:
        y, last = _own_steps(rates, weights, steps, operand, from_, degree, lagged)
    y, last = taint(_XP, y, last, x.detach(), start.detach(), lagged)
    return (torch.cat([y, last], -1) if final else y).to(kind)


def _own_steps(
    rates: Tensor, weights: Tensor, steps: Tensor, x: Tensor, state: Tensor, degree: int | None, lagged: bool
) -> tuple[Tensor, Tensor]:
    n = x.shape[-1]
    tensors = (rates, weights, steps, x, state)
    mapped = any(map(is_wrapped, tensors))
    keeps = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors) and not mapped
    smooth = not is_eager(*tensors)
    part = _PART if keeps else n
    values = []
    for first in range(0, n, part):
        inputs = (
            rates,
            weights,
            steps[first : first + part],
            x[..., first : first + part],
            state,
            degree,
            lagged,
            smooth,
        )
        y, state = checkpoint(_stretches, *inputs, use_reentrant=False) if keeps and n > part else _stretches(*inputs)
        values.append(y)
    return (values[0] if len(values) == 1 else torch.cat(values, -1)), state


def _stretches(
    rates: Tensor,
    weights: Tensor,
    steps: Tensor,
    x: Tensor,
    state: Tensor,
    degree: int | None,
    lagged: bool,
    smooth: bool,
) -> tuple[Tensor, Tensor]:
    n = x.shape[-1]
    rows = rates.shape[0] * max(1, x.numel() // n)
    together = max(1, min(_STATES_TOGETHER[x.is_cpu] // rows, math.isqrt(n)))
    return own_steps(_XP, rates, weights, steps, x, state, degree, lagged, together, smooth)


KERNELS: dict[str, Kernel] = {"blocked": Kernel(recur_blocked)}
