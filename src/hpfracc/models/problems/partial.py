"""Fractional partial differential equations with references, for tests, documentation and comparisons."""

from __future__ import annotations

from hpfracc.models.problems.base import ModelEquation
from hpfracc.models.problems.diffusion import (
    breakthrough,
    column,
    diffusion_wave,
    distributed_order,
    plume,
    subdiffusion,
)
from hpfracc.models.problems.patterns import allen_cahn, fitzhugh_nagumo, gray_scott, peierls_nabarro
from hpfracc.models.problems.waves import burgers, burgers_flux, plane_wave, schroedinger

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
