"""Formulae over arrays, written as text: parsed once, checked node by node, never evaluated as Python.

Only the functions of :data:`FUNCTIONS` and the operators in the tables below are allowed, so a formula can neither
import, nor look up attributes, nor loop. The result is a small tree and a line of source in which every name is a
parameter or a function that the backend supplies.
"""

from __future__ import annotations

import ast
import keyword
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType
from typing import Any, Literal

import numpy as np

from hpfracc.errors import InvalidInputError, UnsupportedDtypeError

#: Functions that a formula may call, and their numbers of arguments, as in NumPy.
FUNCTIONS: dict[str, int] = {
    **dict.fromkeys(("sin", "cos", "tan", "arcsin", "arccos", "arctan", "sinh", "cosh", "tanh"), 1),
    **dict.fromkeys(("exp", "expm1", "log", "log1p", "log2", "log10", "sqrt", "abs", "sign", "floor", "ceil"), 1),
    **dict.fromkeys(("minimum", "maximum", "power"), 2),
    "where": 3,
}
CONSTANTS: dict[str, float] = {"pi": math.pi, "e": math.e}

#: Functions that support complex numbers in every library.
_COMPLEX = frozenset(
    {"sin", "cos", "tan", "sinh", "cosh", "tanh", "exp", "log", "log10", "sqrt", "abs", "power", "where"}
)
_BINARY = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**"}
_COMPARISONS = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}
_ORDERED = frozenset({"<", "<=", ">", ">=", "//", "%", "minimum", "maximum", "sign", "floor", "ceil"})
_UFUNCS: dict[str, Callable[..., Any]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
    "//": np.floor_divide,
    "%": np.remainder,
    "**": np.power,
    "negative": np.negative,
}
#: Maximum length of a formula, which protects Python's parser.
_LONGEST = 10_000
_DEEPEST = 100

#: Types of the result: booleans, real or complex numbers.
Result = Literal["bool", "real", "complex"]


@dataclass(frozen=True, slots=True)
class Node:
    """One step: an operand (``"name"``), a number, an operator, a comparison or a function call."""

    kind: Literal["name", "number", "operator", "comparison", "call"]
    value: str | float
    arguments: tuple[Node, ...] = ()

    def walk(self) -> Iterator[Node]:
        """The node and all its descendants."""
        yield self
        for argument in self.arguments:
            yield from argument.walk()


@dataclass(frozen=True, slots=True)
class Expression:
    """A checked formula.

    Attributes
    ----------
    names : tuple of str
        The operands, in the order of the arrays.
    source : str
        A Python expression in which only ``names`` and names of :data:`FUNCTIONS` occur.
    tree : Node
        The same as a tree; :meth:`render` converts it to another dialect.
    functions : frozenset of str
        Names of the functions it calls.
    steps : int
        Number of operators and calls: passes over the data in a library without fusion.
    """

    names: tuple[str, ...]
    source: str
    tree: Node
    functions: frozenset[str]
    steps: int
    _code: CodeType

    def compile_for(self, namespace: Mapping[str, Any]) -> Callable[..., Any]:
        """The formula as a function of the arrays (positional, in the order of ``names``).

        ``namespace`` has a function for each name of :data:`FUNCTIONS` that the formula uses; operators are those of
        the arrays.
        """
        # Builtins stay available to the libraries (PyTorch imports parts of itself inside an operator, with the
        # builtins of its caller); the formula cannot use them, because every name in it was checked.
        function: Callable[..., Any] = eval(self._code, {name: namespace[name] for name in self.functions})
        return function

    def result(self, *, complex_operands: bool) -> Result:
        """Type of the result for real or complex operands; raises an error for functions without complex support."""
        if not complex_operands:
            return "bool" if self.tree.kind == "comparison" else "real"
        return _result(self.tree)

    def render(
        self,
        number: Callable[[float], str] = repr,
        name: Callable[[str], str] = str,
        power: Callable[[str, int], str] = "({} ** ({}))".format,
        quotient: Callable[[str, str], str] = "({} / {})".format,
    ) -> str:
        """The source in another dialect: how numbers, operands, small integer powers and quotients are written."""
        return _render(self.tree, number, name, power, quotient)


def parse_expression(expression: str, names: Sequence[str]) -> Expression:
    """Parse and check a formula; the last thousand are cached.

    Parameters
    ----------
    expression : str
        Such as ``"x*y + sin(x)"``: numbers, ``pi``, ``e``, the operands' names, ``+ - * / // % **``, comparisons and
        :data:`FUNCTIONS`. A comparison used as a number is 1 or 0, and a number used as a condition is true if it is
        not 0.
    names : sequence of str
        Names of the arrays, in order. Each must occur in the formula.
    """
    if not isinstance(expression, str):
        raise InvalidInputError(f"expression={expression!r} is not text; write it as 'x*y + sin(x)'")
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise InvalidInputError(f"names={names!r} is not a sequence of names; write it as ('x', 'y')")
    return _parse(expression, tuple(names))


