"""Anomalous transport: random walks in continuous time, first passage, mean squared displacement."""

from __future__ import annotations

from hpfracc.solvers.sde.transport.displacement import MeanSquaredDisplacement, msd
from hpfracc.solvers.sde.transport.jumps import GaussianJumps, Jumps, StableJumps, TemperedJumps
from hpfracc.solvers.sde.transport.passage import FirstPassage, PassageEstimate, first_passage
from hpfracc.solvers.sde.transport.random_walk import ContinuousTimeRandomWalk
from hpfracc.solvers.sde.transport.subordinated_diffusion import SubordinatedDiffusion
from hpfracc.solvers.sde.transport.waiting import (
    ExponentialWaiting,
    FixedWaiting,
    MittagLefflerWaiting,
    ParetoWaiting,
    StableWaiting,
    WaitingTimes,
)

__all__ = [
    "ContinuousTimeRandomWalk",
    "ExponentialWaiting",
    "FirstPassage",
    "FixedWaiting",
    "GaussianJumps",
    "Jumps",
    "MeanSquaredDisplacement",
    "MittagLefflerWaiting",
    "ParetoWaiting",
    "PassageEstimate",
    "StableJumps",
    "StableWaiting",
    "SubordinatedDiffusion",
    "TemperedJumps",
    "WaitingTimes",
    "first_passage",
    "msd",
]
