"""Library, dtype, device and gradient of an array, without importing array libraries.

The library of an existing array is already imported, so ``sys.modules`` and the module name of its type are enough.
"""

from __future__ import annotations

import functools
import mmap
import sys
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Any

import numpy as np

from hpfracc._torch_transforms import (
    PROBES,
    find_probes,
    is_dual,
    is_inactive,
    is_inside,
    is_lasting,
    is_symbolic,
    is_wrapped,
    outside_transforms,
    tensor_pair,
    without_gradients,
)
from hpfracc.errors import InvalidInputError, UnsupportedDtypeError

#: ``type``, whose results type checkers do not take for hashable.
_type_of: Any = type
#: Cached library of each type. Subclasses are looked up through their bases once.
_LIBRARY_OF_TYPE: dict[type, str] = {
    np.ndarray: "numpy",
    **dict.fromkeys((float, int, complex, bool, list, tuple), "python"),
}
#: Functions that describe a pair of arrays of one exact type in a single call. They return None if each array must be
#: inspected on its own.
PAIR_KINDS: dict[type, Callable[[Any, Any], tuple[Any, ...] | None]] = {}
#: Functions that return the attributes that decisions depend on, for exact types of which these are all: C functions,
#: because calls of a known kind look the attributes up every time.
KINDS: dict[type, Callable[[Any], tuple[Any, ...]]] = {np.ndarray: attrgetter("shape", "dtype")}
_ROOTS = {"numpy": "numpy", "torch": "torch", "jax": "jax", "jaxlib": "jax", "cupy": "cupy"}


def library_of(value: Any) -> str:
    """``"numpy"``, ``"torch"``, ``"jax"``, ``"cupy"``, or ``"python"`` for anything else.

    Raises an error for a quantity with a unit, which reading it as an array would lose.
    """
    kind = type(value)
    known = _LIBRARY_OF_TYPE.get(kind)
    if known is None:
        known = _find_library(kind, value)
        if known == "torch" and kind is sys.modules["torch"].Tensor:
            PAIR_KINDS[kind] = tensor_pair
        _LIBRARY_OF_TYPE[kind] = known
    return known


def _find_library(kind: type, value: Any) -> str:
    if has_unit(value) or _is_foreign(kind):
        refuse_units(value, "a value")
    for base in kind.__mro__:
        library = _ROOTS.get(base.__module__.partition(".")[0])
        if library is not None and hasattr(value, "dtype"):
            return library
    array = getattr(sys.modules.get("jax"), "Array", None)  # None too while another thread imports JAX
    if array is not None and isinstance(value, array):  # a virtual subclass, so not among the bases
        return "jax"
    return "python"


def has_unit(value: Any) -> bool:
    """Whether ``value`` is a number or array with a unit, such as those of pint, astropy or unyt."""
    return _is_quantity(_type_of(value))


@functools.cache
def _is_quantity(kind: type) -> bool:
    """Whether a type has attributes with the numbers and with the unit."""
    return all(any(hasattr(kind, name) for name in names) for names in (("magnitude", "to_value"), ("units", "unit")))


@functools.cache
def _is_foreign(kind: type) -> bool:
    """Whether a type has arrays of the array API standard, of a library that is not one of ours."""
    roots = {base.__module__.partition(".")[0] for base in kind.__mro__}
    return hasattr(kind, "__array_namespace__") and roots.isdisjoint(_ROOTS)


def refuse_units(value: Any, name: str) -> None:
    """Raise an error for a number or array with a unit, or a list of them, where its unit would be lost.

    Dates and time differences count as such: converted, they would be numbers of some unit, since 1970. So do arrays of
    a library that is not one of ours: results would be NumPy's.
    """
    for each in (value[0], value[-1]) if isinstance(value, list | tuple) and value else (value,):
        if has_unit(each):
            numbers = ".to('s').magnitude" if hasattr(type(each), "magnitude") else ".to_value('s')"
            unit = each.units if hasattr(each, "units") else each.unit
            raise UnsupportedDtypeError(
                f"{name} is a {type(each).__name__} with the unit '{unit}', which would be lost; give plain numbers in "
                f"a unit that you choose, such as {numbers}"
            )
        if _is_foreign(_type_of(each)):
            raise UnsupportedDtypeError(
                f"{name} is an array of {type(each).__module__.partition('.')[0]}, and the result would be an array of "
                "another library; give an array of NumPy, PyTorch, JAX or CuPy, such as np.asarray(...)"
            )
        dtype = getattr(each, "dtype", None)
        kind = getattr(dtype, "kind", "")
        if kind in ("m", "M") or (kind == "O" and str(dtype).startswith("period")):
            raise InvalidInputError(
                f"{name} holds dates or time differences; give numbers, such as (dates - dates[0]) / "
                "np.timedelta64(1, 's')"
            )