@lru_cache(maxsize=1024)
def _parse(expression: str, names: tuple[str, ...]) -> Expression:
    _check_names(names)
    if len(expression) > _LONGEST:
        raise InvalidInputError(f"an expression of {len(expression)} characters is too long; split it into several")
    try:
        body = ast.parse(expression.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        reason = getattr(error, "msg", None) or str(error) or type(error).__name__
        raise InvalidInputError(f"expression={expression!r} cannot be read: {reason}; check its brackets") from None
    tree = _FormulaReader(expression, names).read(body)
    used = {node.value for node in tree.walk() if node.kind == "name"}
    unused = [name for name in names if name not in used]
    if unused:
        raise InvalidInputError(f"expression={expression!r} does not use {unused[0]!r}; omit that array")
    source = _render(tree)
    code = compile(f"lambda {', '.join(names)}: {source}", "<expression>", "eval")
    nodes = list(tree.walk())
    return Expression(
        names,
        source,
        tree,
        functions=frozenset(str(node.value) for node in nodes if node.kind == "call"),
        steps=sum(1 for node in nodes if node.kind not in ("name", "number")),
        _code=code,
    )


def _check_names(names: tuple[str, ...]) -> None:
    if not names:
        raise InvalidInputError("names=() names no array; an expression needs at least one")
    for name in names:
        if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name):
            raise InvalidInputError(f"{name!r} cannot name an array; use a plain name such as 'x'")
        if name in FUNCTIONS or name in CONSTANTS:
            raise InvalidInputError(f"{name!r} is already a name of expressions; rename the array")
    if len(set(names)) != len(names):
        raise InvalidInputError(f"names={names!r} holds a name twice; give each array its own")


class _FormulaReader:
    """Converts Python's syntax tree to ours; raises an error for anything that is not allowed."""

    def __init__(self, expression: str, names: tuple[str, ...]) -> None:
        self.expression = expression
        self.names = names

    def refuse(self, what: str, remedy: str) -> InvalidInputError:
        return InvalidInputError(f"expression={self.expression!r}: {what}; {remedy}")

    def read(self, node: ast.expr, depth: int = 0) -> Node:
        if depth > _DEEPEST:
            raise self.refuse(f"it is nested more than {_DEEPEST} deep", "split it into several")
        if isinstance(node, ast.Constant):
            return self.read_number(node.value)
        if isinstance(node, ast.Name):
            return self.read_name(node.id)
        if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
            pair = (self.read_numeric(node.left, depth), self.read_numeric(node.right, depth))
            return _folded(Node("operator", _BINARY[type(node.op)], pair))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.UAdd | ast.USub):
            operand = self.read_numeric(node.operand, depth)
            return operand if isinstance(node.op, ast.UAdd) else _folded(Node("operator", "negative", (operand,)))
        if isinstance(node, ast.Compare):
            return self.read_comparison(node, depth)
        if isinstance(node, ast.Call):
            return self.read_call(node, depth)
        raise self.refuse(
            f"{ast.unparse(node)!r} is not allowed", "use numbers, names, + - * / // % **, comparisons and functions"
        )

    def read_numeric(self, node: ast.expr, depth: int) -> Node:
        return self.as_number(self.read(node, depth + 1))

    def read_number(self, value: object) -> Node:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.refuse(f"{value!r} is not a real number", "use real numbers, or pass the value as an array")
        try:
            return Node("number", float(value))
        except OverflowError:
            raise self.refuse("a number in it is too large", "use one that a float can hold") from None

    def read_name(self, name: str) -> Node:
        if name in self.names:
            return Node("name", name)
        if name in CONSTANTS:
            return Node("number", CONSTANTS[name])
        if name in FUNCTIONS:
            raise self.refuse(f"{name!r} is a function", f"call it, as {name}({self.names[0]})")
        known = ", ".join((*self.names, *CONSTANTS))
        raise self.refuse(f"the name {name!r} is unknown", f"the names are {known}")

    def read_comparison(self, node: ast.Compare, depth: int) -> Node:
        if len(node.ops) != 1:
            raise self.refuse("comparisons cannot be chained over arrays", "nest where() instead")
        symbol = _COMPARISONS.get(type(node.ops[0]))
        if symbol is None:
            raise self.refuse(
                f"{ast.unparse(node)!r} is not allowed", f"compare with {' '.join(_COMPARISONS.values())}"
            )
        pair = (self.read_numeric(node.left, depth), self.read_numeric(node.comparators[0], depth))
        if all(side.kind == "number" for side in pair):
            raise self.refuse(f"{ast.unparse(node)!r} compares two numbers", "compare an array")
        return Node("comparison", symbol, pair)

    def read_call(self, node: ast.Call, depth: int) -> Node:
        name = node.func.id if isinstance(node.func, ast.Name) else ast.unparse(node.func)
        arity = FUNCTIONS.get(name) if isinstance(node.func, ast.Name) else None
        if arity is None:
            raise self.refuse(f"there is no function {name!r}", f"the functions are {', '.join(sorted(FUNCTIONS))}")
        if node.keywords or len(node.args) != arity or any(isinstance(a, ast.Starred) for a in node.args):
            raise self.refuse(f"{name} takes {arity} plain argument(s)", f"{ast.unparse(node)!r} gives others")
        if name == "where":
            return self.read_where(node.args, depth)
        return _folded(Node("call", name, tuple(self.read_numeric(a, depth) for a in node.args)))

    def read_where(self, arguments: list[ast.expr], depth: int) -> Node:
        condition = self.read(arguments[0], depth + 1)
        if condition.kind == "number":
            raise self.refuse("the condition of where() is a number", "compare an array")
        if condition.kind != "comparison":
            condition = Node("comparison", "!=", (condition, Node("number", 0.0)))
        return self.choice(condition, *(self.read_numeric(a, depth) for a in arguments[1:]))

    def choice(self, condition: Node, yes: Node, no: Node) -> Node:
        if yes.kind == "number" and no.kind == "number":
            # Between two plain numbers a library chooses a dtype itself (PyTorch: float32). An operand in the branch
            # that is never selected provides its dtype, while its values, even nan, have no effect.
            yes = Node("call", "where", (condition, yes, Node("name", self.names[0])))
        return Node("call", "where", (condition, yes, no))

    def as_number(self, node: Node) -> Node:
        if node.kind != "comparison":
            return node
        return self.choice(node, Node("number", 1.0), Node("number", 0.0))


