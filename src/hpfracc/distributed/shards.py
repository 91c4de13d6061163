"""Operators on arrays that are sharded over devices: each device applies them to its own rows.

A PyTorch ``DTensor`` is split by ``to_local`` and rebuilt by ``from_local``. For JAX arrays: XLA replicates a Fourier
transform whose operand is sharded, so ``jit(hf.caputo)`` of rows on eight devices gathers all rows on each of them.
Under ``shard_map`` nothing is exchanged and the result keeps the sharding.
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np

from hpfracc._arrays import is_dtensor
from hpfracc._optional import import_optional
from hpfracc.errors import InvalidInputError

__all__ = ["apply_shards", "per_shard"]

#: Compiled functions of sharded calls, newest last.
_compiled: OrderedDict[Hashable, Any] = OrderedDict()
_MAX_COMPILED = 64


def per_shard(function: Callable[[Any], Any], mesh: Any, spec: Any, *, axis: int = -1) -> Callable[[Any], Any]:
    """Wrap a function of samples for use under ``jax.jit``, so that every device applies it to its own rows.

    Parameters
    ----------
    function : callable
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
    if axis < 0:
        # Trailing axes that the specification does not name are not sharded.
        named = len(spec) + axis if len(spec) else -1
        divided = named >= 0 and spec[named] is not None
    else:
        divided = axis < len(spec) and spec[axis] is not None
    if divided:
        raise InvalidInputError(
            f"axis {axis}, along which the points lie, is divided over devices by {spec}; divide another axis, as in "
            "jax.device_put(x, NamedSharding(mesh, PartitionSpec('rows', None)))"
        )
    jax = import_optional("jax")
    found: Callable[[Any], Any] = jax.shard_map(function, mesh=mesh, in_specs=spec, out_specs=spec)
    return found


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
    axis = options["axis"]
    given = axis if isinstance(axis, tuple) else (axis,)
    for each in given:
        _check_axis(each, f.ndim)
    divided = [each for each in given if spec[each % f.ndim] is not None]
    if divided:
        raise InvalidInputError(
            f"axis {divided[0]}, along which the points lie, is divided over devices by {sharding.spec}; divide "
            "another axis: jax.device_put(f, NamedSharding(mesh, PartitionSpec('rows', None)))"
        )
    if options.get("full_output"):
        raise InvalidInputError("full_output=True describes values on one device; use it on a part of the rows")
    key = _key(operator, t, options, sharding.mesh, spec, f)
    run = _compiled.get(key) if key is not None else None
    if run is None:
        jax = import_optional("jax")
        call = functools.partial(_call, operator, t, {name: each for name, each in options.items() if each is not None})
        run = jax.jit(jax.shard_map(call, mesh=sharding.mesh, in_specs=spec, out_specs=spec))
        if key is not None:
            _compiled[key] = run
            while len(_compiled) > _MAX_COMPILED:
                _compiled.popitem(last=False)
    return run(f)


def _apply_local(operator: Any, f: Any, t: Any, options: dict[str, Any]) -> Any:
    """Apply an operator to the rows of a DTensor in this process, without communication."""
    axis = options["axis"]
    given = axis if isinstance(axis, tuple) else (axis,)
    for each in given:
        _check_axis(each, f.ndim)
    along = {each % f.ndim for each in given}
    for placement in f.placements:
        if placement.is_partial() or (placement.is_shard() and placement.dim % f.ndim in along):
            raise InvalidInputError(
                f"f has placements {tuple(f.placements)}, and the points lie along axis {axis}; divide another axis: "
                "f.redistribute(placements=[Shard(0)])"
            )
    if options.get("full_output"):
        raise InvalidInputError("full_output=True describes values in one process; use it on f.to_local()")
    call = {name: each for name, each in options.items() if each is not None}
    value = operator(f.to_local(), t, **call)
    return type(f).from_local(value, f.device_mesh, f.placements, run_check=False, shape=f.shape, stride=f.stride())


def _check_axis(axis: Any, ndim: int) -> None:
    if isinstance(axis, bool) or not isinstance(axis, int) or not -ndim <= axis < ndim:
        raise InvalidInputError(f"axis={axis!r} is not an axis of samples with {ndim} axes; use {-ndim} to {ndim - 1}")


def _call(operator: Any, t: Any, options: dict[str, Any], block: Any) -> Any:
    options.pop("full_output", None)
    return operator(block, t, **options)


def _key(operator: Any, t: Any, options: dict[str, Any], *more: Any) -> Hashable | None:
    """The cache key of a compiled function; None if it cannot be hashed."""
    points = (t.dtype.str, t.shape, t.tobytes()) if type(t) is np.ndarray else t
    key = (operator, points, tuple(sorted(options.items())), *more[:-1], more[-1].shape, str(more[-1].dtype))
    try:
        hash(key)
    except TypeError:
        return None
    return key
