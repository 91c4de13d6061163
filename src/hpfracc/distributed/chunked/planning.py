"""Functions on the blocks of Dask arrays, and the choice among ways over chunks by their tasks, bytes and memory.

Blocks are processed with the caller's settings, within the limits of their worker.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from hpfracc._arrays import is_chunked
from hpfracc._optional import import_optional
from hpfracc._reading import format_bytes
from hpfracc.distributed.dask_runner import current_client, prepare_workers
from hpfracc.distributed.tasks import Caller
from hpfracc.engine.memory.budget import HOST, get_budget
from hpfracc.engine.workers import available_cores
from hpfracc.errors import InvalidInputError, OutOfMemoryError, ShapeError

#: Builds the graph of a way.
Build = Callable[[], Any]

#: Memory of a call on a block, as a multiple of the block: input, output, and a padded complex transform.
COPIES = 10
#: Largest size of a block after rechunking, in bytes.
_BLOCK = 128 << 20
#: Buffer size of Dask's p2p rechunking on each worker.
_P2P_BUFFER = 1 << 30
#: Points from which a series is long enough for ways over its chunks, and the work of each way in calls of one row:
#: processor time of 2^22 points in 16 chunks on two cores, 1.3 and 3.4 s where one call takes 0.75 s.
_LONG = 1 << 20
_CALLS = {"carry": 2, "spectrum": 4}


@dataclass(frozen=True, slots=True)
class Resources:
    """The resources on which a graph will run.

    Attributes
    ----------
    workers : int
        Number of tasks at the same time.
    memory : int or None
        Bytes of memory of the smallest worker.
    """

    workers: int
    memory: int | None

    @classmethod
    def known(cls) -> Resources:
        """The resources of the default Dask client, or of this machine."""
        client = current_client()
        if client is not None:
            try:
                found = client.scheduler_info(n_workers=-1).get("workers", {}).values()
            except (ValueError, OSError, RuntimeError):  # it is closing, or has lost its scheduler
                found = ()
            if found:
                limits = [each["memory_limit"] for each in found if each.get("memory_limit")]
                return cls(sum(each["nthreads"] for each in found), min(limits, default=None))
        return cls(available_cores(), get_budget().free(HOST))

    def refusal(self, what: str, task: int) -> str:
        """Why a task of that many bytes is not possible, or empty."""
        if self.memory is None or task <= self.memory:
            return ""
        return f"{what} takes about {task:,} bytes in a task, and a worker has {self.memory:,}"


@dataclass(frozen=True, slots=True)
class ChunkedWay:
    """One way to apply an operator to a chunked array.

    Attributes
    ----------
    name : str
        ``"blockwise"``, ``"rechunk"``, ``"overlap"``, ``"spectrum"``, ``"carry"`` or ``"slabs"``.
    accuracy : str
        How its values compare with those of a single call.
    tasks : int
        Approximate number of tasks.
    moved_bytes : int
        Approximate number of bytes moved between tasks.
    task_bytes : int
        Approximate memory of the largest task.
    refusal : str
        Why it is not possible, or empty.
    """

    name: str
    accuracy: str
    tasks: int
    moved_bytes: int
    task_bytes: int
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class ChunkedPlan:
    """The ways of one call, and the chosen one."""

    operation: str
    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    ways: tuple[ChunkedWay, ...]
    chosen: str


@dataclass(frozen=True, slots=True)
class ChunkedExplanation:
    """How calls on chunked arrays would be executed. Nothing was computed; print it."""

    plans: tuple[ChunkedPlan, ...]

    def to_dict(self) -> dict[str, Any]:
        """The explanation as plain data."""
        return {"plans": [asdict(plan) for plan in self.plans]}

    def __str__(self) -> str:
        lines = []
        for plan in self.plans:
            lines.append(f"{plan.operation} of shape {plan.shape} in {plan.chunks} chunks: {plan.chosen}")
            for way in plan.ways:
                mark = "->" if way.name == plan.chosen else "  "
                moved, task = format_bytes(way.moved_bytes), format_bytes(way.task_bytes)
                told = f"{way.tasks:,} tasks, {moved} moved, {task} in the largest task, {way.accuracy}"
                lines.append(f"  {mark} {way.name:10} {way.refusal or told}")
        return "\n".join(lines)


_plans: ContextVar[list[ChunkedPlan] | None] = ContextVar("hpfracc_chunked_plans", default=None)


def check_chunks(array: Any, name: str) -> None:
    """Raise an error for chunks of unknown or zero size, and for an empty array."""
    for axis, sizes in enumerate(array.chunks):
        if any(math.isnan(size) for size in sizes):
            raise InvalidInputError(
                f"{name} has chunks of unknown size along axis {axis}; call {name}.compute_chunk_sizes() first"
            )
        if 0 in sizes:
            raise ShapeError(
                f"{name} has a chunk of length 0 along axis {axis} (shape {array.shape}); select a non-empty part, "
                f"or merge the chunks: {name}.rechunk(...)"
            )


def run_way(
    operation: str, array: Any, along: Sequence[int], ways: Mapping[ChunkedWay, Build], way: str = "auto"
) -> Any:
    """Build the graph of one of the ways; raises an error if all are refused.

    ``way`` is that of the caller, which must be possible. ``"auto"`` takes the first that is not refused.
    """
    if way not in ("auto", *(each.name for each in ways)):
        raise InvalidInputError(
            f"way={way!r} is not possible for {operation} of {array.numblocks[along[0]]} chunks of time; use 'auto' or "
            f"{', '.join(each.name for each in ways)}"
        )
    possible = [each for each in ways if not each.refusal]
    if not possible:
        reasons = "; ".join(f"{each.name}: {each.refusal}" for each in ways)
        raise OutOfMemoryError(
            f"{operation} of shape {array.shape} along axis {', '.join(map(str, along))} in {array.numblocks} chunks "
            f"cannot run ({reasons}); give workers more memory, or use fewer points"
        )
    chosen = possible[0] if way == "auto" else next(each for each in ways if each.name == way)
    if chosen.refusal:
        raise InvalidInputError(f"way={way!r} is not possible: {chosen.refusal}")
    plans = _plans.get()
    if plans is not None:
        shape = tuple(map(int, array.shape))
        plans.append(ChunkedPlan(operation, shape, tuple(array.numblocks), tuple(ways), chosen.name))
    return ways[chosen]()


def explain_chunked(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Any) -> ChunkedExplanation:
    """The ways of the calls that a function makes on Dask arrays. Graphs are built, but nothing is computed."""
    plans: list[ChunkedPlan] = []
    token = _plans.set(plans)
    try:
        function(*args, **kwargs)
    finally:
        _plans.reset(token)
    if not plans:
        name = getattr(function, "__name__", repr(function))
        raise InvalidInputError(f"{name} made no call on a Dask array, so there is nothing to explain")
    return ChunkedExplanation(tuple(plans))


def with_chunks_of_time(
    whole: dict[ChunkedWay, Build], across: dict[ChunkedWay, Build], array: Any, along: Sequence[int], workers: int
) -> dict[ChunkedWay, Build]:
    """The ways that need a whole row in a worker, and those that do not, the best first.

    Those over chunks are better for a long series if there are as many idle workers as they have work.
    """
    rows, long = rows_of(array, along), array.shape[along[0]] >= _LONG
    best = {way: build for way, build in across.items() if long and rows * _CALLS[way.name] <= workers}
    return {**best, **whole, **across}


def blockwise_way(array: Any) -> ChunkedWay:
    """One task per chunk."""
    block = math.prod(max(sizes) for sizes in array.chunks) * array.dtype.itemsize
    return ChunkedWay("blockwise", "the values of one call", math.prod(array.numblocks), 0, COPIES * block)


def rechunk_way(array: Any, along: Sequence[int], resources: Resources) -> ChunkedWay:
    """All points in one chunk and the other axes divided, and back."""
    points = math.prod(array.shape[axis] for axis in along) * array.dtype.itemsize
    rows = math.prod(array.shape) // max(1, math.prod(array.shape[axis] for axis in along))
    block = max(points, min(points * rows, block_bytes(resources)))
    refusal = resources.refusal(f"one row of {points:,} bytes", COPIES * points)
    block = points if refusal else block
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
    """``"tasks"``, which can spill to disk, if the p2p buffers would not fit beside the data of a worker."""
    if resources.memory is not None and resources.memory < 3 * _P2P_BUFFER:
        return "tasks"
    return None


def result_dtype(array: Any) -> np.dtype[Any]:
    """Dtype of an operator's values: that of the samples; float64 for integers."""
    return array.dtype if array.dtype.kind in "fc" else np.dtype(np.float64)


