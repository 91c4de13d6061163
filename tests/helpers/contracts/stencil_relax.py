"""Reference and test cases of ``stencil_relax``."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from hpfracc.engine.numerics.stencils import forward_offsets
from hpfracc.engine.primitives.base import FLOATS, Primitive
from hpfracc.engine.primitives.stencil_relax import read_periodic
from tests.helpers.contracts import Case, reversed_view, strided_view


def reference(primitive: Primitive, *arrays: np.ndarray[Any, Any], **params: Any) -> np.ndarray[Any, Any]:
    """The Bellman-Ford algorithm, point by point, in extended precision."""
    call = primitive.describe(*arrays, **params)
    costs, start = (np.asarray(array).astype(call.dtype).astype(np.longdouble) for array in arrays)
    lattice = call.facts["lattice"]
    wraps = read_periodic(params.get("periodic", False), len(lattice))
    ahead = forward_offsets(len(lattice), params.get("neighbourhood", "von_neumann"))
    found = np.where(np.isfinite(start), start, np.inf).reshape(call.batch, *lattice)
    moves = []
    for u in np.ndindex(*lattice):
        for place, offset in enumerate(ahead):
            v = tuple(c + o for c, o in zip(u, offset, strict=True))
            if any(not (0 <= c < n or wrap) for c, n, wrap in zip(v, lattice, wraps, strict=True)):
                continue
            v = tuple(c % n for c, n in zip(v, lattice, strict=True))
            there, back = (costs[(place, *u)],) * 2 if call.facts["edges"] else (costs[v], costs[u])
            moves += [(u, v, cost) for u, v, cost in ((u, v, there), (v, u, back)) if cost >= 0]
    changed = True
    while changed:
        changed = False
        for (u, v, cost), row in itertools.product(moves, found):
            if row[u] + cost < row[v]:
                row[v] = row[u] + cost
                changed = True
    return found.reshape(call.shape).astype(call.dtype)


def cases(primitive: Primitive, dtype: str) -> Iterator[Case]:
    """Both neighbourhoods and kinds of cost, edges of all sorts, obstacles, several sources and maps."""
    if dtype not in FLOATS:
        return

    def costs(shape: tuple[int, ...], seed: int, closed: float = 0.25) -> np.ndarray[Any, Any]:
        generator = np.random.default_rng(seed)
        made = generator.uniform(0.5, 4.0, shape)
        made[generator.random(shape) < closed] = np.inf
        return made.astype(dtype)

    def sources(shape: tuple[int, ...], *places: tuple[tuple[int, ...], float]) -> np.ndarray[Any, Any]:
        made = np.full(shape, np.inf, dtype)
        for place, price in places:
            made[place] = price
        return made

    plain = costs((6, 7), 1)
    yield Case("plain", (plain, sources((6, 7), ((0, 0), 0.0))))
    yield Case("one axis", (costs((17,), 2, 0.0), sources((17,), ((5,), 0.0))))
    yield Case("three axes", (costs((3, 4, 5), 3), sources((3, 4, 5), ((1, 1, 1), 0.0))))
    yield Case("moore", (plain, sources((6, 7), ((0, 0), 0.0))), {"neighbourhood": "moore"})
    yield Case("periodic", (plain, sources((6, 7), ((3, 3), 0.0))), {"periodic": True})
    mixed = {"neighbourhood": "moore", "periodic": (True, False)}
    yield Case("moore periodic along one axis", (plain, sources((6, 7), ((0, 3), 0.0))), mixed)
    ways = costs((2, 6, 7), 4)
    yield Case("edges", (ways, sources((6, 7), ((0, 0), 0.0))), {"edges": True})
    yield Case("edges periodic", (ways, sources((6, 7), ((0, 0), 0.0))), {"edges": True, "periodic": (False, True)})
    more = {"edges": True, "neighbourhood": "moore", "periodic": True}
    yield Case("edges moore", (costs((4, 5, 4), 5), sources((5, 4), ((0, 0), 0.0))), more)
    several = sources((6, 7), ((0, 0), 1.5), ((5, 6), -2.0), ((2, 3), 40.0))
    yield Case("several sources", (plain, several))
    batch = sources((2, 2, 6, 7), ((0, 0, 0, 0), 0.0), ((0, 1, 3, 3), 0.0), ((1, 1, 5, 6), 2.0))
    yield Case("batched", (plain, batch))
    yield Case("equal costs", (np.where(np.isinf(plain), plain, 1), sources((6, 7), ((0, 0), 0.0))))
    yield Case("free steps", (np.where(plain > 2, plain, 0), sources((6, 7), ((0, 0), 0.0))))
    odd = plain.copy()
    odd[1, 1], odd[2, 2] = -1.0, np.nan
    strange = sources((6, 7), ((0, 0), 0.0), ((3, 3), np.nan), ((4, 4), -np.inf))
    yield Case("neither costs nor prices", (odd, strange))
    yield Case("one point", (costs((1, 1), 6, 0.0), sources((1, 1), ((0, 0), 3.0))), {"periodic": True})
    yield Case("two points around", (costs((2, 2), 7, 0.0), sources((2, 2), ((0, 0), 0.0))), {"periodic": True})
    yield Case("no sources", (plain, sources((6, 7))))
    yield Case("no points", (costs((0, 4), 8), sources((0, 4))))
    yield Case("no maps", (plain, np.full((0, 6, 7), np.inf, dtype)))
    yield Case("strided", (strided_view(plain), strided_view(several)))
    yield Case("reversed", (reversed_view(plain), reversed_view(several)))
    yield Case("transposed", (np.ascontiguousarray(plain.T).T, several))
    if dtype == "float64":
        yield Case("integers", (np.arange(1, 13).reshape(3, 4), sources((3, 4), ((2, 0), 0.0))))
