"""Support for chunked arrays and executors, registered by the package and used by lower layers.

Operators and batches must not import :mod:`hpfracc.distributed`, the only package that imports Dask. They hand chunked
arrays and executors to what is registered here. It is imported on first use.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar, cast

__all__ = ["ClusterSupport", "cluster_support", "over_chunks", "plug_in"]

F = TypeVar("F", bound=Callable[..., Any])


class ClusterSupport(Protocol):
    """What :mod:`hpfracc.distributed` provides to lower layers."""

    def run_pieces(
        self,
        executor: Any,
        run: Callable[..., list[Any]],
        items: Sequence[Any],
        what: str,
        advance: Callable[[int], None] | None = None,
    ) -> list[Any]:
        """Run pieces of a batch on an executor."""

    def apply_operator(
        self,
        operator: Any,
        f: Any,
        t: Any,
        *,
        step: Any,
        axis: Any,
        origin: Any,
        factor: Any,
        rtol: Any,
        backend: Any,
        full_output: bool,
    ) -> Any:
        """Apply an operator to samples that are a Dask array."""

    def apply_function(
        self, name: str, call: Callable[[Any], Any], x: Any, axis: Any, *, dtype: Any = None, points: int | None = None
    ) -> Any:
        """Apply a function along an axis of a Dask array."""

    def apply_elementwise(self, function: Callable[..., Any], operands: tuple[Any, ...], options: Any) -> Any:
        """Apply a function of numbers to operands, some of which are Dask arrays."""

    def apply_operation(self, operation: Any, arrays: tuple[Any, ...], backend: Any, params: Any) -> Any:
        """Apply an operation of the engine to operands, some of which are Dask arrays."""

    def apply_shards(self, operator: Any, f: Any, t: Any, options: dict[str, Any]) -> Any:
        """Apply an operator to samples that are sharded over several devices."""

    def run_rows(self, run: Callable[..., list[Any]], rows: Any) -> Any:
        """Run a batch over the rows of a Dask array."""

    def explain_chunked(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Any) -> Any:
        """What a call on Dask arrays would do."""


_loader: Callable[[], ClusterSupport] | None = None


def plug_in(loader: Callable[[], ClusterSupport]) -> None:
    """Register the function that imports the support."""
    global _loader
    _loader = loader


def cluster_support() -> ClusterSupport:
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
