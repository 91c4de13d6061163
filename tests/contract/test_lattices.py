"""The Lattices section of the contract, as written."""

from __future__ import annotations

import inspect
import math

import numpy as np
import pytest

from hpfracc.lattice import UnifiedCatalyticLattice, create_batch


def test_constructor_and_methods():
    """Names, arguments and defaults."""
    signature = inspect.signature(UnifiedCatalyticLattice)
    assert list(signature.parameters) == ["dimensions", "size", "enable_gpu", "enable_smart_routing"]
    assert signature.parameters["enable_gpu"].default is signature.parameters["enable_smart_routing"].default is True
    lattice = UnifiedCatalyticLattice(dimensions=3, size=5)
    for name in ("build_lattice", "find_all_paths", "find_communities", "calculate_centrality", "get_metrics"):
        assert callable(getattr(lattice, name))
    assert inspect.signature(create_batch).parameters["max_batch_size"].default == 32


@pytest.mark.parametrize(("dimensions", "size"), [(1, 7), (2, 5), (3, 4), (4, 3)])
def test_formulae_of_the_plain_grid(dimensions: int, size: int):
    """Edges, diameter, mean degree, clustering, distance, number of shortest paths, row-major order."""
    lattice = UnifiedCatalyticLattice(dimensions, size).build_lattice()
    found = lattice.analyze_structure()
    assert found["nodes"] == size**dimensions
    assert found["edges"] == dimensions * size ** (dimensions - 1) * (size - 1)
    assert found["diameter"] == dimensions * (size - 1)
    assert found["mean_degree"] == pytest.approx(2 * dimensions * (size - 1) / size)
    assert found["clustering"] == 0
    generator = np.random.default_rng(dimensions)
    for a, b in generator.integers(0, size, (5, 2, dimensions)):
        shifts = np.abs(a - b).tolist()
        ways = math.factorial(sum(shifts)) // math.prod(map(math.factorial, shifts))
        assert lattice.distance(tuple(a), tuple(b)) == sum(shifts)
        assert lattice.count_shortest_paths(tuple(a), tuple(b)) == ways
        assert lattice.coordinates_to_index(tuple(a)) == np.ravel_multi_index(a, (size,) * dimensions)
        path, milliseconds = lattice.find_shortest_path(tuple(a), tuple(b))
        assert len(path) == sum(shifts) + 1 and milliseconds > 0


def test_batches_of_lattices():
    """Every method of the contract, on lattices of one kind."""
    batch = create_batch([UnifiedCatalyticLattice(2, 4) for _ in range(2)], max_batch_size=32)
    data = [np.array([1, 2]), np.array([3, 4])]
    np.testing.assert_array_equal(batch.batch_xor_transform(batch.batch_xor_transform(data), batch.last_keys), data)
    np.testing.assert_allclose(batch.batch_matrix_operations(np.ones((2, 3, 3)), np.ones((2, 3, 3))), 3.0)
    np.testing.assert_allclose(batch.batch_element_wise([np.ones(2)] * 2, "exp"), math.e)
    assert [len(path) for path in batch.batch_find_shortest_paths([0, 0], [15, 1])] == [7, 2]
    assert batch.execute_parallel([lambda: 1, lambda: 2]) == [1, 2]
    assert batch.get_stats()["xor_transform"]["calls"] == 2
    batch.print_stats()
