"""Bytes of the intermediate results that are alive at once while a formula is evaluated step by step."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from hpfracc.engine.primitives._expression import Node, parse_expression

__all__ = ["live_bytes"]

Shape = tuple[int, ...]


@lru_cache(maxsize=1024)
def live_bytes(expression: str, names: tuple[str, ...], shapes: tuple[Shape, ...], dtype: str) -> int:
    """The most that is alive, the result among it; operands are the caller's.

    An operand of fewer elements, repeated along an axis, gives smaller intermediate results until it meets a larger
    one. NumPy holds less: it writes a result over an operand that nobody else holds.
    """
    tree = parse_expression(expression, names).tree
    return _live(tree, dict(zip(names, shapes, strict=True)), np.dtype(dtype))[0]


def _live(node: Node, shapes: dict[str, Shape], dtype: np.dtype) -> tuple[int, int, Shape, bool]:
    """The most bytes so far, bytes of the result, its shape, and whether it is real."""
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
    # A number divided by an array is made in two steps by PyTorch: its reciprocal, then a product.
    steps = 2 if node.value == "/" and node.arguments[0].kind == "number" else 1
    return max(most, held + steps * size), size, shape, real
