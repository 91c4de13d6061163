"""Conversion of a lattice to the graphs of other libraries. Vertices are numbered by row-major index."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from hpfracc._optional import import_optional
from hpfracc.lattice.costs import Costs
from hpfracc.lattice.geometry import Array, Geometry

__all__ = ["directed_steps", "to_csr", "to_igraph", "to_networkx", "to_rustworkx", "undirected_edges"]


def undirected_edges(geometry: Geometry, costs: Costs | None) -> tuple[Array, Array, Array | None]:
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
    tails, heads, lengths = undirected_edges(geometry, costs)
    tails, heads = np.concatenate([tails, heads]), np.concatenate([heads, tails])
    if costs is None:
        return tails, heads, np.ones(len(tails))
    return tails, heads, costs.host.reshape(-1)[heads] if lengths is None else np.tile(lengths, 2)


def has_entry_costs(costs: Costs | None) -> bool:
    """Whether points have weights, so that a step may cost more one way than the other."""
    if costs is None or costs.edges:
        return False
    opened = costs.host[np.isfinite(costs.host)]
    return bool(opened.size) and bool((opened != 1).any())


def to_csr(geometry: Geometry, costs: Costs | None) -> Any:
    """Sparse matrix whose entry (u, v) is the cost of the step from u to v."""
    tails, heads, lengths = directed_steps(geometry, costs)
    return sparse.csr_array((lengths, (tails, heads)), shape=(geometry.size, geometry.size))


def _graph_parts(geometry: Geometry, costs: Costs | None) -> tuple[Array, Array, Array | None, bool]:
    if has_entry_costs(costs):
        return *directed_steps(geometry, costs), True
    return *undirected_edges(geometry, costs), False


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