def refuse_chunked(value: Any, name: str) -> None:
    """Raise an error for a Dask array, which would be computed in this process, and for quantities with a unit."""
    refuse_units(value, name)
    if is_chunked(value) or wraps_chunks(value):
        raise InvalidInputError(
            f"{name} is a Dask array, which would be computed in this process; give {name}.compute(), or call the "
            "function on its parts, by hf.batch.run over its rows or hf.sweep"
        )


def refuse_masked(value: Any, name: str, beside: str = "") -> None:
    """Raise an error for a masked array, whose mask would be lost, and for a Dask array, which would be computed.

    ``beside`` names an array with matching entries.
    """
    refuse_chunked(value, name)
    if isinstance(value, np.ndarray) and hasattr(value, "mask"):
        rest = f" and {beside}[keep]" if beside else ""
        times = " with their times" if beside == "t" else ""
        raise InvalidInputError(
            f"{name} is a masked array, whose mask would be lost; drop its gaps{times}, "
            f"keep = ~np.ma.getmaskarray({name}), {name}.data[keep]{rest}, or fill them first: {name}.filled(value)"
        )


def is_array(value: Any) -> bool:
    """Whether ``value`` is an array of a known library. NumPy scalars count."""
    return library_of(value) != "python"


def leaves(value: Any) -> Iterator[Any]:
    """The entries of nested lists, tuples and dicts."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for each in value:
            yield from leaves(each)
    else:
        yield value


def device_of(value: Any) -> str:
    """``"cpu"``, or ``"cuda:<index>"`` for an array on a GPU."""
    library = library_of(value)
    if library == "torch":
        device = value.device
        return "cpu" if device.type == "cpu" else f"{device.type}:{device.index or 0}"
    if library == "cupy":
        return f"cuda:{value.device.id}"
    if library == "jax" and not is_tracer(value):
        devices = getattr(value, "devices", None)
        if devices is None:
            return "cpu"
        device = min(devices(), key=lambda d: d.id)
        return "cpu" if device.platform == "cpu" else f"cuda:{device.id}"
    return "cpu"


def to_host(value: Any) -> np.ndarray[Any, Any]:
    """The values of an array of any library as a NumPy array, without its gradient."""
    library = library_of(value)
    if library == "torch":
        if not is_inside():
            return np.asarray(value.detach().cpu())
        # Unwrap tensors of torch.func.grad and jvp; those of vmap cannot be read.
        value = without_gradients(value)
        if is_wrapped(value):
            return np.asarray(value.detach().cpu())
        with outside_transforms():
            return np.asarray(value.detach().cpu())
    if library == "cupy":
        return np.asarray(value.get())
    return np.asarray(value)


def is_chunked(value: Any) -> bool:
    """Whether ``value`` is a Dask array. Does not import Dask."""
    return _is_dask(_type_of(value))


@functools.cache
def _is_dask(kind: type) -> bool:
    root = any(base.__module__.partition(".")[0] == "dask" for base in kind.__mro__)
    return root and hasattr(kind, "__dask_graph__") and hasattr(kind, "numblocks")


def wraps_chunks(value: Any) -> bool:
    """Whether ``value`` is a ``DataArray`` of xarray that wraps a Dask array."""
    return type(value).__name__ == "DataArray" and is_chunked(value.data)


def is_sharded(value: Any) -> bool:
    """Whether ``value`` is a JAX array that is split (not replicated) over several devices, or a DTensor."""
    library = _LIBRARY_OF_TYPE.get(type(value)) or library_of(value)
    if library == "torch":
        return is_dtensor(value)
    if library != "jax" or is_tracer(value):
        return False
    sharding = value.sharding
    if type(sharding).__name__ == "SingleDeviceSharding":  # of most arrays; this is asked at every call
        return False
    return len(sharding.device_set) > 1 and not sharding.is_fully_replicated


def is_dtensor(value: Any) -> bool:
    """Whether ``value`` is a DTensor, PyTorch's tensor that is distributed over processes."""
    kind = type(value)
    return kind.__name__ == "DTensor" and kind.__module__.startswith("torch.distributed")


def may_be_cached(value: Any) -> bool:
    """Whether every array in ``value``, a tuple or list of any depth, can be used after the call that made it.

    Not so for tracers of JAX, for tensors that PyTorch makes while it traces, in inference mode or inside a transform,
    and for those that carry a gradient.
    """
    if isinstance(value, tuple | list):
        return all(map(may_be_cached, value))
    library = library_of(value)
    return is_lasting(value) if library == "torch" else library != "jax" or not is_tracer(value)


