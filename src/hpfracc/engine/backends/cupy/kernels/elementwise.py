"""Formulae over arrays in CuPy, fused into one CUDA kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import cupy

from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.numerics.expression import FUNCTIONS, Node, parse_expression


def _sign(x: Any) -> Any:
    """The sign, nan for nan as in NumPy."""
    return cupy.where(cupy.isnan(x), x, cupy.sign(x))


#: Functions only: fused formulas have no operator for a number to the power of an array.
_STEPS: dict[str, Callable[..., Any]] = {
    **{name: getattr(cupy, name) for name in FUNCTIONS},
    "sign": _sign,
    "+": cupy.add,
    "-": cupy.subtract,
    "*": cupy.multiply,
    "/": cupy.true_divide,
    "//": cupy.floor_divide,
    "%": cupy.remainder,
    "**": cupy.power,
    "negative": cupy.negative,
    "<": cupy.less,
    "<=": cupy.less_equal,
    ">": cupy.greater,
    ">=": cupy.greater_equal,
    "==": cupy.equal,
    "!=": cupy.not_equal,
}


def _whole_power(base: Any, exponent: int) -> Any:
    """``base**exponent`` by multiplication: faster and more accurate than the general power, which uses logarithms."""
    if exponent < 0:
        return cupy.true_divide(1.0, _whole_power(base, -exponent))
    result: Any = None
    while exponent:
        if exponent & 1:
            result = base if result is None else cupy.multiply(result, base)
        exponent >>= 1
        if exponent:
            base = cupy.multiply(base, base)
    return result


def _evaluate(node: Node, arrays: dict[str, Any]) -> Any:
    if node.kind == "name":
        return arrays[str(node.value)]
    if node.kind == "number":
        return float(node.value)
    if node.value == "**" and node.arguments[1].kind == "number":
        exponent = float(node.arguments[1].value)
        if exponent.is_integer() and 0 < abs(exponent) < 64:
            return _whole_power(_evaluate(node.arguments[0], arrays), int(exponent))
    return _STEPS[str(node.value)](*(_evaluate(argument, arrays) for argument in node.arguments))


@lru_cache(maxsize=1024)
def _fused(expression: str, names: tuple[str, ...]) -> Callable[..., cupy.ndarray]:
    tree = parse_expression(expression, names).tree
    if tree.kind == "name":
        return cupy.copy

    def formula(*arrays: Any) -> Any:
        return _evaluate(tree, dict(zip(names, arrays, strict=True)))

    return cupy.fuse(kernel_name="hpfracc_elementwise")(formula)


def evaluate(*arrays: cupy.ndarray, expression: str, names: Sequence[str]) -> cupy.ndarray:
    """The formula over broadcast arrays, in one pass."""
    return _fused(expression, tuple(names))(*arrays)


KERNELS: dict[str, Kernel] = {"fused": Kernel(evaluate)}
