"""Formulae over arrays in PyTorch, one operation after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.numerics.expression import FUNCTIONS, parse_expression

__all__ = ["KERNELS"]


def _with_numbers(function: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Any, Any], Tensor]:
    """``function``, of which one argument may be a plain number, as NumPy allows."""

    def call(a: Any, b: Any) -> Tensor:
        if not isinstance(a, Tensor):
            a = torch.full((), a, dtype=b.dtype, device=b.device)
        elif not isinstance(b, Tensor):
            b = torch.full((), b, dtype=a.dtype, device=a.device)
        return function(a, b)

    return call


def _sign(x: Tensor) -> Tensor:
    """The sign, nan for nan as in NumPy; PyTorch's own gives 0 there."""
    return torch.where(torch.isnan(x), x, torch.sign(x))


_FUNCTIONS: Mapping[str, Callable[..., Tensor]] = {
    **{name: getattr(torch, name) for name in FUNCTIONS if hasattr(torch, name)},
    "minimum": _with_numbers(torch.minimum),
    "maximum": _with_numbers(torch.maximum),
    "power": torch.pow,
    "sign": _sign,
}


@lru_cache(maxsize=1024)
def _function(expression: str, names: tuple[str, ...]) -> Callable[..., Tensor]:
    return parse_expression(expression, names).compile_for(_FUNCTIONS)


def evaluate(*arrays: Tensor, expression: str, names: Sequence[str]) -> Tensor:
    """The formula over broadcast arrays."""
    result = _function(expression, tuple(names))(*arrays)
    # A formula that is only a name returns that array, but the caller may change a kernel's result.
    return result.clone() if any(result is array for array in arrays) else result


KERNELS: dict[str, Kernel] = {"default": Kernel(evaluate)}
