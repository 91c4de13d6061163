"""Reading a right-hand side: source code of a compiled function equal to it up to rounding, or the reason for refusal.

The function's syntax tree is followed with the shape of the state known and its numbers unknown, along every path that
comparisons can take. The emitted code is arithmetic on floats only, with Python's semantics (see ``emitting.py``).
Anything else is refused:

- a call of anything that is not in ``vocabulary.py``, except functions that can be read themselves;
- a name that is not bound on a path; loops of unknown length;
- integers that are unknown while reading, and arrays of them;
- captured values other than numbers, tuples of numbers, modules and functions: arrays, lists, dictionaries and objects
  can change without notice;
- modifying the state or a captured value; a result of an unexpected shape.

Captured floats, and those among the additional arguments, become parameters, which are read again for every solve.
"""

from __future__ import annotations

import ast
import math
import types
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hpfracc.solvers.ode.compiled.captures import (
    BoundSource,
    Captures,
    Lookup,
    Same,
    find_captured,
    is_listed,
    signature_of,
)
from hpfracc.solvers.ode.compiled.emitting import Emitter, ForkError
from hpfracc.solvers.ode.compiled.source import NoSourceError, is_private
from hpfracc.solvers.ode.compiled.values import Array, BailError, Known, RefusedError, Scalar, Truth, Value
from hpfracc.solvers.ode.compiled.vocabulary import FUNCTIONS, attribute, method

__all__ = ["BoundSource", "read_function"]

#: Limits: components of a state, each of which is written out, lines of all paths together, and nested calls.
_MAX_COMPONENTS, _MAX_LINES, _MAX_DEPTH = 128, 6000, 8
#: Number of cached readings of one function, for several shapes and kinds of arguments.
_MAX_KEPT = 16

_BINARY = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Mod: "%", ast.Pow: "**", ast.FloorDiv: "//",
    ast.BitAnd: "&", ast.BitOr: "|",
}  # fmt: skip
#: Functions that consume an iterator immediately.
_TAKES_ONCE = (sum, max, min, tuple, list)
_COMPARE = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}


@dataclass(slots=True)
class _Reading:
    """The result of reading, and the captured values for which it holds."""

    refusal: str = ""
    source: str = ""
    captured: list[tuple[Lookup, Any]] = field(default_factory=list)  # with their signatures

    def bind(self, function: types.FunctionType, more: list[float]) -> BoundSource | str | None:
        """Bind to the current captured values; None if their kinds differ from those at reading."""
        floats, objects = list(more), []
        for lookup, signature in self.captured:
            value, found = find_captured(lookup, function, floats)
            if found != signature:
                return None
            objects.append((lookup, signature if isinstance(signature, Same) else value))
        if self.refusal:
            return self.refusal
        return BoundSource(self.source, tuple(floats), function, function.__code__, tuple(objects))


_readings: weakref.WeakKeyDictionary[types.CodeType, list[tuple[Any, _Reading]]] = weakref.WeakKeyDictionary()


def read_function(
    function: Callable[..., Any], args: tuple[Any, ...], shape: tuple[int, ...], out_shape: tuple[int, ...], dtype: Any
) -> BoundSource | str:
    """``function(t, y, *args)`` for real ``y`` of ``shape``, with a result of ``out_shape``; or a message why not."""
    if not isinstance(function, types.FunctionType):
        return f"it is not a plain function, but a {type(function).__name__}"
    if np.dtype(dtype) != np.float64:
        return f"the state is {np.dtype(dtype)}, not float64"
    if math.prod(out_shape) > _MAX_COMPONENTS:
        return f"its result has {math.prod(out_shape)} components, more than {_MAX_COMPONENTS}"
    floats: list[float] = []
    try:
        signature = tuple(signature_of(value, floats, f"args[{n}]") for n, value in enumerate(args))
    except RefusedError as error:
        return str(error)
    key = (signature, shape, out_shape)
    kept = _readings.setdefault(function.__code__, [])
    for other, reading in list(kept):
        if other == key and (bound := reading.bind(function, floats)) is not None:
            return bound
    reading = _read(function, args, shape, out_shape)
    kept.append((key, reading))
    del kept[:-_MAX_KEPT]
    return reading.bind(function, floats) or "a captured value changed while it was read"


