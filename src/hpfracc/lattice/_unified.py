"""The lattice under the name and with the methods that existing code uses."""

from __future__ import annotations

import contextlib
import operator
import sys
import time
from typing import Any, final

import numpy as np

from hpfracc._arrays import library_of
from hpfracc._config import config, use_backend
from hpfracc.errors import InvalidInputError
from hpfracc.lattice import _transforms
from hpfracc.lattice._lattice import Lattice

__all__ = ["UnifiedCatalyticLattice"]

#: Operations a lattice lowers to, and the backends that may go to a device.
_OPERATIONS = ("bitwise_xor", "elementwise", "reduction", "matmul", "spectral_multiply", "stencil_relax")
_DEVICES = ("torch", "jax", "cupy")


@final
class UnifiedCatalyticLattice(Lattice):
    """The bounded cube of ``size ** dimensions`` points, row-major, with transforms of data.

    Parameters
    ----------
    dimensions, size : int
        Number of axes, and points along each.
    enable_gpu : bool
        Whether data in host memory may be sent to a device where that is quicker.
    enable_smart_routing : bool
        Whether the engine chooses the backend; else NumPy computes what lies in host memory. Data on a device are
        computed there in any case.

    Examples
    --------
    >>> from hpfracc.lattice import UnifiedCatalyticLattice
    >>> lattice = UnifiedCatalyticLattice(4, 10)
    >>> path, milliseconds = lattice.find_shortest_path((0, 0, 0, 0), (9, 9, 9, 9))
    >>> len(path)
    37
    >>> hidden = lattice.xor_transform(b"data")
    >>> lattice.xor_transform(hidden, lattice.last_key)
    b'data'
    """

    def __init__(self, dimensions: int, size: int, enable_gpu: bool = True, enable_smart_routing: bool = True) -> None:
        try:
            axes, side = operator.index(dimensions), operator.index(size)
        except TypeError:
            raise InvalidInputError(f"dimensions={dimensions!r}, size={size!r}; use whole numbers") from None
        if axes < 1 or side < 1:
            raise InvalidInputError(f"dimensions={axes}, size={side}; both are 1 or more")
        super().__init__((side,) * axes)
        self.dimensions = axes
        self.side = side
        self.enable_gpu = bool(enable_gpu)
        self.enable_smart_routing = bool(enable_smart_routing)
        #: The key of the last exclusive or.
        self.last_key: Any = None
        #: What undoes the last transformation, by its kind.
        self.last_parameters: dict[str, dict[str, Any]] = {}
        self._milliseconds: list[float] = [0.0, 0.0, 0.0]  # paths found, time in all, the last one

    def _scope(self, data: Any) -> contextlib.AbstractContextManager[Any]:
        if library_of(data) not in ("numpy", "python"):
            return contextlib.nullcontext()
        if not self.enable_smart_routing:
            return use_backend("numpy")
        if not self.enable_gpu:
            return config(never={name: list(_DEVICES) for name in _OPERATIONS})
        return contextlib.nullcontext()

    def build_lattice(self) -> UnifiedCatalyticLattice:
        """The lattice itself: it is implicit, so that there is nothing to build."""
        return self

    def find_shortest_path(self, start: Any, end: Any) -> tuple[list[Any], float]:
        """One shortest path and the milliseconds it took to find."""
        begun = time.perf_counter()
        path = self.shortest_path(start, end)
        spent = 1e3 * (time.perf_counter() - begun)
        found, total, _ = self._milliseconds
        self._milliseconds = [found + 1, total + spent, spent]
        return path, spent

    def xor_transform(self, data: Any, key: Any = None, *, return_key: bool = False) -> Any:
        """``data ^ key``, which undoes itself; of integers of any width, arrays of any library and shape, or bytes.

        Without a key a random one is made: it is :attr:`last_key`, and with ``return_key`` comes back beside the data.
        """
        with self._scope(data):
            result, self.last_key = _transforms.xor(data, key)
        self.last_parameters["xor"] = {"key": self.last_key}
        return (result, self.last_key) if return_key else result

    def apply_transformation(self, data: Any, kind: str = "xor", **parameters: Any) -> Any:
        """``"xor"`` (``key``), ``"normalize"`` (``method``: "minmax" or "standard") or ``"scale"`` (``factor``)."""
        with self._scope(data):
            result, made = _transforms.transform(data, kind, **parameters)
        self.last_parameters[kind] = made
        if kind == "xor":
            self.last_key = made["key"]
        return result

    def invert_transformation(self, data: Any, kind: str = "xor", **parameters: Any) -> Any:
        """Undo a transformation, with the parameters of the last of its kind unless others are given."""
        with self._scope(data):
            return _transforms.invert(data, kind, **(parameters or self.last_parameters.get(kind, {})))

    def get_adjacency_matrix(self) -> Any:
        """A ``scipy.sparse.csr_array`` of ones between neighbours."""
        return self.to_csr()

    def get_metrics(self) -> dict[str, Any]:
        """Counts, and what was measured: bytes held, paths found and their time."""
        found, total, last = self._milliseconds
        return {
            "dimensions": self.dimensions,
            "size": self.side,
            "nodes": self.size,
            "edges": self.edges,
            "memory_bytes": self.estimate_memory_usage()["total_bytes"],
            "paths_found": int(found),
            "mean_path_ms": total / found if found else float("nan"),
            "last_path_ms": last if found else float("nan"),
        }

    def estimate_memory_usage(self) -> dict[str, int]:
        """Bytes that this object holds, as measured: of itself, and of the keys and parameters it keeps."""
        own = sum(sys.getsizeof(part) for part in (self, self.__dict__, self.geometry, *self.geometry.shape))
        kept = sum(_bytes_of(value) for made in self.last_parameters.values() for value in made.values())
        return {"lattice_bytes": own, "kept_bytes": kept, "total_bytes": own + kept}


def _bytes_of(value: Any) -> int:
    if isinstance(value, np.ndarray):
        return int(value.nbytes)
    return int(getattr(value, "nbytes", 0)) or sys.getsizeof(value)
