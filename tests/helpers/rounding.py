"""Transforms that round a row differently in batches of different shape, as ``scipy.fft`` does on ARM.

SciPy transforms several rows at once in vector registers and the remaining ones by scalar code, and compilers contract
products and sums differently in the two. On x86 the results agree by chance; on ARM they differ in the last bit.
``numpy.fft`` transforms one row after another.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import scipy.fft

#: PyTorch's transforms of one axis; of ``scipy.fft`` all are perturbed.
_ONE_AXIS = ("fft", "ifft", "rfft", "irfft")
#: Rows that fill a vector register.
_TOGETHER = 2


def perturb(result: Any) -> Any:
    """Change last bits, by a pattern that depends on the shape; a single row stays as it is."""
    rows = int(np.prod(result.shape[:-1]))
    if rows <= 1:
        return result
    vectorised = (np.arange(rows) < rows - rows % _TOGETHER).reshape(*result.shape[:-1], 1)
    places = np.arange(np.prod(result.shape)).reshape(result.shape)
    chosen = (places * 2654435761 // 7 % 3 == rows % 3) & vectorised
    if type(result) is not np.ndarray:
        torch = sys.modules["torch"]
        return result * (1.0 + torch.finfo(result.dtype).eps * torch.as_tensor(chosen)).to(result.dtype)
    factor = (1.0 + np.finfo(result.dtype).eps * chosen).astype(result.real.dtype)
    if np.iscomplexobj(result):  # part by part: a product with infinity would make nan
        result = result.copy()
        result.real *= factor
        result.imag *= factor
        return result
    return result * factor


class _ScipyBackend:
    """A backend of ``scipy.fft`` that perturbs SciPy's own."""

    __ua_domain__ = "numpy.scipy.fft"

    @staticmethod
    def __ua_function__(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with scipy.fft.set_backend("scipy", only=True):
            return perturb(function(*args, **kwargs))


def _perturbed(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **kwargs: perturb(function(*args, **kwargs))


@contextmanager
def rounding_by_shape() -> Iterator[None]:
    """Inside, the transforms of SciPy and PyTorch round by the shape of the batch, in every thread."""
    scipy.fft.set_global_backend(_ScipyBackend)
    try:
        with pytest.MonkeyPatch.context() as patch:
            for name in _ONE_AXIS if "torch" in sys.modules else ():
                module = sys.modules["torch"].fft
                patch.setattr(module, name, _perturbed(getattr(module, name)))
            yield
    finally:
        scipy.fft.set_global_backend("scipy")
