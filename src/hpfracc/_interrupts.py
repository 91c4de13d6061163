"""Long runs: Ctrl-C in nested calls, where only a solve that the user called returns its part, and the progress bar.

A solver that receives ``KeyboardInterrupt`` returns what it has with ``success=False``. Inside a sweep, a batch, a fit
or a right-hand side that would be wrong: the code around takes the last value for the solution. So each such call, and
each solve, is an `interrupt_scope`; a solver calls `raise_if_nested` before it keeps a part.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.util import find_spec
from typing import Any

#: Number of scopes around the current code.
_depth: ContextVar[int] = ContextVar("_depth", default=0)


@contextmanager
def interrupt_scope() -> Iterator[None]:
    """While the block runs, solvers that it calls raise KeyboardInterrupt instead of returning their part."""
    token = _depth.set(_depth.get() + 1)
    try:
        yield
    finally:
        _depth.reset(token)


def raise_if_nested() -> None:
    """For ``except KeyboardInterrupt`` in a solver: raise it again if the solve is part of another call."""
    if _depth.get() > 1:
        raise  # the exception that the caller handles


def live_bar(*columns: Any) -> Any:
    """A bar on the standard error, gone when it ends; in a file, its last state.

    In a notebook it is a widget. Without ipywidgets, where rich would warn and show nothing, it is text.
    """
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    text = console.is_jupyter and find_spec("ipywidgets") is None
    if text:  # notebooks draw a line again after a carriage return, and ignore the codes that erase one
        console = Console(stderr=True, force_jupyter=False, force_terminal=True, width=100)
    return Progress(*columns, console=console, transient=console.is_terminal and not text)
