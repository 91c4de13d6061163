"""Beyond one process: sweeps over parameters, stores that resume, and the arrays and clusters of Dask."""

from __future__ import annotations

from hpfracc.distributed.chunked.convolution import convolve
from hpfracc.distributed.driver import SweepProgress
from hpfracc.distributed.mapping import mapper
from hpfracc.distributed.parameters import ParameterGrid, ParameterPoints, grid, points
from hpfracc.distributed.results import SweepCost, SweepResult, open_sweep
from hpfracc.distributed.shards import per_shard
from hpfracc.distributed.sweeps import stacked, sweep
from hpfracc.distributed.tasks import ItemFailure

__all__ = [
    "ItemFailure",
    "ParameterGrid",
    "ParameterPoints",
    "SweepCost",
    "SweepProgress",
    "SweepResult",
    "convolve",
    "grid",
    "mapper",
    "open_sweep",
    "per_shard",
    "points",
    "stacked",
    "sweep",
]
