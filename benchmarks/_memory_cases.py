"""Calls whose predicted and measured memory are compared: every primitive, with one row and with many."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

Shape = tuple[int, ...]


@dataclass(frozen=True)
class MemoryCase:
    """One call: shapes of its operands, their dtype where it is free, and its parameters."""

    name: str
    shapes: tuple[Shape, ...]
    dtype: str = "float64"
    params: dict[str, Any] = field(default_factory=dict)

    @property
    def operands(self) -> str:
        """Shapes and dtype as text."""
        shapes = " ".join("x".join(map(str, shape)) or "1" for shape in self.shapes)
        return f"{shapes} {self.dtype}"

    @property
    def call(self) -> str:
        """The primitive and its variant."""
        words = [self.name, *(str(self.params[key]) for key in ("kind", "kernel", "kinds") if key in self.params)]
        return " ".join([*words, *(key for key in ("edges", "final", "differences") if self.params.get(key))])

    def arrays(self) -> list[np.ndarray[Any, Any]]:
        """Typical operands."""
        random = np.random.default_rng(0)
        return [np.asarray(self._operand(number, shape, random)) for number, shape in enumerate(self.shapes)]

    def _operand(self, number: int, shape: Shape, random: Any) -> np.ndarray[Any, Any]:
        real = {"complex64": "float32", "complex128": "float64"}.get(self.dtype, self.dtype)
        if self.name == "history_sum" and number != 1:
            if number == 0:
                return np.cumsum(0.5 + random.random(shape))
            return np.sort(random.random(shape)) * 50.0 if shape else np.array(-0.5)
        if self.name == "exponential_recurrence" and number < 3:
            return 0.01 + random.random(shape)
        if self.name == "chirp_transform" and number == 1:
            return random.random(shape) * 1e-3
        if self.name == "stencil_relax":
            if number == 0:
                return (0.5 + random.random(shape)).astype(self.dtype)
            start = np.full(shape, np.inf, self.dtype)
            rank = len(self.shapes[0]) - bool(self.params.get("edges"))
            middle = tuple(side // 2 for side in shape[len(shape) - rank :])
            start[(..., *middle)] = 0.0
            return start
        if self.name == "spectral_multiply" and number == 0:
            return random.random(shape).astype(real)
        return (-abs(random.standard_normal(shape)) * 3).astype(self.dtype)


def cases(size: int) -> list[MemoryCase]:
    """Calls whose operands or workspace take about ``size`` bytes."""
    n = size // 16
    side = int(n**0.5)
    formula = {"expression": "x*y + sin(x)", "names": ("x", "y")}
    square = {"axes": (0, 1)}
    return [
        MemoryCase("causal_convolution", ((n,), (n,))),
        MemoryCase("causal_convolution", ((1000,), (n // 500, 1000))),
        MemoryCase("causal_convolution", ((1000,), (2 * n,))),
        MemoryCase("causal_convolution", ((2 * n,), (2 * n,)), "float32"),
        MemoryCase("matmul", ((side, side), (side, side))),
        MemoryCase("matmul", ((n // 4096, 64, 64), (n // 4096, 64, 64))),
        MemoryCase("fft", ((n // 512, 1024),), params={"kind": "rfft"}),
        MemoryCase("fft", ((n // 512, 1024),), params={"kind": "fft"}),
        MemoryCase("fft", ((n // 512, 513),), "complex128", {"kind": "irfft"}),
        MemoryCase("elementwise", ((n,), (n,)), params=formula),
        MemoryCase("reduction", ((side, 2 * side),), params={"kind": "sum", "axis": -1}),
        MemoryCase("reduction", ((side, 2 * side),), params={"kind": "norm", "axis": 0}),
        MemoryCase("bitwise_xor", ((n,), (n,)), "int64"),
        MemoryCase("mittag_leffler", ((n // 4,),), params={"alpha": 0.7}),
        MemoryCase("mittag_leffler", ((n // 4,),), "complex128", {"alpha": 0.7}),
        MemoryCase("mittag_leffler", ((n // 4,),), "float32", {"alpha": 0.7}),
        MemoryCase("history_sum", ((64,), (n // 32, 64), ()), params={"kernel": "power"}),
        MemoryCase("history_sum", ((64,), (n // 32, 64), ()), "float32", {"kernel": "power"}),
        MemoryCase("exponential_recurrence", ((30,), (30,), (), (n,), (30,))),
        MemoryCase("exponential_recurrence", ((30,), (30,), (1000,), (n // 1000, 1000), (30,))),
        MemoryCase("exponential_recurrence", ((30,), (30,), (), (n // 500, 500), (30,)), "float32", {"final": True}),
        MemoryCase("chirp_transform", ((n // 2,), (3,))),
        MemoryCase("chirp_transform", ((n // 1000, 1000), (3,)), "complex128"),
        MemoryCase("chirp_transform", ((n // 1000, 1000), (3,)), "float32"),
        MemoryCase("toeplitz_apply", ((n,), (n,))),
        MemoryCase("toeplitz_apply", ((1000,), (n // 500, 1000))),
        MemoryCase("toeplitz_apply", ((side, side), (side, side)), params=square),
        MemoryCase("spectral_multiply", ((1024,), (n // 512, 1024))),
        MemoryCase("spectral_multiply", ((side, side), (side, side)), params={**square, "kinds": "dct2"}),
        MemoryCase("spectral_multiply", ((side, side), (side, side)), "complex128", square),
        MemoryCase("stencil_relax", ((side // 2, side // 2), (side // 2, side // 2))),
        MemoryCase("stencil_relax", ((2, side // 2, side // 2), (side // 2, side // 2)), params={"edges": True}),
        MemoryCase("stencil_relax", ((48, 48), (n // 1152, 48, 48))),
    ]


def more_cases(size: int) -> list[MemoryCase]:
    """A second set of calls, with other shapes, dtypes and parameters."""
    n = size // 16
    side = int(n**0.5)
    table = {"kernel": "tabulated"}
    uneven = {"axes": (0, 1), "kinds": ("dst1", "fft")}
    return [
        MemoryCase("causal_convolution", ((3 * n // 4,), (3 * n // 2,)), params={"differences": True}),
        MemoryCase("causal_convolution", ((7, 1, 600), (7, n // 5000, 1200)), "complex128"),
        MemoryCase("causal_convolution", ((5000,), (3, n)), "float32"),
        MemoryCase("matmul", ((side // 2, 3 * side), (3 * side, side)), "float32"),
        MemoryCase("fft", ((3, n // 3),), "complex128", {"kind": "fft"}),
        MemoryCase("fft", ((n // 1500, 1500),), "float32", {"kind": "rfft", "n": 2000}),
        MemoryCase("elementwise", ((n,),), "float32", {"expression": "exp(-x*x)*cos(x)", "names": ("x",)}),
        MemoryCase("reduction", ((n // 700, 700),), "float32", {"kind": "norm", "axis": -1}),
        MemoryCase("bitwise_xor", ((2 * n,), (2 * n,)), "int32"),
        MemoryCase("mittag_leffler", ((300, n // 1000),), "complex64", {"alpha": 1.3, "beta": 0.8}),
        MemoryCase("history_sum", ((50,), (3, n // 200, 50), (), ()), "complex128", {"kernel": "tempered"}),
        MemoryCase("history_sum", ((80,), (n // 64, 80), (40,), (40,)), params=table),
        MemoryCase("history_sum", ((96,), (n // 64, 96), ()), "float32", {"kernel": "logarithmic"}),
        MemoryCase("exponential_recurrence", ((12,), (12,), (), (n // 4000, 4000), (12,)), "complex128"),
        MemoryCase("exponential_recurrence", ((64,), (64,), (), (3, n // 5), (3, 64)), "float32"),
        MemoryCase("exponential_recurrence", ((20,), (20,), (n // 20,), (n // 20,), (20,)), params={"final": True}),
        MemoryCase("chirp_transform", ((5, n // 12), (5, 3)), "float64"),
        MemoryCase("chirp_transform", ((n // 3000, 3000), (6,)), "complex64", {"points": 2000}),
        MemoryCase("toeplitz_apply", ((300,), (3, n // 2)), "float32"),
        MemoryCase("toeplitz_apply", ((400, 90), (n // 96000, 400, 120)), "complex128", {"axes": (-2, -1)}),
        MemoryCase("spectral_multiply", ((3, n // 6), (3, n // 6)), "float32"),
        MemoryCase("spectral_multiply", ((side, side), (side, side)), "float64", uneven),
        MemoryCase("spectral_multiply", ((n // 900, 900), (900,)), "float64"),
        MemoryCase("stencil_relax", ((60, 70, 80), (60, 70, 80)), "float32", {"neighbourhood": "moore"}),
        MemoryCase("stencil_relax", ((40, 30), (n // 1200, 40, 30)), "float32", {"periodic": True}),
    ]


def held_out(size: int) -> list[MemoryCase]:
    """A third set of calls, with shapes that were not used to fit the models."""
    n = size // 16
    side = int(n**0.5)
    moore = {"neighbourhood": "moore", "edges": True}
    return [
        MemoryCase("causal_convolution", ((n // 3,), (4, n // 2)), "complex128"),
        MemoryCase("causal_convolution", ((300,), (n // 400, 800)), "float32"),
        MemoryCase("causal_convolution", ((40_000,), (n,)), params={"differences": True}),
        MemoryCase("matmul", ((n // 900, 30, 30), (30, 30)), "complex128"),
        MemoryCase("fft", ((n // 2500, 2500),), "complex64", {"kind": "ifft"}),
        MemoryCase("fft", ((n,),), params={"kind": "rfft"}),
        MemoryCase("elementwise", ((3, n // 2), (n // 2,)), params={"expression": "x/(1 + y*y)", "names": ("x", "y")}),
        MemoryCase("reduction", ((40, n // 20),), params={"kind": "max", "axis": 0}),
        MemoryCase("bitwise_xor", ((7, n), (n,)), "uint8"),
        MemoryCase("mittag_leffler", ((n // 3,),), params={"alpha": 0.4, "beta": 1.2}),
        MemoryCase("history_sum", ((120,), (n // 80, 120), ()), "float64", {"kernel": "logarithmic"}),
        MemoryCase("history_sum", ((40,), (2, n // 90, 40), (25,), (25,)), "complex64", {"kernel": "tabulated"}),
        MemoryCase("exponential_recurrence", ((50,), (50,), (), (n // 3000, 3000), (50,)), "float64", {"final": True}),
        MemoryCase("exponential_recurrence", ((16,), (16,), (), (2 * n,), (16,)), "float32"),
        MemoryCase("exponential_recurrence", ((10,), (10,), (300,), (n // 200, 300), (10,)), "complex128"),
        MemoryCase("chirp_transform", ((n,), (6,)), "complex64"),
        MemoryCase("chirp_transform", ((2, n // 1200, 400), (3,)), "float64", {"points": 700}),
        MemoryCase("toeplitz_apply", ((n // 4, 1), (n // 4, 5)), params={"axes": 0}),
        MemoryCase("toeplitz_apply", ((500,), (n // 700, 700)), "complex64"),
        MemoryCase("toeplitz_apply", ((30, 30), (n // 10000, 100, 150)), "float32", {"axes": (1, 2)}),
        MemoryCase("spectral_multiply", ((720,), (n // 480, 720)), "complex128"),
        MemoryCase("spectral_multiply", ((n // 1000, 1000), (n // 1000, 1000)), "float32", {"kinds": "dst2"}),
        MemoryCase("spectral_multiply", ((64, 64, 33), (n // 70_000, 64, 64, 64)), params={"axes": (1, 2, 3)}),
        MemoryCase("stencil_relax", ((4, side // 3, side // 3), (side // 3, side // 3)), params=moore),
        MemoryCase("stencil_relax", ((25, 70), (n // 1000, 25, 70)), "float64"),
    ]


def fresh(size: int) -> list[MemoryCase]:
    """Calls of a third set of shapes, written after the models and measured before any of them was looked at again.

    Lengths that are products of odd primes, a prime, few long rows, many short ones, and dtypes in other company.
    """
    n = size // 16
    side = int(n**0.5)
    return [
        MemoryCase("causal_convolution", ((n // 11,), (3, 5 * n // 11)), "float32"),
        MemoryCase("causal_convolution", ((1001,), (n // 1001, 1001)), "complex128"),
        MemoryCase("causal_convolution", ((5, 1, 2310), (n // 23_100, 2310))),
        MemoryCase("causal_convolution", ((3000,), (2, n)), "complex64"),
        MemoryCase("matmul", ((2 * side, side // 2), (side // 2, 3 * side // 2)), "complex64"),
        MemoryCase("matmul", ((n // 1155, 11, 105), (105, 21))),
        MemoryCase("fft", ((7, n // 7),), "float64", {"kind": "fft"}),
        MemoryCase("fft", ((n // 3003, 3003),), "float32", {"kind": "rfft"}),
        MemoryCase("fft", ((2 * n // 7919, 7919),), "complex64", {"kind": "fft"}),
        MemoryCase("fft", ((n // 700, 701),), "complex128", {"kind": "irfft", "n": 1400}),
        MemoryCase("elementwise", ((n,), (n,), (n,)), "float32", {"expression": "x*y - z/x", "names": ("x", "y", "z")}),
        MemoryCase("elementwise", ((n // 2,),), "complex128", {"expression": "exp(x) + 1/x", "names": ("x",)}),
        MemoryCase("reduction", ((13, n // 13),), "complex128", {"kind": "mean", "axis": 0}),
        MemoryCase("reduction", ((n // 250, 250),), "float64", {"kind": "max", "axis": -1}),
        MemoryCase("bitwise_xor", ((3, n), (3, n)), "uint16"),
        MemoryCase("mittag_leffler", ((n // 5,),), "float32", {"alpha": 0.9}),
        MemoryCase("mittag_leffler", ((77, n // 400),), params={"alpha": 1.6, "beta": 2.0}),
        MemoryCase("mittag_leffler", ((n // 7,),), "complex128", {"alpha": 0.5}),
        MemoryCase("history_sum", ((200,), (n // 150, 200), ()), "complex64", {"kernel": "power"}),
        MemoryCase("history_sum", ((70,), (n // 50, 70), ()), "float64", {"kernel": "power"}),
        MemoryCase("history_sum", ((90,), (n // 120, 90), (60,), (60,)), "float32", {"kernel": "tabulated"}),
        MemoryCase("exponential_recurrence", ((24,), (24,), (), (7, n // 9), (24,)), "complex64"),
        MemoryCase("exponential_recurrence", ((9,), (9,), (2100,), (n // 2100, 2100), (9,)), "float32"),
        MemoryCase("exponential_recurrence", ((40,), (40,), (), (n // 1500, 1001), (40,))),
        MemoryCase("chirp_transform", ((n // 770, 770), (3,)), "complex64"),
        MemoryCase("chirp_transform", ((3, n // 9), (3,)), "float32", {"points": 1_000_003}),
        MemoryCase("toeplitz_apply", ((2 * n // 3,), (2 * n // 3,)), "complex64"),
        MemoryCase("toeplitz_apply", ((693,), (n // 693, 693))),
        MemoryCase("toeplitz_apply", ((45, 33), (n // 20_000, 105, 99)), "float64", {"axes": (-2, -1)}),
        MemoryCase("toeplitz_apply", ((77, 1), (1155, n // 1155)), "float32", {"axes": 0}),
        MemoryCase("spectral_multiply", ((n // 2,), (n // 2,)), "complex64"),
        MemoryCase("spectral_multiply", ((1155,), (n // 1155, 1155)), "float64", {"kinds": "dct2"}),
        MemoryCase("spectral_multiply", ((330, 455), (n // 200_000, 330, 455)), "complex64", {"axes": (-2, -1)}),
        MemoryCase("stencil_relax", ((2, side // 2, side // 3), (side // 2, side // 3)), "float32", {"edges": True}),
        MemoryCase("stencil_relax", ((33, 35), (n // 1155, 33, 35)), "float64", {"neighbourhood": "moore"}),
    ]
