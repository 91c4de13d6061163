r"""Layers on graphs: fractional diffusion and powers of the Laplacian, by eigendecomposition or the Lanczos method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import jax.numpy as jnp
import numpy as np
from jax.experimental.sparse import BCOO
from scipy.sparse import coo_array, issparse

from hpfracc import _reading
from hpfracc._arrays import is_transformed
from hpfracc.errors import InvalidInputError, ShapeError, SolveError
from hpfracc.ml.jax.krylov import apply_matrix_function
from hpfracc.ml.jax.order import OrderLike, as_order
from hpfracc.ml.jax.pytrees import as_samples, pytree
from hpfracc.special import mittag_leffler

__all__ = ["GraphDiffusion", "LaplacianPower"]


#: Largest number of nodes for which the Laplacian is decomposed.
_DENSE = 2048


def _read(laplacian: Any, method: str, symmetric_only: bool) -> tuple[str, _Matrices]:
    """The method and its constant NumPy arrays: left vectors, values and right vectors, or the matrix itself."""
    if isinstance(laplacian, BCOO):
        entries, places = np.asarray(laplacian.data), np.asarray(laplacian.indices)
        laplacian = coo_array((entries, (places[:, 0], places[:, 1])), laplacian.shape)
    sparse = issparse(laplacian)
    matrix: Any = laplacian.tocsr().astype(np.float64) if sparse else _reading.numbers("laplacian", laplacian)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ShapeError(f"a Laplacian of shape {matrix.shape}; give one row and column for each node")
    _reading.choice("method", method, ("auto", "eigen", "lanczos"))
    if method == "auto":
        method = "eigen" if matrix.shape[0] <= _DENSE else "lanczos"
    symmetric = abs(matrix - matrix.T).max() <= 1e-12 * abs(matrix).max()
    if not symmetric and (symmetric_only or method == "lanczos"):
        raise InvalidInputError(
            "the Laplacian is not symmetric; use that of an undirected graph, or LaplacianPower with method='eigen'"
        )
    if method == "eigen":
        return method, _decompose(matrix.toarray() if sparse else matrix, symmetric)
    if not sparse:
        return method, _Matrices((matrix,))
    rows = np.repeat(np.arange(matrix.shape[0], dtype=np.int32), np.diff(matrix.indptr))
    return method, _Matrices((matrix.data, rows, matrix.indices.astype(np.int32)))


def _decompose(full: Any, symmetric: bool) -> _Matrices:
    if symmetric:
        values, left = np.linalg.eigh(full)
        if values[0] < -1e-10 * np.abs(values).max():
            raise InvalidInputError(
                f"the Laplacian has the eigenvalue {values[0]:g}; no graph has one below 0: use D - A"
            )
        right = left
    else:
        left, values, turned = np.linalg.svd(full)
        right = turned.T
    values = np.where(values <= 1e-13 * values.max(), 0.0, values)
    return _Matrices((left, values, right))


def _apply(layer: GraphDiffusion | LaplacianPower, f: Any, x: Any, alpha: Any) -> Any:
    """``f(L, alpha) x`` for features of shape (..., nodes, features)."""
    x = as_samples(x)
    if x.ndim < 2 or x.shape[-2] != layer.nodes:
        raise ShapeError(f"features of shape {x.shape} for {layer.nodes} nodes; give (..., nodes, features)")
    if not jnp.issubdtype(x.dtype, jnp.inexact):  # integers would be rounded
        x = x.astype(jnp.result_type(float))
    if jnp.iscomplexobj(x):  # L is real
        return _apply(layer, f, x.real, alpha) + 1j * _apply(layer, f, x.imag, alpha)
    if layer.method == "eigen":
        left, values, right = layer.matrices
        factors = jnp.asarray(f(jnp.asarray(values), alpha))
        inner = jnp.matmul(jnp.asarray(right.T, x.dtype), x, precision="highest")
        return jnp.matmul(jnp.asarray(left, x.dtype), factors.astype(x.dtype)[:, None] * inner, precision="highest")
    wide = x.astype(jnp.result_type(float))  # float64 if JAX has it enabled
    columns = jnp.moveaxis(wide, -2, 0).reshape(layer.nodes, -1)
    matrix = tuple(jnp.asarray(each, each.dtype if each.dtype.kind == "i" else wide.dtype) for each in layer.matrices)
    found = apply_matrix_function(f, matrix, columns, alpha)
    if not is_transformed(found) and not bool(jnp.isfinite(found).all()) and bool(jnp.isfinite(columns).all()):
        raise SolveError(
            f"the Lanczos method did not reach its tolerance within 600 vectors of {layer.nodes} nodes, or the "
            "Laplacian has negative eigenvalues; use D - A, a shorter time or a larger order, or method='eigen'"
        )
    return jnp.moveaxis(found.reshape(layer.nodes, *x.shape[:-2], x.shape[-1]), 0, -2).astype(x.dtype)


@dataclass(frozen=True)
class _Decay:
    """The decay of modes with the eigenvalues ``values``."""

    time: float

    def __call__(self, values: Any, beta: Any) -> Any:
        return mittag_leffler(-values * self.time**beta, beta)


def _power(values: Any, alpha: Any) -> Any:
    """Excludes the eigenvalue 0, whose logarithm would make the gradient nan."""
    still = values == 0.0
    return jnp.where(still, 0.0, jnp.exp(alpha * jnp.log(jnp.where(still, 1.0, values))))


class _Matrices(tuple[Any, ...]):
    """Constant arrays as part of a pytree's structure; equal if they are the same objects."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, _Matrices)
            and len(self) == len(other)
            and all(a is b or np.array_equal(a, b) for a, b in zip(self, other, strict=True))
        )

    def __hash__(self) -> int:
        return hash(tuple(array.shape for array in self))


