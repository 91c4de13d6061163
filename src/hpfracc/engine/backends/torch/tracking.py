"""What tracks a tensor: autograd, ``torch.func`` transforms, forward mode, compilation.

This determines whether results may be written into buffers, whether a value may be read, and what can be cached.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor

from hpfracc._torch_transforms import find_probes, is_dual, is_symbolic, outside_transforms

P = ParamSpec("P")
T = TypeVar("T")


def is_eager(*tensors: Tensor) -> bool:
    """Whether nothing tracks these tensors, so that results may be written into buffers."""
    return is_only_recorded(*tensors) and not (torch.is_grad_enabled() and any(map(_wants_gradient, tensors)))


def is_only_recorded(*tensors: Tensor) -> bool:
    """Whether only autograd tracks these tensors: no transform, no forward mode, no compilation.

    While a transform of ``torch.func`` is active, other tensors count as transformed too: PyTorch then refuses autograd
    functions that have no rules for it.
    """
    if torch.compiler.is_compiling() or _innermost() is not None or any(map(is_symbolic, tensors)):
        return False
    return _level() < 0 or not any(map(is_dual, tensors))


_is_wrapped, _innermost, _level, _ = find_probes()
_wants_gradient = operator.attrgetter("requires_grad")


def is_readable(signal: Tensor) -> bool:
    """Whether a value can be read now, without waiting for a device."""
    return signal.is_cpu and not (_is_wrapped(signal) or is_symbolic(signal) or torch.compiler.is_compiling())


def multiply_over(product: Tensor, factor: Tensor) -> Tensor:
    """``product * factor``, written over ``product`` if it fits and nothing tracks it."""
    if (
        (product.is_complex() or not factor.is_complex())
        and is_eager(product, factor)
        and torch.broadcast_shapes(product.shape, factor.shape) == product.shape
    ):
        return product.mul_(factor)
    return product * factor


def untracked(prepare: Callable[P, T]) -> Callable[P, T]:
    """``prepare`` run outside of inference mode, autograd recording and ``torch.func`` transforms.

    A tensor created in inference mode cannot be saved for a later derivative, and one created inside a transform is
    wrapped at a level that no longer exists afterwards. The operand is a plain tensor; others are never cached.
    """

    @functools.wraps(prepare)
    def outside(*args: P.args, **kwargs: P.kwargs) -> T:
        with torch.inference_mode(False), torch.no_grad(), outside_transforms():
            return prepare(*args, **kwargs)

    return outside