def _read(
    function: types.FunctionType, args: tuple[Any, ...], shape: tuple[int, ...], out_shape: tuple[int, ...]
) -> _Reading:
    captures = Captures(function, args)
    reading = _Reading(captured=captures.found)
    try:
        reading.source = "\n".join(_explore(captures, shape, out_shape, ()))
    except (RefusedError, NoSourceError) as error:
        reading.refusal = str(error)
    except RecursionError:
        reading.refusal = "it is nested too deeply"
    return reading


def _explore(
    captures: Captures, shape: tuple[int, ...], out_shape: tuple[int, ...], decisions: tuple[bool, ...]
) -> list[str]:
    """The lines of all paths that start with ``decisions``, without those before the last decision."""
    e = Emitter(decisions)
    try:
        ending = _follow(e, captures, shape, out_shape)
    except ForkError as fork:
        lines = list(e.lines)
        for head, decision in ((f"if {fork.condition}:", True), ("else:", False)):
            inner = _explore(captures, shape, out_shape, (*decisions, decision))
            lines += [head, *(f"    {line}" for line in inner)]
            if len(lines) > _MAX_LINES:
                raise RefusedError("it has too many paths") from None
        return lines
    return [*e.lines, *ending]


def _follow(e: Emitter, captures: Captures, shape: tuple[int, ...], out_shape: tuple[int, ...]) -> list[str]:
    """Follow one path to its end; returns its last lines."""
    state = np.empty(math.prod(shape), object)
    for n in range(state.size):
        state[n] = Scalar(f"y[{n}]", numpy=True)
    try:
        arguments = [Scalar("t", numpy=False), Array(state.reshape(shape)), *captures.arguments]
        items = e.items(_Reader(e, captures).call(captures.function, arguments))
    except BailError:
        return ["bail"]
    if items.shape == () and out_shape == (1,):  # one equation: a plain number is accepted
        items = items.reshape(1)
    if items.shape != out_shape:
        raise RefusedError(f"it returns shape {items.shape} instead of {out_shape}")
    return [*(f"out[{n}] = {e.scalar(each).code}" for n, each in enumerate(items.reshape(-1))), "return"]


# -- the syntax tree --------------------------------------------------------------------------------------------------


class _ReturnError(Exception):
    def __init__(self, value: Value) -> None:
        super().__init__()
        self.value = value


class _BreakError(Exception):
    pass


class _ContinueError(Exception):
    pass


