"""Random processes as objects: Brownian motion, fractional Brownian motion, and their relatives.

>>> import numpy as np
>>> from hpfracc import noise
>>> noise.FractionalBrownian(0.3).sample(np.linspace(0, 1, 101), size=10, rng=1).shape
(10, 101)
"""

from __future__ import annotations

from hpfracc.solvers.sde.noise import (
    Brownian,
    FractionalBrownian,
    FractionalOU,
    GaussianNoise,
    HoskingStream,
    HurstEstimate,
    InverseSubordinator,
    LevyNoise,
    Noise,
    StableLevy,
    Subordinated,
    TemperedStable,
)

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
