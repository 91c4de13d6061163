"""Calls on several devices of one process: each processes its own rows.

:func:`per_device` calls a function in one thread per device. Operators on arrays that are already sharded stay where
they are: a PyTorch ``DTensor`` is split by ``to_local`` and rebuilt by ``from_local``. For JAX arrays: XLA replicates a
Fourier transform whose operand is sharded, so ``jit(hf.caputo)`` of rows on eight devices gathers all rows on each of
them. Under ``shard_map`` nothing is exchanged and the result keeps the sharding.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from hpfracc import _reading
from hpfracc._arrays import device_of, is_dtensor, library_of
from hpfracc._optional import import_optional
from hpfracc._xp import namespace_of
from hpfracc.engine.memory.budget import get_budget
from hpfracc.engine.workers import run_items
from hpfracc.errors import InvalidInputError, ShapeError


def per_device(func: Callable[..., Any], *arrays: Any, devices: Sequence[Any] | None = None) -> Any:
    """Call a function of rows on several devices at once, each with its own part of the rows.

    For ensembles: the rows must not depend on each other. With one device it is a plain call.

    Parameters
    ----------
    func : callable
        Gets the arrays with some of their rows, on one device, and returns an array with as many rows, or a tuple, list
        or dict of such arrays.
    *arrays : arrays of PyTorch, JAX or CuPy
        With the rows along the first axis, the same number in each.
    devices : sequence, optional
        Devices of the library, such as ``["cuda:0", "cuda:1"]`` or ``jax.devices()``. By default all that are visible
        to this process. The rows are divided in proportion to free memory.

    Returns
    -------
    array, or tuple, list or dict of arrays
        The rows in their original order, on the device of the first array. Gradients are supported.

    Examples
    --------
    >>> import torch
    >>> import hpfracc as hf
    >>> def ends(y0):
    ...     return hf.solve_fode(lambda t, y: -y, (0.0, 1.0), y0, 0.5, step=0.1).y[..., -1]
    >>> hf.distributed.per_device(ends, torch.ones(6, 1), devices=["cpu", "cpu"]).shape
    torch.Size([6, 1])
    """
    libraries = {library_of(array) for array in arrays}
    if len(libraries) != 1 or not libraries <= {"torch", "jax", "cupy"}:
        raise InvalidInputError(
            f"arrays of {', '.join(sorted(libraries)) or 'no library'}; give arrays of PyTorch, JAX or CuPy, which lie "
            "on devices"
        )
    (library,) = libraries
    rows = {int(array.shape[0]) if array.ndim else -1 for array in arrays}
    if len(rows) != 1 or -1 in rows:
        shapes = ", ".join(str(tuple(array.shape)) for array in arrays)
        raise ShapeError(f"arrays of shapes {shapes}; give arrays with the same number of rows along the first axis")
    (count,) = rows
    if devices is None:  # all GPUs of this process, or the host if there are none
        module = sys.modules[library]
        if library == "jax":
            devices = module.local_devices()
        else:
            number = module.cuda.device_count() if library == "torch" else module.cuda.runtime.getDeviceCount()
            devices = [f"cuda:{index}" for index in range(number)] or ["cpu"]
    used = list(devices)
    if not used:
        raise InvalidInputError("devices is empty; name at least one, or leave it out for all of them")
    if len(used) == 1 or count <= 1:
        return func(*arrays)
    parts = [part for part in zip(used, _divided(count, used), strict=True) if part[1][1] > part[1][0]]
    recording = library == "torch" and sys.modules["torch"].is_grad_enabled()

    def run(part: tuple[Any, tuple[int, int]]) -> Any:
        device, (begin, end) = part
        with _current(library, device, recording):
            return func(*(_moved(library, array[begin:end], device) for array in arrays))

    found = run_items(run, parts, len(parts))
    return _joined(library, found, [end - begin for _, (begin, end) in parts], arrays[0])


def _name(device: Any) -> str:
    """The name of a device in the memory budget."""
    platform = getattr(device, "platform", None)  # a JAX device
    if platform is not None:
        return "cpu" if platform == "cpu" else f"cuda:{device.id}"
    return str(device)


def _divided(count: int, devices: Sequence[Any]) -> list[tuple[int, int]]:
    """Ranges of rows in proportion to free memory; evenly if it is unknown or shared."""
    names = [_name(device) for device in devices]
    free = [get_budget().free(name) for name in names]
    weights = np.ones(len(devices))
    if len(set(names)) == len(names) and all(each for each in free):
        weights = np.array([float(each or 0) for each in free])
    edges = np.rint(count * np.concatenate([[0.0], np.cumsum(weights)]) / weights.sum()).astype(int)
    return [(int(low), int(high)) for low, high in itertools.pairwise(edges)]


@contextlib.contextmanager
def _current(library: str, device: Any, recording: bool) -> Any:
    """Make ``device`` the library's default for new arrays in this thread."""
    module = sys.modules[library]
    with contextlib.ExitStack() as stack:
        if library == "torch":
            stack.enter_context(module.set_grad_enabled(recording))
            if str(device).startswith("cuda"):
                stack.enter_context(module.cuda.device(device))
        elif library == "jax":
            stack.enter_context(module.default_device(device))
        else:
            stack.enter_context(module.cuda.Device(_number(device)))
        yield


