"""Layers as pytrees, whose parameters are leaves and everything else is static; learnable orders."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, final

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.sparse import BCOO
from scipy.sparse import coo_array, issparse

from hpfracc import _reading
from hpfracc._arrays import is_array, library_of
from hpfracc.errors import InvalidInputError
from hpfracc.ml import operator_layers
from hpfracc.ml.config import GivenOrder, LearnedOrder, OrderLike, mode_scope, read_learnable, read_orders

__all__ = [
    "Layer", "LearnableOrder", "OrderLike", "as_order", "as_samples", "assign", "is_plain_function", "pytree",
    "uniform_parameters",
]  # fmt: skip

T = TypeVar("T")

#: The classes that are registered here.
_registered: set[type] = set()


class _Items(tuple[Any, ...]):
    """A dict as a hashable part of a pytree's structure."""

    __slots__ = ()


def pytree(*leaves: str) -> Callable[[type[T]], type[T]]:
    """Register a class whose fields in ``leaves`` are arrays or other pytrees; the others are compared by value.

    Such a layer works with ``jax.jit``, ``jax.grad``, ``jax.tree.map`` and Equinox modules like any pytree. A plain
    function among the leaves is compared by value too. Nothing is checked when a layer is rebuilt, because leaves may
    be anything.
    """

    def register(kind: type[T]) -> type[T]:
        def flatten_with_keys(layer: T) -> tuple[Any, Any]:
            fields = dict(vars(layer))
            moving = {name: fields.pop(name) for name in leaves}
            for name, value in moving.items():
                if is_plain_function(value):
                    fields[name], moving[name] = value, None
            children = [(jax.tree_util.GetAttrKey(name), value) for name, value in moving.items()]
            kept = ((name, fields[name]) for name in sorted(fields))
            return children, tuple((name, _Items(sorted(v.items())) if type(v) is dict else v) for name, v in kept)

        def unflatten(kept: Any, children: Any) -> T:
            made = object.__new__(kind)
            fields = {name: dict(value) if isinstance(value, _Items) else value for name, value in kept}
            assign(made, **(dict(zip(leaves, children, strict=True)) | fields))
            return made

        jax.tree_util.register_pytree_with_keys(kind, flatten_with_keys, unflatten)
        _registered.add(kind)
        return kind

    return register


def assign(layer: Any, **fields: Any) -> None:
    """Set the fields of a frozen dataclass."""
    for name, value in fields.items():
        object.__setattr__(layer, name, value)


def is_plain_function(value: Any) -> bool:
    """Whether it is a function, i.e. a leaf that is not an array, and not a callable pytree."""
    if not callable(value) or type(value) in _registered:
        return False
    leaves = jax.tree_util.tree_leaves(value)
    return len(leaves) == 1 and leaves[0] is value


def uniform_parameters(key: Any, shape: tuple[int, ...], fan: int) -> Any:
    """Uniform within ``1 / sqrt(fan)``, the initialisation of PyTorch's linear maps and convolutions."""
    if key is None:
        raise InvalidInputError("this layer has random parameters; give key=jax.random.key(0), or another seed")
    bound = fan**-0.5
    try:
        return jax.random.uniform(key, shape, minval=-bound, maxval=bound)
    except (TypeError, ValueError):
        raise InvalidInputError(f"key={_reading.shown(key)} is no key of JAX; give key=jax.random.key(0)") from None


def as_samples(x: Any) -> Any:
    """``x`` as a JAX array; tensors are refused."""
    library = library_of(x)
    if library not in ("jax", "numpy", "python"):
        raise InvalidInputError(f"this layer takes JAX arrays, not {library} ones; convert them, or use hpfracc.ml")
    return jax.numpy.asarray(x)


