"""The syntax tree of a function, from source that is proved to be the one that the function was made of."""

from __future__ import annotations

import __future__ as features

import ast
import linecache
from collections.abc import Iterator
from types import CodeType, FunctionType

__all__ = ["NoSourceError", "syntax_of"]

_FUTURE = 0
for _name in features.all_feature_names:
    _FUTURE |= getattr(features, _name).compiler_flag


class NoSourceError(Exception):
    """There is no source, or it is not that of the function."""


def syntax_of(function: FunctionType) -> ast.FunctionDef | ast.Lambda:
    """The definition of ``function`` in its file.

    The file may have changed since it was imported, and two lambdas may share a line. So the file is compiled again: it
    has to contain a code object equal to the function's, and the definition is the one at the place of that object.
    """
    code = function.__code__
    source = "".join(linecache.getlines(code.co_filename, function.__globals__))
    if not source:
        raise NoSourceError("its source cannot be read")
    try:
        tree = ast.parse(source)
        module = compile(source, code.co_filename, "exec", flags=code.co_flags & _FUTURE, dont_inherit=True)
    except (SyntaxError, ValueError):
        raise NoSourceError("its source is not Python") from None
    for same in (each for each in _code_objects(module) if each == code):
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.Lambda) and _belongs(node, same):
                return node
    raise NoSourceError("its source has changed since it was read")


def _code_objects(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _code_objects(constant)


def _belongs(node: ast.FunctionDef | ast.Lambda, code: CodeType) -> bool:
    """Whether ``code`` was compiled from this definition: there is one such at its place."""
    if isinstance(node, ast.FunctionDef):
        first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
        return code.co_name == node.name and code.co_firstlineno == first
    if code.co_name != "<lambda>" or code.co_firstlineno != node.lineno:
        return False
    body = node.body
    place = (body.lineno, body.end_lineno, body.col_offset, body.end_col_offset)
    return place in set(code.co_positions())
