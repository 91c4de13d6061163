"""What lower floors ask of this package, under the names of :class:`hpfracc._clusters.ClusterSupport`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hpfracc.distributed.chunked.apply import apply_function, apply_operator
from hpfracc.distributed.chunked.convolution import convolve_chunked
from hpfracc.distributed.chunked.planning import ChunkedExplanation, planned
from hpfracc.distributed.chunked.rows import run_rows
from hpfracc.distributed.mapping import run_pieces
from hpfracc.distributed.shards import apply_shards
from hpfracc.errors import InvalidInputError

__all__ = [
    "apply_function",
    "apply_operation",
    "apply_operator",
    "apply_shards",
    "explain_chunked",
    "run_pieces",
    "run_rows",
]


def apply_operation(operation: Any, arrays: tuple[Any, ...], backend: Any, params: Any) -> Any:
    """A causal convolution of Dask arrays; other operations are refused with what to do."""
    if operation.name != "causal_convolution" or len(arrays) != 2 or params:
        raise InvalidInputError(
            f"{operation.name} does not take Dask arrays; apply it to their blocks by map_blocks, or load them with "
            ".compute()"
        )
    return convolve_chunked(*arrays, backend=backend)


def explain_chunked(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Any) -> ChunkedExplanation:
    """The ways of the calls that a function makes on Dask arrays. Graphs are built, nothing is computed."""
    with planned() as plans:
        function(*args, **kwargs)
    if not plans:
        name = getattr(function, "__name__", repr(function))
        raise InvalidInputError(f"{name} made no call on a Dask array, so there is nothing to explain")
    return ChunkedExplanation(tuple(plans))
