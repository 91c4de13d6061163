"""n-dimensional lattice graphs: closed forms, path searches, data transforms and fractional diffusion."""

from __future__ import annotations

from hpfracc.lattice.batch import LatticeBatch, create_batch
from hpfracc.lattice.diffusion import FractionalDiffusion
from hpfracc.lattice.lattice import Lattice
from hpfracc.lattice.paths import PathBatch
from hpfracc.lattice.unified import UnifiedCatalyticLattice

__all__ = ["FractionalDiffusion", "Lattice", "LatticeBatch", "PathBatch", "UnifiedCatalyticLattice", "create_batch"]
