"""Functions on the blocks of Dask arrays, called as the caller would call them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from hpfracc._config import current_backend
from hpfracc._optional import import_optional
from hpfracc.distributed.sweeps import caller_settings
from hpfracc.distributed.tasks import Caller

__all__ = ["blocks", "run_block"]


def blocks(name: str, call: Callable[..., Any], *arrays: Any, dtype: Any, **options: Any) -> Any:
    """``map_blocks`` with the caller's settings."""
    array = import_optional("dask.array")
    run = functools.partial(run_block, Caller(caller_settings(), current_backend()), call)
    return array.map_blocks(
        run, *arrays, dtype=dtype, meta=np.empty((0,) * options.pop("ndim", arrays[0].ndim), dtype), name=None,
        token=f"hpfracc-{name.lower()}", **options,
    )  # fmt: skip


def run_block(caller: Caller, call: Callable[..., Any], *given: Any) -> Any:
    """One task: as the caller would call it, within the limits of the worker."""
    with caller.adopted():
        return call(*given)
