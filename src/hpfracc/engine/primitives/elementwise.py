"""Contracts of formulae applied element by element, and of the exclusive or."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, final

import numpy as np

from hpfracc.engine.numerics.expression import Node, parse_expression
from hpfracc.engine.primitives.base import (
    INTEGERS,
    ArraySpec,
    Call,
    Primitive,
    broadcast,
    complex_of,
    inexact,
    promoted,
    read_dtype,
    real_of,
    shape_of,
)
from hpfracc.errors import ShapeError, UnsupportedDtypeError

Shape = tuple[int, ...]


@final
class Elementwise(Primitive):
    """``elementwise(*arrays, expression="x*y + sin(x)", names=("x", "y"))`` over arrays that broadcast.

    See :mod:`hpfracc.engine.numerics.expression` for the syntax. Operands are converted to NumPy's common dtype,
    float64 if all are integers or booleans; a Python number takes the dtype of the arrays. The result has that dtype,
    except bool for a comparison and the real dtype for real functions of complex numbers, such as ``abs(z)``. Division
    by zero and similar operations give inf or nan, without a warning.

    Differentiable in every operand where the formula is.

    Algorithms: ``default`` makes a pass over the data for each step of the formula; ``blocked`` does the same for
    blocks that stay in cache; ``fused`` makes a single pass.
    """

    name = "elementwise"
    operands = ("*",)

    def describe(self, *arrays: Any, expression: str, names: Sequence[str]) -> Call:
        """Check formula and operands; ``facts``: ``steps``, bytes of ``temporaries``, ``result``."""
        formula = parse_expression(expression, names)
        if len(arrays) != len(formula.names):
            raise ShapeError(
                f"{self.name}: {len(arrays)} arrays for the names {formula.names}; give one array for each name"
            )
        dtype = self._dtype(formula.names, arrays)
        kind = formula.result(complex_operands=dtype.startswith("complex"))
        result = {"bool": "bool", "real": real_of(dtype), "complex": complex_of(dtype)}[kind]
        shapes = [shape_of(array) for array in arrays]
        shape = broadcast(self.name, *shapes)
        live = live_bytes(expression, formula.names, tuple(shapes), dtype)
        facts: dict[str, Any] = {"steps": formula.steps, "temporaries": live}
        return self.call(dtype, shape, shapes, batch=1, length=math.prod(shape), result=result, inner=(), **facts)

    def _dtype(self, names: tuple[str, ...], arrays: tuple[Any, ...]) -> str:
        strong: list[str] = []
        weak: list[str] = []
        for name, array in zip(names, arrays, strict=True):
            (strong if hasattr(array, "dtype") else weak).append(read_dtype(self.name, name, array))
        dtype = inexact(promoted(tuple(strong or weak)))
        return complex_of(dtype) if any(name.startswith("complex") for name in weak) else dtype

    def work(self, call: Call, algorithm: str) -> float:
        """Elements times steps of the formula."""
        return float(call.length * max(1, call.facts["steps"]))

    def workspace(self, call: Call, algorithm: str) -> int:
        """Intermediate results: whole arrays, or nothing if the formula is evaluated in blocks."""
        return int(call.facts["temporaries"]) if algorithm == "default" else 0

    def example(self, shape: tuple[int, ...], dtype: str) -> tuple[tuple[ArraySpec, ...], dict[str, Any]]:
        """Two arrays, cheap arithmetic and one costly function."""
        spec = ArraySpec(shape, dtype)
        return (spec, spec), {"expression": "x*y + sin(x)", "names": ("x", "y")}


@final
class BitwiseXor(Primitive):
    """``a ^ b`` for integers of any width and booleans, over arrays that broadcast.

    Operands are converted to NumPy's common dtype; int64 with uint64 has none and raises an error. A bool with booleans
    is a truth value, with integers 0 or 1. Exact, and without a derivative.
    """

    name = "bitwise_xor"
    operands = ("a", "b")

    def describe(self, a: Any, b: Any) -> Call:
        """Check both operands."""
        pair = read_dtype(self.name, "a", a, INTEGERS), read_dtype(self.name, "b", b, INTEGERS)
        dtype = promoted(pair)
        if dtype not in INTEGERS:
            raise UnsupportedDtypeError(
                f"{self.name}: no integer dtype holds both {pair[0]} and {pair[1]}; convert one with .astype()"
            )
        given = shape_of(a), shape_of(b)
        shape = broadcast(self.name, *given)
        return self.call(dtype, shape, given, batch=1, length=math.prod(shape), inner=())

    def work(self, call: Call, algorithm: str) -> float:
        """Bytes: an element's width counts."""
        return float(call.output_bytes)

    def example(self, shape: tuple[int, ...], dtype: str) -> tuple[tuple[ArraySpec, ...], dict[str, Any]]:
        """Two arrays; other dtypes are replaced by 64-bit integers."""
        spec = ArraySpec(shape, dtype if dtype in INTEGERS else "uint64")
        return (spec, spec), {}


@lru_cache(maxsize=1024)
def live_bytes(expression: str, names: tuple[str, ...], shapes: tuple[Shape, ...], dtype: str) -> int:
    """Maximum bytes of live arrays, including the result; operands belong to the caller.

    A broadcast operand gives smaller intermediate results until it is combined with a larger one. NumPy needs less,
    because it reuses temporary operands for results.
    """
    tree = parse_expression(expression, names).tree
    return _live(tree, dict(zip(names, shapes, strict=True)), np.dtype(dtype))[0]


def _live(node: Node, shapes: dict[str, Shape], dtype: np.dtype) -> tuple[int, int, Shape, bool]:
    """Maximum bytes so far, bytes of the result, its shape, and whether it is real."""
    if node.kind == "name":
        return 0, 0, shapes[str(node.value)], dtype.kind != "c"
    if node.kind == "number":
        return 0, 0, (), True
    most = held = 0
    parts = []
    for argument in node.arguments:
        part = _live(argument, shapes, dtype)
        most = max(most, held + part[0])
        held += part[1]
        parts.append(part)
    shape = np.broadcast_shapes(*(part[2] for part in parts))
    real = all(part[3] for part in parts) or node.kind == "comparison" or node.value == "abs"
    each = 1 if node.kind == "comparison" else dtype.itemsize // 2 if real and dtype.kind == "c" else dtype.itemsize
    size = int(np.prod(shape, dtype=np.int64)) * each
    # PyTorch divides a number by an array in two steps: a reciprocal, then a product.
    steps = 2 if node.value == "/" and node.arguments[0].kind == "number" else 1
    return max(most, held + steps * size), size, shape, real
