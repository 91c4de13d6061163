"""Functions of a large symmetric matrix times vectors, by the Lanczos method; see :mod:`hpfracc.ml.jax.krylov`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from hpfracc.errors import SolveError
from hpfracc.solvers.ode.tensors.on_torch.once import differentiable_once

__all__ = ["apply_matrix_function"]

_RTOL = 1e-10


def apply_matrix_function(f: Callable[..., Any], matrices: tuple[Tensor], columns: Tensor, alpha: Any) -> Tensor:
    """``f(L, alpha) x`` to a relative 1e-10, with first derivatives in x and alpha.

    Parameters
    ----------
    f : callable
        ``f(values, alpha)``, elementwise.
    matrices : tuple of Tensor
        L alone, dense or sparse.
    columns : Tensor, shape (nodes, columns)
        x.
    alpha : float or Tensor
    """
    (matrix,) = matrices
    of = partial(_function, f, alpha)
    with torch.no_grad():
        parts = _krylov(matrix, columns.detach(), of)
    return _FirstDerivatives.apply(_combined(parts, of) + _LinearPart.apply(columns, matrix, of), columns)


def _function(f: Callable[..., Any], alpha: Any, values: Tensor) -> Tensor:
    found: Tensor = f(values, alpha)
    return found


def _combined(parts: tuple[Tensor, Tensor, Tensor, Tensor], f: Callable[[Tensor], Tensor]) -> Tensor:
    """The function of the matrix times the vectors, from their bases."""
    basis, vectors, values, size = parts
    coefficients = (vectors * (f(values) * vectors[:, 0]).unsqueeze(1)).sum(-1)
    return torch.einsum("nmc,cm->nc", basis, coefficients) * size


class _FirstDerivatives(torch.autograd.Function):
    """The identity; differentiating its gradient raises an error, because the basis has no derivative."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, columns: Tensor) -> Tensor:
        ctx.save_for_backward(columns)
        return value.clone()

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Any, None]:
        (columns,) = ctx.saved_tensors
        (found,) = differentiable_once(lambda: [slope], [columns, slope], "use method='eigen'")
        return found, None


class _LinearPart(torch.autograd.Function):
    """0, with the gradient of ``f(L) x`` in x: ``f(L)`` applied to the incoming gradient, because L is symmetric."""

    @staticmethod
    def forward(ctx: Any, columns: Tensor, matrix: Tensor, f: Callable[[Tensor], Tensor]) -> Tensor:
        ctx.matrix, ctx.f = matrix, f
        return torch.zeros_like(columns)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None, None]:
        return _combined(_krylov(ctx.matrix, slope, ctx.f), ctx.f), None, None


def _krylov(matrix: Tensor, x: Tensor, f: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """An orthonormal basis for each column (nodes, m, columns), eigenvectors and eigenvalues in it, and norms.

    The number of vectors grows until the last coefficient, relative to the largest, is below the tolerance.
    """
    nodes, most = x.shape[0], x.shape[0]
    size = torch.linalg.vector_norm(x, dim=0)
    start = x / torch.where(size > 0, size, torch.ones_like(size))
    basis: list[Tensor] = [start]
    diagonal: list[Tensor] = []
    beside: list[Tensor] = []
    target = min(24, most)
    tiny = 1e-13
    while True:
        while len(diagonal) < target:
            q = basis[-1]
            v = matrix @ q
            diagonal.append((q * v).sum(0))
            kept = torch.stack(basis, 1)
            for _ in range(2):  # two passes are enough to keep them orthogonal
                v = v - torch.einsum("nmc,mc->nc", kept, torch.einsum("nmc,nc->mc", kept, v))
            norm = torch.linalg.vector_norm(v, dim=0)
            ended = norm <= tiny * torch.stack(diagonal).abs().amax(0)
            beside.append(torch.where(ended, torch.zeros_like(norm), norm))
            basis.append(torch.where(ended, torch.zeros_like(v), v / torch.where(ended, torch.ones_like(norm), norm)))
        m = len(diagonal)
        tridiagonal = torch.diag_embed(torch.stack(diagonal, -1))
        if m > 1:
            edge = torch.stack(beside[: m - 1], -1)
            tridiagonal = tridiagonal + torch.diag_embed(edge, 1) + torch.diag_embed(edge, -1)
        values, vectors = torch.linalg.eigh(tridiagonal)
        values = values.clamp(min=0.0)
        values = torch.where(values <= tiny * values.amax(-1, keepdim=True), torch.zeros_like(values), values)
        coefficients = (vectors * (f(values) * vectors[:, 0]).unsqueeze(1)).sum(-1).abs()
        missing = coefficients[:, -2:].amax(-1) / coefficients.amax(-1).clamp(min=torch.finfo(x.dtype).tiny)
        if m >= most or not bool((missing > _RTOL).any()):
            return torch.stack(basis[:m], 1), vectors, values, size
        if m >= min(most, 600):
            raise SolveError(
                f"the Lanczos method did not reach {_RTOL:g} within {m} vectors of {nodes} nodes; use a shorter "
                "time or a larger order, or method='eigen'"
            )
        target = min(most, 600, 2 * m)
