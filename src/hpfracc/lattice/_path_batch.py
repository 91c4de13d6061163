"""Many paths of different lengths in two arrays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hpfracc.errors import InvalidInputError
from hpfracc.lattice._geometry import Array

__all__ = ["PathBatch"]


@dataclass(frozen=True, slots=True)
class PathBatch:
    """Paths one behind the other; ``batch[i]`` is the i-th, as an array of indices.

    Attributes
    ----------
    points : numpy.ndarray
        The points of all of them.
    begins : numpy.ndarray
        Where each begins in ``points``, and behind them where the last one ends.
    """

    points: Array
    begins: Array

    def __len__(self) -> int:
        return len(self.begins) - 1

    def __getitem__(self, number: int) -> Array:
        if not -len(self) <= number < len(self):
            raise InvalidInputError(f"path {number} of {len(self)}")
        number %= len(self)
        return self.points[self.begins[number] : self.begins[number + 1]]

    def __iter__(self) -> Iterator[Array]:
        return (self[number] for number in range(len(self)))

    @property
    def lengths(self) -> Array:
        """Steps of each."""
        return np.asarray(np.diff(self.begins) - 1)
