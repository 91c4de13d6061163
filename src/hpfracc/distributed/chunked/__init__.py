"""Dask arrays, and what lower floors need from clusters: what :mod:`hpfracc._plugs` hands them."""

from __future__ import annotations

from hpfracc.distributed.chunked.convolution import apply_operation
from hpfracc.distributed.chunked.operators import apply_function, apply_operator
from hpfracc.distributed.chunked.planning import apply_elementwise, explain_chunked, run_rows
from hpfracc.distributed.devices import apply_shards
from hpfracc.distributed.executors import run_pieces

__all__ = [
    "apply_elementwise", "apply_function", "apply_operation", "apply_operator", "apply_shards", "explain_chunked",
    "run_pieces", "run_rows",
]  # fmt: skip
