"""Making what is kept: a tensor that outlives the call must not belong to whatever surrounds that call."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch

__all__ = ["kept"]

P = ParamSpec("P")
T = TypeVar("T")


def kept(prepare: Callable[P, T]) -> Callable[P, T]:
    """``prepare`` made outside of inference mode, of recording and of ``torch.func`` transforms.

    A tensor made in inference mode cannot be saved for a derivative later, and one made inside a transform is wrapped
    at a level that is gone afterwards. The operand itself is a plain tensor: others are never kept.
    """

    @functools.wraps(prepare)
    def outside(*args: P.args, **kwargs: P.kwargs) -> T:
        with torch.inference_mode(False), torch.no_grad(), torch._C._DisableFuncTorch():
            return prepare(*args, **kwargs)

    return outside
