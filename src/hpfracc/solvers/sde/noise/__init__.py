"""Random processes with memory, sampled exactly if possible.

Each process has ``sample(t, size, rng)``; Gaussian ones have ``covariance(s, t)`` and ``refine(path, t)``. The numbers
of a path depend only on the seed and the number of the path.
"""

from __future__ import annotations

from hpfracc.solvers.sde.noise.brownian import Brownian
from hpfracc.solvers.sde.noise.estimation import HurstEstimate
from hpfracc.solvers.sde.noise.fractional_brownian import FractionalBrownian
from hpfracc.solvers.sde.noise.fractional_ou import FractionalOU
from hpfracc.solvers.sde.noise.hosking import HoskingStream
from hpfracc.solvers.sde.noise.inverse_subordinator import InverseSubordinator
from hpfracc.solvers.sde.noise.process import GaussianNoise, LevyNoise, Noise
from hpfracc.solvers.sde.noise.stable import StableLevy
from hpfracc.solvers.sde.noise.subordinated import Subordinated
from hpfracc.solvers.sde.noise.tempered import TemperedStable

__all__ = [
    "Brownian",
    "FractionalBrownian",
    "FractionalOU",
    "GaussianNoise",
    "HoskingStream",
    "HurstEstimate",
    "InverseSubordinator",
    "LevyNoise",
    "Noise",
    "StableLevy",
    "Subordinated",
    "TemperedStable",
]
