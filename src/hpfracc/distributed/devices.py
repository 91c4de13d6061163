"""One call over all GPUs of a process: each device processes its own rows, in its own thread."""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hpfracc._arrays import device_of, library_of
from hpfracc._xp import namespace_of
from hpfracc.engine.memory.budget import get_budget
from hpfracc.engine.workers import run_items
from hpfracc.errors import InvalidInputError, ShapeError

__all__ = ["per_device"]


def per_device(function: Callable[..., Any], *arrays: Any, devices: Sequence[Any] | None = None) -> Any:
    """Call a function of rows on several devices at once, each with its own part of the rows.

    For ensembles: the rows must not depend on each other. With one device it is a plain call.

    Parameters
    ----------
    function : callable
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
    library = _library(arrays)
    rows = {int(array.shape[0]) if array.ndim else -1 for array in arrays}
    if len(rows) != 1 or -1 in rows:
        shapes = ", ".join(str(tuple(array.shape)) for array in arrays)
        raise ShapeError(f"arrays of shapes {shapes}; give arrays with the same number of rows along the first axis")
    (count,) = rows
    used = list(_visible(library) if devices is None else devices)
    if not used:
        raise InvalidInputError("devices is empty; name at least one, or leave it out for all of them")
    if len(used) == 1 or count <= 1:
        return function(*arrays)
    parts = [part for part in zip(used, _divided(count, used), strict=True) if part[1][1] > part[1][0]]
    recording = library == "torch" and sys.modules["torch"].is_grad_enabled()

    def run(part: tuple[Any, tuple[int, int]]) -> Any:
        device, (begin, end) = part
        with _current(library, device, recording):
            return function(*(_moved(library, array[begin:end], device) for array in arrays))

    found = run_items(run, parts, len(parts))
    return _joined(library, found, [end - begin for _, (begin, end) in parts], arrays[0])


def _library(arrays: tuple[Any, ...]) -> str:
    libraries = {library_of(array) for array in arrays}
    if len(libraries) != 1 or not libraries <= {"torch", "jax", "cupy"}:
        raise InvalidInputError(
            f"arrays of {', '.join(sorted(libraries)) or 'no library'}; give arrays of PyTorch, JAX or CuPy, which lie "
            "on devices"
        )
    return libraries.pop()


def _visible(library: str) -> Sequence[Any]:
    """All GPUs of this process, or the host if there are none."""
    module = sys.modules[library]
    if library == "jax":
        return list(module.local_devices())
    if library == "cupy":
        return [f"cuda:{number}" for number in range(module.cuda.runtime.getDeviceCount())]
    return [f"cuda:{number}" for number in range(module.cuda.device_count())] or ["cpu"]


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
