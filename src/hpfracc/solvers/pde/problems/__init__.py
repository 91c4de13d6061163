"""Fractional partial differential equations with references, for tests, documentation and comparisons."""

from __future__ import annotations

from hpfracc.solvers.pde.problems.base import ModelEquation
from hpfracc.solvers.pde.problems.diffusion import (
    breakthrough,
    column,
    diffusion_wave,
    distributed_order,
    plume,
    subdiffusion,
)
from hpfracc.solvers.pde.problems.patterns import allen_cahn, fitzhugh_nagumo, gray_scott, peierls_nabarro
from hpfracc.solvers.pde.problems.waves import burgers, burgers_flux, plane_wave, schroedinger

__all__ = [
    "ModelEquation",
    "allen_cahn",
    "breakthrough",
    "burgers",
    "burgers_flux",
    "column",
    "diffusion_wave",
    "distributed_order",
    "fitzhugh_nagumo",
    "gray_scott",
    "peierls_nabarro",
    "plane_wave",
    "plume",
    "schroedinger",
    "subdiffusion",
]
