"""What lower floors use of higher ones: functions that the package registers by name, and that import on first use.

Operators and batches must not import :mod:`hpfracc.distributed`, the only package that imports Dask: they hand chunked
arrays and executors to its support. Profiling must not import the backends: it asks for their clocks.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])

#: The module and the name there of each function. The package fills it when it is imported.
plugged: dict[str, tuple[str, str]] = {}


def from_above(name: str) -> Any:
    """What the function of this name returns now."""
    module, function = plugged[name]
    return getattr(importlib.import_module(module), function)()


def cluster_support() -> Any:
    """:mod:`hpfracc.distributed.chunked`, which serves chunked arrays and executors."""
    return importlib.import_module(plugged["cluster support"][0])


def over_chunks(function: F) -> F:
    """Make an elementwise function accept Dask arrays too. Its result is then lazy."""
    from hpfracc._arrays import is_chunked, refuse_chunked, wraps_chunks  # imports NumPy, unlike `import hpfracc`
    from hpfracc._reading import corrected

    @functools.wraps(function)
    def call(*operands: Any, **options: Any) -> Any:
        if any(map(is_chunked, operands)) or (options and any(map(is_chunked, options.values()))):
            bound = inspect.signature(function).bind(*operands, **options)
            return cluster_support().apply_elementwise(call, bound.args, bound.kwargs)
        for name, each in zip(inspect.signature(function).parameters, operands, strict=False):
            if wraps_chunks(each):
                refuse_chunked(each, name)
        try:
            return function(*operands, **options)
        except TypeError as error:
            raise corrected(error, function) from error.__cause__

    return cast(F, call)