def _number(device: Any) -> int:
    return int(str(device).rpartition(":")[2])


def _moved(library: str, array: Any, device: Any) -> Any:
    if library == "torch":
        return array.to(device)
    if library == "jax":
        return sys.modules["jax"].device_put(array, device)
    return sys.modules["cupy"].asarray(array)  # to the current device


def _joined(library: str, found: list[Any], counts: list[int], like: Any) -> Any:
    first = found[0]
    if isinstance(first, Mapping):
        return {name: _joined(library, [each[name] for each in found], counts, like) for name in first}
    if isinstance(first, tuple | list):
        joined = [_joined(library, list(column), counts, like) for column in zip(*found, strict=True)]
        return tuple(joined) if isinstance(first, tuple) else joined
    for each, count in zip(found, counts, strict=True):
        if library_of(each) != library or not each.ndim or each.shape[0] != count:
            raise ShapeError(
                f"a part of {count} rows returned {type(each).__name__} of shape {tuple(getattr(each, 'shape', ()))}; "
                f"return arrays of {library} with the rows along the first axis"
            )
    home: Any = device_of(like) if library != "jax" else min(like.devices(), key=lambda each: each.id)
    if library == "cupy":
        with sys.modules["cupy"].cuda.Device(_number(home)):
            return sys.modules["cupy"].concatenate([sys.modules["cupy"].asarray(each) for each in found])
    return namespace_of(like).concatenate([_moved(library, each, home) for each in found])


def per_shard(func: Callable[[Any], Any], mesh: Any, spec: Any, *, axis: int = -1) -> Callable[[Any], Any]:
    """Wrap a function of samples for use under ``jax.jit``, so that every device applies it to its own rows.

    Parameters
    ----------
    func : callable
        A function of one array that returns an array of its shape, such as ``lambda x: hf.caputo(x, step=0.1,
        alpha=0.5)``.
    mesh : jax.sharding.Mesh
        The devices.
    spec : jax.sharding.PartitionSpec
        How the axes of the array are sharded over them.
    axis : int
        The axis of the points, which must not be sharded.

    Returns
    -------
    callable
        Its result has the same sharding; no rows are exchanged between devices.

    Examples
    --------
    >>> import jax, numpy as np
    >>> import hpfracc as hf
    >>> from jax.sharding import Mesh, PartitionSpec
    >>> mesh = Mesh(np.array(jax.devices()[:1]), ("rows",))
    >>> half = hf.distributed.per_shard(
    ...     lambda x: hf.caputo(x, step=0.1, alpha=0.5), mesh, PartitionSpec("rows", None)
    ... )
    >>> jax.jit(half)(jax.numpy.ones((4, 8))).shape
    (4, 8)
    """
    _reading.function("func", func, "an array")
    axis = _reading.whole("axis", axis)
    jax = import_optional("jax")
    _reading.instance("spec", spec, jax.sharding.PartitionSpec, "PartitionSpec('rows', None)")
    _reading.instance("mesh", mesh, jax.sharding.Mesh, "Mesh(np.array(jax.devices()), ('rows',))")
    # Trailing axes that the specification does not name are not sharded.
    named = axis if axis >= 0 else len(spec) + axis
    _require_whole(spec, [named] if 0 <= named < len(spec) else [], axis)
    return jax.shard_map(func, mesh=mesh, in_specs=spec, out_specs=spec)