def is_traced(value: Any) -> bool:
    """Whether ``value`` has no values, because its library traces: a tracer of JAX, or a fake tensor of PyTorch."""
    library = library_of(value)
    return is_symbolic(value) if library == "torch" else library == "jax" and is_tracer(value)


def is_tracer(value: Any) -> bool:
    """Whether ``value`` is a JAX tracer (under jit, grad or vmap)."""
    return _is_tracer(_type_of(value))


@functools.cache
def _is_tracer(kind: type) -> bool:
    """Types that are seen before JAX is imported are none."""
    tracer = getattr(getattr(sys.modules.get("jax"), "core", None), "Tracer", None)
    return tracer is not None and issubclass(kind, tracer)


def is_dense(tensor: Any) -> bool:
    """Whether a PyTorch tensor is dense (strided)."""
    return tensor.layout is sys.modules["torch"].strided


def tracks_gradient(value: Any) -> bool:
    """Whether ``value`` tracks a gradient: autograd, ``torch.func``, forward mode, or a JAX tracer."""
    library = library_of(value)
    if library == "torch" and value.requires_grad:
        return True
    return is_transformed(value)


def is_transformed(value: Any) -> bool:
    """Whether ``value`` is wrapped by a transform: ``torch.func``, forward mode, or a JAX tracer."""
    library = library_of(value)
    if library == "torch":
        return is_wrapped(value) or is_dual(value)
    return library == "jax" and is_tracer(value)


def quick_kind(value: Any) -> tuple[Any, ...]:
    """Everything that decisions about an array depend on, as a cheap hashable key.

    For PyTorch these are its raw attributes, whether it is inside a transform, and whether PyTorch is deterministic.
    For tracers of JAX and for subclasses the type is part of it.
    """
    read = KINDS.get(type(value))
    if read is not None:
        return read(value)
    library = library_of(value)
    if library == "torch":
        wrapped, _, level, deterministic = PROBES or find_probes()
        # Part of the key, because what is cached for calls that autograd records is not valid inside a transform.
        transformed = wrapped(value) or (level() >= 0 and is_dual(value))
        kind = type(value), value.shape, value.dtype, value.device, value.layout, value.requires_grad
        return *kind, transformed, deterministic()
    if library == "jax" and not is_tracer(value):
        KINDS[type(value)] = attrgetter("shape", "dtype", "sharding")
        return quick_kind(value)
    if library == "cupy" and type(value) is sys.modules["cupy"].ndarray:
        KINDS[type(value)] = attrgetter("shape", "dtype", "device.id")
        return quick_kind(value)
    return type(value), tuple(value.shape), value.dtype, device_of(value)


def file_mapping(array: Any) -> mmap.mmap | None:
    """The mapped file that a NumPy array or view lies in; None if it lies in other memory."""
    owner = array
    while isinstance(owner, np.ndarray):
        owner = owner.base
    return owner if isinstance(owner, mmap.mmap) else None


def all_alike(values: Sequence[Any]) -> bool:
    """Whether these arrays can be stacked, from their attributes, without a Python loop.

    True only for NumPy arrays and tensors that agree, or for one object repeated. False for other libraries, and for
    tensors while a transform is active: those must be checked one by one.
    """
    first = values[0]
    if values[-1] is first and len(set(map(id, values))) == 1:
        return True
    kind = type(first)
    if set(map(type, values)) != {kind}:
        return False
    if kind is np.ndarray:
        return _agree(values, "dtype", "shape")
    if library_of(first) != "torch" or kind is not sys.modules["torch"].Tensor:
        return False
    if not is_inactive():
        return False
    return _agree(values, "shape", "dtype", "device", "layout", "requires_grad")


def _agree(values: Sequence[Any], *names: str) -> bool:
    for name in names:
        found = list(map(attrgetter(name), values))
        if found.count(found[0]) != len(found):
            return False
    return True


def dtype_name(value: Any) -> str:
    """Name of the dtype without the library's prefix, such as ``"float64"``."""
    dtype = getattr(value, "dtype", None)
    if dtype is None:
        return str(np.asarray(value).dtype)
    try:
        return _name_of(dtype)
    except TypeError:  # not hashable: not a real dtype
        return str(dtype).removeprefix("torch.")


@functools.cache
def _name_of(dtype: Any) -> str:
    """Cached, because this runs in every call and formatting takes microseconds."""
    return str(dtype).removeprefix("torch.")


def nbytes(value: Any) -> int:
    """Bytes of the array's elements, not of the buffer that a view keeps alive."""
    size = value.numel() if library_of(value) == "torch" else value.size
    return int(size) * itemsize(value)


def itemsize(value: Any) -> int:
    """Bytes of one element."""
    if library_of(value) == "torch":
        return int(value.element_size())
    return int(np.dtype(value.dtype).itemsize)