class _Reader:
    """Follows the syntax tree of a function, and of those that it calls."""

    def __init__(self, e: Emitter, captures: Captures) -> None:
        self.e = e
        self.captures = captures
        self._function = captures.function
        self._names: dict[str, Value] = {}
        self._depth = 0

    def call(self, function: types.FunctionType, arguments: list[Value]) -> Value:
        """The return value of a function for these arguments."""
        code = function.__code__
        if self._depth >= _MAX_DEPTH:
            raise RefusedError("functions call each other too deeply")
        if code.co_flags & 0x2AC or code.co_kwonlyargcount:  # *args, **kwargs, generators, coroutines
            raise RefusedError(f"{function.__name__} takes *args, keywords, or is a generator")
        node = self.captures.syntax(function)
        if any(is_private(each) for each in ast.walk(node)):
            raise RefusedError(f"{function.__name__} uses a name with two underscores, which a class replaces")
        names = code.co_varnames[: code.co_argcount]
        defaults = len(function.__defaults__ or ())
        if not len(names) - defaults <= len(arguments) <= len(names):
            raise RefusedError(f"{function.__name__} takes {len(names)} arguments, and gets {len(arguments)}")
        for n in range(len(arguments), len(names)):
            arguments = [*arguments, self.captures.look("default", n - len(names) + defaults, function)]
        outer = self._function, self._names
        self._function, self._names = function, dict(zip(names, arguments, strict=True))
        self._depth += 1
        try:
            if isinstance(node, ast.Lambda):
                return self.value(node.body)
            self.block(node.body)
        except _ReturnError as done:
            return done.value
        finally:
            self._depth -= 1
            self._function, self._names = outer
        raise RefusedError("it may end without a return")

    # -- statements ---------------------------------------------------------------------------------------------------

    def block(self, statements: list[ast.stmt]) -> None:
        """Execute statements one after another."""
        for each in statements:
            self._statement(each)

    def _statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Return(value=None):
                raise RefusedError("it returns nothing")
            case ast.Return(value=value) if value is not None:
                raise _ReturnError(self.value(value))
            case ast.Assign(targets=targets, value=value):
                found = self.value(value, lazy=len(targets) == 1 and isinstance(targets[0], ast.Tuple))
                for target in targets:
                    self._assign(target, found)
            case ast.AnnAssign(target=ast.Name() as target, value=value) if value is not None:
                self._assign(target, self.value(value))
            case ast.AugAssign(target=target, op=op, value=value):
                self._change(target, op, value)
            case ast.If(test=test, body=body, orelse=other):
                self.block(body if self.e.is_true(self.value(test)) else other)
            case ast.For(target=target, iter=source, body=body, orelse=[]):
                self._loop(target, source, body)
            case ast.Expr(value=ast.Constant()) | ast.Pass():
                pass
            case ast.Raise():
                raise BailError
            case ast.Assert(test=test):
                if not self.e.is_true(self.value(test)):
                    raise BailError
            case ast.Break():
                raise _BreakError
            case ast.Continue():
                raise _ContinueError
            case _:
                raise RefusedError(f"line {node.lineno} has a statement of kind {type(node).__name__}")

    def _assign(self, target: ast.expr, value: Value) -> None:
        match target:
            case ast.Name(id=name):
                code = self._function.__code__
                if name not in code.co_varnames and name not in code.co_cellvars:  # cells: used by comprehensions
                    raise RefusedError(f"it binds {name!r}, which is not its own")
                self._names[name] = value
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                values = self._sequence(value)
                if any(isinstance(each, ast.Starred) for each in targets) or len(values) != len(targets):
                    raise RefusedError("it unpacks a sequence of the wrong length")
                for each, part in zip(targets, values, strict=True):
                    self._assign(each, part)
            case ast.Subscript(value=base, slice=place):
                self._write(self.value(base), self._index(place), value)
            case _:
                raise RefusedError(f"it assigns to a {type(target).__name__}")

    def _write(self, array: Value, index: Any, value: Value) -> None:
        """``array[index] = value``."""
        if not (isinstance(array, Array) and array.writable):
            raise RefusedError("it changes an array that others may see")
        try:
            place = array.items[index]
            if not isinstance(place, np.ndarray):
                if isinstance(value, Array | tuple | list):
                    raise RefusedError("it assigns an array to an element")
                array.items[index] = Scalar(self.e.scalar(value).code, numpy=True)
                return
            given = self.e.array(value, floats=True)
            np.broadcast_to(given, place.shape)
            array.items[index] = given
        except (IndexError, ValueError):
            raise BailError from None

    def _change(self, target: ast.expr, op: ast.operator, node: ast.expr) -> None:
        """``target op= value``, in place if the target is an array."""
        if isinstance(target, ast.Subscript):
            array, index = self.value(target.value), self._index(target.slice)
            old = self._element(array, index)
            if isinstance(old, Array) and isinstance(array, Array):
                raise RefusedError("it changes a part of an array in place")
            self._write(array, index, self._binary(op, old, self.value(node)))
            return
        if not isinstance(target, ast.Name):
            raise RefusedError(f"it changes a {type(target).__name__}")
        old = self._name(target.id)
        if isinstance(old, Array | list) or getattr(old, "view", False):
            raise RefusedError(f"it changes {target.id!r} in place")
        self._assign(target, self._binary(op, old, self.value(node)))

    def _loop(self, target: ast.expr, source: ast.expr, body: list[ast.stmt]) -> None:
        for value in self._sequence(self.value(source, lazy=True)):
            self._assign(target, value)
            try:
                self.block(body)
            except _ContinueError:
                continue
            except _BreakError:
                break

    # -- expressions --------------------------------------------------------------------------------------------------

    def value(self, node: ast.expr, *, lazy: bool = False) -> Value:
        """The value of an expression; ``lazy``: it is used once, so it may be a generator or the like."""
        match node:
            case ast.Constant(value=value):
                if value is None or value is Ellipsis or type(value) in (int, float, bool):
                    return value
                raise RefusedError(f"the constant {value!r}")
            case ast.Name(id=name):
                return self._name(name)
            case ast.BinOp(left=left, op=op, right=right):
                return self._binary(op, self.value(left), self.value(right))
            case ast.UnaryOp(op=op, operand=operand):
                return self._unary(op, self.value(operand))
            case ast.BoolOp(op=op, values=values):
                return self._either(isinstance(op, ast.Or), values)
            case ast.Compare(left=left, ops=ops, comparators=others):
                return self._compare(self.value(left), ops, others)
            case ast.IfExp(test=test, body=body, orelse=other):
                return self.value(body if self.e.is_true(self.value(test)) else other)
            case ast.Tuple(elts=parts):
                return tuple(self.value(part) for part in parts)
            case ast.List(elts=parts):
                return [self.value(part) for part in parts]
            case ast.ListComp(elt=body, generators=[one]):
                return self._comprehension(body, one)
            case ast.GeneratorExp(elt=body, generators=[one]) if lazy:
                return self._comprehension(body, one)
            case ast.Attribute(value=base, attr=name):
                return self._attribute(self.value(base), name)
            case ast.Subscript(value=base, slice=place):
                return self._element(self.value(base), self._index(place))
            case ast.Call():
                return self._call(node, lazy=lazy)
            case _:
                raise RefusedError(f"line {node.lineno} has an expression of kind {type(node).__name__}")

    def _name(self, name: str) -> Value:
        if name in self._names:
            return self._names[name]
        code = self._function.__code__
        if name in code.co_varnames or name in code.co_cellvars:
            raise RefusedError(f"{name!r} is not bound on every path")
        return self.captures.look("cell" if name in code.co_freevars else "global", name, self._function)

    def _binary(self, op: ast.operator, left: Value, right: Value) -> Value:
        if isinstance(op, ast.MatMult):
            return self.e.product(left, right)
        if type(op) not in _BINARY:
            raise RefusedError(f"the operation {type(op).__name__}")
        return self.e.binary(_BINARY[type(op)], left, right)

    def _unary(self, op: ast.unaryop, value: Value) -> Value:
        if isinstance(op, ast.USub):
            return self.e.negative(value)
        if isinstance(op, ast.Not):
            return not self.e.is_true(value)
        if isinstance(op, ast.UAdd) and type(value) in (int, float, Scalar) and not getattr(value, "view", False):
            return value
        if isinstance(op, ast.Invert):
            return self.e.invert(value)
        raise RefusedError(f"the operation {type(op).__name__}")

    def _either(self, wanted: bool, nodes: list[ast.expr]) -> Value:
        """``and`` and ``or``: the first value that decides."""
        for node in nodes[:-1]:
            value = self.value(node)
            if self.e.is_true(value) is wanted:
                return wanted if isinstance(value, Truth) and not value.numpy else self._decided(value, wanted)
        return self.value(nodes[-1])

    def _decided(self, value: Value, truth: bool) -> Value:
        """A NumPy bool stays one after its truth value was used."""
        return Truth("True" if truth else "False", numpy=True) if isinstance(value, Truth) else value

    def _compare(self, left: Value, ops: list[ast.cmpop], others: list[ast.expr]) -> Value:
        for n, (op, node) in enumerate(zip(ops, others, strict=True)):
            if type(op) not in _COMPARE:
                raise RefusedError(f"the comparison {type(op).__name__}")
            right = self.value(node)
            found = self.e.binary(_COMPARE[type(op)], left, right)
            if n == len(ops) - 1:
                return found
            if not self.e.is_true(found):
                return self._decided(found, False) if isinstance(found, Truth) else found
            left = right
        raise RefusedError("a comparison without operands")

    def _comprehension(self, body: ast.expr, one: ast.comprehension) -> Value:
        if one.is_async or not isinstance(one.target, ast.Name | ast.Tuple):
            raise RefusedError("a comprehension that is not simple")
        values = self._sequence(self.value(one.iter, lazy=True))
        outer = self._names
        found = []
        try:
            for value in values:
                self._names = dict(outer)
                self._bind_loop(one.target, value)
                if all(self.e.is_true(self.value(test)) for test in one.ifs):
                    found.append(self.value(body))
        finally:
            self._names = outer
        return found

    def _bind_loop(self, target: ast.expr, value: Value) -> None:
        """Bind the variables of a comprehension, which has its own scope."""
        if isinstance(target, ast.Name):
            self._names[target.id] = value
            return
        parts = self._sequence(value)
        if not isinstance(target, ast.Tuple) or len(parts) != len(target.elts):
            raise RefusedError("a comprehension that is not simple")
        for each, part in zip(target.elts, parts, strict=True):
            self._bind_loop(each, part)

    def _sequence(self, value: Value) -> list[Value]:
        return list(FUNCTIONS[tuple](self.e, value))

    def _attribute(self, base: Value, name: str) -> Value:
        if isinstance(base, Known) and base.object in (math, np):
            return self.captures.look("attribute", name, base.object)
        if isinstance(base, Known):
            raise RefusedError(f"{name!r} of the module or function {getattr(base.object, '__name__', '?')}")
        return attribute(self.e, base, name)

    def _index(self, node: ast.expr) -> Any:
        """A known index: integers, slices, ``...``, None and tuples of them."""
        if isinstance(node, ast.Slice):
            parts = [None if part is None else self._index(part) for part in (node.lower, node.upper, node.step)]
            if not all(part is None or type(part) is int for part in parts):
                raise RefusedError("a slice with unknown limits")
            return slice(*parts)
        if isinstance(node, ast.Tuple):
            return tuple(self._index(part) for part in node.elts)
        value = self.value(node)
        if value is None or value is Ellipsis or type(value) is int:
            return value
        raise RefusedError("an index that is not a known integer")

    def _element(self, base: Value, index: Any) -> Value:
        try:
            if isinstance(base, tuple | list) and isinstance(index, int | slice):
                return base[index]
            if isinstance(base, Array):
                found = base.items[index]
                if isinstance(found, np.ndarray):
                    base.writable = False  # it can be changed through the view
                    return self.e.wrap(self.e.items(Array(found)) if found.ndim else found, view=True)
                if found is None:
                    raise RefusedError("an array is read before all of it is written")
                return found
        except (IndexError, ValueError, TypeError):
            raise BailError from None
        raise RefusedError("an index of something other than a sequence")

    def _call(self, node: ast.Call, *, lazy: bool) -> Value:
        if any(isinstance(each, ast.Starred) for each in node.args) or any(each.arg is None for each in node.keywords):
            raise RefusedError("a call with * or **")
        if isinstance(node.func, ast.Attribute):
            base = self.value(node.func.value)
            if isinstance(base, Array):
                return self._apply(method(node.func.attr), [base, *map(self.value, node.args)], node.keywords)
            called = self._attribute(base, node.func.attr)
        else:
            called = self.value(node.func)
        if not isinstance(called, Known):
            raise RefusedError("it calls something other than a function")
        once = any(called.object is each for each in _TAKES_ONCE)
        arguments = [self.value(each, lazy=once) for each in node.args]
        if is_listed(called.object):
            if called.object in (zip, enumerate) and not lazy:
                raise RefusedError("an iterator is stored")
            return self._apply(FUNCTIONS[called.object], arguments, node.keywords)
        if isinstance(called.object, types.FunctionType) and not node.keywords:
            return self.call(called.object, arguments)
        raise RefusedError(f"it calls {getattr(called.object, '__name__', called.object)!r}")

    def _apply(self, handler: Callable[..., Value], arguments: list[Value], keywords: list[ast.keyword]) -> Value:
        options = {str(each.arg): self.value(each.value) for each in keywords}
        try:
            return handler(self.e, *arguments, **options)
        except (TypeError, IndexError, ValueError, AttributeError) as error:
            raise RefusedError(f"a function is called in an unsupported way: {error}") from None
