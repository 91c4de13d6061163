"""Support for chunked arrays and executors, registered by the package and used by lower layers.

Operators and batches must not import :mod:`hpfracc.distributed`, the only package that imports Dask. They hand chunked
arrays and executors to what is registered here. It is imported on first use.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])


_loader: Callable[[], Any] | None = None


def plug_in(loader: Callable[[], Any]) -> None:
    """Register the function that imports the support, :mod:`hpfracc.distributed.chunked`."""
    global _loader
    _loader = loader


def cluster_support() -> Any:
    """The support, imported on first use."""
    assert _loader is not None, "the package registers it when it is imported"
    return _loader()


def over_chunks(function: F) -> F:
    """Make an elementwise function accept Dask arrays too. Its result is then lazy."""
    from hpfracc._arrays import is_chunked, refuse_chunked, wraps_chunks  # imports NumPy, unlike `import hpfracc`

    @functools.wraps(function)
    def call(*operands: Any, **options: Any) -> Any:
        if any(map(is_chunked, operands)) or (options and any(map(is_chunked, options.values()))):
            bound = inspect.signature(function).bind(*operands, **options)
            return cluster_support().apply_elementwise(call, bound.args, bound.kwargs)
        for name, each in zip(inspect.signature(function).parameters, operands, strict=False):
            if wraps_chunks(each):
                refuse_chunked(each, name)
        return function(*operands, **options)

    return cast(F, call)
