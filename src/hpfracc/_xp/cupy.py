"""CuPy's functions."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from hpfracc._xp.base import Namespace

__all__ = ["CuPyNamespace"]


class CuPyNamespace(Namespace):
    """Transforms by ``cupyx``, if it is imported, may overwrite their input, which saves a copy."""

    def coefficients(self, array: np.ndarray[Any, Any], dtype: str, like: Any) -> Any:
        """A copy on the current device."""
        return self.module.asarray(array, dtype=dtype)

    def can_cache(self, like: Any) -> bool:
        """Copies outlive the call."""
        return True

    def round(self, x: Any) -> Any:
        """Round to the nearest integer."""
        return self.module.rint(x)

    def fftn(self, x: Any, axes: tuple[int, ...]) -> Any:
        """Works on a contiguous copy if ``x`` is not contiguous."""
        return self.fft.fftn(self.contiguous(x), axes=axes)

    def rfftn(self, x: Any, axes: tuple[int, ...]) -> Any:
        """Works on a contiguous copy if ``x`` is not contiguous."""
        return self.fft.rfftn(self.contiguous(x), axes=axes)

    def ifftn(self, x: Any, sizes: list[int], axes: tuple[int, ...]) -> Any:
        """Overwrites ``x`` if possible."""
        fft = sys.modules.get("cupyx.scipy.fft")
        return super().ifftn(x, sizes, axes) if fft is None else fft.ifftn(x, sizes, axes=axes, overwrite_x=True)

    def irfftn(self, x: Any, sizes: list[int], axes: tuple[int, ...]) -> Any:
        """Overwrites ``x`` if possible."""
        fft = sys.modules.get("cupyx.scipy.fft")
        return super().irfftn(x, sizes, axes) if fft is None else fft.irfftn(x, sizes, axes=axes, overwrite_x=True)
