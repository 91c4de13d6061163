"""Batched work on many lattices: arrays of the same kind share one engine call, limited by memory."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, final

import numpy as np

from hpfracc import _reading
from hpfracc._arrays import library_of
from hpfracc.engine.execution.api import bitwise_xor, matmul
from hpfracc.engine.execution.batch.run import run
from hpfracc.engine.execution.operation import Operation, get_operation
from hpfracc.engine.workers import run_items
from hpfracc.errors import BatchItemError, InvalidInputError, ShapeError
from hpfracc.lattice import transforms
from hpfracc.lattice.lattice import Lattice

#: Named operations; any other string is an expression in x, or in x and y for pairs.
_NAMED = {
    "add": "x + y",
    "subtract": "x - y",
    "multiply": "x * y",
    "divide": "x / y",
    "negate": "-x",
    "square": "x * x",
    **{name: f"{name}(x)" for name in ("sqrt", "exp", "log", "sin", "cos", "abs", "tanh")},
}


def create_batch(lattices: Sequence[Lattice], max_batch_size: int = 32) -> LatticeBatch:
    """Create a :class:`LatticeBatch`, which runs work on many lattices at once.

    Parameters
    ----------
    lattices : sequence of Lattice
        The lattices. Their shapes may differ.
    max_batch_size : int
        Maximum number of arrays in one engine call. Fewer are used if memory is limited.

    Examples
    --------
    >>> import numpy as np
    >>> from hpfracc.lattice import UnifiedCatalyticLattice, create_batch
    >>> batch = create_batch([UnifiedCatalyticLattice(2, 4) for _ in range(3)])
    >>> batch.batch_element_wise([np.array([1.0, 4.0])] * 3, "sqrt")[2]
    array([1., 2.])
    >>> [len(path) for path in batch.batch_find_shortest_paths([0, 0, 0], [15, 3, 0])]
    [7, 4, 1]
    """
    return LatticeBatch(lattices, max_batch_size)


@final
class LatticeBatch:
    """Batched operations on several lattices, created by :func:`create_batch`."""

    def __init__(self, lattices: Sequence[Lattice], max_batch_size: int = 32) -> None:
        self.lattices = _reading.listed("lattices", lattices, "at least one Lattice")
        if not self.lattices or not all(isinstance(lattice, Lattice) for lattice in self.lattices):
            raise InvalidInputError(f"lattices={lattices!r}; give a sequence of at least one Lattice")
        self.max_batch_size = _reading.whole("max_batch_size", max_batch_size, least=1)
        #: The keys used by the last :meth:`batch_xor_transform`.
        self.last_keys: list[Any] = []
        self._stats: dict[str, dict[str, float]] = {}

    def batch_xor_transform(self, data: Sequence[Any], keys: Sequence[Any] | None = None) -> list[Any]:
        """``data[i] ^ keys[i]`` for every i. Without ``keys``, random ones are generated; see :attr:`last_keys`."""
        if keys is not None and len(keys) != len(data):
            raise ShapeError(f"{len(keys)} keys for {len(data)} arrays; give one key for each array")
        wanted = [None] * len(data) if keys is None else keys
        results: list[Any] = [None] * len(data)
        used_keys: list[Any] = [None] * len(data)
        arrays: dict[int, tuple[Any, ...]] = {}
        with self._timed("xor_transform", len(data)) as launched:
            for position, (one, key) in enumerate(zip(data, wanted, strict=True)):
                if transforms.needs_conversion(one):
                    results[position], used_keys[position] = transforms.xor(one, key)
                    launched()
                else:
                    arrays[position] = transforms.with_key(one, key)
                    used_keys[position] = arrays[position][1]
            self.last_keys = used_keys
            return self._run(bitwise_xor, arrays, results, launched)

    def batch_matrix_operations(self, a: Any, b: Any) -> Any:
        """Products ``a[i] @ b[i]``: a list for two lists, a stacked array for two stacked arrays."""
        listed = isinstance(a, list | tuple) or isinstance(b, list | tuple)
        if len(a) != len(b):
            raise ShapeError(f"a has {len(a)} matrices and b has {len(b)}; give the same number of each")
        with self._timed("matrix_operations", len(a)) as launched:
            if not listed:
                launched()
                with self.lattices[0]._scope(a):
                    return matmul(a, b)
            pairs: dict[int, tuple[Any, ...]] = {i: (_array(a[i]), _array(b[i])) for i in range(len(a))}
            return self._run(matmul, pairs, [None] * len(a), launched)

    def batch_element_wise(self, data: Sequence[Any], operation: str) -> list[Any]:
        """Apply one operation to each array (``"sqrt"``, ``"2*x + sin(x)"``) or pair (``"add"``, ``"x*y"``)."""
        expression = _NAMED.get(operation, operation)
        items = [tuple(map(_array, one)) if isinstance(one, tuple) else (_array(one),) for one in data]
        for item in items:
            if len(item) not in (1, 2):
                raise InvalidInputError(f"an item has {len(item)} arrays; give one array, or a pair (x, y)")
        results: list[Any] = [None] * len(items)
        with self._timed("element_wise", len(items)) as launched:
            for names in (("x",), ("x", "y")):
                given = {position: item for position, item in enumerate(items) if len(item) == len(names)}
                elementwise = get_operation("elementwise")
                self._run(elementwise, given, results, launched, expression=expression, names=names)
        return results

    def batch_find_shortest_paths(self, starts: Sequence[Any], ends: Sequence[Any]) -> list[list[Any]]:
        """A shortest path for each pair, on the lattice of the same position; a single lattice applies to all pairs."""
        if len(starts) != len(ends):
            raise ShapeError(f"{len(starts)} starts and {len(ends)} ends; give the same number of each")
        if len(self.lattices) not in (1, len(starts)):
            raise ShapeError(f"{len(starts)} pairs for {len(self.lattices)} lattices; give one pair for each lattice")
        chosen = self.lattices * len(starts) if len(self.lattices) == 1 else self.lattices
        groups: dict[Any, list[int]] = {}
        for number, lattice in enumerate(chosen):
            groups.setdefault(lattice.geometry if lattice.is_free else id(lattice), []).append(number)
        results: list[list[Any]] = [[] for _ in starts]
        with self._timed("find_shortest_paths", len(starts)) as launched:
            for numbers in groups.values():
                lattice = chosen[numbers[0]]
                index_of = lattice.geometry.index
                found = lattice.shortest_paths(
                    np.array([index_of(starts[number]) for number in numbers], np.int64),
                    np.array([index_of(ends[number]) for number in numbers], np.int64),
                )
                launched()
                for row, number in enumerate(numbers):
                    results[number] = lattice._points_like(found[row].tolist(), starts[number])
        return results

    def execute_parallel(self, operations: Sequence[Callable[[], Any]]) -> list[Any]:
        """Call each function in a thread, with the caller's settings. Returns the results in order."""
        with self._timed("execute_parallel", len(operations)) as launched:
            launched()
            return run_items(lambda operation: operation(), operations, self.max_batch_size)

    def get_stats(self) -> dict[str, dict[str, float]]:
        """Calls, items, engine launches and seconds, by kind of work."""
        return {name: dict(counts) for name, counts in self._stats.items()}

    def print_stats(self) -> None:
        """Print :meth:`get_stats` as a table."""
        rows = [f"{'work':<20} {'calls':>7} {'items':>9} {'launches':>9} {'seconds':>10}"]
        rows += [
            f"{name:<20} {counts['calls']:>7.0f} {counts['items']:>9.0f} {counts['launches']:>9.0f} "
            f"{counts['seconds']:>10.4f}"
            for name, counts in self._stats.items()
        ]
        sys.stdout.write("\n".join(rows) + "\n")

    def _run(
        self, operation: Operation, items: dict[int, tuple[Any, ...]], results: list[Any],
        launched: Callable[[], None], **params: Any,
    ) -> list[Any]:  # fmt: skip
        """Run one engine operation on ``items``, which are keyed by their position among the ``results``."""
        # Device arrays are computed on their device; the lattice's settings apply to host arrays only.
        for host in (True, False):
            positions = [position for position, item in items.items() if (library_of(item[0]) == "numpy") is host]
            if not positions:
                continue
            given = [items[position] for position in positions]
            with self.lattices[0]._scope(given[0][0]):
                try:
                    found = run(
                        operation, given, batch_size=self.max_batch_size, progress=lambda *_: launched(), **params
                    )
                except BatchItemError as error:  # its index counts this group, not the caller's items
                    position = positions[error.index]
                    reason = str(error).partition(": ")[2]
                    raise BatchItemError(f"item {position} of {len(results)}: {reason}", position) from error.__cause__
            for position, one in zip(positions, found, strict=True):
                results[position] = np.asarray(one) if isinstance(one, np.generic) else one
        return results

    @contextmanager
    def _timed(self, name: str, items: int) -> Iterator[Callable[[], None]]:
        """Add one call to the statistics. The function that it yields counts an engine launch."""
        counts = self._stats.setdefault(name, {"calls": 0, "items": 0, "launches": 0, "seconds": 0.0})

        def launched() -> None:
            counts["launches"] += 1

        begun = time.perf_counter()
        try:
            yield launched
        finally:
            counts["calls"] += 1
            counts["items"] += items
            counts["seconds"] += time.perf_counter() - begun


def _array(value: Any) -> Any:
    return np.asarray(value) if library_of(value) == "python" else value