@final
@pytree("rho")
@dataclass(init=False, frozen=True)
class LearnableOrder(LearnedOrder):
    r"""A fractional order within bounds: :math:`\alpha = lo + (hi - lo)\,\sigma(\rho)`.

    See :class:`hpfracc.ml.LearnableOrder`. Optimisers update the leaf ``rho``; the slope of the sigmoid vanishes
    towards both bounds.

    Parameters
    ----------
    alpha : float or sequence of float
        Initial value, strictly between the bounds; a sequence gives one order per channel.
    bounds : (float, float)
        Lower and upper bound.

    Examples
    --------
    >>> from hpfracc.ml.jax.order import LearnableOrder
    >>> round(float(LearnableOrder(0.5)()), 6)
    0.5
    """

    rho: Any
    bounds: tuple[float, float]

    def __init__(self, alpha: Any = 0.5, bounds: tuple[float, float] = (0.0, 1.0)) -> None:
        start, low, high = read_learnable(alpha, bounds)
        assign(self, rho=jnp.asarray(start), bounds=(low, high))

    def __call__(self) -> Any:
        """The order."""
        low, high = self.bounds
        return low + (high - low) * jax.nn.sigmoid(self.rho)


@final
@pytree()
@dataclass(frozen=True)
class _FixedOrder(GivenOrder):
    """An order that is not learned."""


@final
@pytree("value")
@dataclass(frozen=True)
class _GivenOrder(GivenOrder):
    """An array given by the user, possibly traced."""


def as_order(alpha: OrderLike) -> Any:
    """The order as a callable, from a number (fixed), an array, or a :class:`LearnableOrder`."""
    if isinstance(alpha, LearnableOrder | _FixedOrder | _GivenOrder):
        return alpha
    given = is_array(alpha) and not isinstance(alpha, np.ndarray)
    return _GivenOrder(alpha) if given else _FixedOrder(read_orders(alpha))


class _Constants(tuple[Any, ...]):
    """Constant arrays as part of a pytree's structure; equal if their values are."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, _Constants)
            and len(self) == len(other)
            and all(a is b or np.array_equal(a, b) for a, b in zip(self, other, strict=True))
        )

    def __hash__(self) -> int:
        return hash(tuple(array.shape for array in self))


class Layer(operator_layers.OperatorLayer):
    """The part of an operator's layer that is JAX's: an immutable object with its fields in ``vars``."""

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a layer is immutable; make another one instead of changing {name}")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"

    def __call__(self, *arrays: Any) -> Any:
        """Apply the layer; see ``forward``."""
        return self.forward(*arrays)

    def forward(self, *arrays: Any) -> Any:
        """What the layer computes."""
        raise NotImplementedError

    def _assign(self, constants: dict[str, Any] | None = None, like: Any = None, **fields: Any) -> None:
        arrays: list[Any] = []
        for value in (constants or {}).values():
            if issparse(value):  # values, rows and columns, sorted by rows
                rows = np.repeat(np.arange(value.shape[0], dtype=np.int32), np.diff(value.indptr))
                arrays += [value.data, rows, value.indices.astype(np.int32)]
            else:
                arrays.append(value)
        assign(self, constants=_Constants(arrays), **fields)

    _as_order, _samples = staticmethod(as_order), staticmethod(as_samples)

    def _operate(self, kind: str, x: Any, *options: Any) -> Any:
        """Half-precision samples are computed in float32."""
        x, fields = as_samples(x), vars(self)
        order = fields["order"]
        mode = fields["config"].performance_mode if "config" in fields else "balanced"
        half = str(x.dtype) in ("float16", "bfloat16")

        def apply(x: Any, alpha: Any) -> Any:
            return operator_layers.OPERATIONS[kind](
                [x, *fields["constants"]], alpha, order.ceiling, order.channels, *options
            )

        with mode_scope(mode):
            wide, alpha = x.astype("float32") if half else x, order()
            if mode == "memory":
                plain = not is_array(alpha)
                apply = jax.checkpoint(apply, static_argnums=(1,) if plain else ())
            found = apply(wide, alpha)
        return found.astype(x.dtype) if half and not jnp.iscomplexobj(found) else found

    def _read_matrix(self, laplacian: Any) -> Any:
        if not isinstance(laplacian, BCOO):
            return laplacian
        entries, places = np.asarray(laplacian.data), np.asarray(laplacian.indices)
        return coo_array((entries, (places[:, 0], places[:, 1])), laplacian.shape)
