r"""Losses between sampled paths and data: the energy score, and the signature-kernel MMD."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from hpfracc.errors import InvalidInputError, ShapeError

__all__ = ["energy_score", "signature_kernel", "signature_mmd"]


def energy_score(samples: Tensor, observed: Tensor, *, beta: float = 1.0, event: int = 1) -> Tensor:
    r"""The energy score of samples against an observation: small if the samples are distributed like the data [1].

    .. math:: \frac1S \sum_i |x_i - y|^\beta - \frac{1}{2 S (S-1)} \sum_{i \ne j} |x_i - x_j|^\beta.

    An unbiased estimate of a strictly proper score: its mean is smallest if the samples have the distribution of the
    data. In one dimension with :math:`\beta = 1` it is the continuous ranked probability score.

    Parameters
    ----------
    samples : tensor, shape (S, ..., d)
        Two or more samples, along the first axis.
    observed : tensor, shape (..., d)
        The observation.
    beta : float
        The power, between 0 and 2, both excluded.
    event : int
        Number of trailing axes that form one vector: 1 for the marginals at each time, 2 for paths of shape (n, d).

    Returns
    -------
    tensor, shape (...)
        One score for each vector.

    References
    ----------
    1. T. Gneiting, A. E. Raftery, "Strictly proper scoring rules, prediction, and estimation", JASA 102, 2007.

    Examples
    --------
    >>> import torch
    >>> from hpfracc.ml.torch.path_losses import energy_score
    >>> float(energy_score(torch.tensor([[0.0], [2.0]]), torch.tensor([1.0])))
    0.0
    """
    if not 0.0 < float(beta) < 2.0:
        raise InvalidInputError(f"beta={beta!r}: use a power between 0 and 2, both excluded; 1 is usual")
    if samples.ndim < 1 or samples.shape[1:] != observed.shape:
        raise ShapeError(
            f"samples have shape {tuple(samples.shape)} and the observation {tuple(observed.shape)}; give (S, ..., d) "
            "and (..., d)"
        )
    if samples.shape[0] < 2:
        raise ShapeError("there is one sample; the spread needs two or more along the first axis")
    if not 1 <= event <= observed.ndim:
        raise InvalidInputError(f"event={event!r}: use 1 to {observed.ndim}, the axes of the observation")
    x, y = samples.flatten(-event), observed.flatten(-event)
    count = x.shape[0]
    near = _power(x - y, beta).mean(0)
    one, other = torch.triu_indices(count, count, 1, device=x.device)
    return near - _power(x[one] - x[other], beta).sum(0) / (count * (count - 1))


def _power(difference: Tensor, beta: float) -> Tensor:
    """The norm to the power beta, with derivative 0 where the norm is 0."""
    square = difference.square().sum(-1)
    zero = square == 0
    return torch.where(zero, 0.0, torch.where(zero, 1.0, square) ** (0.5 * beta))


def signature_kernel(x: Tensor, y: Tensor, *, refinement: int = 1, width: Any = None) -> Tensor:
    r"""Inner products of the signatures of paths, each of ``x`` with each of ``y``.

    The kernel solves Goursat's equation [1]

    .. math:: \frac{\partial^2 k}{\partial s\,\partial t} = \langle \dot x_s, \dot y_t \rangle\, k,
        \qquad k(0, t) = k(s, 0) = 1,

    on the squares between the points of the paths, which are interpolated linearly; the error of the explicit scheme is
    of second order in the step.

    Parameters
    ----------
    x, y : tensor, shape (A, n, d) and (B, m, d)
        Paths. Add time as a component to distinguish paths through the same points at different times.
    refinement : int
        Each step is divided into ``2**refinement``.
    width : float, optional
        Lift points by the Gaussian kernel of this width first, :math:`e^{-|x - y|^2 / (2 w^2)}`; then the discrepancy
        of two distributions is zero only if they are equal. Without it the inner product of :math:`R^d` is used.

    Returns
    -------
    tensor, shape (A, B)

    References
    ----------
    1. C. Salvi, T. Cass, J. Foster, T. Lyons, W. Yang, "The signature kernel is the solution of a Goursat PDE", SIAM J.
       Math. Data Sci. 3, 2021.

    Examples
    --------
    >>> import torch
    >>> from hpfracc.ml.torch.path_losses import signature_kernel
    >>> line = torch.linspace(0.0, 1.0, 5, dtype=torch.float64)[None, :, None]
    >>> found = signature_kernel(line, line, refinement=4)
    >>> abs(found.item() - torch.special.i0(torch.tensor(2.0)).item()) < 1e-4
    True
    """
    _check_paths(x, y, refinement, width)
    steps = _increments(x, y, width)
    parts = 2**refinement
    steps = steps.repeat_interleave(parts, -1).repeat_interleave(parts, -2) / parts**2
    return _goursat(steps)


def signature_mmd(x: Tensor, y: Tensor, *, refinement: int = 1, width: Any = None) -> Tensor:
    r"""An unbiased estimate of the squared maximum mean discrepancy of two sets of paths, by their signature kernel.

    .. math:: \overline{k(x_i, x_j)}_{i \ne j} + \overline{k(y_i, y_j)}_{i \ne j} - 2\, \overline{k(x_i, y_j)},

    which may be negative. Its mean is 0 if both sets have the same distribution.

    Parameters
    ----------
    x, y : tensor, shape (A, n, d) and (B, m, d)
        Two or more paths each.
    refinement, width
        As in :func:`signature_kernel`.
    """
    if x.shape[0] < 2 or y.shape[0] < 2:
        raise ShapeError(f"there are {x.shape[0]} and {y.shape[0]} paths; give two or more of each")

    def mean(paths: Tensor) -> Tensor:
        kernel = signature_kernel(paths, paths, refinement=refinement, width=width)
        count = paths.shape[0]
        return (kernel.sum() - kernel.diagonal().sum()) / (count * (count - 1))

    return mean(x) + mean(y) - 2.0 * signature_kernel(x, y, refinement=refinement, width=width).mean()


def _check_paths(x: Tensor, y: Tensor, refinement: int, width: Any) -> None:
    if x.ndim != 3 or y.ndim != 3 or x.shape[2] != y.shape[2] or min(x.shape[1], y.shape[1]) < 2:
        raise ShapeError(
            f"paths have shapes {tuple(x.shape)} and {tuple(y.shape)}; give (A, n, d) and (B, m, d) with two points or "
            "more"
        )
    if not (isinstance(refinement, int) and 0 <= refinement <= 12):
        raise InvalidInputError(f"refinement={refinement!r}: use a whole number, 0 to 12")
    if width is not None and not float(width) > 0.0:
        raise InvalidInputError(f"width={width!r}: use a positive number, or None")


def _increments(x: Tensor, y: Tensor, width: Any) -> Tensor:
    """Second differences of the kernel of points, shape (A, B, n - 1, m - 1)."""
    if width is None:
        return torch.einsum("aid,bjd->abij", x.diff(dim=1), y.diff(dim=1))
    squares = (x[:, None, :, None] - y[None, :, None]).square().sum(-1)
    return torch.exp(squares * (-0.5 / float(width) ** 2)).diff(dim=-1).diff(dim=-2)


def _goursat(steps: Tensor) -> Tensor:
    """The value at the far corner, by diagonals: the squares of a diagonal are independent."""
    n, m = steps.shape[-2:]
    row, column = np.indices((n, m))
    order = np.argsort((row + column).ravel(), kind="stable")
    # Squares sorted by diagonal in one gather, whose backward pass is one scatter.
    sorted_steps = steps.flatten(-2)[..., torch.as_tensor(order, device=steps.device)]
    squares = sorted_steps * sorted_steps / 12.0
    lengths = np.bincount((row + column).ravel()).tolist()
    ahead = (1.0 + 0.5 * sorted_steps + squares).split(lengths, -1)
    behind = (1.0 - squares).split(lengths, -1)
    one = steps.new_ones(*steps.shape[:-2], 1)
    # Values at the points (i, p - i) of the diagonals p - 2 and p - 1, for increasing i.
    before, last = one, torch.cat([one, one], -1)
    for p in range(2, n + m + 1):
        # The first i of the new points that are not on an edge, and of the two previous diagonals.
        first, after = max(1, p - m), min(n, p - 1) + 1
        start, earlier = max(0, p - 1 - m), max(0, p - 2 - m)
        left, below = last[..., first - 1 - start : after - 1 - start], last[..., first - start : after - start]
        corner = before[..., first - 1 - earlier : after - 1 - earlier]
        inner = (left + below) * ahead[p - 2] - corner * behind[p - 2]
        edges = [one] if p <= m else [], [one] if p <= n else []
        before, last = last, torch.cat([*edges[0], inner, *edges[1]], -1)
    return last[..., 0]
