"""Lattices where things go wrong: sides of one to three, values that are none, sizes that no array holds."""

from __future__ import annotations

import itertools
import math

import networkx
import numpy as np
import pytest
from scipy import stats
from scipy.sparse import csgraph

from hpfracc.errors import InvalidInputError, OutOfMemoryError, ShapeError, UnsupportedDtypeError
from hpfracc.lattice import Lattice, UnifiedCatalyticLattice, create_batch
from tests.helpers.thinned import thinned

SHAPES = [(1,), (2,), (3,), (1, 5), (5, 1, 1), (2, 2), (2, 4), (3, 3), (1, 2, 3), (2, 2, 2), (4, 1, 2), (3, 3, 3)]
KINDS = list(itertools.product(SHAPES, [False, True], ["von_neumann", "moore"]))
EACH = pytest.mark.parametrize(("shape", "periodic", "neighbourhood"), KINDS, ids=str)


@EACH
@thinned(one_in=5)
def test_closed_forms_agree_with_the_graph(shape, periodic, neighbourhood):
    """Neighbours, distances, paths, numbers of paths, degrees and measures equal those from the graph's matrix."""
    lattice = Lattice(shape, periodic, neighbourhood=neighbourhood)
    graph, size = lattice.to_networkx(), lattice.size
    links = (lattice.to_csr().toarray() > 0).astype(np.int64)
    steps = csgraph.dijkstra(lattice.to_csr(), unweighted=True).astype(np.int64)
    walks = [np.eye(size, dtype=object)]
    for _ in range(int(steps.max())):
        walks.append(walks[-1] @ links.astype(object))
    assert lattice.edges == links.sum() // 2
    np.testing.assert_array_equal(lattice.degrees().reshape(-1), links.sum(1))
    np.testing.assert_array_equal(lattice.eccentricities().reshape(-1), steps.max(1))
    np.testing.assert_array_equal(lattice.index_to_coordinates(np.arange(size)), list(np.ndindex(*shape)))
    batch = lattice.shortest_paths(np.repeat(np.arange(size), size), np.tile(np.arange(size), size))
    for a in range(size):
        assert lattice.neighbours(a) == list(np.flatnonzero(links[a]))
        np.testing.assert_array_equal(lattice.distance_map(a).reshape(-1), steps[a])
        for b in range(size):
            for path in (lattice.shortest_path(a, b), batch[a * size + b].tolist()):
                assert (path[0], path[-1], len(path) - 1) == (
                    a,
                    b,
                    steps[a, b] == lattice.distance(a, b) and steps[a, b],
                )
                assert all(links[u, v] for u, v in itertools.pairwise(path))
            assert lattice.count_shortest_paths(a, b) == walks[steps[a, b]][a, b]
    found = lattice.analyze_structure()
    assert found["clustering"] == pytest.approx(networkx.average_clustering(graph), abs=1e-12)
    assert found["is_bipartite"] == networkx.is_bipartite(graph)
    assert found["density"] == pytest.approx(networkx.density(graph))
    assert found["diameter"] == lattice.diameter == steps.max()
    if size > 1:
        assert found["mean_distance"] == pytest.approx(networkx.average_shortest_path_length(graph))
    for kind, truth in (("degree", networkx.degree_centrality), ("closeness", networkx.closeness_centrality)):
        expected = truth(graph)
        np.testing.assert_allclose(lattice.calculate_centrality(kind).reshape(-1), [expected[i] for i in range(size)])


WALKS = [
    ((9,), True, "von_neumann"),
    ((7,), False, "von_neumann"),
    ((4, 3), True, "von_neumann"),
    ((5, 4), (True, False), "von_neumann"),
    ((2, 2), False, "von_neumann"),
    ((5, 5), True, "moore"),
]


