"""Anomalous transport: random walks in continuous time, first passage, mean squared displacement.

>>> import numpy as np
>>> from hpfracc import transport
>>> walk = transport.ContinuousTimeRandomWalk(transport.MittagLefflerWaiting(0.7), transport.GaussianJumps())
>>> t = np.linspace(0, 100, 51)
>>> found = transport.msd(walk.sample(t, size=500, rng=1), t)
>>> print(f"{found.exponent:.2f}")
0.67
"""

from __future__ import annotations

from hpfracc.solvers.sde.transport.displacement import MeanSquaredDisplacement, msd
from hpfracc.solvers.sde.transport.laws import (
    ExponentialWaiting,
    FixedWaiting,
    GaussianJumps,
    Jumps,
    MittagLefflerWaiting,
    ParetoWaiting,
    StableJumps,
    StableWaiting,
    TemperedJumps,
    WaitingTimes,
)
from hpfracc.solvers.sde.transport.passage import FirstPassage, PassageEstimate, first_passage
from hpfracc.solvers.sde.transport.random_walk import ContinuousTimeRandomWalk, SubordinatedDiffusion
from hpfracc.solvers.sde.transport.tracks import Estimate, TrackFit, fit_tracks
from hpfracc.solvers.sde.transport.walks import LevyWalk, ScaledBrownian, TransientDiffusion, labelled_tracks

__all__ = [
    "ContinuousTimeRandomWalk", "Estimate", "ExponentialWaiting", "FirstPassage", "FixedWaiting", "GaussianJumps",
    "Jumps", "LevyWalk", "MeanSquaredDisplacement", "MittagLefflerWaiting", "ParetoWaiting", "PassageEstimate",
    "ScaledBrownian", "StableJumps", "StableWaiting", "SubordinatedDiffusion", "TemperedJumps", "TrackFit",
    "TransientDiffusion", "WaitingTimes", "first_passage", "fit_tracks", "labelled_tracks", "msd",
]  # fmt: skip
