"""Formulae over arrays: one operation after the other, or compiled into one loop if the library has a compiler."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.backends.generic.library import Library
from hpfracc.engine.numerics.expression import FUNCTIONS, parse_expression


def make_kernels(library: Library) -> dict[str, Kernel]:
    """The formula over broadcast arrays."""
    xp, functions = library.xp, library.functions(FUNCTIONS)

    @lru_cache(maxsize=1024)
    def function(expression: str, names: tuple[str, ...]) -> Callable[..., Any]:
        return xp.jit(parse_expression(expression, names).compile_for(functions))

    def evaluate(*arrays: Any, expression: str, names: Sequence[str]) -> Any:
        result = function(expression, tuple(names))(*arrays)
        # A formula that is only a name returns that array, but the caller may change a kernel's result.
        return xp.copy(result) if any(result is array for array in arrays) else result

    return {"default": Kernel(library.finished(evaluate))}
