"""The lattice: closed forms while nothing stands in the way, searches where something does."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from hpfracc.errors import InvalidInputError, ShapeError
from hpfracc.lattice import _convert, _enumerate, _measures, _paths, _search, _spectra, _structure
from hpfracc.lattice._costs import Costs, read_costs
from hpfracc.lattice._diffusion import FractionalDiffusion
from hpfracc.lattice._geometry import Array, make_geometry
from hpfracc.lattice._path_batch import PathBatch

__all__ = ["Lattice"]


class Lattice:
    """An n-dimensional grid graph, implicit: no point and no edge is stored, so that 1e9 of them cost nothing.

    Points are numbered row by row, as NumPy numbers the elements of an array of that shape. Wherever a point is asked
    for, give its index or its coordinates; answers come the same way.

    Parameters
    ----------
    shape : tuple of int
        Points along each axis.
    periodic : bool or tuple of bool
        Whether the last point of an axis has the first for a neighbour, for all axes or for each.
    weights : array, optional
        Of the lattice's shape: what it costs to enter each point. Or with one more axis in front, one entry for each
        direction: what each edge costs, both ways (see :attr:`directions`). 0 or more; infinite is closed.
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

    # --- what it is --------------------------------------------------------------------------------------------------

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
        """Axes that close to a ring; one or two points never do."""
        return self.geometry.wraps

    @property
    def directions(self) -> tuple[tuple[int, ...], ...]:
        """The steps that weights of edges are given for: one of each pair of opposite ones."""
        return self.geometry.forward

    @property
    def is_free(self) -> bool:
        """Whether there are neither weights nor obstacles, so that closed forms hold."""
        return self._costs is None

    def coordinates_to_index(self, coordinates: Any) -> Any:
        """Row-major indices of coordinates: of one point, or along the last axis of an array."""
        array = np.asarray(coordinates)
        if array.ndim == 1:
            return self.geometry.place(coordinates)
        return self.geometry.places(array)

    def index_to_coordinates(self, index: Any) -> Any:
        """Coordinates of an index as a tuple; of an array of them as an array with one more axis."""
        if np.ndim(index) == 0:
            return self.geometry.coordinates(self.geometry.place(index))
        places = self.geometry.places_of(np.asarray(index).reshape(-1))
        return np.stack(self.geometry.columns(places), -1).reshape(*np.shape(index), self.ndim)

    def neighbours(self, point: Any) -> list[Any]:
        """The points one step away that can be entered."""
        place = self.geometry.place(point)
        found = self.geometry.neighbours(place)
        if self._costs is not None:
            costs = self._costs
            if costs.closed is not None and costs.closed.reshape(-1)[place]:
                return []  # an obstacle is not left either
            found = [v for v in found if np.isfinite(_search.step_cost(costs, self.geometry, place, v))]
        return self._answer(found, point)

    def _answer(self, places: list[int], asked: Any) -> list[Any]:
        """Points as the caller writes them."""
        if np.ndim(asked) == 0:
            return places
        return [self.geometry.coordinates(place) for place in places]

    def _scope(self, data: Any) -> contextlib.AbstractContextManager[Any]:
        """A context for the engine's calls on ``data``."""
        return contextlib.nullcontext()

    # --- distances and paths -----------------------------------------------------------------------------------------

    def distance(self, start: Any, end: Any) -> Any:
        """Steps between two points, or the cost of the cheapest path; without costs also for arrays of points."""
        if self._costs is None and (np.ndim(start) > 1 or isinstance(start, np.ndarray)):
            return _paths.distances(self.geometry, self.geometry.places(start), self.geometry.places(end))
        a, b = self.geometry.place(start), self.geometry.place(end)
        if self._costs is None:
            return _paths.distance(self.geometry, a, b)
        return _search.search_path(self.geometry, self._costs, a, b)[1]

    def shortest_path(self, start: Any, end: Any) -> list[Any]:
        """One shortest path with both its ends, or :class:`~hpfracc.errors.NoPathError`.

        In closed form without costs; else by A*, or from both ends at once where costs differ so much that the number
        of steps left says little of what they cost.
        """
        a, b = self.geometry.place(start), self.geometry.place(end)
        if self._costs is None:
            return self._answer(_paths.path(self.geometry, a, b), start)
        return self._answer(_search.search_path(self.geometry, self._costs, a, b)[0], start)

    def shortest_paths(self, starts: Any, ends: Any) -> PathBatch:
        """One shortest path for each pair of points, all at once: a million of them in less than a second."""
        first, last = (np.atleast_1d(self.geometry.places(points)).reshape(-1) for points in (starts, ends))
        if first.shape != last.shape:
            raise ShapeError(f"{len(first)} starts for {len(last)} ends; give as many of one as of the other")
        if self._costs is None:
            return PathBatch(*_paths.paths(self.geometry, first, last))
        found = [
            _search.search_path(self.geometry, self._costs, int(a), int(b))[0] for a, b in zip(first, last, strict=True)
        ]
        begins = np.concatenate([[0], np.cumsum([len(way) for way in found])]).astype(np.int64)
        return PathBatch(np.array([place for way in found for place in way], np.int64), begins)

    def count_shortest_paths(self, start: Any, end: Any) -> int:
        """How many shortest paths there are, an exact integer; on a lattice without costs."""
        self._require_free("count_shortest_paths", "list(find_all_paths(...))")
        return _paths.count_paths(self.geometry, self.geometry.place(start), self.geometry.place(end))

    def distance_map(self, sources: Any, *, prices: Any = None, backend: str | None = None) -> Any:
        """Distance of every point from the nearest source, in the shape of the lattice.

        Parameters
        ----------
        sources : point or list of points
            Where paths may begin: an index or a tuple of coordinates, or a list or an array of such.
        prices : array, optional
            What beginning at each source costs.
        backend : str, optional
            Where to compute it.

        Returns
        -------
        array
            Steps as integers where nothing costs; else costs, of the weights' own library, infinite out of reach.
        """
        places = self._sources(sources)
        self.geometry.require_room("a distance map")
        if self._costs is None and prices is None and backend is None:
            return _paths.distance_map(self.geometry, places)
        costs = self._search_costs(places)
        with self._scope(costs.array):
            return _search.cost_map(self.geometry, costs, places, prices, backend)

    def distance_maps(self, sources: Any, *, backend: str | None = None) -> Any:
        """The distance map of each source alone, along a new first axis: one call of the engine for all of them.

        Where they do not fit into memory together they are made in pieces.

        Parameters
        ----------
        sources : list of points
            One for each map.
        backend : str, optional
            Where to compute them.

        Examples
        --------
        >>> from hpfracc.lattice import Lattice
        >>> Lattice((4,), weights=[1.0, 2.0, 1.0, 1.0]).distance_maps([0, 3])
        array([[0., 2., 3., 4.],
               [4., 3., 1., 0.]])
        """
        places = self._sources(sources)
        self.geometry.require_room("distance maps", 8 * len(places))
        if self._costs is None and backend is None:
            return np.stack([_paths.distance_map(self.geometry, [place]) for place in places])
        costs = self._search_costs(places)
        with self._scope(costs.array):
            return _search.cost_maps(self.geometry, costs, places, backend)

    def _search_costs(self, places: list[int]) -> Costs:
        """What steps cost, all 1 on a free lattice; refuses obstacles among the places."""
        if self._costs is None:
            ones = np.ones(self.shape)
            return Costs(ones, False, None, ones)
        for place in places:
            _search.check_open(self._costs, self.geometry, place)
        return self._costs

    def _sources(self, sources: Any) -> list[int]:
        if np.ndim(sources) == 0 or (
            isinstance(sources, tuple) and len(sources) == self.ndim and np.ndim(sources) == 1
        ):
            return [self.geometry.place(sources)]
        places = [int(place) for place in np.atleast_1d(self.geometry.places(sources)).reshape(-1)]
        if not places:
            raise InvalidInputError("no sources; give at least one point")
        return places

    def find_all_paths(self, start: Any, end: Any, max_length: int | None = None) -> Iterator[list[Any]]:
        """Every shortest path, or every path of at most ``max_length`` steps that visits no point twice; lazily."""
        a, b = self.geometry.place(start), self.geometry.place(end)
        if max_length is not None and (isinstance(max_length, bool) or not isinstance(max_length, int | np.integer)):
            raise InvalidInputError(f"max_length={max_length!r}; use a whole number of steps, or None for the shortest")
        if max_length is None:
            ways = _enumerate.cheapest_paths(self.geometry, self._costs, a, b)
        else:
            ways = _enumerate.bounded_paths(self.geometry, self._costs, a, b, int(max_length))
        return (self._answer(way, start) for way in ways)

    # --- structure ---------------------------------------------------------------------------------------------------

    def _require_free(self, name: str, remedy: str) -> None:
        if self._costs is not None:
            raise InvalidInputError(f"{name} has a closed form without weights and obstacles only; use {remedy}")

    @property
    def edges(self) -> int:
        """Number of edges."""
        if self._costs is None:
            return _measures.count_edges(self.geometry)
        return len(_convert.directed_steps(self.geometry, self._costs)[0]) // 2

    @property
    def diameter(self) -> int:
        """The greatest number of steps between two points."""
        self._require_free("diameter", "to_igraph().diameter()")
        return _measures.diameter(self.geometry)

    def degrees(self) -> Array:
        """Neighbours of every point."""
        self.geometry.require_room("degrees")
        if self._costs is None:
            return _measures.degrees(self.geometry)
        tails = _convert.directed_steps(self.geometry, self._costs)[0]
        return np.bincount(tails, minlength=self.size).reshape(self.shape)

    def eccentricities(self) -> Array:
        """Steps from every point to the one farthest from it."""
        self._require_free("eccentricities", "to_igraph().eccentricity()")
        self.geometry.require_room("eccentricities")
        return _measures.eccentricities(self.geometry)

    def analyze_structure(self) -> dict[str, Any]:
        """Nodes, edges, degrees, distances, clustering, as a dict; in microseconds where closed forms hold."""
        if self._costs is None:
            return _measures.analyse(self.geometry)
        from scipy.sparse import csgraph

        edges, size = self.edges, self.size
        links = self.to_csr()
        links.data[:] = 1.0  # a step that costs nothing is a link too
        parts, _ = csgraph.connected_components(links, directed=False)
        return {
            "nodes": size,
            "edges": edges,
            "dimensions": self.ndim,
            "shape": self.shape,
            "mean_degree": 2 * edges / size,
            "density": 2 * edges / (size * (size - 1)) if size > 1 else 0.0,
            "components": int(parts),
            "is_connected": bool(parts == 1),
        }

    def laplacian_spectrum(self) -> Array:
        """Eigenvalues of ``D - A``, by wave number along each axis."""
        self._require_free("laplacian_spectrum", "numpy.linalg.eigvalsh of to_csr()")
        self.geometry.require_room("the spectrum")
        return _spectra.laplacian_spectrum(self.geometry)

    def adjacency_spectrum(self) -> Array:
        """Eigenvalues of ``A``, by wave number along each axis."""
        self._require_free("adjacency_spectrum", "numpy.linalg.eigvalsh of to_csr()")
        self.geometry.require_room("the spectrum")
        return _spectra.adjacency_spectrum(self.geometry)

    def calculate_centrality(self, kind: str = "degree") -> Array:
        """Of every point: ``"degree"``, ``"closeness"``, ``"betweenness"`` or ``"eigenvector"``, as networkx has them.

        Betweenness, and all but degrees where there are costs, need igraph or networkx (the extra ``graph``).
        """
        self.geometry.require_room("centrality")
        return _structure.centrality(self.geometry, self._costs, kind)

    def find_communities(self, method: str = "louvain", seed: int | None = None) -> list[list[int]]:
        """Groups of points with more edges inside than between them, the largest first (the extra ``graph``)."""
        return _structure.communities(self.geometry, self._costs, method, seed)

    def fractional(self, alpha: Any) -> FractionalDiffusion:
        """The fractional Laplacian of this lattice, its heat kernel and its walks."""
        self._require_free("fractional", "scipy.linalg on to_csr() for small lattices with costs")
        return FractionalDiffusion(self.geometry, alpha, self._scope)

    # --- other libraries ---------------------------------------------------------------------------------------------

    def to_csr(self) -> Any:
        """A ``scipy.sparse.csr_array``: in row u and column v, what the step from u to v costs."""
        return _convert.to_csr(self.geometry, self._costs)

    def to_networkx(self) -> Any:
        """A ``networkx.Graph``, or a ``DiGraph`` where points have costs, which are the attribute ``weight``."""
        return _convert.to_networkx(self.geometry, self._costs)

    def to_igraph(self) -> Any:
        """An ``igraph.Graph``, directed where points have costs, which are the attribute ``weight``."""
        return _convert.to_igraph(self.geometry, self._costs)

    def to_rustworkx(self) -> Any:
        """A ``rustworkx.PyGraph``, or a ``PyDiGraph`` where points have costs; an edge carries its cost."""
        return _convert.to_rustworkx(self.geometry, self._costs)
