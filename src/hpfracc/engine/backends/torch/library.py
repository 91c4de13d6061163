"""PyTorch for generic kernels: nothing is overwritten that autograd or a transform tracks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from hpfracc._torch_transforms import is_wrapped
from hpfracc.engine.backends.generic.library import Library
from hpfracc.engine.backends.torch.tracking import is_eager, is_readable, multiply_over, untracked

#: Steps of a part, of which autograd stores only the ends.
_PART = 1 << 14


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


def _is_recorded(tensors: tuple[Tensor, ...]) -> bool:
    wanted = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    return wanted and not any(map(is_wrapped, tensors))


class TorchLibrary(Library):
    """On the host and on GPUs."""

    def unrecorded(self, prepare: Callable[..., Any]) -> Callable[..., Any]:
        """Outside of inference mode, autograd and transforms."""
        return untracked(prepare)

    def multiply(self, product: Tensor, factor: Tensor) -> Tensor:
        """In place if nothing tracks it."""
        return multiply_over(product, factor)

    def widen(self, array: Tensor) -> Tensor:
        """Single precision as double on a GPU, because the user may have enabled TF32 for matrix products."""
        if array.is_cpu:
            return array
        return array.to(torch.complex128 if array.is_complex() else torch.float64)

    def is_readable(self, array: Tensor) -> bool:
        """On the host, outside of transforms and compilation."""
        return is_readable(array)

    def all_finite(self, array: Tensor) -> bool:
        """On the host."""
        return is_readable(array) and bool(torch.isfinite(array.detach()).all())

    def add_from(self, result: Tensor, place: int, values: Tensor) -> Tensor:
        """In place if nothing tracks it."""
        if is_eager(result, values):
            result[..., place:] += values
            return result
        return result + functional.pad(values, (place, 0))

    def recomputed(self, function: Callable[..., Any], *tensors: Tensor) -> Callable[..., Any]:
        """By PyTorch's checkpoints, if autograd records a tensor."""
        return partial(checkpoint, function, use_reentrant=False) if _is_recorded(tensors) else function

    def is_differentiated(self, *arrays: Tensor) -> bool:
        """By autograd or a transform."""
        return not is_eager(*arrays)

    def part_length(self, n: int, *arrays: Tensor) -> int:
        """Parts if autograd records an array."""
        return min(n, _PART) if _is_recorded(arrays) else n

    def segments(self, n: int, states: int, array: Tensor) -> int:
        """Few enough to stay in a cache on the host, enough to fill a GPU."""
        return max(1, min((1 << 14 if array.is_cpu else 1 << 19) // states, math.isqrt(n)))

    def functions(self, names: Iterable[str]) -> Mapping[str, Callable[..., Any]]:
        """PyTorch's, and NumPy's meaning of some."""
        own = {"minimum": _with_numbers(torch.minimum), "maximum": _with_numbers(torch.maximum)}
        return {
            **{name: getattr(torch, name) for name in names if hasattr(torch, name)},
            **own,
            "power": torch.pow,
            "sign": _sign,
        }


LIBRARY = TorchLibrary("torch")