@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize(("shape", "periodic", "neighbourhood"), WALKS)
@thinned(lambda steps: steps == 2)
def test_walks_follow_their_distribution(shape, periodic, neighbourhood, steps):
    """30,000 walkers, more than NumPy's buffer holds, pass a chi-square test."""
    fractional = Lattice(shape, periodic, neighbourhood=neighbourhood).fractional(1.2)
    size, walkers = math.prod(shape), 30_000
    for start in (0, size // 2):
        chances = fractional.walk_distribution(start, steps).reshape(-1)
        landed = fractional.sample(start, steps, walkers=walkers, rng=7)[:, -1]
        counts, possible = np.bincount(landed, minlength=size), chances > 1e-12
        assert not counts[~possible].any()
        expected = chances[possible] / chances[possible].sum() * walkers
        assert stats.chisquare(counts[possible], expected).pvalue > 1e-4


def test_lattices_larger_than_any_array():
    """With 1e9 and 1e24 points, closed forms are immediate and exact; everything else raises an error."""
    cube, line, vast = Lattice((1000,) * 3), Lattice((10**9,)), Lattice((10**6,) * 4)
    assert cube.distance(0, cube.size - 1) == 2997
    assert cube.count_shortest_paths(0, cube.size - 1) == math.factorial(2997) // math.factorial(999) ** 3
    assert cube.shortest_paths([0, 5], [10**9 - 1, 7]).lengths.tolist() == [2997, 2]
    assert line.analyze_structure()["mean_distance"] == pytest.approx((10**9 + 1) / 3, rel=1e-15)
    assert Lattice((10**9,), True).analyze_structure()["mean_distance"] == pytest.approx(250000000.25, rel=1e-12)
    square = Lattice((10**8,) * 2, neighbourhood="moore").analyze_structure()
    # The greater of two independent distances: 7/15 of the side, from below.
    assert square["mean_distance"] == pytest.approx(7 / 15 * 10**8, rel=1e-7)
    assert vast.distance(0, vast.size - 1) == 3999996
    assert len(vast.neighbours((5, 5, 5, 5))) == 8
    for refused in (vast.degrees, vast.eccentricities, vast.laplacian_spectrum, vast.to_csr, vast.calculate_centrality):
        with pytest.raises(OutOfMemoryError, match="free"):
            refused()
    with pytest.raises(OutOfMemoryError):
        vast.distance_map((0, 0, 0, 0))
    with pytest.raises(OutOfMemoryError):
        vast.fractional(1.0).heat_kernel((0, 0, 0, 0), 1.0)
    with pytest.raises(InvalidInputError, match="64 bits"):
        vast.coordinates_to_index(np.array([[999_999] * 4]))


FIELD = np.zeros((3, 3))
BAD = {
    "prices too many": lambda: Lattice((4,)).distance_map([0, 1], prices=[1, 2, 3]),
    "prices not a number": lambda: Lattice((4,)).distance_map([0, 1], prices=[np.nan, 1]),
    "no periodicity": lambda: Lattice((3, 3), periodic=None),
    "a number for it": lambda: Lattice((3, 3), periodic=1),
    "half a step": lambda: Lattice((3, 3)).find_all_paths(0, 1, 1.7),
    "weights too large": lambda: Lattice((3,), weights=[1e308] * 3),
    "single ones too large": lambda: Lattice((10,), weights=np.full(10, 1e38, np.float32)),
    "negative": lambda: Lattice((3,), weights=[1, -1, 1]),
    "all closed": lambda: Lattice((2, 2), obstacles=np.ones((2, 2), bool)).distance_map(0),
    "from an obstacle": lambda: Lattice((2, 2), obstacles=[0]).shortest_path(0, 3),
    "end of time": lambda: Lattice((3, 3)).fractional(1.0).diffuse(FIELD, np.inf),
    "seed": lambda: Lattice((3, 3)).fractional(1.0).sample(0, 2, rng=-1),
    "no time": lambda: Lattice((3, 3)).fractional(1.0).diffuse(FIELD, "x"),
    "times": lambda: Lattice((3, 3)).fractional(1.0).diffuse(FIELD, [1.0, 2.0]),
    "back in time": lambda: Lattice((3, 3)).fractional(1.0).return_probability([1.0, -1.0]),
    "steps back": lambda: Lattice((3, 3)).fractional(1.0).walk_distribution(0, -1),
    "half a walk": lambda: Lattice((3, 3)).fractional(1.0).return_probabilities(0, 1.5),
    "no walkers": lambda: Lattice((3, 3)).fractional(1.0).sample(0, 3, walkers=-1),
    "nowhere to go": lambda: Lattice((1,)).fractional(1.0).walk_distribution(0, 3),
    "nowhere to step": lambda: Lattice((1,)).fractional(1.0).step(np.ones(1)),
    "key below 0": lambda: UnifiedCatalyticLattice(2, 2).xor_transform(b"hi", -1),
    "half a key": lambda: UnifiedCatalyticLattice(2, 2).xor_transform(b"hi", 1.5),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_values_are_typed_errors(name):
    """Invalid arguments raise typed errors before anything is computed."""
    with pytest.raises((InvalidInputError, ShapeError)):
        BAD[name]()


def test_unusual_but_valid_values():
    """Costs of 0, -0, integers and denormals are valid; a repeated source has the lower price."""
    for weights in ([1, -0.0, 1], np.array([3, 1, 2], np.uint8), [1e-310, 5e-324, 1e-310], np.array([1, 2, 3], ">f4")):
        lattice = Lattice((3,), weights=weights)
        truth = np.concatenate([[0.0], np.cumsum(np.asarray(weights, float)[1:])])
        # What is compiled is compiled for each dtype, seconds for each; the byte order is gone by then.
        compiled = np.asarray(weights).dtype.itemsize == 8
        for backend in ("numpy", "numba") if compiled else ("numpy",):
            np.testing.assert_array_equal(lattice.distance_map(0, backend=backend), truth)
        assert lattice.shortest_path(0, 2) == [0, 1, 2]
    assert Lattice((4,)).distance_map([0, 0], prices=[1, 5]).tolist() == [1, 2, 3, 4]
    square = Lattice((2, 2), obstacles=[(0, 1), (1, 1)])  # coordinates, as many as a mask would have
    assert square.neighbours(0) == [2] and square.neighbours(1) == []


INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"]


def layouts(array: np.ndarray) -> dict[str, np.ndarray]:
    frozen = array.copy()
    frozen.setflags(write=False)
    return {
        "plain": array,
        "turned": array.T,
        "strided": array[::2, ::-1],
        "repeated": np.broadcast_to(array[0], (3, array.shape[1])),
        "read only": frozen,
        "Fortran": np.asfortranarray(array),
        "other bytes": array.astype(array.dtype.newbyteorder()),
        "no axes": np.array(array[1, 1]),
        "nothing": array[:0],
        "unaligned": np.frombuffer(b"\0" + array.tobytes(), np.uint8)[1:].view(array.dtype),
    }


@pytest.mark.parametrize("dtype", INTEGERS)
def test_xor_of_any_layout(dtype):
    """xor is its own inverse and keeps dtype, byte order and shape, alone and in a batch; data are not modified."""
    lattice = UnifiedCatalyticLattice(2, 2)
    batch = create_batch([lattice])
    kinds = layouts(np.random.default_rng(0).integers(0, 2 if dtype == "bool" else 120, (4, 6)).astype(dtype))
    together = batch.batch_xor_transform(list(kinds.values()))
    again = batch.batch_xor_transform(together, batch.last_keys)
    for (name, data), back in zip(kinds.items(), again, strict=True):
        before = data.tobytes()
        hidden, key = lattice.xor_transform(data, return_key=True)
        for found in (lattice.xor_transform(hidden, key), back):
            assert (found.dtype, found.shape) == (data.dtype, data.shape), name
            np.testing.assert_array_equal(found, data)
        np.testing.assert_array_equal(lattice.xor_transform(data, 1), data ^ data.dtype.type(1))
        assert data.tobytes() == before


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("library", ["torch", "jax"])
@thinned(lambda library, dtype: library == "torch" or dtype in ("int8", "uint64"))
def test_xor_of_tensors(library, dtype):
    """Holds for 64 bits and for views, with generated and given keys."""
    module = pytest.importorskip(library)
    lattice = UnifiedCatalyticLattice(2, 2)
    array = np.random.default_rng(1).integers(0, 2 if dtype == "bool" else 120, (4, 6)).astype(dtype)
    if library == "torch":
        tensor = module.from_numpy(array)
        views = [tensor, tensor.T, tensor[::2, 1:], tensor[:0], tensor[1, 1]]
    else:
        with module.enable_x64(True):
            tensor = module.numpy.asarray(array)
            views = [tensor, tensor[:0], tensor[1, 1]]
    for data in views:
        hidden, key = lattice.xor_transform(data, return_key=True)
        back = lattice.xor_transform(hidden, key)
        assert type(back) is type(data) and back.dtype == data.dtype
        np.testing.assert_array_equal(np.asarray(back), np.asarray(data))
        assert lattice.xor_transform(data, 1).dtype == data.dtype


def test_xor_needs_integers():
    """Text, floats, objects and times raise an error with the dtype."""
    for data in ("text", np.ones(3), np.array([1, None]), np.array(["2020"], "M8[Y]"), np.ones(2, complex), None):
        with pytest.raises(UnsupportedDtypeError, match="dtype"):
            UnifiedCatalyticLattice(2, 2).xor_transform(data)


@pytest.mark.parametrize("point", [True, (True, 2), np.array([True, False]), [True, 2], [False, True]], ids=str)
def test_booleans_are_no_points(point):
    """True is neither index 1 nor coordinate 1, alone, as a coordinate or in a list."""
    lattice = Lattice((3, 4))
    for call in (lattice.neighbours, lattice.distance_map, lambda point: lattice.distance(point, 3)):
        with pytest.raises(InvalidInputError, match="point"):
            call(point)
    with pytest.raises(InvalidInputError, match="point"):
        lattice.index_to_coordinates(np.array(point) != 0)
