"""Residuals of fractional equations and diffusion on graphs as layers, for PyTorch."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor

from hpfracc import _reading
from hpfracc.errors import InvalidInputError
from hpfracc.ml import graphs, operator_layers
from hpfracc.ml.torch.layers import LayerModule

__all__ = [
    "FractionalResidual", "GraphDiffusion", "LaplacianPower", "LaplacianResidual", "graded_points", "whole_derivative",
]  # fmt: skip


@final
class FractionalResidual(operator_layers.ResidualLayer, LayerModule):
    r"""The residual :math:`D^\alpha u - r` of an equation, at given times.

    ``u`` contains the values of a network at all points. The derivative uses hpfracc's rules for arbitrary grids, and
    gradients flow to the values and to the order. For integer derivatives in other variables see
    :func:`whole_derivative`.

    Parameters
    ----------
    points : Tensor, shape (n,)
        Increasing; see :func:`graded_points`.
    alpha : float, Tensor, Parameter or LearnableOrder
        The order.
    definition : {"caputo", "riemann_liouville"}
        Definition of the derivative. That of Riemann and Liouville is infinite at the first point unless the value
        there is 0; leave that point out of the loss.
    axis : int
        The axis of ``u`` along which the points lie.

    Examples
    --------
    >>> import torch
    >>> from hpfracc.ml import FractionalResidual, graded_points
    >>> t = graded_points(65, 1.0, 3.0)
    >>> residual = FractionalResidual(t, alpha=0.5)(t, 2 * torch.sqrt(t / torch.pi))  # D^0.5 t = 2 sqrt(t / pi)
    >>> bool(residual.abs().max() < 1e-12)
    True
    """


@final
class LaplacianResidual(operator_layers.LaplacianLayer, LayerModule):
    r"""The residual :math:`(-\Delta)^{\alpha/2} u - r` in space, on a uniform grid.

    Computed by :func:`hpfracc.fractional_laplacian`, with its constants.

    Parameters
    ----------
    alpha : float, Tensor, Parameter or LearnableOrder
        The order, in (0, 2].
    step : float
        The spacing of the points.
    method : str
        As for :class:`hpfracc.FractionalLaplacian`: ``"integral"``, ``"periodic"``, ``"dirichlet"`` or ``"neumann"``.
    axis : int or sequence of int, optional
        The axes of space; the last one by default.
    backend : str, optional
        Backend of the engine.
    """


@final
class GraphDiffusion(graphs.DiffusionLayer, LayerModule):
    r"""Diffusion with memory on a graph, solved exactly: :math:`D^\beta X = -L X` with Caputo's derivative.

    .. math:: X(t) = \sum_i E_\beta(-\lambda_i t^\beta)\, v_i v_i^T X(0).

    Order 1 is the heat equation. There are no time steps.

    Parameters
    ----------
    laplacian : Tensor, shape (nodes, nodes)
        Laplacian of an undirected graph, dense or sparse; it gets no gradient.
    beta : float, Tensor, Parameter or LearnableOrder
        The order, in (0, 1].
    t : float
        Duration of the diffusion, positive.
    method : {"auto", "eigen", "lanczos"}
        By an eigendecomposition, computed once, for up to 2,048 nodes; for larger graphs by the Lanczos method, which
        needs only products with L, and has first derivatives. It reserves 600 vectors per feature, for as many features
        at a time as fit into 1 GiB.

    References
    ----------
    Q. Kang, K. Zhao, Q. Ding, F. Ji, X. Li, W. Liang, Y. Song, W. P. Tay, "Unleashing the potential of fractional
    calculus in graph neural networks with FROND", ICLR 2024.

    Examples
    --------
    >>> import torch
    >>> from hpfracc.ml import GraphDiffusion
    >>> path = torch.tensor([[1.0, -1.0], [-1.0, 1.0]])
    >>> GraphDiffusion(path, beta=1.0, t=0.5)(torch.tensor([[1.0], [0.0]])).flatten()
    tensor([0.6839, 0.3161])
    """


@final
class LaplacianPower(graphs.PowerLayer, LayerModule):
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


def graded_points(n: int, end: float, grading: float = 2.0, *, dtype: torch.dtype = torch.float64) -> Tensor:
    """``n`` points ``end (j/(n-1))^grading`` from 0 on: dense where fractional solutions are not smooth.

    Parameters
    ----------
    n : int
        Number of points, at least 2.
    end : float
        The last point, positive.
    grading : float
        1 for uniform points; ``2 / alpha`` suits the piecewise linear rule for Caputo's derivative of order alpha.
    dtype : torch.dtype
        The dtype of the points.

    Examples
    --------
    >>> from hpfracc.ml import graded_points
    >>> graded_points(3, 1.0, 2.0).tolist()
    [0.0, 0.25, 1.0]
    """
    n, end = _reading.count("n", n, least=2), _reading.number("end", end, above=0)
    grading = _reading.number("grading", grading, least=1)
    _reading.instance("dtype", dtype, torch.dtype, "torch.float64")
    return (end * torch.linspace(0.0, 1.0, n, dtype=torch.float64) ** grading).to(dtype)


def whole_derivative(u: Tensor, x: Tensor, order: int = 1) -> Tensor:
    """The derivative of integer order of ``u``, an elementwise function of ``x``, by autograd.

    Parameters
    ----------
    u : Tensor
        Computed from ``x``, each element from its own element of ``x``.
    x : Tensor
        Must require a gradient.
    order : int
        Order of the derivative, at least 1.
    """
    order = _reading.whole("order", order, least=1)
    for name, tensor in (("u", u), ("x", x)):
        if not _reading.instance(name, tensor, Tensor, "torch.linspace(0, 1, 9)").requires_grad:
            raise InvalidInputError(f"{name} does not require a gradient; compute u from x.requires_grad_()")
    for _ in range(order):
        (u,) = torch.autograd.grad(u.sum(), x, create_graph=True)
    return u