@final
@pytree("order")
@dataclass(init=False, frozen=True)
class GraphDiffusion:
    r"""Diffusion with memory on a graph, solved exactly; see :class:`hpfracc.ml.GraphDiffusion`.

    Parameters
    ----------
    laplacian : array, SciPy sparse array or JAX BCOO, shape (nodes, nodes)
        Symmetric; treated as a constant.
    beta : float, array or LearnableOrder
        The order, in (0, 1].
    time : float
        Duration of the diffusion, positive.
    method : {"auto", "eigen", "lanczos"}
        By an eigendecomposition, computed once, for up to 2,048 nodes; for larger graphs by the Lanczos method, which
        needs only products with L. It has reverse-mode derivatives, including second ones, and reserves 600 vectors per
        feature, for as many features at a time as fit into 1 GiB.

    Notes
    -----
    If the Lanczos method does not reach a relative 1e-10 (1e-5 without ``jax_enable_x64``) within 600 vectors, plain
    calls raise :class:`hpfracc.errors.SolveError`, and calls under ``jit`` or ``grad`` give nan.

    Examples
    --------
    >>> import numpy as np
    >>> from hpfracc.ml.jax.graph import GraphDiffusion
    >>> path = np.array([[1.0, -1.0], [-1.0, 1.0]])
    >>> found = GraphDiffusion(path, beta=1.0, time=0.5)(np.array([[1.0], [0.0]]))
    >>> [round(float(value), 4) for value in found.ravel()]
    [0.6839, 0.3161]
    """

    order: Any
    time: float
    nodes: int
    method: str
    matrices: Any

    def __init__(self, laplacian: Any, beta: OrderLike = 0.5, time: float = 1.0, *, method: str = "auto") -> None:
        object.__setattr__(self, "order", as_order(beta))
        if self.order.channels is not None:
            raise ShapeError("fractional diffusion has one order; give a single number")
        object.__setattr__(self, "time", _reading.number("time", time, above=0))
        found, matrices = _read(laplacian, method, symmetric_only=True)
        object.__setattr__(self, "nodes", int(laplacian.shape[0]))
        object.__setattr__(self, "method", found)
        object.__setattr__(self, "matrices", matrices)

    def __call__(self, x: Any) -> Any:
        """Features after the diffusion, of shape (..., nodes, features)."""
        beta = self.order()
        if isinstance(beta, float) and not 0.0 < beta <= 1.0:
            raise InvalidInputError(f"beta={beta:g} is outside (0, 1]; use an order there")
        return _apply(self, _Decay(self.time), x, beta)


@final
@pytree("order")
@dataclass(init=False, frozen=True)
class LaplacianPower:
    r"""A fractional power of the Laplacian of a graph; see :class:`hpfracc.ml.LaplacianPower`.

    Parameters
    ----------
    laplacian : array, SciPy sparse array or JAX BCOO, shape (nodes, nodes)
        Treated as a constant; for a directed graph by its singular value decomposition.
    alpha : float, array or LearnableOrder
        The power, positive.
    method : {"auto", "eigen", "lanczos"}
        As for :class:`GraphDiffusion`; ``"lanczos"`` needs a symmetric Laplacian.
    """

    order: Any
    nodes: int
    method: str
    matrices: Any

    def __init__(self, laplacian: Any, alpha: OrderLike = 0.5, *, method: str = "auto") -> None:
        object.__setattr__(self, "order", as_order(alpha))
        if self.order.channels is not None:
            raise ShapeError("a power of the Laplacian has one order; give a single number")
        found, matrices = _read(laplacian, method, symmetric_only=False)
        object.__setattr__(self, "nodes", int(laplacian.shape[0]))
        object.__setattr__(self, "method", found)
        object.__setattr__(self, "matrices", matrices)

    def __call__(self, x: Any) -> Any:
        """Apply the power to features of shape (..., nodes, features)."""
        alpha = self.order()
        if isinstance(alpha, float) and not alpha > 0.0:
            raise InvalidInputError(f"alpha={alpha:g} is not positive; use an order above 0")
        return _apply(self, _power, x, alpha)
