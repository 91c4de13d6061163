"""Contract of shortest distances on a lattice with costs and obstacles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, final

import numpy as np

from hpfracc import _reading
from hpfracc.engine.numerics.stencils import NEIGHBOURHOODS, forward_offsets
from hpfracc.engine.primitives.base import (
    FLOATS,
    REALS,
    ArraySpec,
    Call,
    Primitive,
    inexact,
    promoted,
    read_dtype,
    shape_of,
)
from hpfracc.errors import InvalidInputError, ShapeError


def read_periodic(periodic: Any, ndim: int) -> tuple[bool, ...]:
    """``periodic`` for each axis."""
    if isinstance(periodic, bool | np.bool_):
        return (bool(periodic),) * ndim
    if not isinstance(periodic, Sequence) or len(periodic) != ndim:
        raise InvalidInputError(
            f"stencil_relax: periodic={periodic!r} for {ndim} axes; give True or False, or one for each axis"
        )
    return tuple(bool(wraps) for wraps in periodic)


@final
class StencilRelax(Primitive):
    r"""``stencil_relax(costs, start, neighbourhood="von_neumann", periodic=False, edges=False)``: shortest distances.

    .. math:: d_v = \min\Big(s_v, \min_{u \sim v} (d_u + c_{uv})\Big),

    the smallest solution: a path may start where ``start`` is finite, at that cost; elsewhere it is infinite.

    ``costs`` has the shape of the lattice: the cost of entering each point. With ``edges=True`` it has a leading axis
    of directions: ``costs[j, u]`` is the cost of the step between ``u`` and ``u + offset_j``, in both directions; the
    offsets are the axes in their order, or for ``"moore"`` the half of :math:`\{-1, 0, 1\}^d` that comes after 0 in
    lexicographic order. A cost that is infinite, negative or nan closes its point or edge; a non-finite value in
    ``start`` is not a source. ``start`` may have leading axes, one map each. ``periodic`` is for all axes or for each.

    Algorithms: ``dijkstra`` processes the nearest point first; ``relax`` updates all points at once until nothing
    changes; ``tiles`` only blocks of points that can change, each until nothing in it does. Not differentiable.
    """

    name = "stencil_relax"
    operands = ("costs", "start")
    whole_operands = (0,)

    def describe(
        self,
        costs: Any,
        start: Any,
        *,
        neighbourhood: str = "von_neumann",
        periodic: Any = False,
        edges: bool = False,
    ) -> Call:
        """Check both operands; ``facts``: ``lattice`` (its shape), ``steps`` (directions), ``reach`` (sum of sides)."""
        pair = read_dtype(self.name, "costs", costs, REALS), read_dtype(self.name, "start", start, REALS)
        _reading.choice(f"{self.name}: neighbourhood", neighbourhood, NEIGHBOURHOODS)
        edges = _reading.flag(f"{self.name}: edges", edges)
        given, points = shape_of(costs), shape_of(start)
        lattice = given[1:] if edges else given
        if not lattice:
            raise ShapeError(f"{self.name}: costs of shape {given} have no lattice axis; give at least one")
        steps = len(forward_offsets(len(lattice), neighbourhood))
        if edges and given[0] != steps:
            raise ShapeError(
                f"{self.name}: costs of shape {given} with edges=True; a {neighbourhood} lattice of "
                f"{len(lattice)} axes has {steps} directions, so give them the shape {(steps, *lattice)}"
            )
        read_periodic(periodic, len(lattice))
        if points[-len(lattice) :] != lattice:
            raise ShapeError(
                f"{self.name}: start has shape {points}, the lattice {lattice}; the last axes must be the lattice's"
            )
        facts: dict[str, Any] = {"lattice": lattice, "steps": 2 * steps, "reach": sum(lattice), "edges": edges}
        facts["inner"] = tuple(range(-len(lattice), 0))
        batch, length = math.prod(points[: -len(lattice)]), math.prod(lattice)
        return self.call(inexact(promoted(pair)), points, (given, points), batch=batch, length=length, **facts)

    def work(self, call: Call, algorithm: str) -> float:
        """Steps examined: each once in order of distance, or all in every round."""
        steps = float(call.batch * call.length * call.facts["steps"])
        if algorithm == "relax":
            return steps * float(max(1, call.facts["reach"]))
        if algorithm == "dijkstra":
            return steps * math.log2(max(2, call.length))
        return steps

    def workspace(self, call: Call, algorithm: str) -> int:
        """Maps and costs; or for SciPy all steps as a sparse matrix."""
        steps: int = call.facts["steps"]
        if algorithm == "csgraph":
            return steps * call.length * 72  # steps have 64-bit indices and lengths
        return (call.batch + (steps if call.facts["edges"] else 1)) * call.length * call.itemsize

    def example(self, shape: tuple[int, ...], dtype: str) -> tuple[tuple[ArraySpec, ...], dict[str, Any]]:
        """One map of a lattice of that shape."""
        spec = ArraySpec(shape or (1,), dtype if dtype in FLOATS else "float64")
        return (spec, spec), {}

    def typical(self, arrays: list[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
        """Positive costs, and one source in the middle."""
        costs, start = arrays
        single = np.full_like(start, np.inf)
        single.reshape(-1)[start.size // 2 : start.size // 2 + 1] = 0
        return [1 + np.abs(costs), single]