def _folded(node: Node) -> Node:
    """``node`` as a number if all its arguments are, so that no library evaluates functions of plain numbers."""
    if any(argument.kind != "number" for argument in node.arguments):
        return node
    function = _UFUNCS.get(str(node.value)) or getattr(np, str(node.value))
    with np.errstate(all="ignore"):
        return Node("number", float(function(*(np.float64(argument.value) for argument in node.arguments))))


def _render(
    node: Node,
    number: Callable[[float], str] = repr,
    name: Callable[[str], str] = str,
    power: Callable[[str, int], str] = "({} ** ({}))".format,
    quotient: Callable[[str, str], str] = "({} / {})".format,
) -> str:
    """A formula with its leaves, small integer powers and quotients written in a dialect."""
    if node.kind == "name":
        return name(str(node.value))
    if node.kind == "number":
        return _bracketed(number, float(node.value))
    parts = [_render(argument, number, name, power, quotient) for argument in node.arguments]
    if node.kind == "call":
        return f"{node.value}({', '.join(parts)})"
    if node.value == "negative":
        return f"(-{parts[0]})"
    if node.value == "**":
        exponent = node.arguments[1]
        # An integer exponent is a few multiplications; a float calls pow.
        if exponent.kind == "number" and float(exponent.value).is_integer() and abs(float(exponent.value)) < 64:
            return power(parts[0], int(exponent.value))
    return quotient(*parts) if node.value == "/" else f"({parts[0]} {node.value} {parts[1]})"


def _bracketed(number: Callable[[float], str], value: float) -> str:
    if math.isfinite(value):
        text = number(value)
        return f"({text})" if text.startswith("-") else text
    # repr() of these is not a literal; 1e999 evaluates to infinity.
    if math.isnan(value):
        return f"({number(1.0)} * (1e999 - 1e999))"
    return "(1e999)" if value > 0 else "(-1e999)"


def _result(node: Node) -> Result:
    """Type of ``node`` for complex operands."""
    if node.kind == "name":
        return "complex"
    if node.kind == "number":
        return "real"
    parts = [_result(argument) for argument in node.arguments]
    is_complex = "complex" in parts
    symbol = str(node.value)
    if is_complex and (symbol in _ORDERED or (node.kind == "call" and symbol not in _COMPLEX)):
        raise UnsupportedDtypeError(
            f"elementwise: {symbol!r} does not support complex numbers; take abs() first, or convert to real arrays"
        )
    if node.kind == "comparison":
        return "bool"
    if symbol == "abs":
        return "real"
    return "complex" if is_complex else "real"
