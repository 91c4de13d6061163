"""The syntax tree of a function, from source that is proved to be the one that the function was made of."""

from __future__ import annotations
import __future__ as features

import ast
import functools
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
    codes, nodes = _parse(source, code.co_flags & _FUTURE)
    for same in (each for each in codes.get((code.co_name, code.co_firstlineno), ()) if each == code):
        for node in nodes:
            if _belongs(node, same):
                return node
    raise NoSourceError("its source has changed since it was read")


@functools.lru_cache(maxsize=8)
def _parse(source: str, flags: int) -> tuple[dict[tuple[str, int], list[CodeType]], list[ast.FunctionDef | ast.Lambda]]:
    """All code objects of a file, by name and line, and all definitions of functions in it."""
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
