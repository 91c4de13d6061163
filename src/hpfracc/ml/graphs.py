"""Layers on graphs, for PyTorch and JAX: functions of the Laplacian, by its decomposition or the Lanczos method."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import issparse

from hpfracc import _reading
from hpfracc._arrays import is_transformed
from hpfracc._xp import array_namespace, namespace_of
from hpfracc.errors import InvalidInputError, ShapeError, SolveError
from hpfracc.ml.operator_layers import OPERATIONS, AnyOrder, OperatorLayer
from hpfracc.special import mittag_leffler

__all__ = ["DiffusionLayer", "PowerLayer"]

#: Largest number of nodes for which the Laplacian is decomposed.
_DENSE = 2048


class _GraphLayer(OperatorLayer):
    """A function of the Laplacian, whose constants are its decomposition, or itself for the Lanczos method."""

    nodes: int
    method: str

    def _prepare(self, laplacian: Any, method: str, symmetric_only: bool, **fields: Any) -> None:
        given = self._read_matrix(laplacian)
        sparse = issparse(given)
        matrix: Any = given.tocsr().astype(np.float64) if sparse else _reading.numbers("laplacian", given)
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
            raise ShapeError(f"a Laplacian of shape {matrix.shape}; give one row and column for each node")
        _reading.choice("method", method, ("auto", "eigen", "lanczos"))
        if method == "auto":
            method = "eigen" if matrix.shape[0] <= _DENSE else "lanczos"
        symmetric = bool(abs(matrix - matrix.T).max() <= 1e-12 * abs(matrix).max())
        if not symmetric and (symmetric_only or method == "lanczos"):
            raise InvalidInputError(
                "the Laplacian is not symmetric; use that of an undirected graph, or LaplacianPower with method='eigen'"
            )
        constants = (
            {"matrix": matrix}
            if method == "lanczos"
            else _decomposed(matrix.toarray() if sparse else matrix, symmetric)
        )
        self._assign(constants, laplacian, nodes=int(matrix.shape[0]), method=method, **fields)

    def _function(self, kind: str, x: Any, *options: Any) -> Any:
        x = self._samples(x)
        if x.ndim < 2 or x.shape[-2] != self.nodes:
            raise ShapeError(f"features of shape {tuple(x.shape)} for {self.nodes} nodes; give (..., nodes, features)")
        return self._operate(kind, x, self.method, *options)

    def _fixed(self) -> float | None:
        """The order if it is a plain number."""
        value = self.order()
        return value if isinstance(value, float) else None


class DiffusionLayer(_GraphLayer):
    """Diffusion with memory."""

    time: float

    def __init__(self, laplacian: Any, beta: AnyOrder = 0.5, time: float = 1.0, *, method: str = "auto") -> None:
        order = self._single_order(beta, "fractional diffusion")
        time = _reading.number("time", time, above=0)
        self._prepare(laplacian, method, True, order=order, time=time)

    def forward(self, x: Any) -> Any:
        """Features after the diffusion, of shape (..., nodes, features)."""
        beta = self._fixed()
        if beta is not None and not 0.0 < beta <= 1.0:
            raise InvalidInputError(f"beta={beta:g} is outside (0, 1]; use an order there")
        return self._function("diffusion", x, self.time)

    def extra_repr(self) -> str:
        """Order, time and size."""
        start = f"beta={self._shown()}, definition='caputo', time={self.time:g}"
        return f"{start}, nodes={self.nodes}, method={self.method!r}"


class PowerLayer(_GraphLayer):
    """A fractional power of the Laplacian."""

    def __init__(self, laplacian: Any, alpha: AnyOrder = 0.5, *, method: str = "auto") -> None:
        self._prepare(laplacian, method, False, order=self._single_order(alpha, "a power of the Laplacian"))

    def forward(self, x: Any) -> Any:
        """Features of shape (..., nodes, features)."""
        alpha = self._fixed()
        if alpha is not None and not alpha > 0.0:
            raise InvalidInputError(f"alpha={alpha:g} is not positive; use an order above 0")
        return self._function("power", x)

    def extra_repr(self) -> str:
        """Order and size."""
        return f"alpha={self._shown()}, nodes={self.nodes}, method={self.method!r}"


def _decomposed(full: Any, symmetric: bool) -> dict[str, Any]:
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
    # Eigenvalues that are 0 up to rounding have no power and no logarithm.
    values = np.where(values <= 1e-13 * values.max(), 0.0, values)
    return {"left": left, "right": right, "values": values}


@dataclass(frozen=True)
class _Decay:
    """The decay of modes with the eigenvalues ``values``."""

    time: float

    def __call__(self, values: Any, beta: Any) -> Any:
        return mittag_leffler(-values * self.time**beta, beta)


def _power(values: Any, alpha: Any) -> Any:
    """Excludes the eigenvalue 0, whose logarithm would make the gradient nan."""
    xp, still = namespace_of(values), values == 0.0
    return xp.where(still, 0.0, xp.exp(alpha * xp.log(xp.where(still, 1.0, values))))


def _apply(f: Any, arrays: list[Any], alpha: Any, method: str) -> Any:
    """``f(L, alpha) x`` for features of shape (..., nodes, features), in the library's widest precision."""
    x, *graph = arrays
    xp = array_namespace(x)
    torch = xp.library == "torch"
    if xp.is_complex(x):  # L is real: real and imaginary parts are features of their own
        found = _apply(f, [xp.concatenate([x.real, x.imag], -1), *graph], alpha, method)
        count = x.shape[-1]
        return xp.complex(found[..., :count], found[..., count:])
    wide = xp.module.float64 if torch else xp.module.result_type(float)
    # Integers would be rounded.
    kind = x.dtype if "float" in str(x.dtype) else xp.module.get_default_dtype() if torch else wide
    x = xp.astype(x, wide)
    nodes = x.shape[-2]
    # The buffers of a layer that was cast to half precision are not in double precision.
    graph = [xp.astype(each, wide) if "float" in str(each.dtype) else each for each in map(xp.asarray, graph)]
    if method == "eigen":
        left, right, values = graph
        factors = xp.astype(f(values, alpha), wide)
        found = xp.matmul(left, factors[:, None] * xp.matmul(right.T, x))
    else:
        rows = xp.moveaxis(x, -2, -1).reshape(-1, nodes)
        layers = importlib.import_module(f"hpfracc.ml.{xp.library}.layers")
        found = layers.times_function(f, tuple(graph), rows, alpha)
        if not is_transformed(found) and not bool(xp.isfinite(found).all()) and bool(xp.isfinite(rows).all()):
            raise SolveError(
                f"the Lanczos method did not reach its tolerance within 600 vectors of {nodes} nodes, or the Laplacian "
                "has negative eigenvalues; use D - A, a shorter time or a larger order, or method='eigen'"
            )
        found = xp.moveaxis(found.reshape(*x.shape[:-2], x.shape[-1], nodes), -1, -2)
    return xp.astype(found, kind)


def _diffuse(arrays: list[Any], beta: Any, ceiling: int | None, _: None, method: str, time: float) -> Any:
    return _apply(_Decay(time), arrays, beta, method)


def _raise(arrays: list[Any], alpha: Any, ceiling: int | None, _: None, method: str) -> Any:
    return _apply(_power, arrays, alpha, method)


OPERATIONS |= {"diffusion": _diffuse, "power": _raise}
