"""The formulas of the problems: arithmetic in Python's notation, for any library of numbers.

Allowed are numbers, names, ``+ - * / ** %``, comparisons, ``a if c else b``, indices such as ``y[0]``, calls of known
functions, and texts as their arguments (``integral("exp(-x)", "x", 0, 1)``).
"""

from __future__ import annotations

import ast
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from types import CodeType
from typing import Any

import numpy as np
from scipy import special

_ALLOWED = (
    ast.Expression, ast.Constant, ast.Name, ast.Load, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop, ast.Compare,
    ast.cmpop, ast.BoolOp, ast.boolop, ast.IfExp, ast.Call, ast.Subscript, ast.List, ast.Tuple,
)  # fmt: skip


@functools.cache
def read(text: str) -> CodeType:
    """The compiled formula; an error if it is more than a formula."""
    tree = ast.parse(text, mode="eval")
    for node in ast.walk(tree):
        known = isinstance(node, _ALLOWED) and (not isinstance(node, ast.Call) or isinstance(node.func, ast.Name))
        if not known or (isinstance(node, ast.Name) and node.id.startswith("_")):
            raise ValueError(f"formula {text!r}: {type(node).__name__} is not allowed")
    return compile(tree, text, "eval")


def evaluate(text: str | float, names: Mapping[str, Any]) -> Any:
    """The value of a formula, or the number itself."""
    if not isinstance(text, str):
        return text
    return eval(read(text), {"__builtins__": {}}, dict(names))


#: Functions of Python's numbers; right-hand sides use no others.
NUMBERS: dict[str, Any] = {
    "pi": math.pi, "exp": math.exp, "log": math.log, "sin": math.sin, "cos": math.cos, "tanh": math.tanh,
    "sqrt": math.sqrt, "abs": abs, "gamma": special.gamma, "erf": math.erf, "erfc": math.erfc, "atan": math.atan,
    "sinh": math.sinh, "cosh": math.cosh, "max": max,
}  # fmt: skip
#: The same of arrays.
ARRAYS = NUMBERS | {
    name: getattr(np, name) for name in ("exp", "log", "sin", "cos", "tanh", "sqrt", "abs", "sinh", "cosh")
} | {"erf": special.erf, "erfc": special.erfc, "atan": np.arctan, "max": np.maximum}  # fmt: skip


def function(
    texts: Sequence[str], arguments: str, parameters: Mapping[str, Any], library: Mapping[str, Any] = NUMBERS
) -> Callable[..., list[Any]]:
    """The formulas as one function of the named arguments, which returns their values."""
    for text in texts:
        read(text)
    source = f"lambda {arguments}: [{', '.join(f'({text})' for text in texts)}]"
    made: Callable[..., list[Any]] = eval(source, {"__builtins__": {}, **library, **parameters})
    return made
