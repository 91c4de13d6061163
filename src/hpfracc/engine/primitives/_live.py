"""Bytes of the intermediate results that are alive at once while a formula is evaluated step by step."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from hpfracc.engine.primitives._expression import Node, parse_expression

__all__ = ["live_bytes"]

Shape = tuple[int, ...]


@lru_cache(maxsize=1024)
def live_bytes(expression: str, names: tuple[str, ...], shapes: tuple[Shape, ...], dtype: str, reuse: bool) -> int:
    """The most that is alive, the result among it; operands are the caller's.

    An operand of fewer elements, repeated along an axis, gives smaller intermediate results until it meets a larger
    one. ``reuse`` says that an operator may write its result over an operand that nobody else holds, as NumPy does.
    """
    tree = parse_expression(expression, names).tree
    return _live(tree, dict(zip(names, shapes, strict=True)), np.dtype(dtype), reuse)[0]


def _live(node: Node, shapes: dict[str, Shape], dtype: np.dtype, reuse: bool) -> tuple[int, int, Shape, bool]:
    """The most bytes so far, bytes of the result, its shape, and whether it is real."""
    if node.kind == "name":
        return 0, 0, shapes[str(node.value)], dtype.kind != "c"
    if node.kind == "number":
        return 0, 0, (), True
    most = held = 0
    parts = []
    for argument in node.arguments:
        part = _live(argument, shapes, dtype, reuse)
        most = max(most, held + part[0])
        held += part[1]
        parts.append(part)
    shape = np.broadcast_shapes(*(part[2] for part in parts))
    real = all(part[3] for part in parts) or node.kind == "comparison" or node.value == "abs"
    each = 1 if node.kind == "comparison" else dtype.itemsize // 2 if real and dtype.kind == "c" else dtype.itemsize
    size = int(np.prod(shape, dtype=np.int64)) * each
    over = reuse and _writes_over(node, size, [part[1] for part in parts])
    return max(most, held + (0 if over else size)), size, shape, real


def _writes_over(node: Node, size: int, parts: list[int]) -> bool:
    """Whether NumPy writes the result of this operator into an operand: the left one, or either where it commutes."""
    if node.kind != "operator" or node.value not in ("+", "-", "*", "/"):
        return False
    return parts[0] == size or (node.value in "+*" and parts[-1] == size)
