"""NumPy as a backend: always there, never compiled, and the last resort of every automatic choice."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import metadata
from typing import Any, ClassVar, final

import numpy as np

from hpfracc.engine.backends.base import Adapter, KernelSpec
from hpfracc.engine.primitives.base import INEXACT, INTEGERS, Call
from hpfracc.engine.primitives.causal_convolution import fills_one_block

__all__ = ["ADAPTER", "NumpyAdapter"]


def _is_single(call: Call) -> str | None:
    return None if call.batch > 1 else "a single product has no stack to share among threads"


@final
class NumpyAdapter(Adapter):
    """Arrays stay where they are; the host's memory is the engine's own affair."""

    name = "numpy"
    module = "numpy"
    specs: ClassVar[Mapping[str, tuple[KernelSpec, ...]]] = {
        "causal_convolution": (
            KernelSpec("causal_convolution", "direct", INEXACT),
            KernelSpec("causal_convolution", "fft", INEXACT, threads=True),
            KernelSpec("causal_convolution", "blocked", INEXACT, threads=True, refuses=fills_one_block),
        ),
        "matmul": (
            KernelSpec("matmul", "default", INEXACT | INTEGERS),
            KernelSpec("matmul", "stacked", INEXACT | INTEGERS, threads=True, refuses=_is_single),
        ),
        "fft": (
            KernelSpec("fft", "pocketfft", INEXACT),
            KernelSpec("fft", "scipy", INEXACT, threads=True),
        ),
        "elementwise": (
            KernelSpec("elementwise", "default", INEXACT),
            KernelSpec("elementwise", "blocked", INEXACT, threads=True),
        ),
        "reduction": (KernelSpec("reduction", "default", INEXACT | INTEGERS),),
        "bitwise_xor": (KernelSpec("bitwise_xor", "default", INTEGERS),),
        "mittag_leffler": (KernelSpec("mittag_leffler", "contour", INEXACT),),
    }

    def devices(self) -> tuple[str, ...]:
        """The host."""
        return ("cpu",)

    def version(self) -> str:
        """NumPy's version."""
        return metadata.version("numpy")

    def from_host(self, array: np.ndarray[Any, Any], device: str) -> np.ndarray[Any, Any]:
        """The array itself."""
        return array

    def to_host(self, array: Any) -> np.ndarray[Any, Any]:
        """The array itself."""
        return np.asarray(array)

    def cast(self, array: np.ndarray[Any, Any], dtype: str) -> np.ndarray[Any, Any]:
        """``array`` in ``dtype``, itself if it is so already."""
        return array if array.dtype == dtype else array.astype(dtype)


ADAPTER = NumpyAdapter()