def _require_whole(spec: Any, axes: Iterable[int], shown: Any) -> None:
    """Raise an error if the points are divided over devices."""
    if any(spec[axis] is not None for axis in axes):
        raise InvalidInputError(
            f"axis {shown}, along which the points lie, is divided over devices by {spec}; divide another axis, as in "
            "jax.device_put(f, NamedSharding(mesh, PartitionSpec('rows', None)))"
        )


def apply_shards(operator: Any, f: Any, t: Any, options: dict[str, Any]) -> Any:
    """Apply an operator to samples on several devices."""
    if is_dtensor(f):
        return _apply_local(operator, f, t, options)
    sharding = f.sharding
    if not hasattr(sharding, "spec") or not hasattr(sharding, "mesh"):
        raise InvalidInputError(
            f"f lies on several devices by a {type(sharding).__name__}; use a NamedSharding, whose axes are known"
        )
    spec = type(sharding.spec)(*sharding.spec, *([None] * (f.ndim - len(sharding.spec))))
    _require_whole(spec, sample_axes(f, options["axis"]), options["axis"])
    if options.get("full_output"):
        raise InvalidInputError("full_output=True describes values on one device; use it on a part of the rows")
    given = tuple((name, each) for name, each in sorted(options.items()) if each is not None and name != "full_output")
    points = (t.tobytes(), t.dtype, t.shape) if type(t) is np.ndarray else t
    key = operator, points, given, sharding.mesh, spec
    try:
        hash(key)
    except TypeError:  # an array as order, say
        return _compiled.__wrapped__(*key)(f)
    return _compiled(*key)(f)


@functools.lru_cache(maxsize=64)
def _compiled(operator: Any, points: Any, options: tuple[tuple[str, Any], ...], mesh: Any, spec: Any) -> Any:
    """The compiled call of an operator on sharded samples; JAX compiles it for each shape and dtype."""
    jax = import_optional("jax")
    known = isinstance(points, tuple) and len(points) == 3 and isinstance(points[0], bytes)
    t = np.frombuffer(points[0], points[1]).reshape(points[2]) if known else points
    given = dict(options)
    return jax.jit(jax.shard_map(lambda block: operator(block, t, **given), mesh=mesh, in_specs=spec, out_specs=spec))


def _apply_local(operator: Any, f: Any, t: Any, options: dict[str, Any]) -> Any:
    """Apply an operator to the rows of a DTensor in this process, without communication."""
    along = sample_axes(f, options["axis"])
    for placement in f.placements:
        if placement.is_partial() or (placement.is_shard() and placement.dim % f.ndim in along):
            raise InvalidInputError(
                f"f has placements {tuple(f.placements)}, and the points lie along axis {options['axis']}; divide "
                "another axis: f.redistribute(placements=[Shard(0)])"
            )
    if options.get("full_output"):
        raise InvalidInputError("full_output=True describes values in one process; use it on f.to_local()")
    call = {name: each for name, each in options.items() if each is not None}
    value = operator(f.to_local(), t, **call)
    return type(f).from_local(value, f.device_mesh, f.placements, run_check=False, shape=f.shape, stride=f.stride())


def sample_axes(f: Any, axis: Any) -> tuple[int, ...]:
    """Checked, non-negative axes."""
    given = tuple(axis) if isinstance(axis, Sequence) else (axis,)
    if not f.ndim:
        raise ShapeError("the samples are a single number; give an array of them")
    return tuple(_reading.axis(each, f.ndim) for each in given)
