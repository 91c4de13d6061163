"""Invertible transforms of data: exclusive or, normalisation and scaling."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypedDict, Unpack

import numpy as np

from hpfracc import _reading
from hpfracc._arrays import dtype_name, library_of, to_host
from hpfracc.engine.execution.api import bitwise_xor, elementwise, reduction
from hpfracc.errors import InvalidInputError, UnsupportedDtypeError
from hpfracc.lattice.costs import like

#: Parameters of each transformation, and those of its inverse.
_PARAMETERS = {"xor": ("key",), "normalize": ("method",), "scale": ("factor",)}
_INVERSES = {**_PARAMETERS, "normalize": ("offset", "span")}
KINDS = tuple(_PARAMETERS)


class TransformOptions(TypedDict, total=False):
    """The parameters of transformations, for type checkers; each kind accepts one."""

    key: Any
    method: str
    factor: float


class InverseOptions(TypedDict, total=False):
    """The parameters that invert transformations, for type checkers; each kind accepts its own."""

    key: Any
    factor: float
    offset: float
    span: float


def xor(data: Any, key: Any = None) -> tuple[Any, Any]:
    """Return ``data ^ key``, in the type and dtype of the data, and the key.

    Without a key, a random one of the data's shape is generated. For bytes, a shorter key is repeated; arrays of any
    library broadcast.
    """
    if isinstance(data, bytes | bytearray | memoryview):
        return _xor_bytes(bytes(data), key)
    array, key = with_key(data, key)
    if _is_swapped(array):
        # The engine computes in native byte order.
        native = array.dtype.newbyteorder("=")
        return bitwise_xor(array.astype(native), key.astype(native)).astype(array.dtype), key
    return bitwise_xor(array, key), key


def needs_conversion(data: Any) -> bool:
    """Whether the engine cannot take ``data`` directly: bytes, or an array in non-native byte order."""
    return isinstance(data, bytes | bytearray | memoryview) or _is_swapped(data)


def _is_swapped(data: Any) -> bool:
    return library_of(data) == "numpy" and not data.dtype.isnative


def with_key(data: Any, key: Any = None) -> tuple[Any, Any]:
    """Return the data as an array, and the key as an array of the same library and dtype."""
    array = np.asarray(data) if library_of(data) == "python" else data
    name = array.dtype.name if library_of(array) == "numpy" else dtype_name(array)
    if not name.startswith(("int", "uint", "bool")):
        raise UnsupportedDtypeError(
            f"xor of dtype {name!r} is undefined; use integers or bytes, such as data.view('uint64')"
        )
    if key is None:
        key = like(_random_key(tuple(array.shape), name), array)
    elif library_of(key) == "python" or library_of(array) != library_of(key):
        key = like(_fitting(to_host(key) if library_of(key) != "python" else key, name), array)
    elif (key.dtype.name if library_of(key) == "numpy" else dtype_name(key)) != name:
        raise UnsupportedDtypeError(f"the key has dtype {dtype_name(key)} and the data {name}; use the same dtype")
    return array, key


def _xor_bytes(data: bytes, key: Any) -> tuple[bytes, bytes]:
    values = np.frombuffer(data, np.uint8)
    if key is None:
        key = _random_key(values.shape, "uint8").tobytes()
    elif isinstance(key, int):
        if key < 0:
            raise InvalidInputError(f"key={key} is negative; use bytes, or an integer of at least 0")
        key = bytes([key]) if 0 <= key < 256 else key.to_bytes((key.bit_length() + 7) // 8, "big")
    try:
        key = bytes(key)
    except (TypeError, ValueError):
        raise InvalidInputError(f"key={key!r} is not a key for bytes; use bytes, or an integer of at least 0") from None
    if not key and data:
        raise InvalidInputError("empty key; give at least one byte, or key=None for a random key")
    repeated = np.resize(np.frombuffer(key, np.uint8), values.shape) if len(values) else values
    return np.asarray(bitwise_xor(values, repeated)).tobytes(), key


def _random_key(shape: tuple[int, ...], dtype: str) -> Any:
    kind = np.dtype(dtype)
    low, high = (0, 1) if kind.kind == "b" else (np.iinfo(kind).min, np.iinfo(kind).max)
    return np.random.default_rng().integers(low, high, shape, kind, endpoint=True)


def _fitting(key: Any, dtype: str) -> Any:
    """Convert a key to the dtype of the data; raises an error where a value does not fit."""
    array = np.asarray(key)
    if array.dtype.kind not in "iub" and array.size:
        raise UnsupportedDtypeError(f"the key has dtype {array.dtype}; use integers")
    converted = array.astype(dtype)
    if not np.array_equal(converted, array):
        raise InvalidInputError(f"key={key!r} does not fit into {dtype}, the dtype of the data; use a smaller key")
    return converted


def transform(data: Any, kind: str, **parameters: Unpack[TransformOptions]) -> tuple[Any, dict[str, Any]]:
    """Return the transformed data and the parameters that :func:`invert` needs.

    ``"xor"`` takes ``key``; ``"scale"`` takes ``factor``; ``"normalize"`` takes ``method``: ``"minmax"`` maps to
    [0, 1], ``"standard"`` to mean 0 and variance 1. Constant data become 0.
    """
    _check(kind, parameters, _PARAMETERS)
    if kind == "xor":
        result, key = xor(data, parameters.get("key"))
        return result, {"key": key}
    if kind == "scale":
        factor = _reading.number("factor", parameters.get("factor"))
        if factor == 0.0:
            raise InvalidInputError("factor=0 cannot be inverted; use another number")
        return elementwise("x * b", x=data, b=factor), {"factor": factor}
    offset, span = _extent(data, parameters.get("method", "minmax"))
    return elementwise("(x - a) / b", x=data, a=offset, b=span), {"offset": offset, "span": span}


def invert(data: Any, kind: str, **parameters: Unpack[InverseOptions]) -> Any:
    """Invert :func:`transform`, with the parameters it returned."""
    _check(kind, parameters, _INVERSES)
    for name in _INVERSES[kind]:
        if name not in parameters:
            raise InvalidInputError(
                f"inverting {kind!r} needs the parameter {name!r}; pass the parameters that the transformation used"
            )
    if kind == "xor":
        return xor(data, parameters["key"])[0]
    if kind == "scale":
        return elementwise("x / b", x=data, b=float(parameters["factor"]))
    return elementwise("x * b + a", x=data, a=parameters["offset"], b=parameters["span"])


def _check(kind: str, parameters: Mapping[str, Any], known: Mapping[str, tuple[str, ...]]) -> None:
    _reading.choice("kind", kind, KINDS)
    for name in parameters:
        if name not in known[kind]:
            wanted = " and ".join(map(repr, known[kind]))
            raise InvalidInputError(f"{kind!r} has no parameter {name!r}; it takes {wanted}")


def _extent(data: Any, method: str) -> tuple[float, float]:
    _reading.choice("method", method, ("minmax", "standard"))
    array = np.asarray(data) if library_of(data) == "python" else data
    if not int(np.prod(array.shape)):
        return 0.0, 1.0
    low, high = float(reduction(array, kind="min")), float(reduction(array, kind="max"))
    if high - low == math.inf:
        raise InvalidInputError(f"data from {low:g} to {high:g} have no finite range; scale them, or drop infinities")
    if method == "minmax" or low == high:  # the mean of equal numbers is rounded
        return low, (high - low) or 1.0
    mean = float(reduction(array, kind="mean"))
    spread = float(reduction(elementwise("(x - a) * (x - a)", x=array, a=mean), kind="mean"))
    return mean, spread**0.5 or 1.0
