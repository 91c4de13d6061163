"""n-dimensional lattice graphs: closed forms, searches, transforms of data, fractional diffusion."""

from __future__ import annotations

from hpfracc.lattice._batch import LatticeBatch, create_batch
from hpfracc.lattice._diffusion import FractionalDiffusion
from hpfracc.lattice._lattice import Lattice
from hpfracc.lattice._path_batch import PathBatch
from hpfracc.lattice._unified import UnifiedCatalyticLattice

__all__ = ["FractionalDiffusion", "Lattice", "LatticeBatch", "PathBatch", "UnifiedCatalyticLattice", "create_batch"]
