r"""Layers on graphs: fractional diffusion and powers of the Laplacian."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, final

import torch
from torch import Tensor, nn

from hpfracc import _reading
from hpfracc.errors import InvalidInputError, ShapeError, SolveError
from hpfracc.ml.torch.opaque import opaque
from hpfracc.ml.torch.order import OrderLike, as_order, check_tensor, joined_order, shown_order, split_order
from hpfracc.solvers.ode.tensors.on_torch.once import differentiable_once
from hpfracc.special import mittag_leffler

__all__ = ["GraphDiffusion", "LaplacianPower"]

#: Largest number of nodes for which the Laplacian is decomposed.
_DENSE = 2048
_RTOL = 1e-10


class _Spectrum(nn.Module):
    """A Laplacian prepared for evaluating functions of it: decomposed, or unchanged for the Lanczos method."""

    left: Tensor
    right: Tensor
    values: Tensor
    matrix: Tensor

    def __init__(self, laplacian: Tensor, method: str, symmetric_only: bool) -> None:
        super().__init__()
        _reading.instance("laplacian", laplacian, Tensor, "torch.eye(3) - torch.ones(3, 3) / 3")
        if laplacian.ndim != 2 or laplacian.shape[0] != laplacian.shape[1]:
            raise ShapeError(f"a Laplacian of shape {tuple(laplacian.shape)}; give one row and column for each node")
        _reading.choice("method", method, ("auto", "eigen", "lanczos"))
        self.nodes = int(laplacian.shape[0])
        self.method = ("eigen" if self.nodes <= _DENSE else "lanczos") if method == "auto" else method
        matrix = laplacian.detach().double()
        difference = matrix - matrix.transpose(0, 1)
        entries = difference.coalesce().values() if difference.is_sparse else difference
        sparse = matrix.layout != torch.strided
        size = matrix.coalesce().values() if matrix.is_sparse else matrix
        self.symmetric = bool(entries.numel() == 0 or entries.abs().max() <= 1e-12 * size.abs().max())
        if not self.symmetric and (symmetric_only or self.method == "lanczos"):
            raise InvalidInputError(
                "the Laplacian is not symmetric; use that of an undirected graph, or LaplacianPower with method='eigen'"
            )
        if self.method == "lanczos":
            self.register_buffer("matrix", matrix)
            return
        full = matrix.to_dense() if sparse else matrix
        if self.symmetric:
            values, vectors = torch.linalg.eigh(full)
            if float(values[0]) < -1e-10 * float(values.abs().max()):
                raise InvalidInputError(
                    f"the Laplacian has the eigenvalue {float(values[0]):g}; no graph has one below 0: use D - A"
                )
            left = right = vectors.contiguous()  # PyTorch saves no other layout without a warning
            values = values.clamp(min=0.0)
        else:
            left, values, turned = torch.linalg.svd(full)
            left, right = left.contiguous(), turned.mH.contiguous()
        # Eigenvalues that are 0 up to rounding have no power and no logarithm.
        values = torch.where(values <= 1e-13 * values.max(), torch.zeros_like(values), values)
        self.register_buffer("left", left)
        self.register_buffer("right", right)
        self.register_buffer("values", values)

    def check(self, x: Any) -> None:
        """Refuse features that do not fit the graph."""
        check_tensor(x)
        if x.ndim < 2 or x.shape[-2] != self.nodes:
            raise ShapeError(f"features of shape {tuple(x.shape)} for {self.nodes} nodes; give (..., nodes, features)")

    def tensors(self) -> list[Tensor]:
        """The decomposition, or the Laplacian itself for the Lanczos method."""
        return [self.left, self.right, self.values] if self.method == "eigen" else [self.matrix]


def _result_dtype(x: Tensor) -> torch.dtype:
    """The dtype of features after a layer: their own, or PyTorch's default for integers."""
    return x.dtype if x.is_floating_point() or x.is_complex() else torch.get_default_dtype()


