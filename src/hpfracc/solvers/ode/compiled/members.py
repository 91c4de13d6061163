"""The right-hand side of an ensemble, converted to that of a single member.

``fun(t, y, *args)`` takes all members at once, with y of shape (M, d). One thread per member needs the function of a
single member. The function is read for ensembles of one and of two members. It separates if in the second reading each
member's derivative is computed from that member's state and parameters alone, by exactly the operations of the first
reading: then members do not interact, and nothing depends on their number.

Arrays in ``args`` whose first axis is as long as the ensemble are per member; others are shared.
"""

from __future__ import annotations

import ast
import math
import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from hpfracc.solvers.ode.compiled.captures import BoundSource
from hpfracc.solvers.ode.compiled.reading import read_function
from hpfracc.solvers.ode.compiled.values import Symbols

__all__ = ["MemberFunction", "read_member", "some_members"]

Array = np.ndarray[Any, Any]

#: Largest number of argument values per member, each of which is written out.
_MAX_NUMBERS = 4096
#: Names that a line may use: results of other lines, elements of the state, and parameters of members.
_NAMES = re.compile(r"\b[vc]\d+\b|\by\[\d+\]|\bown\d+of\d+\b")


@dataclass(frozen=True, slots=True)
class MemberFunction:
    """The function of a single member.

    Attributes
    ----------
    source : str
        The body of a function of ``t``, ``y``, ``p``, ``shared``, ``own`` and the index ``i`` of the member, which
        writes ``out``.
    numbers : tuple of float
        The values of ``p``: captured numbers, and those in the arguments.
    shared : array, shape (S,)
        Elements of the arrays that all members share.
    own : tuple of arrays, each of shape (M, ...)
        Elements that are per member: ``own[k, i]`` in the source is element k of member i, array after array.
    """

    source: str
    numbers: tuple[float, ...]
    shared: Array
    own: tuple[Array, ...]

    @property
    def own_count(self) -> int:
        """Numbers that belong to one member."""
        return sum(math.prod(array.shape[1:]) for array in self.own)


def some_members(args: tuple[Any, ...], members: int, count: int) -> tuple[Any, ...]:
    """``args`` for the first ``count`` members of an ensemble."""
    return tuple(value[:count] if _belongs(value, members) else value for value in args)


def _belongs(value: Any, members: int) -> bool:
    return isinstance(value, np.ndarray) and value.ndim > 0 and value.shape[0] == members


