"""Which way an operator goes over the chunks of an array: tasks, bytes and memory of each, and the choice."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpfracc.engine.memory.budget import HOST, get_budget
from hpfracc.engine.workers import available_cores
from hpfracc.errors import InvalidInputError, OutOfMemoryError, ShapeError

__all__ = ["ChunkedExplanation", "ChunkedPlan", "ChunkedWay", "Resources", "check_chunks", "choose", "planned"]

#: Memory of a call on a block, in copies of the block: input, output, and a padded complex transform.
COPIES = 10
#: Bytes of a block after rechunking, at most.
_BLOCK = 128 << 20
#: Buffers of Dask's p2p rechunking on each worker.
_P2P_BUFFER = 1 << 30


@dataclass(frozen=True, slots=True)
class Resources:
    """Where a graph will run: tasks at the same time, and bytes of the smallest worker."""

    workers: int
    memory: int | None

    @classmethod
    def known(cls) -> Resources:
        """Those of the default Dask client, or of this machine."""
        distributed = sys.modules.get("distributed")
        if distributed is not None:
            try:
                client = distributed.default_client()
                found = client.scheduler_info(n_workers=-1)["workers"].values()
            except Exception:  # no client, or one that has lost its scheduler
                found = ()
            if found:
                limits = [each["memory_limit"] for each in found if each.get("memory_limit")]
                return cls(sum(each["nthreads"] for each in found), min(limits, default=None))
        return cls(available_cores(), get_budget().free(HOST))


@dataclass(frozen=True, slots=True)
class ChunkedWay:
    """One way to apply an operator to a chunked array.

    Attributes
    ----------
    name : str
        ``"blockwise"``, ``"rechunk"``, ``"overlap"`` or ``"spectrum"``.
    accuracy : str
        How its values compare with those of one call.
    tasks : int
        Tasks, about.
    moved_bytes : int
        Bytes that move between tasks, about.
    task_bytes : int
        Memory of the largest task, about.
    refusal : str
        Why it cannot be taken, or empty.
    """

    name: str
    accuracy: str
    tasks: int
    moved_bytes: int
    task_bytes: int
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class ChunkedPlan:
    """The ways of one call, and the one that is taken."""

    operation: str
    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    ways: tuple[ChunkedWay, ...]
    chosen: str


@dataclass(frozen=True, slots=True)
class ChunkedExplanation:
    """What calls on chunked arrays would do. Nothing was computed; print it."""

    plans: tuple[ChunkedPlan, ...]

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        from dataclasses import asdict

        return {"plans": [asdict(plan) for plan in self.plans]}

    def __str__(self) -> str:
        lines = []
        for plan in self.plans:
            lines.append(f"{plan.operation} of shape {plan.shape} in {plan.chunks} chunks: {plan.chosen}")
            for way in plan.ways:
                mark = "->" if way.name == plan.chosen else "  "
                told = (
                    f"{way.tasks:,} tasks, {_bytes(way.moved_bytes)} moved, {_bytes(way.task_bytes)} in the largest "
                    f"task, {way.accuracy}"
                )
                lines.append(f"  {mark} {way.name:10} {way.refusal or told}")
        return "\n".join(lines)


def _bytes(count: int) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.3g} {unit}"
        count /= 1024  # type: ignore[assignment]
    return f"{count:.3g} TiB"


_plans: ContextVar[list[ChunkedPlan] | None] = ContextVar("hpfracc_chunked_plans", default=None)


@contextmanager
def planned() -> Iterator[list[ChunkedPlan]]:
    """Collect the plans of the calls inside the block."""
    found: list[ChunkedPlan] = []
    token = _plans.set(found)
    try:
        yield found
    finally:
        _plans.reset(token)


def check_chunks(array: Any, name: str) -> None:
    """Raise an error for chunks whose size is unknown, or zero, and for an empty array."""
    for axis, sizes in enumerate(array.chunks):
        if any(math.isnan(size) for size in sizes):
            raise InvalidInputError(
                f"{name} has chunks of unknown size along axis {axis}; call {name}.compute_chunk_sizes() first"
            )
        if 0 in sizes:
            raise ShapeError(
                f"{name} has a chunk of length 0 along axis {axis} (shape {array.shape}); select what is not empty, or "
                f"merge the chunks: {name}.rechunk(...)"
            )


def choose(operation: str, array: Any, along: Sequence[int], ways: Sequence[ChunkedWay], preferred: str) -> ChunkedPlan:
    """The plan with the preferred way, or the first that is not refused; raises an error if all are."""
    possible = [way for way in ways if not way.refusal]
    if not possible:
        reasons = "; ".join(f"{way.name}: {way.refusal}" for way in ways)
        raise OutOfMemoryError(
            f"{operation} of shape {array.shape} along axis {', '.join(map(str, along))} in {array.numblocks} chunks "
            f"cannot run ({reasons}); give workers more memory, or use fewer points"
        )
    names = [way.name for way in possible]
    chosen = preferred if preferred in names else names[0]
    plan = ChunkedPlan(operation, tuple(map(int, array.shape)), tuple(array.numblocks), tuple(ways), chosen)
    found = _plans.get()
    if found is not None:
        found.append(plan)
    return plan


def blockwise_way(array: Any, copies: int = COPIES) -> ChunkedWay:
    """One task a chunk."""
    block = math.prod(max(sizes) for sizes in array.chunks) * array.dtype.itemsize
    return ChunkedWay("blockwise", "the values of one call", math.prod(array.numblocks), 0, copies * block)


def rechunk_way(array: Any, along: Sequence[int], resources: Resources) -> ChunkedWay:
    """All points in one chunk, the other axes divided; and back."""
    points = math.prod(array.shape[axis] for axis in along) * array.dtype.itemsize
    rows = math.prod(array.shape) // max(1, math.prod(array.shape[axis] for axis in along))
    block = max(points, min(points * rows, block_bytes(resources)))
    refusal = ""
    if resources.memory is not None and COPIES * points > resources.memory:
        refusal = (
            f"one row of {points:,} bytes takes about {COPIES * points:,} in a task, and a worker has "
            f"{resources.memory:,}"
        )
        block = points
    tasks = 3 * math.prod(array.numblocks) + math.ceil(points * rows / block)
    return ChunkedWay("rechunk", "the values of one call", tasks, 2 * int(array.nbytes), COPIES * block, refusal)


def block_bytes(resources: Resources) -> int:
    """Bytes of a block after rechunking."""
    if resources.memory is None:
        return _BLOCK
    return max(1 << 16, min(_BLOCK, resources.memory // (2 * COPIES)))


def rechunk(array: Any, along: Sequence[int], resources: Resources) -> Any:
    """``array`` with the axes ``along`` in one chunk each, and the others divided so that blocks fit."""
    points = math.prod(array.shape[axis] for axis in along) * array.dtype.itemsize
    rows = max(1, block_bytes(resources) // max(1, points))
    others = [axis for axis in range(array.ndim) if axis not in along]
    total = math.prod(array.shape[axis] for axis in others)
    rows = max(1, min(rows, math.ceil(total / max(1, resources.workers))))
    chunks: dict[int, Any] = dict.fromkeys(along, -1)
    for axis in reversed(others):  # the last axes stay whole where they fit
        chunks[axis] = max(1, min(array.shape[axis], rows))
        rows = max(1, rows // array.shape[axis])
    return array.rechunk(chunks, method=rechunk_method(resources))


def rechunk_method(resources: Resources) -> str | None:
    """``"tasks"``, which can spill, where the buffers of p2p would not fit beside the data of a worker."""
    if resources.memory is not None and resources.memory < 3 * _P2P_BUFFER:
        return "tasks"
    return None


def result_dtype(array: Any) -> np.dtype[Any]:
    """Dtype of an operator's values: that of the samples, float64 for whole numbers."""
    return array.dtype if array.dtype.kind in "fc" else np.dtype(np.float64)
