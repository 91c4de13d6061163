"""Repeated launches of a Triton kernel: what Triton recomputes at every launch is cached.

It uses Triton's internals because the whole call is faster: on an H200 ``hf.caputo`` of resident tensors
takes 17 to 19 % more time by Triton's own launcher, from 1e4 to 1e6 points (``benchmarks/launch.py``, figures in
``benchmarks/results/launch-h200.txt``).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch
from torch import Tensor

__all__ = ["Launcher"]

#: Maximum number of entries of the cache; a full cache is cleared.
_MAX_KINDS = 512
#: From this version on a compiled kernel takes its constants along with the other arguments.
_TAKES_CONSTANTS = (3, 3)

# The C functions behind PyTorch's own, as in ``clock.py``.
_current_device = getattr(torch._C, "_cuda_getDevice", None)
_current_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)


class Launcher:
    """A Triton kernel.

    Triton's launcher takes 15 us of host time, most of it to determine the kind of arguments for which the kernel must
    be compiled. That depends on the dtype, the alignment of the tensors and the numbers: here they are the key of a
    cache of compiled kernels, which takes half the time.
    """

    __slots__ = ("_kernel", "_ready", "_reuses")

    def __init__(self, kernel: Any, version: str) -> None:
        self._kernel = kernel
        self._ready: dict[Hashable, Callable[..., Any]] = {}
        self._reuses = tuple(int(part) for part in version.split(".")[:2]) >= _TAKES_CONSTANTS

    def __call__(
        self,
        grid: tuple[int, int, int],
        tensors: Sequence[Tensor],
        numbers: tuple[int, ...],
        constants: tuple[Any, ...],
        given: Sequence[Tensor],
    ) -> None:
        """Launch on the device of the first tensor; all tensors are there, in the kernel's order.

        ``given`` are those of the caller, which may have any alignment; the others are allocated by PyTorch and
        aligned.
        """
        assert _current_device is not None  # there is a GPU
        device = tensors[0].get_device()
        if device == _current_device():
            self._launch(device, grid, tensors, numbers, constants, given)
            return
        with torch.cuda.device(device):
            self._launch(device, grid, tensors, numbers, constants, given)

    def launch_ordinarily(
        self,
        grid: tuple[int, int, int],
        tensors: Sequence[Tensor],
        numbers: tuple[int, ...],
        constants: tuple[Any, ...],
        given: Sequence[Tensor] = (),
    ) -> None:
        """The same by Triton's launcher, which inspects every tensor; for tests and benchmarks."""
        with torch.cuda.device(tensors[0].get_device()):
            self._kernel[grid](*tensors, *numbers, *constants)

    def _launch(
        self,
        device: int,
        grid: tuple[int, int, int],
        tensors: Sequence[Tensor],
        numbers: tuple[int, ...],
        constants: tuple[Any, ...],
        given: Sequence[Tensor],
    ) -> None:
        # Triton distinguishes addresses by divisibility by 16, and numbers by more properties.
        aligned = [tensor.data_ptr() & 15 == 0 for tensor in given]
        key = device, grid, numbers, constants, tensors[0].dtype, *aligned
        ready = self._ready.get(key)
        if ready is not None:
            ready(device, *tensors, *numbers, *constants)
            return
        compiled = self._kernel[grid](*tensors, *numbers, *constants)
        if self._reuses and hasattr(compiled, "__getitem__"):  # Triton's interpreter returns nothing
            if len(self._ready) >= _MAX_KINDS:
                self._ready.clear()
            self._ready[key] = _launch_of(compiled, grid)


def _launch_of(compiled: Any, grid: tuple[int, int, int]) -> Callable[..., None]:
    """A function of a device and a kernel's arguments that launches it there."""
    parts: list[Any] = [getattr(compiled, name, None) for name in ("run", "function", "packed_metadata")]
    stream_of = _current_stream
    if None in parts or stream_of is None:
        usual = compiled[grid]

        def launch(device: int, *arguments: Any) -> None:
            usual(*arguments)

        return launch
    run, function, metadata = parts

    # ``compiled[grid]`` additionally looks for hooks and describes the launch to them. If arguments do not match,
    # nothing is launched, so another version of Triton is detected in time.
    def launch_directly(device: int, *arguments: Any) -> None:
        try:
            run(*grid, stream_of(device), function, metadata, None, None, None, *arguments)
        except TypeError:
            compiled[grid](*arguments)

    return launch_directly
