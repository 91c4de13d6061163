""":class:`UnifiedCatalyticLattice`: a lattice with data transforms, under the names that existing code uses."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import Any, Unpack, cast, final

from hpfracc import _reading
from hpfracc._arrays import library_of
from hpfracc._config import config, use_backend
from hpfracc.lattice import transforms
from hpfracc.lattice.lattice import Lattice
from hpfracc.lattice.transforms import InverseOptions, TransformOptions

#: Engine operations that a lattice uses, and backends that may compute on a device.
_OPERATIONS = ("bitwise_xor", "elementwise", "reduction", "matmul", "spectral_multiply", "stencil_relax")
_DEVICES = ("torch", "jax", "cupy")


@final
class UnifiedCatalyticLattice(Lattice):
    """Cubic lattice of ``size ** dimensions`` points, not periodic, with data transforms.

    Parameters
    ----------
    dimensions, size : int
        Number of axes, and points along each.
    enable_gpu : bool
        Whether host arrays may be sent to a device where that is faster.
    enable_smart_routing : bool
        Whether the engine chooses the backend for host arrays; otherwise NumPy is used. Device arrays are always
        computed on their device.

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
        axes, side = _reading.count("dimensions", dimensions), _reading.whole("size", size, least=1)
        super().__init__((side,) * axes)
        self.dimensions = axes
        self.side = side
        self.enable_gpu = _reading.flag("enable_gpu", enable_gpu)
        self.enable_smart_routing = _reading.flag("enable_smart_routing", enable_smart_routing)
        #: The key of the last xor transform.
        self.last_key: Any = None
        #: Parameters that invert the last transformation of each kind.
        self.last_parameters: dict[str, dict[str, Any]] = {}
        self._path_times: list[float] = [0.0, 0.0, 0.0]  # paths found, total milliseconds, last milliseconds

    def _scope(self, data: Any) -> contextlib.AbstractContextManager[Any]:
        if library_of(data) not in ("numpy", "python"):
            return contextlib.nullcontext()
        if not self.enable_smart_routing:
            return use_backend("numpy")
        if not self.enable_gpu:
            return config(never={name: list(_DEVICES) for name in _OPERATIONS})
        return contextlib.nullcontext()

    def build_lattice(self) -> UnifiedCatalyticLattice:
        """Return the lattice itself. It is implicit, so there is nothing to build."""
        return self

    def find_shortest_path(self, start: Any, end: Any) -> tuple[list[Any], float]:
        """One shortest path, and the milliseconds that the search took."""
        begun = time.perf_counter()
        path = self.shortest_path(start, end)
        spent = 1e3 * (time.perf_counter() - begun)
        found, total, _ = self._path_times
        self._path_times = [found + 1, total + spent, spent]
        return path, spent

    def xor_transform(self, data: Any, key: Any = None, *, return_key: bool = False) -> Any:
        """``data ^ key``, for bytes or for integer arrays of any library. Applying it twice restores the data.

        Without a key a random one is generated. It is stored in :attr:`last_key`, and returned too if ``return_key``.
        """
        with self._scope(data):
            result, self.last_key = transforms.xor(data, key)
        self.last_parameters["xor"] = {"key": self.last_key}
        return (result, self.last_key) if return_key else result

    def apply_transformation(self, data: Any, kind: str = "xor", **parameters: Unpack[TransformOptions]) -> Any:
        """Transform data: ``"xor"`` (``key``), ``"normalize"`` (``method``) or ``"scale"`` (``factor``).

        ``method`` is ``"minmax"`` for the range [0, 1] or ``"standard"`` for mean 0 and variance 1.
        """
        with self._scope(data):
            result, used = transforms.transform(data, kind, **parameters)
        self.last_parameters[kind] = used
        if kind == "xor":
            self.last_key = used["key"]
        return result

    def invert_transformation(self, data: Any, kind: str = "xor", **parameters: Unpack[InverseOptions]) -> Any:
        """Invert a transformation, by default with the parameters of the last one of its kind."""
        given = parameters or cast(InverseOptions, self.last_parameters.get(kind, {}))
        with self._scope(data):
            return transforms.invert(data, kind, **given)

    def get_adjacency_matrix(self) -> Any:
        """Adjacency matrix as a ``scipy.sparse.csr_array``."""
        return self.to_csr()

    def get_metrics(self) -> dict[str, Any]:
        """Dict of sizes, bytes held, number of paths found and their times."""
        found, total, last = self._path_times
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
        """Bytes of this object, and of the keys and parameters that it keeps."""
        own = sum(sys.getsizeof(part) for part in (self, self.__dict__, self.geometry, *self.geometry.shape))
        kept = sum(_bytes_of(value) for used in self.last_parameters.values() for value in used.values())
        return {"lattice_bytes": own, "kept_bytes": kept, "total_bytes": own + kept}


def _bytes_of(value: Any) -> int:
    return int(getattr(value, "nbytes", 0)) or sys.getsizeof(value)
