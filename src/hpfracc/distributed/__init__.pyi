"""Public names, loaded on first use: see ``hpfracc/_lazy.py``."""

from hpfracc.distributed.chunked.convolution import convolve as convolve
from hpfracc.distributed.chunked.operators import apply as apply
from hpfracc.distributed.devices import per_device as per_device
from hpfracc.distributed.devices import per_shard as per_shard
from hpfracc.distributed.driver import SweepProgress as SweepProgress
from hpfracc.distributed.executors import mapper as mapper
from hpfracc.distributed.items import ItemFailure as ItemFailure
from hpfracc.distributed.items import ParameterGrid as ParameterGrid
from hpfracc.distributed.items import ParameterPoints as ParameterPoints
from hpfracc.distributed.items import grid as grid
from hpfracc.distributed.items import points as points
from hpfracc.distributed.results import SweepCost as SweepCost
from hpfracc.distributed.results import SweepResult as SweepResult
from hpfracc.distributed.results import open_sweep as open_sweep
from hpfracc.distributed.sweeps import stacked as stacked
from hpfracc.distributed.sweeps import sweep as sweep
