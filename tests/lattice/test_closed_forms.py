"""Closed forms against graph libraries and against searches, on random small lattices."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpfracc.errors import InvalidInputError
from hpfracc.lattice import Lattice
from tests.helpers.thinned import thinned

QUICK = settings(max_examples=30, deadline=None, derandomize=True)
SHAPES = [(1,), (2,), (7,), (1, 4), (3, 3), (4, 5), (6, 2), (3, 4, 5), (4, 4, 2), (3, 2, 3, 2)]
KINDS = [(False, "von_neumann"), (True, "von_neumann"), (False, "moore"), (True, "moore")]
EACH = pytest.mark.parametrize(
    ("shape", "periodic", "neighbourhood"),
    [(shape, *kind) for shape in SHAPES for kind in KINDS] + [((4, 3, 5), (True, False, True), "moore")],
)


@st.composite
def lattices(draw):
    shape = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=3)))
    periodic = tuple(draw(st.booleans()) for _ in shape)
    return Lattice(shape, periodic, neighbourhood=draw(st.sampled_from(["von_neumann", "moore"])))


@EACH
@thinned(one_in=3)
def test_distances_and_measures_agree_with_igraph(shape, periodic, neighbourhood):
    """Edges, degrees, distances, eccentricity, diameter, radius, clustering, density and bipartiteness agree."""
    lattice = Lattice(shape, periodic, neighbourhood=neighbourhood)
    graph = lattice.to_igraph()
    assert graph.is_simple()
    found = lattice.analyze_structure()
    assert found["edges"] == graph.ecount()
    assert (lattice.degrees().reshape(-1) == graph.degree()).all()
    truth = np.array(graph.distances())
    places = np.arange(lattice.size)
    np.testing.assert_array_equal(
        lattice.distance(places[:, None].repeat(lattice.size, 1).reshape(-1), np.tile(places, lattice.size)),
        truth.reshape(-1),
    )
    np.testing.assert_array_equal(lattice.distance_map(0).reshape(-1), truth[0])
    np.testing.assert_array_equal(lattice.eccentricities().reshape(-1), graph.eccentricity())
    assert found["diameter"] == lattice.diameter == graph.diameter()
    assert found["radius"] == graph.radius()
    assert found["is_bipartite"] == graph.is_bipartite()
    assert found["clustering"] == pytest.approx(graph.transitivity_avglocal_undirected(mode="zero"))
    if lattice.size > 1:
        assert found["density"] == pytest.approx(graph.density())
        assert found["mean_distance"] == pytest.approx(truth.sum() / (lattice.size * (lattice.size - 1)))
        np.testing.assert_allclose(lattice.calculate_centrality("closeness").reshape(-1), graph.closeness())


@EACH
@thinned(one_in=3)
def test_spectra_agree_with_the_matrices(shape, periodic, neighbourhood):
    """All eigenvalues agree, and so does the trace."""
    lattice = Lattice(shape, periodic, neighbourhood=neighbourhood)
    matrix = lattice.to_csr().toarray()
    np.testing.assert_allclose(
        np.sort(lattice.adjacency_spectrum().reshape(-1)), np.linalg.eigvalsh(matrix), atol=1e-12
    )
    laplacian = np.diag(matrix.sum(0)) - matrix
    if neighbourhood == "moore" and len(set(matrix.sum(0))) > 1:
        with pytest.raises(InvalidInputError, match="no closed spectrum"):
            lattice.laplacian_spectrum()
        return
    spectrum = lattice.laplacian_spectrum()
    np.testing.assert_allclose(np.sort(spectrum.reshape(-1)), np.linalg.eigvalsh(laplacian), atol=1e-12)
    assert spectrum.sum() == pytest.approx(np.trace(laplacian), abs=1e-9)


@EACH
@thinned(one_in=3)
def test_number_of_shortest_paths_agrees_with_networkx(shape, periodic, neighbourhood):
    """Numbers are exact integers, including ties around even rings and walls; find_all_paths yields as many."""
    lattice = Lattice(shape, periodic, neighbourhood=neighbourhood)
    graph = lattice.to_igraph()
    generator = np.random.default_rng(3)
    for a, b in generator.integers(0, lattice.size, (6, 2)).tolist():
        truth = {tuple(path) for path in graph.get_all_shortest_paths(a, b)}
        assert lattice.count_shortest_paths(a, b) == len(truth)
        assert {tuple(path) for path in lattice.find_all_paths(a, b)} == truth
        assert tuple(lattice.shortest_path(a, b)) in truth


@pytest.mark.parametrize(("shape", "periodic", "neighbourhood"), [((5, 6), p, n) for p, n in KINDS])
def test_many_paths_at_once_are_paths(shape, periodic, neighbourhood):
    """Each path has the right ends, steps between neighbours, and the length of the distance."""
    lattice = Lattice(shape, periodic, neighbourhood=neighbourhood)
    starts, ends = np.divmod(np.arange(lattice.size**2), lattice.size)
    batch = lattice.shortest_paths(starts, ends)
    assert len(batch) == len(starts)
    np.testing.assert_array_equal(batch.lengths, lattice.distance(starts, ends))
    adjacent = lattice.to_csr().toarray() > 0
    for a, b, path in zip(starts, ends, batch, strict=True):
        assert path[0] == a and path[-1] == b
        assert adjacent[path[:-1], path[1:]].all()


@QUICK
@given(lattices(), st.data())
def test_distances_are_a_metric(lattice, data):
    """Distances are zero only to the point itself, symmetric, and satisfy the triangle inequality."""
    points = st.integers(0, lattice.size - 1)
    a, b, c = (data.draw(points) for _ in range(3))
    assert (lattice.distance(a, b) == 0) == (a == b)
    assert lattice.distance(a, b) == lattice.distance(b, a)
    assert lattice.distance(a, c) <= lattice.distance(a, b) + lattice.distance(b, c)


@QUICK
@given(lattices(), st.data())
def test_closed_forms_equal_searches(lattice, data):
    """A search with costs of 1 agrees with the closed form: for one pair, a map, and several sources."""
    sources = data.draw(st.lists(st.integers(0, lattice.size - 1), min_size=1, max_size=3))
    ones = Lattice(
        lattice.shape, lattice.periodic, np.ones(lattice.shape), neighbourhood=lattice.geometry.neighbourhood
    )
    np.testing.assert_array_equal(ones.distance_map(sources), lattice.distance_map(sources))
    end = data.draw(st.integers(0, lattice.size - 1))
    assert ones.distance(sources[0], end) == lattice.distance(sources[0], end)
    assert len(ones.shortest_path(sources[0], end)) == lattice.distance(sources[0], end) + 1


def test_conversions_of_points():
    """Indices are row-major in both directions, for one point or many; invalid points raise an error."""
    lattice = Lattice((3, 4, 5))
    truth = np.stack(np.unravel_index(np.arange(60), (3, 4, 5)), -1)
    np.testing.assert_array_equal(lattice.index_to_coordinates(np.arange(60)), truth)
    np.testing.assert_array_equal(lattice.coordinates_to_index(truth), np.arange(60))
    assert lattice.index_to_coordinates(59) == (2, 3, 4)
    assert lattice.coordinates_to_index((2, 3, 4)) == 59
    assert lattice.neighbours((0, 0, 0)) == [(0, 0, 1), (0, 1, 0), (1, 0, 0)]
    assert lattice.neighbours(59) == [39, 54, 58]
    for bad in (60, -1, (3, 0, 0), (0, 0), 1.5, "a"):
        with pytest.raises(InvalidInputError):
            lattice.distance(bad, 0)
    with pytest.raises(InvalidInputError):
        lattice.index_to_coordinates(np.array([0, 60]))


@pytest.mark.parametrize(
    "arguments", [((),), ((0, 3),), (("a",),), (3.5,), ((3, 3), (True,)), ((3, 3), False, None, None, "hexagonal")]
)
def test_invalid_lattices(arguments):
    """Invalid shapes, boundaries and neighbourhoods raise an error."""
    with pytest.raises((InvalidInputError, TypeError)):
        Lattice(*arguments)


@pytest.mark.parametrize(("periodic", "neighbourhood"), KINDS)
def test_eigenvector_centrality_is_the_leading_eigenvector(periodic, neighbourhood):
    """The closed form is the leading eigenvector with norm 1."""
    lattice = Lattice((4, 5), periodic, neighbourhood=neighbourhood)
    vector = np.linalg.eigh(lattice.to_csr().toarray())[1][:, -1]
    np.testing.assert_allclose(lattice.calculate_centrality("eigenvector").reshape(-1), np.abs(vector), atol=1e-12)
