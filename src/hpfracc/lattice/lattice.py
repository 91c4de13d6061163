"""The :class:`Lattice`: closed forms without weights and obstacles, searches with them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from hpfracc import _reading
from hpfracc.errors import InvalidInputError, ShapeError
from hpfracc.lattice import graphs, measures, paths, search
from hpfracc.lattice.costs import Costs, read_costs
from hpfracc.lattice.diffusion import FractionalDiffusion
from hpfracc.lattice.geometry import Array, make_geometry
from hpfracc.lattice.paths import PathBatch


class Lattice:
    """n-dimensional grid graph. It is implicit: no point or edge is stored.

    Points are numbered in row-major order, like the elements of a NumPy array of that shape. A point can be given by
    its index or its coordinates; results use the same form.

    Parameters
    ----------
    shape : tuple of int
        Points along each axis.
    periodic : bool or tuple of bool
        Whether the first and last point of an axis are neighbours, for all axes or for each.
    weights : array, optional
        Cost of entering each point, in the shape of the lattice; or cost of each edge in either direction, with a
        leading axis of :attr:`directions`. At least 0; infinity means closed.
    obstacles : array of bool or list of points, optional
        Points that cannot be entered.
    neighbourhood : {"von_neumann", "moore"}
        Steps along one axis, or along any number of them at once.

    Examples
    --------
    >>> from hpfracc.lattice import Lattice
    >>> grid = Lattice((3, 4))
    >>> grid.distance((0, 0), (2, 3)), grid.count_shortest_paths((0, 0), (2, 3))
    (5, 10)
    >>> grid.shortest_path(0, 6)
    [0, 4, 5, 6]
    >>> Lattice((3, 4), obstacles=[(0, 1), (1, 1)]).shortest_path((0, 0), (0, 2))
    [(0, 0), (1, 0), (2, 0), (2, 1), (2, 2), (1, 2), (0, 2)]
    """

    def __init__(
        self,
        shape: Any,
        periodic: Any = False,
        weights: Any = None,
        obstacles: Any = None,
        neighbourhood: str = "von_neumann",
    ) -> None:
        self.geometry = make_geometry(shape, periodic, neighbourhood)
        self._costs: Costs | None = read_costs(self.geometry, weights, obstacles)

    def __repr__(self) -> str:
        extra = "" if self._costs is None else ", with costs"
        return f"<{type(self).__name__} {self.shape} {self.geometry.neighbourhood}{extra}>"

    # --- geometry ----------------------------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        """Points along each axis."""
        return self.geometry.shape

    @property
    def size(self) -> int:
        """Number of points."""
        return self.geometry.size

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.geometry.shape)

    @property
    def periodic(self) -> tuple[bool, ...]:
        """Whether each axis is periodic. Axes of one or two points never are."""
        return self.geometry.wraps

    @property
    def directions(self) -> tuple[tuple[int, ...], ...]:
        """Offsets that the leading axis of edge weights stands for: one of each pair of opposite steps."""
        return self.geometry.forward

    @property
    def is_free(self) -> bool:
        """Whether there are no weights and no obstacles, so that closed forms hold."""
        return self._costs is None

    def coordinates_to_index(self, coordinates: Any) -> Any:
        """Row-major index of one point, or indices of an array with coordinates along the last axis."""
        return (self.geometry.index if np.ndim(coordinates) == 1 else self.geometry.indices)(coordinates)

    def index_to_coordinates(self, index: Any) -> Any:
        """Coordinates of one index as a tuple, or of an array of indices as an array with one more axis."""
        if np.ndim(index) == 0:
            return self.geometry.coordinates(self.geometry.index(index))
        indices = self.geometry.indices(np.ravel(index))
        return np.stack(self.geometry.columns(indices), -1).reshape(*np.shape(index), self.ndim)

    def neighbours(self, point: Any) -> list[Any]:
        """Points that can be reached in one step."""
        index = self.geometry.index(point)
        found = self.geometry.neighbours(index)
        costs = self._costs
        if costs is not None:
            closed = costs.closed is not None and costs.closed.reshape(-1)[index]  # no step leaves an obstacle
            found = [v for v in found if not closed and np.isfinite(search.step_cost(costs, self.geometry, index, v))]
        return self._points_like(found, point)

    def _points_like(self, indices: list[int], example: Any) -> list[Any]:
        """Points as indices or coordinates, in the form of ``example``."""
        if np.ndim(example) == 0:
            return indices
        return [self.geometry.coordinates(index) for index in indices]

    def _scope(self, data: Any) -> contextlib.AbstractContextManager[Any]:
        """Context manager for engine calls on ``data``."""
        return contextlib.nullcontext()

    # --- distances and paths -----------------------------------------------------------------------------------------

    def distance(self, start: Any, end: Any) -> Any:
        """Number of steps between two points, or the cost of the cheapest path. Arrays need a lattice without costs."""
        if self._costs is None and (np.ndim(start) > 1 or isinstance(start, np.ndarray)):
            return paths.distances(self.geometry, self.geometry.indices(start), self.geometry.indices(end))
        a, b = self.geometry.index(start), self.geometry.index(end)
        if self._costs is None:
            return paths.distance(self.geometry, a, b)
        return search.search_path(self.geometry, self._costs, a, b)[1]

    def shortest_path(self, start: Any, end: Any) -> list[Any]:
        """One shortest path, including both ends; raises :class:`~hpfracc.errors.NoPathError` if there is none.

        In closed form without costs. With costs, by A*, or by bidirectional search where costs vary so much that the
        number of remaining steps is a poor bound of their cost.
        """
        a, b = self.geometry.index(start), self.geometry.index(end)
        if self._costs is None:
            return self._points_like(paths.path(self.geometry, a, b), start)
        return self._points_like(search.search_path(self.geometry, self._costs, a, b)[0], start)

    def shortest_paths(self, starts: Any, ends: Any) -> PathBatch:
        """One shortest path for each pair of points, vectorised: a million paths in less than a second."""
        first, last = (np.atleast_1d(self.geometry.indices(points)).reshape(-1) for points in (starts, ends))
        if first.shape != last.shape:
            raise ShapeError(f"{len(first)} starts and {len(last)} ends; give the same number of each")
        if self._costs is None:
            return PathBatch(*paths.paths(self.geometry, first, last))
        found = [
            search.search_path(self.geometry, self._costs, int(a), int(b))[0] for a, b in zip(first, last, strict=True)
        ]
        begins = np.concatenate([[0], np.cumsum([len(path) for path in found])]).astype(np.int64)
        return PathBatch(np.array([index for path in found for index in path], np.int64), begins)

    def count_shortest_paths(self, start: Any, end: Any) -> int:
        """Number of shortest paths, as an exact integer. Needs a lattice without costs."""
        self._require_free("count_shortest_paths", "list(find_all_paths(...))")
        return paths.count_paths(self.geometry, self.geometry.index(start), self.geometry.index(end))

    def distance_map(self, sources: Any, *, prices: Any = None, backend: str | None = None) -> Any:
        """Distance of every point from the nearest source, in the shape of the lattice.

        Parameters
        ----------
        sources : point or list of points
            Where paths may start: an index or a tuple of coordinates, or a list or array of them.
        prices : array, optional
            Initial cost of each source.
        backend : str, optional
            Backend to compute it on.

        Returns
        -------
        array
            Numbers of steps as integers without costs. With costs, an array of the weights' library, infinite where a
            point cannot be reached.
        """
        indices = self._sources(sources)
        self.geometry.check_memory("a distance map")
        if self._costs is None and prices is None and backend is None:
            return paths.distance_map(self.geometry, indices)
        costs = self._search_costs(indices)
        with self._scope(costs.array):
            return search.cost_map(self.geometry, costs, indices, prices, backend)

    def distance_maps(self, sources: Any, *, backend: str | None = None) -> Any:
        """Distance map of each source, stacked along a new first axis and computed in one engine call.

        The call runs in chunks where the maps do not fit into memory together.

        Parameters
        ----------
        sources : list of points
            One source for each map.
        backend : str, optional
            Backend to compute them on.

        Examples
        --------
        >>> from hpfracc.lattice import Lattice
        >>> Lattice((4,), weights=[1.0, 2.0, 1.0, 1.0]).distance_maps([0, 3])
        array([[0., 2., 3., 4.],
               [4., 3., 1., 0.]])
        """
        indices = self._sources(sources)
        self.geometry.check_memory("distance maps", 8 * len(indices))
        if self._costs is None and backend is None:
            return np.stack([paths.distance_map(self.geometry, [index]) for index in indices])
        costs = self._search_costs(indices)
        with self._scope(costs.array):
            return search.cost_maps(self.geometry, costs, indices, backend)

    def _search_costs(self, indices: list[int]) -> Costs:
        """Step costs, all 1 on a free lattice. Raises an error if a source is an obstacle."""
        if self._costs is None:
            ones = np.ones(self.shape)
            return Costs(ones, False, None, ones)
        search.check_open(self._costs, self.geometry, *indices)
        return self._costs

    def _sources(self, sources: Any) -> list[int]:
        if np.ndim(sources) == 0 or (
            isinstance(sources, tuple) and len(sources) == self.ndim and np.ndim(sources) == 1
        ):
            return [self.geometry.index(sources)]
        indices = [int(index) for index in np.atleast_1d(self.geometry.indices(sources)).reshape(-1)]
        if not indices:
            raise InvalidInputError("sources is empty; give at least one point")
        return indices

    def find_all_paths(self, start: Any, end: Any, max_length: int | None = None) -> Iterator[list[Any]]:
        """Iterate over all shortest paths, or over all simple paths of at most ``max_length`` steps."""
        a, b = self.geometry.index(start), self.geometry.index(end)
        if max_length is None:
            found = search.cheapest_paths(self.geometry, self._costs, a, b)
        else:
            most = _reading.whole("max_length", max_length)
            found = search.bounded_paths(self.geometry, self._costs, a, b, most)
        return (self._points_like(path, start) for path in found)

    # --- structure ---------------------------------------------------------------------------------------------------

    def _require_free(self, name: str, remedy: str) -> None:
        if self._costs is not None:
            raise InvalidInputError(f"{name} needs a lattice without weights and obstacles; use {remedy}")

    @property
    def edges(self) -> int:
        """Number of edges."""
        if self._costs is None:
            return measures.count_edges(self.geometry)
        return len(graphs.directed_steps(self.geometry, self._costs)[0]) // 2

    @property
    def diameter(self) -> int:
        """Largest number of steps between two points."""
        self._require_free("diameter", "to_igraph().diameter()")
        return measures.diameter(self.geometry)

    def degrees(self) -> Array:
        """Number of neighbours of every point."""
        self.geometry.check_memory("degrees")
        return graphs.degrees(self.geometry, self._costs)

    def eccentricities(self) -> Array:
        """Steps from every point to the farthest one."""
        self._require_free("eccentricities", "to_igraph().eccentricity()")
        self.geometry.check_memory("eccentricities")
        return measures.eccentricities(self.geometry)

    def analyze_structure(self) -> dict[str, Any]:
        """Dict of graph measures: nodes, edges, degree, density, connectivity; without costs also distances and more.

        Without costs every value is a closed form and takes microseconds.
        """
        if self._costs is None:
            return measures.analyse(self.geometry)
        from scipy.sparse import csgraph

        links = self.to_csr()
        links.data[:] = 1.0  # a step of cost 0 is an edge too
        return measures.counts(self.geometry, self.edges, int(csgraph.connected_components(links, directed=False)[0]))

    def laplacian_spectrum(self) -> Array:
        """Eigenvalues of the Laplacian ``D - A``, indexed by wave number along each axis."""
        self._require_free("laplacian_spectrum", "numpy.linalg.eigvalsh of to_csr()")
        self.geometry.check_memory("the spectrum")
        return measures.laplacian_spectrum(self.geometry)

    def adjacency_spectrum(self) -> Array:
        """Eigenvalues of the adjacency matrix ``A``, indexed by wave number along each axis."""
        self._require_free("adjacency_spectrum", "numpy.linalg.eigvalsh of to_csr()")
        self.geometry.check_memory("the spectrum")
        return measures.adjacency_spectrum(self.geometry)

    def calculate_centrality(self, kind: str = "degree") -> Array:
        """Centrality of every point: ``"degree"``, ``"closeness"``, ``"betweenness"`` or ``"eigenvector"``.

        Values follow networkx's definitions. Betweenness, and with costs everything but degree, needs igraph
        (the extra ``graph``).
        """
        self.geometry.check_memory("centrality")
        return graphs.centrality(self.geometry, self._costs, kind)

    def find_communities(self, method: str = "louvain", seed: int | None = None) -> list[list[int]]:
        """Communities of points, largest first. ``method`` is ``"louvain"`` or ``"label_propagation"``.

        Needs igraph (the extra ``graph``).
        """
        return graphs.communities(self.geometry, self._costs, method, seed)

    def fractional(self, alpha: Any) -> FractionalDiffusion:
        """Fractional Laplacian of order ``alpha``, with its heat kernel and random walks."""
        self._require_free("fractional", "scipy.linalg on to_csr() for small lattices with costs")
        return FractionalDiffusion(self.geometry, alpha, self._scope)

    # --- other libraries ---------------------------------------------------------------------------------------------

    def to_csr(self) -> Any:
        """``scipy.sparse.csr_array`` whose entry (u, v) is the cost of the step from u to v."""
        return graphs.to_csr(self.geometry, self._costs)

    def to_networkx(self) -> Any:
        """``networkx.Graph``, or a ``DiGraph`` where points have weights. Costs are the edge attribute ``weight``."""
        return graphs.to_networkx(self.geometry, self._costs)

    def to_igraph(self) -> Any:
        """``igraph.Graph``, directed where points have weights. Costs are the edge attribute ``weight``."""
        return graphs.to_igraph(self.geometry, self._costs)

    def to_rustworkx(self) -> Any:
        """``rustworkx.PyGraph``, or a ``PyDiGraph`` where points have weights. The edge data is its cost."""
        return graphs.to_rustworkx(self.geometry, self._costs)
