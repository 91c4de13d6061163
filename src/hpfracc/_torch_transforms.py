"""What PyTorch's transforms do to tensors: ``torch.func``, forward mode, and gradients in batches.

PyTorch has no public function for any of these questions, so its private ones are called here, and nowhere else. Who
asks has a tensor: PyTorch is imported already, and ``sys.modules`` is enough.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

#: The functions themselves, for callers that ask about every tensor of every call: ``PROBES or find_probes()``, because
#: looking them up takes longer than calling them. Whether a transform of ``torch.func`` wraps a tensor; the innermost
#: such transform that is active in this thread, or None; the level of forward mode, negative outside of it; and whether
#: ``torch.use_deterministic_algorithms`` is on. Empty until the first tensor.
PROBES: list[Callable[..., Any]] = []


def find_probes() -> list[Callable[..., Any]]:
    """Fill ``PROBES``."""
    torch = sys.modules["torch"]
    functorch = torch._C._functorch
    # The level is a variable of the module. Its lookup as a partial needs no frame of Python.
    level = functools.partial(vars(torch.autograd.forward_ad).__getitem__, "_current_level")
    PROBES[:] = (
        functorch.is_functorch_wrapped_tensor,
        functorch.peek_interpreter_stack,
        level,
        torch.are_deterministic_algorithms_enabled,
    )
    return PROBES


def is_wrapped(tensor: Any) -> bool:
    """Whether a transform of ``torch.func`` wraps a tensor."""
    return bool(sys.modules["torch"]._C._functorch.is_functorch_wrapped_tensor(tensor))


def is_inside() -> bool:
    """Whether a transform of ``torch.func`` is active in this thread."""
    return sys.modules["torch"]._C._functorch.maybe_current_level() is not None


def is_inactive() -> bool:
    """Whether neither ``torch.func`` nor forward mode is active in this thread."""
    _, innermost, level, _ = PROBES or find_probes()
    return innermost() is None and level() < 0


def is_deterministic() -> bool:
    """Whether ``torch.use_deterministic_algorithms`` is on."""
    torch = sys.modules.get("torch")  # None if a placement is only imagined
    return torch is not None and bool(torch.are_deterministic_algorithms_enabled())


def is_dual(tensor: Any) -> bool:
    """Whether a tensor has a tangent of forward mode."""
    forward_ad = sys.modules["torch"].autograd.forward_ad
    return forward_ad._current_level >= 0 and forward_ad.unpack_dual(tensor).tangent is not None


def is_batched(tensor: Any) -> bool:
    """Whether PyTorch's older vmap wraps a tensor, which ``is_grads_batched`` still uses."""
    return bool(sys.modules["torch"]._C._functorch.is_legacy_batchedtensor(tensor))


#: Whether a type of tensor stands for others while PyTorch traces: fake tensors and functional ones.
_SYMBOLIC: dict[type, bool] = {}


def is_symbolic(tensor: Any) -> bool:
    """Whether a tensor stands for another one while PyTorch traces, as in ``torch.export``: it has no values."""
    kind = type(tensor)
    known = _SYMBOLIC.get(kind)
    if known is None:
        known = _SYMBOLIC[kind] = any(base.__module__.startswith("torch._subclasses") for base in kind.__mro__)
    return known


def is_tracing() -> bool:
    """Whether PyTorch imitates operations with fake tensors in this thread; it mixes them with no other tensors."""
    functions = getattr(sys.modules.get("torch"), "_C", None)
    if functions is None or not functions._len_torch_dispatch_stack():
        return False
    kinds = functions._TorchDispatchModeKey
    return any(functions._get_dispatch_mode(kind) is not None for kind in (kinds.FAKE, kinds.FUNCTIONAL))


def is_lasting(tensor: Any) -> bool:
    """Whether a tensor can be used after the call that made it: it belongs to no trace, transform or graph."""
    return not (
        is_symbolic(tensor)
        or is_wrapped(tensor)
        or tensor.is_inference()
        or tensor.requires_grad
        or sys.modules["torch"]._is_functional_tensor(tensor)
        or is_dual(tensor)
    )


def without_gradients(tensor: Any) -> Any:
    """The tensor inside the wrappers of ``torch.func.grad`` and ``jvp``; those of ``vmap`` remain."""
    functorch = sys.modules["torch"]._C._functorch
    while functorch.is_gradtrackingtensor(tensor):
        tensor = functorch.get_unwrapped(tensor)
    return tensor


def outside_transforms() -> AbstractContextManager[Any]:
    """A context in which the transforms of ``torch.func`` are suspended."""
    suspended: AbstractContextManager[Any] = sys.modules["torch"]._C._DisableFuncTorch()
    return suspended


def tensor_pair(one: Any, two: Any) -> tuple[Any, ...] | None:
    """The kind of two tensors, or None while ``torch.func`` or forward mode is active: then each must be inspected.

    Reading an attribute of a tensor takes longer than reading one of an array, so nothing is read twice.
    """
    _, innermost, level, deterministic = PROBES or find_probes()
    if innermost() is not None or level() >= 0:
        return None
    return (
        deterministic(),
        one.shape,
        one.dtype,
        one.device,
        one.layout,
        one.requires_grad,
        two.shape,
        two.dtype,
        two.device,
        two.layout,
        two.requires_grad,
    )
