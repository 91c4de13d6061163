"""PyTorch's functions under NumPy's names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hpfracc._arrays import library_of
from hpfracc._torch_transforms import is_inside
from hpfracc._xp.base import Namespace


class TorchNamespace(Namespace):
    """PyTorch, with new tensors on one device."""

    def __init__(self, library: str, device: Any = None) -> None:
        super().__init__(library, device)
        torch: Any = self.module
        self._signed = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}

    def _transform(self, kind: str, x: Any, sizes: Sequence[int] | None, axes: tuple[int, ...], **options: Any) -> Any:
        """By PyTorch's names of the arguments."""
        return getattr(self.module.fft, kind)(x, s=sizes, dim=axes)

    def copy(self, x: Any) -> Any:
        """A copy, contiguous in memory."""
        return x.clone(memory_format=self.module.contiguous_format)

    def contiguous(self, x: Any) -> Any:
        """Contiguous in memory."""
        return x.contiguous()

    def coefficients(self, array: np.ndarray[Any, Any], dtype: str, like: Any) -> Any:
        """A copy on the device of ``like``. It can be used outside inference mode too."""
        with self.module.inference_mode(False):
            return self.module.as_tensor(np.array(array, dtype=dtype), device=like.device)

    def can_cache(self, like: Any) -> bool:
        """Tensors created inside a transform of ``torch.func`` belong to it and must not outlive it."""
        return not is_inside()

    def array(self, values: Any) -> Any:
        """As float64. NumPy arrays are copied."""
        if library_of(values) == "torch":
            return values.to(dtype=self.module.float64, device=self.device)
        return self.module.as_tensor(np.array(values, dtype=np.float64), device=self.device)

    def asarray(self, values: Any, like: Any = None) -> Any:
        """On the device of ``like``, or of this namespace."""
        return self.module.as_tensor(values, device=self.device if like is None else like.device)

    def _dtype(self, dtype: Any) -> Any:
        return getattr(self.module, dtype) if isinstance(dtype, str) else dtype

    def astype(self, x: Any, dtype: Any, like: Any = None) -> Any:
        """On the device of ``like`` if given."""
        kind = self._dtype(dtype)
        return x.to(kind) if like is None else x.to(dtype=kind, device=like.device)

    def arange(self, start: int, stop: int, dtype: Any, like: Any = None) -> Any:
        """On the device of ``like``, or of this namespace."""
        device = self.device if like is None else like.device
        return self.module.arange(start, stop, dtype=self._dtype(dtype), device=device)

    def zeros(self, shape: Sequence[int], dtype: Any, like: Any = None) -> Any:
        """On the device of ``like``, or of this namespace; batched by ``torch.func`` if ``like`` is."""
        kind = self._dtype(dtype)
        if like is not None:
            return like.new_zeros(tuple(shape), dtype=kind)
        return self.module.zeros(tuple(shape), dtype=kind, device=self.device)

    def complex(self, real: Any, imag: Any) -> Any:
        """PyTorch's own."""
        return self.module.complex(real, imag)

    def from_pairs(self, x: Any) -> Any:
        """A view."""
        return self.module.view_as_complex(x.reshape(*x.shape[:-1], x.shape[-1] // 2, 2))

    def unit(self, angle: Any) -> Any:
        """``exp(i angle)``."""
        return self.module.polar(self.module.ones_like(angle), angle)

    def is_complex(self, x: Any) -> bool:
        """Whether the dtype of ``x`` is complex."""
        found: bool = x.is_complex()
        return found

    def flip(self, x: Any) -> Any:
        """Reversed along the last axis."""
        return x.flip(-1)

    def moveaxis(self, x: Any, source: int, destination: int) -> Any:
        """``movedim``, because ``torch.func.vmap`` has no rule for ``torch.moveaxis``."""
        return self.module.movedim(x, source, destination)

    def nonzero(self, x: Any) -> Any:
        """Indices of the true elements of a one-dimensional ``x``."""
        return self.module.nonzero(x)[:, 0]

    def bitwise_xor(self, a: Any, b: Any) -> Any:
        """PyTorch supports unsigned integers wider than a byte only in part, so they are viewed as signed ones."""
        torch = self.module
        signed = self._signed.get(a.dtype)
        if signed is None or a.dtype != b.dtype:
            return torch.bitwise_xor(a, b)
        return torch.bitwise_xor(a.view(signed), b.view(signed)).view(a.dtype)

    def inv(self, x: Any) -> Any:
        """Without a check for singular matrices, for which the host would wait."""
        return self.module.linalg.inv_ex(x)[0]

    def lgamma(self, x: Any) -> Any:
        """PyTorch's own."""
        return self.module.lgamma(x)

    def stop_gradient(self, x: Any) -> Any:
        """Detached."""
        return x.detach()
