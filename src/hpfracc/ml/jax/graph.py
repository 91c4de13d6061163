r"""Layers on graphs: fractional diffusion, and powers of the Laplacian, by decomposition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import jax.numpy as jnp
import numpy as np

from hpfracc.errors import InvalidInputError, ShapeError
from hpfracc.ml.jax.order import OrderLike, as_order
from hpfracc.ml.jax.pytrees import as_samples, pytree
from hpfracc.special import mittag_leffler

__all__ = ["GraphDiffusion", "LaplacianPower"]


def _decompose(laplacian: Any, symmetric_only: bool) -> tuple[Any, Any, Any]:
    """Left vectors, values and right vectors, in NumPy: they are constants of the layer."""
    full = np.asarray(laplacian, dtype=np.float64)
    if full.ndim != 2 or full.shape[0] != full.shape[1]:
        raise ShapeError(f"a Laplacian of shape {full.shape}; give one row and column for each node")
    if np.abs(full - full.T).max() <= 1e-12 * np.abs(full).max():
        values, left = np.linalg.eigh(full)
        if values[0] < -1e-10 * np.abs(values).max():
            raise InvalidInputError(
                f"the Laplacian has the eigenvalue {values[0]:g}; a graph's has none below 0: use D - A"
            )
        right = left
    elif symmetric_only:
        raise InvalidInputError("the Laplacian is not symmetric; use that of an undirected graph, or LaplacianPower")
    else:
        left, values, turned = np.linalg.svd(full)
        right = turned.T
    values = np.where(values <= 1e-13 * values.max(), 0.0, values)
    return left, values, right


def _apply(x: Any, left: Any, factors: Any, right: Any) -> Any:
    if x.ndim < 2 or x.shape[-2] != left.shape[0]:
        raise ShapeError(f"features of shape {x.shape} for {left.shape[0]} nodes; give (..., nodes, features)")
    inner = jnp.matmul(jnp.asarray(right.T, x.dtype), x, precision="highest")
    return jnp.matmul(jnp.asarray(left, x.dtype), factors.astype(x.dtype)[:, None] * inner, precision="highest")


class _Matrices(tuple[Any, ...]):
    """Constant arrays as part of a pytree's structure: equal where they are the same."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Matrices) and all(
            a is b or np.array_equal(a, b) for a, b in zip(self, other, strict=True)
        )

    def __hash__(self) -> int:
        return hash(tuple(array.shape for array in self))


@final
@pytree("order")
@dataclass(init=False, frozen=True)
class GraphDiffusion:
    r"""Diffusion with memory on a graph, solved exactly; as :class:`hpfracc.ml.GraphDiffusion`.

    Parameters
    ----------
    laplacian : array, shape (nodes, nodes)
        Symmetric; decomposed once.
    beta : float, array or LearnableOrder
        The order, in (0, 1].
    time : float
        Positive.
    """

    order: Any
    time: float
    matrices: Any

    def __init__(self, laplacian: Any, beta: OrderLike = 0.5, time: float = 1.0) -> None:
        if not float(time) > 0.0:
            raise InvalidInputError(f"time={time!r} is not positive; give how long to diffuse")
        object.__setattr__(self, "order", as_order(beta))
        object.__setattr__(self, "time", float(time))
        object.__setattr__(self, "matrices", _Matrices(_decompose(laplacian, symmetric_only=True)))

    def __call__(self, x: Any) -> Any:
        """Features after the time, of shape (..., nodes, features)."""
        left, values, right = self.matrices
        beta = self.order()
        if isinstance(beta, float) and not 0.0 < beta <= 1.0:
            raise InvalidInputError(f"beta={beta:g} is outside (0, 1]; use an order there")
        x = as_samples(x)
        factors = jnp.asarray(mittag_leffler(-jnp.asarray(values) * self.time**beta, beta))
        return _apply(x, left, factors, right)


@final
@pytree("order")
@dataclass(init=False, frozen=True)
class LaplacianPower:
    r"""A fractional power of the Laplacian of a graph; as :class:`hpfracc.ml.LaplacianPower`.

    Parameters
    ----------
    laplacian : array, shape (nodes, nodes)
        Decomposed once; that of a directed graph by its singular values.
    alpha : float, array or LearnableOrder
        The order, positive.
    """

    order: Any
    matrices: Any

    def __init__(self, laplacian: Any, alpha: OrderLike = 0.5) -> None:
        object.__setattr__(self, "order", as_order(alpha))
        object.__setattr__(self, "matrices", _Matrices(_decompose(laplacian, symmetric_only=False)))

    def __call__(self, x: Any) -> Any:
        """Features of shape (..., nodes, features)."""
        left, values, right = self.matrices
        alpha = self.order()
        if isinstance(alpha, float) and not alpha > 0.0:
            raise InvalidInputError(f"alpha={alpha:g} is not positive; use an order above 0")
        x = as_samples(x)
        logs = jnp.asarray(np.log(np.where(values == 0.0, 1.0, values)))
        powers = jnp.where(jnp.asarray(values == 0.0), 0.0, jnp.exp(alpha * logs))
        return _apply(x, left, powers, right)