@opaque(lambda tensors, *_: [tensors[0].new_empty(tensors[0].shape, dtype=_result_dtype(tensors[0]))])
def _apply(tensors: list[Tensor], kind: str, method: str, alpha: Any, time: float) -> tuple[Tensor]:
    """``f(L) x`` for features of shape (..., nodes, features), computed in double precision."""
    count = 3 if method == "eigen" else 1
    x, graph, alpha = tensors[0], tensors[1 : 1 + count], joined_order(tensors[1 + count :], alpha)
    f = partial({"diffusion": _decay, "power": _power}[kind], alpha, time)
    with torch.autocast(x.device.type, enabled=False):
        # L is real: real and imaginary parts are features of their own.
        wide = (torch.view_as_real(x).flatten(-2) if x.is_complex() else x).double()
        # The buffers of a layer that was cast to half precision are not in double precision.
        parts = [each.double() for each in graph]
        if method == "eigen":
            left, right, values = parts
            found = left @ (f(values).unsqueeze(-1) * (right.mT @ wide))
        else:
            found = _by_lanczos(parts[0], wide, f)
        if x.is_complex():
            found = torch.view_as_complex(found.unflatten(-1, (-1, 2)).contiguous())
    return (found.to(_result_dtype(x)),)


def _decay(beta: Any, time: float, values: Tensor) -> Tensor:
    found: Tensor = mittag_leffler(-values * time**beta, beta)
    return found


def _power(alpha: Any, _: float, values: Tensor) -> Tensor:
    # Exclude the eigenvalue 0, whose logarithm would make the gradient nan.
    still = values == 0.0
    powers = torch.exp(alpha * torch.log(torch.where(still, torch.ones_like(values), values)))
    return torch.where(still, torch.zeros_like(values), powers)


def _by_lanczos(matrix: Tensor, x: Tensor, f: Callable[[Tensor], Tensor]) -> Tensor:
    """``f(L) x`` by the Lanczos method, to a relative 1e-10; first derivatives in x and in the variables of ``f``."""
    columns = x.movedim(-2, 0).reshape(x.shape[-2], -1)
    with torch.no_grad():
        basis, vectors, values, size = _krylov(matrix, columns.detach(), f)
    coefficients = (vectors * (f(values) * vectors[:, 0]).unsqueeze(1)).sum(-1)
    value = torch.einsum("nmc,cm->nc", basis, coefficients) * size
    value = _FirstDerivatives.apply(value + _LinearPart.apply(columns, matrix, f), columns)
    return value.reshape(x.shape[-2], *x.shape[:-2], x.shape[-1]).movedim(0, -2)


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
        basis, vectors, values, size = _krylov(ctx.matrix, slope, ctx.f)
        coefficients = (vectors * (ctx.f(values) * vectors[:, 0]).unsqueeze(1)).sum(-1)
        return torch.einsum("nmc,cm->nc", basis, coefficients) * size, None, None


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


