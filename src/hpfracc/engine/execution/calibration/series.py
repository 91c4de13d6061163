"""What is calibrated: each operation over a geometric grid of sizes, with operands on the host and on each GPU."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from hpfracc.engine.backends import registry
from hpfracc.engine.backends.base import KernelSpec
from hpfracc.engine.execution.operation import get_operation
from hpfracc.engine.primitives.base import ArraySpec
from hpfracc.engine.selection.request import HOST_PLACEMENT, Placement

__all__ = ["DEFAULT_OPERATIONS", "Series", "make_series", "rounds"]

#: Operations that are calibrated by default.
DEFAULT_OPERATIONS = ("causal_convolution", "matmul", "fft", "elementwise", "reduction", "bitwise_xor")

#: Exponents (powers of two) of the number of elements: the smallest, and the step of the first round; later rounds
#: fill in.
_MIN, _STEP = 4, 4
_MAX_ON_HOST, _MAX_THOROUGH, _MAX_ON_GPU = 20, 22, 24
#: Operations whose typical operand is a square; the others' is a row.
_SQUARE = ("matmul", "stencil_relax")
#: Points per weight in the variant with few weights.
_POINTS_PER_WEIGHT = 16
FEW_WEIGHTS, PREPARED = "few weights", "prepared"
#: Variants for kernels that do not support an operation's usual call, and the algorithm of each.
_MADE_FOR = {FEW_WEIGHTS: "blocked"}
#: Operators cache the transforms of their weights, so most convolutions have one. What it saves differs between arms
#: (on an H200 a direct sum of 64 points takes 35 us with a cached matrix, 210 us without; an FFT 85 and 140).
_VARIANTS = {"causal_convolution": ("", PREPARED, FEW_WEIGHTS)}


@dataclass(frozen=True, slots=True)
class Series:
    """One operation, dtype and placement of operands, over all sizes.

    ``variant`` distinguishes series of one operation: ``"prepared"`` caches the transform of the weights; ``"few
    weights"`` is only for kernels that do not support as many weights as points.
    """

    operation: str
    dtype: str
    placement: Placement = HOST_PLACEMENT
    variant: str = ""
    most: int = _MAX_ON_HOST

    @property
    def name(self) -> str:
        """The operation with its variant."""
        return f"{self.operation} ({self.variant})" if self.variant else self.operation

    @property
    def where(self) -> str:
        """The library and device of the operands."""
        place = self.placement
        return "NumPy arrays" if place.device == "cpu" else f"{place.library} arrays on {place.device}"

    def shape(self, exponent: int) -> tuple[int, ...]:
        """The shape of a main operand of about ``2**exponent`` elements."""
        if self.operation in _SQUARE:
            side = round(math.sqrt(2**exponent))
            return side, side
        return (2**exponent,)

    def concerns(self, spec: KernelSpec) -> bool:
        """Whether a kernel is measured in this series."""
        only = _MADE_FOR.get(self.variant)
        return only is None or (spec.algorithm == only and spec.refuses is not None)

    def operands(self, exponent: int) -> tuple[Sequence[ArraySpec], dict[str, Any]]:
        """Operands and parameters of a call of that size."""
        shape = self.shape(exponent)
        if self.variant == FEW_WEIGHTS:
            taps = max(1, shape[-1] // _POINTS_PER_WEIGHT)
            return (ArraySpec((taps,), self.dtype), ArraySpec(shape, self.dtype)), {}
        return get_operation(self.operation).primitive.example(shape, self.dtype)


def rounds(thorough: bool) -> list[tuple[int, ...]]:
    """Exponents by round: first a coarse grid, then the sizes in between."""
    everything = range(_MIN, _MAX_ON_GPU + 1)
    found = [
        tuple(k for k in everything if k % _STEP == 0),
        tuple(k for k in everything if k % _STEP == _STEP // 2),
    ]
    if thorough:
        found.append(tuple(k for k in everything if k % 2 == 1))
    return found


def make_series(operations: Iterable[str] | None, backends: Iterable[str], thorough: bool) -> list[Series]:
    """Every series to calibrate with these backends; their libraries must be imported."""
    names = list(DEFAULT_OPERATIONS if operations is None else dict.fromkeys(operations))
    gpus = list(_gpu_placements(backends))
    most = _MAX_ON_GPU if gpus else _MAX_THOROUGH if thorough else _MAX_ON_HOST
    found: list[Series] = []
    for name in names:
        found += (
            Series(name, dtype, placement, variant, most)
            for dtype in _dtypes(name, thorough)
            for placement in [HOST_PLACEMENT, *gpus]
            for variant in _VARIANTS.get(name, ("",))
        )
    return found


def _dtypes(operation: str, thorough: bool) -> tuple[str, ...]:
    usual = ("int64", "uint8") if operation == "bitwise_xor" else ("float64", "float32")
    return usual if thorough else usual[:1]


def _gpu_placements(backends: Iterable[str]) -> Iterator[Placement]:
    """A placement for each library and GPU."""
    for name in backends:
        for device in registry.adapter(name).devices():
            if device != "cpu":
                yield Placement(library=name, device=device)
