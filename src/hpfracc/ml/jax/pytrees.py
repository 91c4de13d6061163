"""Layers as pytrees: parameters are leaves, everything else is static."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

import jax

from hpfracc import _reading
from hpfracc._arrays import library_of
from hpfracc.errors import InvalidInputError

__all__ = ["as_samples", "assign", "is_plain_function", "pytree", "uniform_parameters", "widened"]

T = TypeVar("T")


def pytree(*leaves: str) -> Callable[[type[T]], type[T]]:
    """Register a dataclass whose fields in ``leaves`` are arrays or other layers; the others are compared by value.

    Such a layer works with ``jax.jit``, ``jax.grad``, ``jax.tree.map`` and Equinox modules like any pytree.
    """

    def register(kind: type[T]) -> type[T]:
        names = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
        rest = tuple(name for name in names if name not in leaves)

        def flatten_with_keys(layer: T) -> tuple[Any, Any]:
            children = [(jax.tree_util.GetAttrKey(name), getattr(layer, name)) for name in leaves]
            return children, tuple(getattr(layer, name) for name in rest)

        def unflatten(kept: Any, children: Any) -> T:
            made = object.__new__(kind)
            for name, value in (*zip(leaves, children, strict=True), *zip(rest, kept, strict=True)):
                object.__setattr__(made, name, value)
            return made

        jax.tree_util.register_pytree_with_keys(kind, flatten_with_keys, unflatten)
        return kind

    return register


def assign(layer: Any, **fields: Any) -> None:
    """Set the fields of a frozen dataclass."""
    for name, value in fields.items():
        object.__setattr__(layer, name, value)


def is_plain_function(value: Any) -> bool:
    """Whether it is a function, i.e. a leaf that is not an array, and not a callable pytree."""
    leaves = jax.tree_util.tree_leaves(value)
    return len(leaves) == 1 and leaves[0] is value and callable(value)


def uniform_parameters(key: Any, shape: tuple[int, ...], fan: int) -> Any:
    """Uniform within ``1 / sqrt(fan)``, the initialisation of PyTorch's linear maps and convolutions."""
    if key is None:
        raise InvalidInputError("this layer has random parameters; give key=jax.random.key(0), or another seed")
    bound = fan**-0.5
    try:
        return jax.random.uniform(key, shape, minval=-bound, maxval=bound)
    except (TypeError, ValueError):
        raise InvalidInputError(f"key={_reading.shown(key)} is no key of JAX; give key=jax.random.key(0)") from None


def widened(x: Any) -> Any:
    """Samples in half precision as float32, in which weights are applied; others as they are."""
    return x.astype("float32") if str(x.dtype) in ("float16", "bfloat16") else x


def as_samples(x: Any) -> Any:
    """``x`` as a JAX array; tensors are refused."""
    library = library_of(x)
    if library not in ("jax", "numpy", "python"):
        raise InvalidInputError(f"this layer takes JAX arrays, not {library} ones; convert them, or use hpfracc.ml")
    return jax.numpy.asarray(x)