def read_member(fun: Callable[..., Any], args: tuple[Any, ...], shape: tuple[int, int]) -> MemberFunction | str:
    """The function of one member for ``fun(t, y, *args)`` with y of ``shape`` (M, d); or a message why not."""
    members, d = shape
    shared: list[Array] = []
    own: list[Array] = []
    kinds: list[str] = []
    for n, value in enumerate(args):
        if not isinstance(value, np.ndarray):
            kinds.append("number")
            continue
        if value.dtype.kind != "f":
            return f"args[{n}] is an array of dtype {value.dtype}; convert it to float64"
        belongs = _belongs(value, members)
        if (value.size // members if belongs else value.size) > _MAX_NUMBERS:
            return f"args[{n}] has the shape {value.shape}, more than {_MAX_NUMBERS} numbers for a member"
        kinds.append("own" if belongs else "shared")
        (own if belongs else shared).append(value)
    one = _read(fun, args, kinds, 1, d)
    if isinstance(one, str):
        return one
    two = _read(fun, args, kinds, 2, d)
    if isinstance(two, str):
        return two
    refusal = _compare(one.source, two.source, d)
    if refusal:
        return (
            f"{refusal}; arrays in args whose first axis is as long as the ensemble ({members}) belong to its members"
        )
    return MemberFunction(
        re.sub(r"\bown(\d+)of0\b", r"own[\1, i]", one.source),
        one.parameters,
        np.concatenate([np.zeros(0), *(value.reshape(-1) for value in shared)]),
        tuple(own),
    )


@lru_cache(maxsize=64)
def _compare(one: str, two: str, d: int) -> str:
    """Why the readings for one and for two members do not separate; empty if they do."""
    forms: dict[str, int] = {}
    try:
        (alone,) = _outline(one, 1, d, forms)
        both = _outline(two, 2, d, forms)
    except _MixedError as error:
        return str(error)
    if any(each != alone for each in both):
        return "what it computes for a member depends on the number of members"
    return ""


def _read(fun: Callable[..., Any], args: tuple[Any, ...], kinds: list[str], members: int, d: int) -> BoundSource | str:
    """Read the function for an ensemble of that many members."""
    given: list[Any] = []
    own = shared = 0
    for value, kind in zip(args, kinds, strict=True):
        if kind == "own":
            count = math.prod(value.shape[1:])
            codes = tuple(f"own{own + k}of{member}" for member in range(members) for k in range(count))
            given.append(Symbols((members, *value.shape[1:]), codes))
            own += count
        elif kind == "shared":
            given.append(Symbols(value.shape, tuple(f"shared[{shared + k}]" for k in range(value.size))))
            shared += value.size
        else:
            given.append(value)
    found = read_function(fun, tuple(given), (members, d), (members, d), np.float64)
    if not isinstance(found, str) and found.source.strip() == "bail":
        return "it raises an error for every state"
    return found


class _MixedError(Exception):
    """Members depend on each other; the message says how."""


class _Outline:
    """The operations of a function for each member, with the indices of members removed.

    Two expressions are equal if their texts are, after each name is replaced by the number of its own expression.
    ``forms`` numbers the texts.
    """

    def __init__(self, members: int, d: int, forms: dict[str, int]) -> None:
        self.found: list[list[tuple[Any, ...]]] = [[] for _ in range(members)]
        self._d = d
        self._forms = forms

    def _form(self, node: ast.expr, names: dict[str, tuple[int, frozenset[int]]]) -> tuple[int, frozenset[int]]:
        """The number of an expression, and the members it depends on."""
        involved: set[int] = set()

        def replace(match: re.Match[str]) -> str:
            text = match.group()
            if text in names:
                form, members = names[text]
                involved.update(members)
                return f"#{form}"
            if text.startswith("y["):
                member, row = divmod(int(text[2:-1]), self._d)
                involved.add(member)
                return f"y{row}"
            name, _, number = text.partition("of")
            involved.add(int(number))
            return name

        text = _NAMES.sub(replace, ast.unparse(node))
        return self._forms.setdefault(text, len(self._forms)), frozenset(involved)

    def _note(self, entry: tuple[Any, ...], members: frozenset[int] = frozenset()) -> None:
        """Record an entry for these members, or for all."""
        for member in members or range(len(self.found)):
            self.found[member].append(entry)

    def walk(self, body: list[ast.stmt], names: dict[str, tuple[int, frozenset[int]]]) -> None:
        """Process statements in order; every path ends with a return, so nothing follows a fork."""
        for node in body:
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    names[name] = self._form(value, names)
                case ast.Assign(targets=[ast.Subscript(slice=ast.Constant(value=int(place)))], value=value):
                    form, involved = self._form(value, names)
                    member, row = divmod(place, self._d)
                    if involved - {member}:
                        raise _MixedError("its value for a member depends on the state or parameters of others")
                    self._note(("out", row, form), frozenset({member}))
                case ast.If(test=test, body=inner, orelse=other):
                    form, involved = self._form(test, names)
                    bails = not other and len(inner) == 1 and isinstance(inner[0], ast.Expr)
                    if len(involved) > 1 or (involved and not bails):
                        raise _MixedError("a condition on the state of a member decides for all; use np.where")
                    self._note(("if", form), involved)
                    if bails:
                        continue
                    self.walk(inner, dict(names))
                    self._note(("else",))
                    self.walk(other, dict(names))
                    self._note(("end",))
                case ast.Expr():
                    self._note(("bail",))
                case ast.Return():
                    self._note(("return",))
                case _:
                    raise AssertionError(ast.unparse(node))


def _outline(source: str, members: int, d: int, forms: dict[str, int]) -> list[list[tuple[Any, ...]]]:
    (function,) = ast.parse("def read():\n" + textwrap.indent(source, "    ")).body
    assert isinstance(function, ast.FunctionDef)
    outline = _Outline(members, d, forms)
    outline.walk(function.body, {})
    return outline.found
