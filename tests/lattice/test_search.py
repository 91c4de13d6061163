"""Searches with weights and obstacles against SciPy, igraph, rustworkx and networkx."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.sparse import csgraph

import hpfracc as hf
from hpfracc import memory
from hpfracc.errors import BackendUnavailableError, InvalidInputError, NoPathError, ShapeError
from hpfracc.lattice import Lattice, search

KINDS = list(itertools.product(["none", "points", "edges"], [False, (True, False)], ["von_neumann", "moore"]))
EACH = pytest.mark.parametrize(("weights", "periodic", "neighbourhood"), KINDS)


def maze(weights: str, periodic, neighbourhood: str, shape=(7, 8), seed: int = 0) -> Lattice:
    generator = np.random.default_rng(seed)
    closed = generator.random(shape) < 0.3
    closed[0, 0] = closed[-1, -1] = False
    directions = len(Lattice(shape, neighbourhood=neighbourhood).directions)
    size = {"none": None, "points": shape, "edges": (directions, *shape)}[weights]
    costs = None if size is None else generator.integers(1, 6, size)
    return Lattice(shape, periodic, costs, closed, neighbourhood)


@EACH
def test_maps_and_pairs_agree_with_scipy(weights, periodic, neighbourhood):
    """Distances by map and by pair agree with SciPy, and the path has that cost."""
    lattice = maze(weights, periodic, neighbourhood)
    matrix = lattice.to_csr()
    truth = csgraph.dijkstra(matrix, indices=0)
    np.testing.assert_allclose(lattice.distance_map((0, 0)).reshape(-1), truth)
    for end in range(0, lattice.size, 3):
        if lattice._costs.closed.reshape(-1)[end]:
            with pytest.raises(InvalidInputError, match="obstacle"):
                lattice.distance(0, end)
        elif np.isinf(truth[end]):
            with pytest.raises(NoPathError):
                lattice.shortest_path(0, end)
        else:
            path = lattice.shortest_path(0, end)
            assert lattice.distance(0, end) == truth[end]
            assert sum(matrix[u, v] for u, v in itertools.pairwise(path)) == truth[end]


def test_infinite_weights_are_obstacles():
    """A point of infinite weight can be neither entered nor left, in searches, maps and graphs."""
    weights = np.ones((3, 4))
    weights[1, 1] = np.inf
    lattice, named = Lattice((3, 4), weights=weights), Lattice((3, 4), obstacles=[(1, 1)])
    for ask in (lattice.distance, lattice.shortest_path, named.distance):
        for pair in (((1, 1), (0, 0)), ((0, 0), (1, 1))):
            with pytest.raises(InvalidInputError, match="obstacle"):
                ask(*pair)
    with pytest.raises(InvalidInputError, match="obstacle"):
        lattice.distance_map((1, 1))
    assert (lattice.to_csr() != named.to_csr()).nnz == 0
    for graph in ("networkx", "rustworkx", "igraph"):
        pytest.importorskip(graph)
        assert_like = [getattr(one, f"to_{graph}")() for one in (lattice, named)]
        edges = [sorted(map(tuple, _pairs(graph, one))) for one in assert_like]
        assert edges[0] == edges[1]
        assert len(edges[0]) == 13
    assert len(_pairs("networkx", Lattice((3, 4), weights=np.ones((3, 4))).to_networkx())) == 17


def _pairs(library, graph):
    return list(
        {"networkx": lambda: graph.edges(), "igraph": lambda: graph.get_edgelist()}.get(
            library, lambda: graph.edge_list()
        )()
    )


@EACH
def test_all_cheapest_paths_agree_with_networkx(weights, periodic, neighbourhood):
    """The generator yields each cheapest path once, and no other."""
    networkx = pytest.importorskip("networkx")
    lattice = maze(weights, periodic, neighbourhood, (4, 5), 5)
    graph = lattice.to_networkx()
    weight = "weight" if weights != "none" else None
    if not networkx.has_path(graph, 0, lattice.size - 1):
        with pytest.raises(NoPathError):
            next(lattice.find_all_paths(0, lattice.size - 1))
        return
    truth = sorted(networkx.all_shortest_paths(graph, 0, lattice.size - 1, weight=weight))
    assert sorted(lattice.find_all_paths(0, lattice.size - 1)) == truth


def test_all_paths_up_to_a_length_agree_with_networkx():
    """All simple paths are yielded, with an obstacle; the first one comes without computing the others."""
    networkx = pytest.importorskip("networkx")
    lattice = Lattice((3, 4), obstacles=[(1, 1)])
    truth = sorted(networkx.all_simple_paths(lattice.to_networkx(), 0, 11, cutoff=7))
    assert sorted(lattice.find_all_paths(0, 11, max_length=7)) == truth
    first = next(Lattice((1000, 1000)).find_all_paths((0, 0), (999, 999)))
    assert len(first) == 1999
    assert list(lattice.find_all_paths(3, 3)) == [[3]]


def test_several_sources_and_prices():
    """A map is the minimum over the sources of price plus distance."""
    lattice = maze("points", False, "von_neumann")
    sources = [(0, 0), (6, 7)]
    maps = [lattice.distance_map(source) for source in sources]
    np.testing.assert_allclose(lattice.distance_map(sources), np.minimum(*maps))
    found = lattice.distance_map(sources, prices=[3.0, 0.5])
    np.testing.assert_allclose(found, np.minimum(maps[0] + 3.0, maps[1] + 0.5))
    np.testing.assert_allclose(Lattice((4, 4)).distance_map([0, 15], prices=[0.0, 10.0])[3, 3], 6.0)


@pytest.mark.parametrize("library", ["numpy", "torch", "jax"])
def test_maps_are_of_the_weights_own_library(library):
    """A tensor gives a tensor, a JAX array a JAX array, in its precision."""
    weights = np.arange(1, 13, dtype=np.float32).reshape(3, 4)
    truth = Lattice((3, 4), weights=weights).distance_map(0)
    given = weights
    if library != "numpy":
        module = pytest.importorskip(library)
        given = module.as_tensor(weights) if library == "torch" else module.numpy.asarray(weights)
    found = Lattice((3, 4), weights=given, obstacles=[(2, 0)]).distance_map(0)
    assert type(found) is type(given)
    assert found.dtype == given.dtype
    assert np.isinf(np.asarray(found)[2, 0])
    np.testing.assert_allclose(np.asarray(found)[:2], truth[:2])


@pytest.mark.parametrize("backend", ["numpy", "numba", "torch", "jax"])
def test_all_backends_agree(backend):
    """All backends compute the same map of a larger maze."""
    pytest.importorskip(backend)
    generator = np.random.default_rng(8)
    lattice = Lattice((60, 70), weights=generator.uniform(0.1, 1, (60, 70)), obstacles=generator.random((60, 70)) < 0.3)
    source = int(np.flatnonzero(~lattice._costs.closed)[0])
    truth = csgraph.dijkstra(lattice.to_csr(), indices=source).reshape(60, 70)
    np.testing.assert_allclose(lattice.distance_map(source, backend=backend), truth, rtol=1e-12)


@pytest.mark.parametrize(
    ("weights", "obstacles", "error"),
    [
        (np.ones((2, 2)), None, ShapeError),
        (-np.ones((3, 3)), None, InvalidInputError),
        (np.full((3, 3), np.nan), None, InvalidInputError),
        (np.full((3, 3), 1j), None, InvalidInputError),
        (None, np.zeros((2, 3), bool), ShapeError),
        (None, [(5, 5)], InvalidInputError),
        (None, np.zeros((3, 3), int), InvalidInputError),
    ],
)
def test_invalid_costs(weights, obstacles, error):
    """Invalid shapes and values raise an error when the lattice is created."""
    with pytest.raises(error):
        Lattice((3, 3), weights=weights, obstacles=obstacles)


def test_closed_forms_are_refused_where_they_do_not_hold():
    """With obstacles, methods that need closed forms raise an error that names an alternative."""
    lattice = Lattice((3, 3), obstacles=[(1, 1)])
    for call in (
        lambda: lattice.diameter,
        lambda: lattice.count_shortest_paths(0, 8),
        lattice.laplacian_spectrum,
        lattice.eccentricities,
        lambda: lattice.fractional(1.0),
    ):
        with pytest.raises(InvalidInputError, match="use "):
            call()
    with pytest.raises(InvalidInputError, match="obstacle"):
        lattice.distance_map((1, 1))


def test_structure_with_obstacles():
    """Edges, degrees and components are counted on the graph."""
    lattice = Lattice((3, 3), obstacles=[(0, 1), (1, 0)])
    found = lattice.analyze_structure()
    assert found["edges"] == lattice.edges == 12 - 6
    assert found["components"] == 4 and not found["is_connected"]
    assert lattice.degrees().sum() == 2 * found["edges"]
    assert lattice.neighbours((0, 0)) == []


def test_conversions_are_the_same_graph():
    """Distances agree between the four libraries, with weights of points and of edges."""
    igraph, rustworkx = pytest.importorskip("igraph"), pytest.importorskip("rustworkx")
    networkx = pytest.importorskip("networkx")
    assert igraph.Graph.Lattice([3, 4, 5], circular=False).isomorphic(Lattice((3, 4, 5)).to_igraph())
    for weights in ("points", "edges"):
        lattice = maze(weights, (True, False), "von_neumann")
        truth = csgraph.dijkstra(lattice.to_csr(), indices=0)
        np.testing.assert_allclose(lattice.to_igraph().distances(0, weights="weight")[0], truth)
        lengths = rustworkx.dijkstra_shortest_path_lengths(lattice.to_rustworkx(), 0, float)
        lengths_nx = networkx.single_source_dijkstra_path_length(lattice.to_networkx(), 0)
        for place in np.flatnonzero(np.isfinite(truth))[1:]:
            assert lengths[int(place)] == lengths_nx[int(place)] == truth[place]


@pytest.mark.parametrize("kind", ["degree", "closeness", "betweenness"])
@pytest.mark.parametrize("weights", ["free", "none", "points", "edges"])
def test_centrality_agrees_with_networkx(kind, weights):
    """Centralities agree with and without costs, for both graph libraries."""
    networkx = pytest.importorskip("networkx")
    lattice = Lattice((4, 5)) if weights == "free" else maze(weights, False, "von_neumann", (4, 5))
    graph = lattice.to_networkx()
    weight = "weight" if weights in ("points", "edges") else None
    if kind == "betweenness":
        truth = networkx.betweenness_centrality(graph, weight=weight)
    elif kind == "closeness":
        truth = networkx.closeness_centrality(graph.reverse() if graph.is_directed() else graph, distance=weight)
    else:
        truth = {u: d / (lattice.size - 1) for u, d in enumerate(lattice.degrees().reshape(-1))}
    found = lattice.calculate_centrality(kind).reshape(-1)
    np.testing.assert_allclose(found, [truth[u] for u in range(lattice.size)], atol=1e-12)


@pytest.mark.parametrize("method", ["louvain", "label_propagation"])
def test_communities_partition_the_points(method):
    """Each point is in one community, and the modularity is positive."""
    networkx = pytest.importorskip("networkx")
    lattice = Lattice((8, 8))
    groups = lattice.find_communities(method, seed=1)
    assert sorted(place for group in groups for place in group) == list(range(64))
    assert groups == lattice.find_communities(method, seed=1)
    if method == "louvain":
        assert networkx.community.modularity(lattice.to_networkx(), groups) > 0.4


@pytest.mark.parametrize("edges", [False, True])
def test_a_map_for_each_source(edges):
    """Stacked maps equal single ones; under a memory limit they are computed in chunks."""
    generator = np.random.default_rng(3)
    weights = generator.uniform(0.5, 3, (2, 40, 50) if edges else (40, 50))
    lattice = Lattice((40, 50), (True, False), weights)
    sources = generator.integers(0, lattice.size, 30)
    maps = lattice.distance_maps(sources, backend="numpy")
    assert maps.shape == (30, 40, 50)
    assert hf.last_decision().chunks == 1
    with memory.limit("cpu", "800KiB"):
        np.testing.assert_array_equal(lattice.distance_maps(sources, backend="numpy"), maps)
    assert hf.last_decision().chunks > 1
    np.testing.assert_allclose(maps.reshape(30, -1), csgraph.dijkstra(lattice.to_csr(), indices=sources))
    free = Lattice((4, 5), True)
    np.testing.assert_array_equal(free.distance_maps([3, 7])[1], free.distance_map(7))
    with pytest.raises(InvalidInputError, match="obstacle"):
        Lattice((3, 3), obstacles=[4]).distance_maps([0, 4])


@pytest.fixture
def compiled_searches(monkeypatch):
    """The names of the compiled searches so far."""
    pytest.importorskip("numba")
    used = []
    run = search._compiled
    monkeypatch.setattr(search, "_compiled", lambda *args: (used.append(args[-1]), run(*args))[1])
    return used


def test_settings_for_paths_are_obeyed(compiled_searches):
    """As for operations: a block is stronger than a pin, and never rules a backend out."""
    lattice = Lattice((40, 40), obstacles=[(3, 3)])
    with hf.config(pin={"shortest_path": "numba"}):
        assert lattice.distance(0, 1599) == 78 and len(compiled_searches) == 1
        with hf.use_backend("numpy"):
            assert lattice.distance(0, 1599) == 78 and len(compiled_searches) == 1
    assert lattice.distance(0, 1599) == 78 and len(compiled_searches) == 1
    with hf.config(pin={"shortest_path": "numpy"}):
        assert lattice.distance(0, 1599) == 78 and len(compiled_searches) == 1
    with hf.config(never={"shortest_path": ["numba"]}):
        assert lattice.distance(0, 1599) == 78 and len(compiled_searches) == 1
        with hf.use_backend("numba"), pytest.raises(BackendUnavailableError, match=r"never=...\) rules it out"):
            lattice.distance(0, 1599)
    with hf.config(never={"shortest_path": ["numpy"]}):
        assert Lattice((5, 5), obstacles=[(3, 3)]).distance(0, 24) == 8 and len(compiled_searches) == 2
    with hf.config(pin={"shortest_path": "torch"}), pytest.raises(BackendUnavailableError, match="'torch'"):
        lattice.distance(0, 1599)
    with hf.use_backend("torch"):  # for all operations: a search in Python, as before
        assert lattice.distance(0, 1599) == 78 and len(compiled_searches) == 2


def test_without_numba_a_request_for_it_is_refused(monkeypatch):
    """With the reason; without a request the search runs in Python."""
    monkeypatch.setattr(search.registry, "unavailable", lambda name: "not installed")
    monkeypatch.setattr(search, "_ready", set())
    lattice = Lattice((5, 5), obstacles=[(3, 3)])
    assert lattice.distance(0, 24) == 8
    assert Lattice((150, 150), obstacles=[(3, 3)]).distance(0, 22499) == 298
    with (
        hf.config(pin={"shortest_path": "numba"}),
        pytest.raises(BackendUnavailableError, match=r"numba.*\(not installed\)"),
    ):
        lattice.distance(0, 24)


def test_a_path_does_not_depend_on_earlier_searches(compiled_searches):
    """Of several cheapest paths the searches find different ones: the size of a lattice alone decides between them."""
    lattice = Lattice((40, 40), weights=np.random.default_rng(0).integers(1, 4, (40, 40)))
    first = lattice.shortest_path(0, 1599)
    with hf.use_backend("numba"):
        other = lattice.shortest_path(0, 1599)
    assert compiled_searches and list(other) != list(first)
    assert list(lattice.shortest_path(0, 1599)) == list(first) and len(compiled_searches) == 1
    assert Lattice((150, 150), obstacles=[(3, 3)]).distance(0, 22499) == 298
    assert len(compiled_searches) == 2