def rows_of(f: Any, along: Sequence[int]) -> int:
    """Number of independent series."""
    return math.prod(f.shape[axis] for axis in range(f.ndim) if axis not in along)


# Blocks.


def blocks(
    name: str, call: Callable[..., Any], *arrays: Any, dtype: Any, ndim: int | None = None, where: bool = False,
    **options: Any,
) -> Any:  # fmt: skip
    """``map_blocks`` with the caller's settings.

    With ``where`` the function gets the position of its block as first argument: the range of each axis of the first
    array, or of the result if there is no array.
    """
    array, caller = import_optional("dask.array"), Caller.here(away=False)
    prepare_workers()

    def run(*given: Any) -> Any:
        """Run one task with the caller's settings, within the limits of the worker."""
        with caller.adopted():
            return call(*given)

    def run_there(*given: Any, block_info: Any = None) -> Any:
        return run(block_info[0 if arrays_given else None]["array-location"], *given)

    arrays_given = bool(arrays)
    ndim = arrays[0].ndim if ndim is None else ndim
    return array.map_blocks(
        run_there if where else run, *arrays, dtype=dtype, meta=np.empty((0,) * ndim, dtype), name=None,
        token=f"hpfracc-{name.lower()}", **options,
    )  # fmt: skip


def apply_elementwise(function: Callable[..., Any], operands: tuple[Any, ...], options: Any) -> Any:
    """Apply a function elementwise to Dask arrays, with broadcasting; other operands may be plain arrays."""
    array = import_optional("dask.array")
    varying = {place: each for place, each in enumerate(operands) if is_chunked(each) or np.ndim(each)}
    for place, each in varying.items():
        if is_chunked(each):
            check_chunks(each, f"operand {place + 1}")
    spread = array.broadcast_arrays(*map(array.asarray, varying.values()))
    fixed = {place: each for place, each in enumerate(operands) if place not in varying}

    def call(*given: Any) -> Any:
        found = fixed | dict(zip(varying_places, given, strict=True))
        return function(*(found[place] for place in sorted(found)), **options)

    varying_places = tuple(varying)
    ones = [np.ones(1, each.dtype) for each in spread]
    return blocks(function.__name__, call, *spread, dtype=np.asarray(call(*ones)).dtype)


