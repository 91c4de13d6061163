"""The primitives by name: operators are lowered to them, and backends implement them."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping

from hpfracc.engine.primitives.base import Primitive

__all__ = ["OWN_PRIMITIVES", "PRIMITIVES"]

#: The class of each primitive; its module has that name unless it is given before a dot.
_CLASSES = {
    "causal_convolution": "CausalConvolution",
    "matmul": "linear_algebra.Matmul",
    "fft": "FourierTransform",
    "elementwise": "Elementwise",
    "reduction": "Reduction",
    "bitwise_xor": "elementwise.BitwiseXor",
    "mittag_leffler": "MittagLefflerFunction",
    "spectral_multiply": "SpectralMultiply",
    "toeplitz_apply": "ToeplitzApply",
    "stencil_relax": "StencilRelax",
    "exponential_recurrence": "ExponentialRecurrence",
    "history_sum": "HistorySum",
    "chirp_transform": "fft.ChirpTransform",
    "random": "Random",
    "tridiagonal_solve": "linear_algebra.TridiagonalSolve",
}


class _Primitives(Mapping[str, Primitive]):
    """One instance of each primitive, whose module is loaded when it is first asked for."""

    def __init__(self) -> None:
        self._loaded: dict[str, Primitive] = {}

    def __getitem__(self, name: str) -> Primitive:
        found = self._loaded.get(name)
        if found is None:
            module, _, kind = _CLASSES[name].rpartition(".")
            made = getattr(importlib.import_module(f"{__name__}.{module or name}"), kind)()
            found = self._loaded.setdefault(name, made)
        return found

    def __contains__(self, name: object) -> bool:
        return name in _CLASSES

    def __iter__(self) -> Iterator[str]:
        return iter(_CLASSES)

    def __len__(self) -> int:
        return len(_CLASSES)


PRIMITIVES: Mapping[str, Primitive] = _Primitives()


#: The contracts of users' operations, added by the layer that registers them.
OWN_PRIMITIVES: dict[str, Primitive] = {}
