"""Signatures of functions that forward ``**options``.

Type checkers read the options from ``Unpack[...]`` of a ``TypedDict``. ``help``, notebooks and Sphinx read
``__signature__``, which is set here from the function that receives the options. Calls are not affected.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def names_options_of(source: Callable[..., Any], leave_out: Collection[str] = ()) -> Callable[[F], F]:
    """Show the keyword-only options of ``source`` in place of the ``**options`` of the decorated function.

    Parameters
    ----------
    source : callable
        The function that receives ``**options``.
    leave_out : collection of str
        Options of ``source`` that the decorated function does not accept.
    """
    options = [
        parameter
        for parameter in inspect.signature(source).parameters.values()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and parameter.name not in leave_out
    ]

    def decorate(function: F) -> F:
        signature = inspect.signature(function)
        own = [each for each in signature.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
        taken = {each.name for each in own}
        named = [*own, *(option for option in options if option.name not in taken)]
        function.__signature__ = signature.replace(parameters=named)  # type: ignore[attr-defined]
        return function

    return decorate
