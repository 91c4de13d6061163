"""Beyond one process: parameter sweeps, stores from which they resume, and Dask arrays and clusters.

The names below are loaded on first access (PEP 562): a worker that only calls a function needs few of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hpfracc.distributed.chunked.convolution import convolve
    from hpfracc.distributed.chunked.operators import apply
    from hpfracc.distributed.devices import per_device, per_shard
    from hpfracc.distributed.driver import SweepProgress
    from hpfracc.distributed.executors import mapper
    from hpfracc.distributed.parameters import ParameterGrid, ParameterPoints, grid, points
    from hpfracc.distributed.results import SweepCost, SweepResult, open_sweep
    from hpfracc.distributed.sweeps import stacked, sweep
    from hpfracc.distributed.tasks import ItemFailure

__all__ = [
    "ItemFailure", "ParameterGrid", "ParameterPoints", "SweepCost", "SweepProgress", "SweepResult", "apply", "convolve",
    "grid", "mapper", "open_sweep", "per_device", "per_shard", "points", "stacked", "sweep",
]  # fmt: skip

_NAMES = {
    "chunked.convolution": ("convolve",),
    "chunked.operators": ("apply",),
    "devices": ("per_device", "per_shard"),
    "driver": ("SweepProgress",),
    "executors": ("mapper",),
    "parameters": ("ParameterGrid", "ParameterPoints", "grid", "points"),
    "results": ("SweepCost", "SweepResult", "open_sweep"),
    "sweeps": ("stacked", "sweep"),
    "tasks": ("ItemFailure",),
}
_HOME = {name: module for module, names in _NAMES.items() for name in names}

# Hidden from type checkers, which would otherwise accept any attribute.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
