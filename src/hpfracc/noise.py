"""Random processes as objects: Brownian motion, fractional Brownian motion, and their relatives.

>>> import numpy as np
>>> from hpfracc import noise
>>> noise.FractionalBrownian(0.3).sample(np.linspace(0, 1, 101), size=10, rng=1).shape
(10, 101)
"""

from __future__ import annotations

from hpfracc.solvers.sde.noise.circulant import HoskingStream
from hpfracc.solvers.sde.noise.estimation import HurstEstimate
from hpfracc.solvers.sde.noise.fractional_brownian import Brownian, FractionalBrownian
from hpfracc.solvers.sde.noise.fractional_ou import FractionalOU
from hpfracc.solvers.sde.noise.process import GaussianNoise, LevyNoise, Noise
from hpfracc.solvers.sde.noise.stable import StableLevy, TemperedStable
from hpfracc.solvers.sde.noise.subordinated import InverseSubordinator, Subordinated

__all__ = [
    "Brownian", "FractionalBrownian", "FractionalOU", "GaussianNoise", "HoskingStream", "HurstEstimate",
    "InverseSubordinator", "LevyNoise", "Noise", "StableLevy", "Subordinated", "TemperedStable",
]  # fmt: skip