@final
class GraphDiffusion(nn.Module):
    r"""Diffusion with memory on a graph, solved exactly: :math:`D^\beta X = -L X` with Caputo's derivative.

    .. math:: X(t) = \sum_i E_\beta(-\lambda_i t^\beta)\, v_i v_i^T X(0).

    Order 1 is the heat equation. There are no time steps.

    Parameters
    ----------
    laplacian : Tensor, shape (nodes, nodes)
        Laplacian of an undirected graph, dense or sparse; it gets no gradient.
    beta : float, Tensor, Parameter or LearnableOrder
        The order, in (0, 1].
    time : float
        Duration of the diffusion, positive.
    method : {"auto", "eigen", "lanczos"}
        By an eigendecomposition, computed once, for up to 2,048 nodes; for larger graphs by the Lanczos method, which
        needs only products with L and has first derivatives.

    References
    ----------
    Q. Kang, K. Zhao, Q. Ding, F. Ji, X. Li, W. Liang, Y. Song, W. P. Tay, "Unleashing the potential of fractional
    calculus in graph neural networks with FROND", ICLR 2024.

    Examples
    --------
    >>> import torch
    >>> from hpfracc.ml import GraphDiffusion
    >>> path = torch.tensor([[1.0, -1.0], [-1.0, 1.0]])
    >>> GraphDiffusion(path, beta=1.0, time=0.5)(torch.tensor([[1.0], [0.0]])).flatten()
    tensor([0.6839, 0.3161])
    """

    def __init__(self, laplacian: Tensor, beta: OrderLike = 0.5, time: float = 1.0, *, method: str = "auto") -> None:
        super().__init__()
        self.order = as_order(beta)
        if self.order.channels is not None:
            raise ShapeError("fractional diffusion has one order; give a single number")
        self.time = _reading.number("time", time, above=0)
        self.spectrum = _Spectrum(laplacian, method, symmetric_only=True)

    def forward(self, x: Tensor) -> Tensor:
        """Features after the time, of shape (..., nodes, features)."""
        self.spectrum.check(x)
        order, beta = split_order(self.order)
        if beta is not None and not 0.0 < beta <= 1.0:
            raise InvalidInputError(f"beta={beta:g} is outside (0, 1]; use an order there")
        return _apply([x, *self.spectrum.tensors(), *order], "diffusion", self.spectrum.method, beta, self.time)[0]

    def extra_repr(self) -> str:
        """Order, time and size."""
        return (
            f"beta={shown_order(self.order)}, definition='caputo', time={self.time:g}, nodes={self.spectrum.nodes}, "
            f"method={self.spectrum.method!r}"
        )


@final
class LaplacianPower(nn.Module):
    r"""A fractional power of the Laplacian of a graph: :math:`L^\alpha X`.

    For a symmetric L by its eigenvalues; for a directed graph by its singular values, :math:`U S^\alpha V^H`, which is
    not a semigroup in alpha unless L is normal: :math:`L^\alpha L^\beta \ne L^{\alpha+\beta}`.

    Parameters
    ----------
    laplacian : Tensor, shape (nodes, nodes)
        Dense or sparse; it gets no gradient.
    alpha : float, Tensor, Parameter or LearnableOrder
        The power, positive.
    method : {"auto", "eigen", "lanczos"}
        As for :class:`GraphDiffusion`; ``"lanczos"`` needs a symmetric Laplacian.

    References
    ----------
    S. Maskey, R. Paolino, A. Bacho, G. Kutyniok, "A fractional graph Laplacian approach to
    oversmoothing", NeurIPS 2023.

    Examples
    --------
    >>> import torch
    >>> from hpfracc.ml import LaplacianPower
    >>> path = torch.tensor([[1.0, -1.0], [-1.0, 1.0]])
    >>> LaplacianPower(path, alpha=2.0)(torch.tensor([[1.0], [0.0]])).flatten()
    tensor([ 2., -2.])
    """

    def __init__(self, laplacian: Tensor, alpha: OrderLike = 0.5, *, method: str = "auto") -> None:
        super().__init__()
        self.order = as_order(alpha)
        if self.order.channels is not None:
            raise ShapeError("a power of the Laplacian has one order; give a single number")
        self.spectrum = _Spectrum(laplacian, method, symmetric_only=False)

    def forward(self, x: Tensor) -> Tensor:
        """Features of shape (..., nodes, features)."""
        self.spectrum.check(x)
        order, alpha = split_order(self.order)
        if alpha is not None and not alpha > 0.0:
            raise InvalidInputError(f"alpha={alpha:g} is not positive; use an order above 0")
        return _apply([x, *self.spectrum.tensors(), *order], "power", self.spectrum.method, alpha, 1.0)[0]

    def extra_repr(self) -> str:
        """Order and size."""
        return f"alpha={shown_order(self.order)}, nodes={self.spectrum.nodes}, method={self.spectrum.method!r}"
