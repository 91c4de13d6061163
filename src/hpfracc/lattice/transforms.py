"""Invertible transforms of data: exclusive or, normalisation and scaling."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict, Unpack

import numpy as np

from hpfracc._arrays import dtype_name, library_of, to_host
from hpfracc.engine.execution.api import bitwise_xor, elementwise, reduction
from hpfracc.errors import InvalidInputError, UnsupportedDtypeError
from hpfracc.lattice.costs import like

__all__ = ["KINDS", "InverseOptions", "TransformOptions", "invert", "needs_conversion", "transform", "with_key", "xor"]

KINDS = ("xor", "normalize", "scale")


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
    count = int(np.prod(shape))
    if kind.kind == "b":
        return (np.frombuffer(np.random.default_rng().bytes(count), np.uint8) & 1).astype(bool).reshape(shape)
    return np.frombuffer(bytearray(np.random.default_rng().bytes(count * kind.itemsize)), kind).reshape(shape)


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
    if kind == "xor":
        _check_names(kind, parameters, "key")
        result, key = xor(data, parameters.get("key"))
        return result, {"key": key}
    if kind == "scale":
        _check_names(kind, parameters, "factor")
        factor = parameters.get("factor")
        if factor is None or not np.isfinite(float(factor)) or float(factor) == 0.0:
            raise InvalidInputError(f"factor={factor!r} cannot be inverted; use a finite number other than 0")
        return _affine("x * b", data, b=float(factor)), {"factor": float(factor)}
    if kind == "normalize":
        _check_names(kind, parameters, "method")
        offset, span = _extent(data, parameters.get("method", "minmax"))
        return _affine("(x - a) / b", data, a=offset, b=span), {"offset": offset, "span": span}
    raise InvalidInputError(f"unknown transformation {kind!r}; use {', '.join(KINDS)}")


def invert(data: Any, kind: str, **parameters: Unpack[InverseOptions]) -> Any:
    """Invert :func:`transform`, with the parameters it returned."""
    try:
        if kind == "xor":
            _check_names(kind, parameters, "key")
            return xor(data, parameters["key"])[0]
        if kind == "scale":
            _check_names(kind, parameters, "factor")
            return _affine("x / b", data, b=float(parameters["factor"]))
        if kind == "normalize":
            _check_names(kind, parameters, "offset", "span")
            return _affine("x * b + a", data, a=parameters["offset"], b=parameters["span"])
    except KeyError as error:
        raise InvalidInputError(
            f"inverting {kind!r} needs the parameter {error}; pass the parameters that the transformation used"
        ) from None
    raise InvalidInputError(f"unknown transformation {kind!r}; use {', '.join(KINDS)}")


def _check_names(kind: str, parameters: Mapping[str, Any], *names: str) -> None:
    for other in parameters:
        if other not in names:
            raise InvalidInputError(f"{kind!r} has no parameter {other!r}; it takes {' and '.join(map(repr, names))}")


def _affine(expression: str, data: Any, **numbers: float) -> Any:
    return elementwise(expression, x=data, **numbers)


def _extent(data: Any, method: str) -> tuple[float, float]:
    if method not in ("minmax", "standard"):
        raise InvalidInputError(f"method={method!r}; use 'minmax' or 'standard'")
    array = np.asarray(data) if library_of(data) == "python" else data
    if not int(np.prod(array.shape)):
        return 0.0, 1.0
    if method == "minmax":
        low, high = float(reduction(array, kind="min")), float(reduction(array, kind="max"))
        return low, (high - low) or 1.0
    mean = float(reduction(array, kind="mean"))
    spread = float(reduction(elementwise("(x - a) * (x - a)", x=array, a=mean), kind="mean"))
    return mean, spread**0.5 or 1.0
