"""``mittag_leffler`` in PyTorch."""

from __future__ import annotations

from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.backends.torch.special_functions import of_z

KERNELS: dict[str, Kernel] = {"contour": Kernel(of_z)}
