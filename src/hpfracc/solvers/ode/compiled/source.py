"""The syntax tree of a function, from source that is verified to be the function's own."""

from __future__ import annotations
import __future__ as features

import ast
import functools
import linecache
from collections.abc import Iterator
from types import CodeType, FunctionType

__all__ = ["NoSourceError", "is_private", "syntax_of"]

_FUTURE = 0
for _name in features.all_feature_names:
    _FUTURE |= getattr(features, _name).compiler_flag


class NoSourceError(Exception):
    """There is no source, or it is not that of the function."""


def syntax_of(function: FunctionType) -> ast.FunctionDef | ast.Lambda:
    """The definition of ``function`` in its file.

    The file may have changed since it was imported, and two lambdas may share a line. So the file is compiled again: it
    must contain a code object equal to the function's, and the definition is the one at the position of that object.
    """
    code = function.__code__
    source = "".join(linecache.getlines(code.co_filename, function.__globals__))
    if not source:
        raise NoSourceError("its source cannot be read")
    codes, nodes = _parse(source, code.co_flags & _FUTURE)
    for same in (each for each in codes.get((code.co_name, code.co_firstlineno), ()) if each == code):
        node = _definition(same, nodes)
        if node is not None:
            return node
    raise NoSourceError("its source has changed since it was read")


@functools.lru_cache(maxsize=8)
def _parse(source: str, flags: int) -> tuple[dict[tuple[str, int], list[CodeType]], list[ast.FunctionDef | ast.Lambda]]:
    """All code objects of a file, by name and line, and all function definitions in it."""
    try:
        tree = ast.parse(source)
        module = compile(source, "<source>", "exec", flags=flags, dont_inherit=True)
    except (SyntaxError, ValueError):
        raise NoSourceError("its source is not Python") from None
    codes: dict[tuple[str, int], list[CodeType]] = {}
    for each in _code_objects(module):
        codes.setdefault((each.co_name, each.co_firstlineno), []).append(each)
    return codes, [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.Lambda)]


def _code_objects(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _code_objects(constant)


def _definition(code: CodeType, nodes: list[ast.FunctionDef | ast.Lambda]) -> ast.FunctionDef | ast.Lambda | None:
    """The source of ``code``: the definition of its name at its line, or one of the lambdas there."""
    if code.co_name != "<lambda>":
        functions = (node for node in nodes if isinstance(node, ast.FunctionDef) and node.name == code.co_name)
        return next((node for node in functions if _first_line(node) == code.co_firstlineno), None)
    lambdas = [node for node in nodes if isinstance(node, ast.Lambda) and node.lineno == code.co_firstlineno]
    if len(lambdas) < 2:
        return lambdas[0] if lambdas else None
    # Instructions that Python 3.12 adds to a function (start, return) have no width; all others lie in the body.
    places = [
        ((line, column), (end_line, end_column))
        for line, end_line, column, end_column in code.co_positions()
        if line is not None and end_line is not None and column is not None and end_column is not None
        if (line, column) < (end_line, end_column)
    ]
    if not places:
        return next((node for node in lambdas if _is_compiled_to(node, code)), None)
    around = [node for node in lambdas if all(_start(node) <= start and end <= _end(node) for start, end in places)]
    return max(around, key=_start, default=None)  # the innermost of nested lambdas


def _first_line(node: ast.FunctionDef) -> int:
    return min([node.lineno, *(each.lineno for each in node.decorator_list)])


def _start(node: ast.Lambda) -> tuple[int, int]:
    return node.body.lineno, node.body.col_offset


def _end(node: ast.Lambda) -> tuple[int, int]:
    return node.body.end_lineno or node.body.lineno, node.body.end_col_offset or node.body.col_offset


def _is_compiled_to(node: ast.Lambda, code: CodeType) -> bool:
    """Whether this lambda, whose body is a constant, compiles to ``code``."""
    alone = compile(ast.Expression(node), "<source>", "eval", dont_inherit=True)
    return any(each.replace(co_flags=code.co_flags) == code for each in _code_objects(alone))


def is_private(node: ast.AST) -> bool:
    """Whether Python replaces this name inside of a class."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name) | ast.keyword(arg=str(name)):
            return name.startswith("__") and not name.endswith("__")
    return False
