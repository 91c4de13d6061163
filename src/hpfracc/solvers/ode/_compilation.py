"""Compiling a right-hand side: done, refused in words, or left with a note."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from hpfracc.errors import InvalidInputError
from hpfracc.solvers.ode import _compile_policy as policy

if TYPE_CHECKING:
    from hpfracc.solvers.ode.compiled.functions import CompiledFunction

__all__ = ["try_to_compile"]

_log = logging.getLogger("hpfracc")


def try_to_compile(
    make: Callable[[], CompiledFunction], notes: list[str], *, must: bool
) -> tuple[CompiledFunction | None, float]:
    """What ``make()`` compiles, and the seconds that took; None with a note where Numba cannot, an error if it must."""
    from hpfracc.solvers.ode.compiled.functions import NotCompiledError

    started = time.perf_counter()
    try:
        fun = make()
    except NotCompiledError as error:
        if must:
            raise InvalidInputError(
                f"compile=True, and the right-hand side cannot be compiled: {error}; use compile=False, or write it in "
                "what Numba knows"
            ) from error
        notes.append(f"the right-hand side stays in Python: {error}")
        _log.info("right-hand side not compiled: %s", error)
        return None, time.perf_counter() - started
    seconds = time.perf_counter() - started
    if fun.fresh:  # one that was kept tells nothing of what the next will take
        policy.note_compilation(seconds)
    return fun, seconds
