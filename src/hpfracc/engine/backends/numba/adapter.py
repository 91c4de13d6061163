"""Numba as a backend: NumPy's arrays, loops compiled for this processor, spread over the engine's own threads."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import metadata
from typing import Any, ClassVar, final

import numpy as np

from hpfracc.engine.backends.base import Adapter, KernelSpec
from hpfracc.engine.primitives.base import FLOATS, INEXACT, INTEGERS, Call

__all__ = ["ADAPTER", "NumbaAdapter"]


def _reads_columns(call: Call) -> str | None:
    if call.facts["trailing"]:
        return None
    return "the reduced axes are not the last ones; NumPy reads such data where it lies, this kernel would copy it"


def _is_derivative(call: Call) -> str | None:
    return "it gives values only, no derivatives" if call.facts["order"] else None


@final
class NumbaAdapter(Adapter):
    """There is no FFT and no matrix product here: nothing that Numba compiles was faster than NumPy's."""

    name = "numba"
    module = "numba"
    import_seconds = 0.3
    specs: ClassVar[Mapping[str, tuple[KernelSpec, ...]]] = {
        "causal_convolution": (
            KernelSpec("causal_convolution", "direct", INEXACT, compiles="signature", threads=True),
        ),
        "elementwise": (KernelSpec("elementwise", "fused", INEXACT, compiles="signature", threads=True),),
        "reduction": (
            KernelSpec("reduction", "default", FLOATS, compiles="signature", threads=True, refuses=_reads_columns),
        ),
        "bitwise_xor": (KernelSpec("bitwise_xor", "default", INTEGERS, compiles="signature", threads=True),),
        "mittag_leffler": (
            KernelSpec(
                "mittag_leffler", "contour", INEXACT, compiles="signature", threads=True, refuses=_is_derivative
            ),
        ),
    }

    def devices(self) -> tuple[str, ...]:
        """The host."""
        return ("cpu",)

    def version(self) -> str:
        """Numba's version."""
        return metadata.version("numba")

    def from_host(self, array: np.ndarray[Any, Any], device: str) -> np.ndarray[Any, Any]:
        """The array itself."""
        return array

    def to_host(self, array: Any) -> np.ndarray[Any, Any]:
        """The array itself."""
        return np.asarray(array)

    def cast(self, array: np.ndarray[Any, Any], dtype: str) -> np.ndarray[Any, Any]:
        """``array`` in ``dtype``, itself if it is so already."""
        return array if array.dtype == dtype else array.astype(dtype)


ADAPTER = NumbaAdapter()
