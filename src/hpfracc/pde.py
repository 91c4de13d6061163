"""Partial equations of fractional order: terms in space, boundary conditions and methods in time, for ``solve_fpde``.

>>> import numpy as np
>>> import hpfracc as hf
>>> from hpfracc import pde
>>> x = np.linspace(0.0, 2 * np.pi, 32, endpoint=False)
>>> space = pde.FractionalDiffusion(1.5) + pde.Advection(1.0)
>>> result = hf.solve_fpde(None, (0.0, 1.0), np.sin(x), x=x, space=space, boundary="periodic")
>>> bool(np.allclose(result.u[-1], np.exp(-1.0) * np.sin(x - 1.0)))
True
"""

from __future__ import annotations

from hpfracc.models.problems import partial as problems
from hpfracc.models.problems.partial import ModelEquation
from hpfracc.operators._distributed_order import DistributedOrder
from hpfracc.solvers.pde.boundary import BoundaryCondition, Dirichlet, Exterior, Neumann, NoFlux, Periodic, Robin
from hpfracc.solvers.pde.method import EvolutionMethod
from hpfracc.solvers.pde.methods.adaptive import AdaptiveSteps
from hpfracc.solvers.pde.methods.convolution_quadrature import CorrectedQuadrature
from hpfracc.solvers.pde.methods.crank_nicolson import CrankNicolson
from hpfracc.solvers.pde.methods.differences import DiffusionL1, DiffusionL2Sigma
from hpfracc.solvers.pde.methods.etdrk4 import ETDRK4
from hpfracc.solvers.pde.methods.exact_modes import ExactModes
from hpfracc.solvers.pde.methods.imex_bdf2 import ImexBDF2
from hpfracc.solvers.pde.methods.splitting import Strang, Yoshida4
from hpfracc.solvers.pde.result import EvolutionDecision, SpaceTimeError
from hpfracc.solvers.pde.space.disc import Annulus, Disc
from hpfracc.solvers.pde.space.jacobi import interval_eigenvalues, jacobi_grid
from hpfracc.solvers.pde.space.region import Region
from hpfracc.solvers.pde.terms import (
    Advection,
    CrossDiffusion,
    Diffusion,
    FractionalDiffusion,
    Matrix,
    OneSided,
    SpaceTerm,
    TermSum,
)

__all__ = [
    "ETDRK4", "AdaptiveSteps", "Advection", "Annulus", "BoundaryCondition", "CorrectedQuadrature", "CrankNicolson",
    "CrossDiffusion", "Diffusion", "DiffusionL1", "DiffusionL2Sigma", "Dirichlet", "Disc", "DistributedOrder",
    "EvolutionDecision", "EvolutionMethod", "ExactModes", "Exterior", "FractionalDiffusion", "ImexBDF2", "Matrix",
    "ModelEquation", "Neumann", "NoFlux", "OneSided", "Periodic", "Region", "Robin", "SpaceTerm", "SpaceTimeError",
    "Strang", "TermSum", "Yoshida4", "interval_eigenvalues", "jacobi_grid", "problems",
]  # fmt: skip
