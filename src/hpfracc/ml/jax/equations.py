"""Residuals of fractional equations and diffusion on graphs as layers, for JAX."""

from __future__ import annotations

from typing import final

from hpfracc.ml import graphs, operator_layers
from hpfracc.ml.jax.order import Layer, pytree

__all__ = ["FractionalResidual", "GraphDiffusion", "LaplacianPower", "LaplacianResidual"]


@final
@pytree("order")
class FractionalResidual(operator_layers.ResidualLayer, Layer):
    r"""The residual :math:`D^\alpha u - r` at given times; see :class:`hpfracc.ml.FractionalResidual`.

    Parameters
    ----------
    points : array, shape (n,)
        Increasing; known when the layer is created.
    alpha : float, array or LearnableOrder
        The order.
    definition : {"caputo", "riemann_liouville"}
        Definition of the derivative.
    axis : int
        The axis of ``u`` along which the points lie.
    """


@final
@pytree("order")
class LaplacianResidual(operator_layers.LaplacianLayer, Layer):
    r"""The residual :math:`(-\Delta)^{\alpha/2} u - r` on a uniform grid; see :class:`hpfracc.ml.LaplacianResidual`.

    Parameters
    ----------
    alpha : float, array or LearnableOrder
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
@pytree("order")
class GraphDiffusion(graphs.DiffusionLayer, Layer):
    r"""Diffusion with memory on a graph, solved exactly; see :class:`hpfracc.ml.GraphDiffusion`.

    Parameters
    ----------
    laplacian : array, SciPy sparse array or JAX BCOO, shape (nodes, nodes)
        Symmetric; treated as a constant.
    beta : float, array or LearnableOrder
        The order, in (0, 1].
    t : float
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
    >>> from hpfracc.ml.jax.equations import GraphDiffusion
    >>> path = np.array([[1.0, -1.0], [-1.0, 1.0]])
    >>> found = GraphDiffusion(path, beta=1.0, t=0.5)(np.array([[1.0], [0.0]]))
    >>> [round(float(value), 4) for value in found.ravel()]
    [0.6839, 0.3161]
    """


@final
@pytree("order")
class LaplacianPower(graphs.PowerLayer, Layer):
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
