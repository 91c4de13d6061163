"""Captured values of a function: where they are found, what compiled code depends on, and whether they changed."""

from __future__ import annotations

import ast
import builtins
import types
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpfracc.solvers.ode.compiled.source import syntax_of
from hpfracc.solvers.ode.compiled.values import Known, RefusedError, Scalar, Symbols, Value
from hpfracc.solvers.ode.compiled.vocabulary import FUNCTIONS

__all__ = ["BoundSource", "Captures", "Lookup", "Same", "find_captured", "is_listed", "signature_of"]


@dataclass(frozen=True, slots=True)
class Lookup:
    """Where a captured value is found.

    Attributes
    ----------
    kind : str
        ``"global"``, ``"cell"``, ``"default"`` or ``"attribute"``.
    name : str or int
        Its name, or its index among the defaults.
    owner : function, module or None
        The function or module that has it; None for the function being read.
    """

    kind: str
    name: Any
    owner: Any

    def fetch(self, function: types.FunctionType) -> Any:
        """The current value; raises LookupError if there is none."""
        owner = function if self.owner is None else self.owner
        if self.kind == "attribute":
            return owner.__dict__[self.name]
        if self.kind == "default":
            return (owner.__defaults__ or ())[self.name]
        if self.kind == "cell":
            cell = (owner.__closure__ or ())[owner.__code__.co_freevars.index(self.name)]
            try:
                return cell.cell_contents
            except ValueError:
                raise LookupError(self.name) from None
        space = owner.__globals__
        return space[self.name] if self.name in space else builtins.__dict__[self.name]


class Same:
    """An object compared by identity; a function also by its code."""

    __slots__ = ("code", "object")

    def __init__(self, given: Any) -> None:
        self.object, self.code = given, getattr(given, "__code__", None)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.object is other.object and self.code is other.code

    __hash__ = None  # type: ignore[assignment]


def _is_same(value: Any, kept: Any) -> bool:
    return Same(value) == kept if isinstance(kept, Same) else value is kept


def signature_of(value: Any, floats: list[float], name: Any) -> Any:
    """Everything in a captured value that the source depends on; its floats are appended to ``floats``."""
    kind = type(value)
    if kind in (float, np.float64):
        floats.append(float(value))
        return kind
    if kind in (int, bool, types.NoneType):
        return (kind, value)
    if kind is Symbols:
        return value
    if kind is tuple:
        return (kind, tuple(signature_of(each, floats, name) for each in value))
    if isinstance(value, types.ModuleType | types.FunctionType) or is_listed(value):
        return Same(value)
    if isinstance(value, type | types.BuiltinFunctionType | np.ufunc):
        raise RefusedError(f"{name!r} is not one of the functions that can be read")
    raise RefusedError(f"{name!r} is of the type {kind.__name__}, whose value may change")


def is_listed(value: Any) -> bool:
    """Whether this is one of the supported functions."""
    try:
        return value in FUNCTIONS
    except TypeError:  # unhashable
        return False


@dataclass(frozen=True, slots=True)
class BoundSource:
    """The source of a function together with the numbers of one solve.

    Attributes
    ----------
    source : str
        The body of a compiled function of ``t``, ``y`` and ``p`` that writes ``out``.
    parameters : tuple of float
        The values of ``p``.
    """

    source: str
    parameters: tuple[float, ...]
    _function: types.FunctionType
    _code: types.CodeType
    _captured: tuple[tuple[Lookup, Any], ...]

    def unchanged(self) -> bool:
        """Whether every captured value is still the same object."""
        if self._function.__code__ is not self._code:
            return False
        try:
            return all(_is_same(lookup.fetch(self._function), value) for lookup, value in self._captured)
        except LookupError:
            return False


def find_captured(lookup: Lookup, function: types.FunctionType, floats: list[float]) -> tuple[Any, Any]:
    """A captured value and its signature; an unsupported value also has one, so that the refusal can be cached."""
    try:
        value = lookup.fetch(function)
    except LookupError:
        return None, f"{lookup.name!r} is not defined"
    try:
        return value, signature_of(value, floats, lookup.name)
    except RefusedError as error:
        return value, str(error)


class Captures:
    """Captured values found while reading, with the parameters that represent their floats."""

    def __init__(self, function: types.FunctionType, args: tuple[Any, ...]) -> None:
        self.function = function
        self.found: list[tuple[Lookup, Any]] = []
        self._values: dict[Lookup, Value] = {}
        self._syntax: dict[types.CodeType, ast.FunctionDef | ast.Lambda] = {}
        self._count = 0
        self.arguments = [self._value(value) for value in args]

    def _value(self, given: Any) -> Value:
        if type(given) in (float, np.float64):
            self._count += 1
            return Scalar(f"p[{self._count - 1}]", numpy=type(given) is np.float64)
        if type(given) is tuple:
            return tuple(self._value(each) for each in given)
        if isinstance(given, Symbols):
            return given.value()
        if given is None or isinstance(given, int):
            return given
        return Known(given)

    def look(self, kind: str, name: Any, owner: types.FunctionType | types.ModuleType) -> Value:
        """The value of a name."""
        lookup = Lookup(kind, name, None if owner is self.function else owner)
        if lookup not in self._values:
            given, signature = find_captured(lookup, self.function, [])
            self.found.append((lookup, signature))
            if isinstance(signature, str):
                raise RefusedError(signature)
            self._values[lookup] = self._value(given)
        return self._values[lookup]

    def syntax(self, function: types.FunctionType) -> ast.FunctionDef | ast.Lambda:
        """The definition of a function."""
        code = function.__code__
        if code not in self._syntax:
            self._syntax[code] = syntax_of(function)
        return self._syntax[code]
