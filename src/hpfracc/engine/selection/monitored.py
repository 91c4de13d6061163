"""Running a user's function on a backend, and on another one when that fails."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Sequence
from typing import Any

from hpfracc._config import use_backend
from hpfracc.engine.backends import registry
from hpfracc.engine.backends.registry import BackendType
from hpfracc.errors import AllBackendsFailedError
from hpfracc.profiling.recorder import shared as spans

__all__ = ["run_monitored", "takes_backend"]

#: Told of each attempt: backend, seconds, success.
Report = Callable[[BackendType, float, bool], None]
#: Told of each fallback: the backend that failed, the one that is taken instead, the error.
Note = Callable[[BackendType, BackendType, Exception], None]


def takes_backend(function: Callable[..., Any]) -> bool:
    """Whether ``function`` has exactly one required positional parameter: then it is handed the backend."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some built-in functions have no signature
        return False
    required = [
        parameter
        for parameter in parameters
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        and parameter.default is parameter.empty
    ]
    return len(required) == 1


def run_monitored(
    operation: str, function: Callable[..., Any], backends: Sequence[BackendType], report: Report, fell_back: Note
) -> Any:
    """The result of ``function`` on the first of ``backends`` that succeeds.

    TypeError and ValueError are the caller's own mistakes: they are raised at once, unchanged. If every backend fails,
    :class:`AllBackendsFailedError` carries what each of them raised.
    """
    handed = takes_backend(function)
    failures: dict[str, BaseException] = {}
    for place, backend in enumerate(backends, start=1):
        begin = time.perf_counter()
        try:
            with (
                spans.span(operation, "call", metadata={"backend": backend.value}),
                use_backend(backend, _banned=frozenset(failures)),
            ):
                result = function(backend) if handed else function()
        except (TypeError, ValueError):
            raise
        except Exception as error:
            report(backend, time.perf_counter() - begin, False)
            failures[backend.value] = error
            if place < len(backends):
                fell_back(backend, backends[place], error)
            continue
        report(backend, time.perf_counter() - begin, True)
        return result
    rows = "; ".join(f"{name}: {registry.describe_failure(error)}" for name, error in failures.items())
    raise AllBackendsFailedError(
        f"{operation}: every backend failed ({rows}); see the cause of this error for each", failures
    ) from ExceptionGroup(
        f"{operation}: what each backend raised", [e for e in failures.values() if isinstance(e, Exception)]
    )