def whole_way(
    name: str, call: Callable[..., Any], f: Any, along: Sequence[int], resources: Resources, dtype: Any,
    *more: Any, points: int | None = None,
) -> dict[ChunkedWay, Build]:  # fmt: skip
    """The way with the axes ``along`` in one chunk each: blockwise if they are, otherwise rechunked and back.

    ``more`` are operands shared by all blocks. ``points`` is the number of values along the first of the axes, if it is
    another one than that of the samples.
    """
    whole = all(f.numblocks[axis] == 1 for axis in along)

    def build() -> Any:
        given = f if whole else rechunk(f, along, resources)
        if points is not None:
            chunks = tuple((points,) if axis == along[0] else sizes for axis, sizes in enumerate(given.chunks))
            return blocks(name, call, given, *more, dtype=dtype, chunks=chunks)
        found = blocks(name, call, given, *more, dtype=dtype)
        return found if whole else found.rechunk(f.chunks, method=rechunk_method(resources))

    return {blockwise_way(f) if whole else rechunk_way(f, along, resources): build}


def run_rows(run: Callable[..., list[Any]], rows: Any) -> Any:
    """Results of ``run(rows[a:b], a, count)`` for the chunks of the first axis, as a Dask array with the rows first.

    The shape and dtype of a result are found by calling it with a row of zeros; the rows themselves are not computed.
    """
    check_chunks(rows, "items")
    if rows.ndim < 2:
        raise ShapeError(f"items of shape {rows.shape} have no rows; give a Dask array with items along the first axis")
    if max(rows.numblocks[1:]) > 1:
        rows = rows.rechunk(dict.fromkeys(range(1, rows.ndim), -1))
    (sample,) = run(np.zeros((1, *rows.shape[1:]), rows.dtype), 0, 1)
    like = np.asarray(sample)
    if like.dtype.kind not in "biufc":
        raise InvalidInputError(f"the function returns {type(sample).__name__} for a row; return an array or a number")

    def call(place: Any, block: Any) -> np.ndarray[Any, Any]:
        return np.stack([np.asarray(each) for each in run(block, place[0][0], count)])

    count = rows.shape[0]
    build = functools.partial(
        blocks, "batch", call, rows, dtype=like.dtype, ndim=1 + like.ndim,
        where=True, chunks=(rows.chunks[0], *((length,) for length in like.shape)),
        drop_axis=list(range(1, rows.ndim)), new_axis=list(range(1, 1 + like.ndim)) or None,
    )  # fmt: skip
    return run_way("batch", rows, (0,), {blockwise_way(rows): build})
