"""Graphs of other libraries: conversions to them, and centrality and communities by them where there is no closed form.

Vertices are numbered by row-major index.
"""

from __future__ import annotations

import math
import random
from functools import reduce
from typing import Any

import numpy as np
from scipy import sparse

from hpfracc import _reading
from hpfracc._optional import import_optional
from hpfracc.lattice import measures
from hpfracc.lattice.costs import Costs
from hpfracc.lattice.geometry import Array, Geometry

CENTRALITIES = ("degree", "closeness", "betweenness", "eigenvector")


def _undirected_edges(geometry: Geometry, costs: Costs | None) -> tuple[Array, Array, Array | None]:
    """Tails, heads and costs of the open edges, each once. Costs are None where all are 1; not for point weights."""
    geometry.check_memory("edges", 64 * len(geometry.forward))
    tails, heads, kinds = geometry.edges()
    if costs is None:
        return tails, heads, None
    if costs.edges:
        lengths = costs.host.reshape(len(costs.host), -1)[kinds, tails]
        opened = np.isfinite(lengths)
        return tails[opened], heads[opened], lengths[opened]
    assert costs.closed is not None
    closed = costs.closed.reshape(-1)
    opened = ~(closed[tails] | closed[heads])
    return tails[opened], heads[opened], None


def directed_steps(geometry: Geometry, costs: Costs | None) -> tuple[Array, Array, Array]:
    """Tails, heads and costs of the open edges in both directions, for any kind of cost."""
    tails, heads, lengths = _undirected_edges(geometry, costs)
    tails, heads = np.concatenate([tails, heads]), np.concatenate([heads, tails])
    if costs is None:
        return tails, heads, np.ones(len(tails))
    return tails, heads, costs.host.reshape(-1)[heads] if lengths is None else np.tile(lengths, 2)


def to_csr(geometry: Geometry, costs: Costs | None) -> Any:
    """Sparse matrix whose entry (u, v) is the cost of the step from u to v."""
    tails, heads, lengths = directed_steps(geometry, costs)
    return sparse.csr_array((lengths, (tails, heads)), shape=(geometry.size, geometry.size))


def _graph_parts(geometry: Geometry, costs: Costs | None) -> tuple[Array, Array, Array | None, bool]:
    """Tails, heads and costs, in both directions if points have weights: a step may then cost more one way."""
    if costs is not None and not costs.edges and (np.isfinite(costs.host) & (costs.host != 1)).any():
        return *directed_steps(geometry, costs), True
    return *_undirected_edges(geometry, costs), False


def to_igraph(geometry: Geometry, costs: Costs | None) -> Any:
    """``igraph.Graph``, directed where points have weights. Costs are the edge attribute ``weight``."""
    igraph = import_optional("igraph")
    tails, heads, lengths, directed = _graph_parts(geometry, costs)
    graph = igraph.Graph(n=geometry.size, edges=np.column_stack([tails, heads]), directed=directed)
    if lengths is not None:
        graph.es["weight"] = lengths.tolist()
    return graph


def to_networkx(geometry: Geometry, costs: Costs | None) -> Any:
    """``networkx.Graph``, or a ``DiGraph`` where points have weights. Costs are the edge attribute ``weight``."""
    networkx = import_optional("networkx")
    tails, heads, lengths, directed = _graph_parts(geometry, costs)
    graph = (networkx.DiGraph if directed else networkx.Graph)()
    graph.add_nodes_from(range(geometry.size))
    if lengths is None:
        graph.add_edges_from(zip(tails.tolist(), heads.tolist(), strict=True))
    else:
        graph.add_weighted_edges_from(zip(tails.tolist(), heads.tolist(), lengths.tolist(), strict=True))
    return graph


def to_rustworkx(geometry: Geometry, costs: Costs | None) -> Any:
    """``rustworkx.PyGraph``, or a ``PyDiGraph`` where points have weights. The edge data is its cost."""
    rustworkx = import_optional("rustworkx")
    tails, heads, lengths, directed = _graph_parts(geometry, costs)
    graph = (rustworkx.PyDiGraph if directed else rustworkx.PyGraph)(multigraph=False)
    graph.add_nodes_from(range(geometry.size))
    weights = [1.0] * len(tails) if lengths is None else lengths.tolist()
    graph.add_edges_from(list(zip(tails.tolist(), heads.tolist(), weights, strict=True)))
    return graph


def centrality(geometry: Geometry, costs: Costs | None, kind: str) -> Array:
    """Centrality of every point, in the shape of the lattice and scaled as in networkx.

    ``"degree"`` is divided by the number of other points, ``"closeness"`` is the reciprocal mean distance,
    ``"betweenness"`` the fraction of shortest paths that pass through, ``"eigenvector"`` has norm 1.
    """
    _reading.choice("kind", kind, CENTRALITIES)
    if kind == "degree":
        return np.ones(geometry.shape) if geometry.size == 1 else degrees(geometry, costs) / (geometry.size - 1)
    if costs is None and kind == "closeness":
        return measures.closeness(geometry)
    if costs is None and kind == "eigenvector":
        return _leading_vector(geometry)
    return _by_igraph(geometry, costs, kind).reshape(geometry.shape)


def degrees(geometry: Geometry, costs: Costs | None) -> Array:
    """Number of neighbours of every point that can be reached, in the shape of the lattice."""
    if costs is None:
        return measures.degrees(geometry)
    tails = directed_steps(geometry, costs)[0]
    return np.bincount(tails, minlength=geometry.size).reshape(geometry.shape)


def _leading_vector(geometry: Geometry) -> Array:
    """Eigenvector of the largest adjacency eigenvalue: a product over the axes of half a sine or a constant."""
    along = [np.ones(n) if wraps else np.sin(math.pi * np.arange(1, n + 1) / (n + 1)) for n, wraps in geometry.axes]
    return reduce(np.multiply.outer, [each / np.linalg.norm(each) for each in along])


def _by_igraph(geometry: Geometry, costs: Costs | None, kind: str) -> Array:
    graph = to_igraph(geometry, costs)
    weights = "weight" if "weight" in graph.es.attributes() else None
    if kind == "betweenness":
        found = np.array(graph.betweenness(directed=graph.is_directed(), weights=weights))
        pairs = (geometry.size - 1) * (geometry.size - 2)
        return found / pairs * (1 if graph.is_directed() else 2) if pairs else found
    if kind == "eigenvector":
        found = np.array(graph.eigenvector_centrality(directed=False, scale=False))
        return np.asarray(found / np.linalg.norm(found))
    # Closeness within the component, scaled by the component's share of all points (Wasserman and Faust).
    found = np.nan_to_num(np.array(graph.closeness(mode="out", weights=weights, normalized=True)))
    parts = graph.connected_components(mode="weak")
    reached = np.array(parts.sizes())[np.array(parts.membership)] - 1
    return np.asarray(found * reached / max(1, geometry.size - 1))


def communities(geometry: Geometry, costs: Costs | None, method: str, seed: int | None) -> list[list[int]]:
    """Communities of points, largest first. Costs are ignored."""
    _reading.choice("method", method, ("louvain", "label_propagation"))
    igraph, graph = import_optional("igraph"), to_igraph(geometry, costs).as_undirected()
    if seed is not None:
        igraph.set_random_number_generator(random.Random(seed))
    try:
        groups = graph.community_multilevel() if method == "louvain" else graph.community_label_propagation()
    finally:
        if seed is not None:
            igraph.set_random_number_generator(random)
    return sorted((sorted(group) for group in groups), key=lambda group: (-len(group), group))
