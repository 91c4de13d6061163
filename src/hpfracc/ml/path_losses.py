"""Losses between sampled paths and data, for arrays of any library: the energy score, and the signature-kernel MMD."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpfracc import _reading
from hpfracc._xp import Namespace, array_namespace
from hpfracc.errors import ShapeError, UnsupportedDtypeError
from hpfracc.solvers.tensors.loops import scan

__all__ = ["energy_score", "signature_kernel", "signature_mmd"]


def energy_score(samples: Any, observed: Any, *, beta: float = 1.0, event: int = 1) -> Any:
    r"""The energy score of samples against an observation: small if the samples are distributed like the data [1].

    .. math:: L(x, y) = \frac1S \sum_i |x_i - y|^\beta - \frac{1}{2 S (S-1)} \sum_{i \ne j} |x_i - x_j|^\beta.

    An unbiased estimate of a strictly proper score: its mean is smallest if the samples have the distribution of the
    data. In one dimension with :math:`\beta = 1` it is the continuous ranked probability score.

    Parameters
    ----------
    samples : array, shape (S, ..., d)
        Two or more samples, along the first axis.
    observed : array, shape (..., d)
        The observation.
    beta : float
        The power, between 0 and 2, both excluded.
    event : int
        Number of trailing axes that form one vector: 1 for the marginals at each time, 2 for paths of shape (n, d).

    Returns
    -------
    array, shape (...)
        One score for each vector.

    References
    ----------
    1. T. Gneiting, A. E. Raftery, "Strictly proper scoring rules, prediction, and estimation", JASA 102, 2007.

    Examples
    --------
    >>> import torch
    >>> from hpfracc.ml.path_losses import energy_score
    >>> float(energy_score(torch.tensor([[0.0], [2.0]]), torch.tensor([1.0])))
    0.0
    """
    beta = _reading.number("beta", beta, above=0, below=2)
    samples, observed = _real("samples", samples), _real("observed", observed)
    if samples.ndim < 1 or samples.shape[1:] != observed.shape:
        raise ShapeError(
            f"samples have shape {tuple(samples.shape)} and the observation {tuple(observed.shape)}; give (S, ..., d) "
            "and (..., d)"
        )
    count = samples.shape[0]
    if count < 2:
        raise ShapeError("there is one sample; the spread needs two or more along the first axis")
    event = _reading.whole("event", event, least=1, most=observed.ndim)
    xp = array_namespace(samples)
    y = observed.reshape(*observed.shape[: observed.ndim - event], -1)
    x = samples.reshape(count, *y.shape)
    one, other = (xp.asarray(each, x) for each in np.triu_indices(count, 1))
    spread = _power(xp, x[one] - x[other], beta).sum(0) / (count * (count - 1))
    return _power(xp, x - y, beta).mean(0) - spread


def _real(name: str, value: Any) -> Any:
    found = _reading.array(name, value)
    if "complex" in str(found.dtype):
        raise UnsupportedDtypeError(f"{name} is complex; give real and imaginary parts as components")
    return found


def _power(xp: Namespace, difference: Any, beta: float) -> Any:
    """The norm to the power beta, with derivative 0 where the norm is 0."""
    square = (difference**2).sum(-1)
    zero = square == 0
    return xp.where(zero, 0.0, xp.where(zero, 1.0, square) ** (0.5 * beta))


def signature_kernel(x: Any, y: Any, *, refinement: int = 1, width: float | None = None) -> Any:
    r"""Inner products of the signatures of paths, each of ``x`` with each of ``y``.

    The kernel solves Goursat's equation [1]

    .. math:: \frac{\partial^2 k}{\partial s\,\partial t} = \langle \dot x_s, \dot y_t \rangle\, k,
        \qquad k(0, t) = k(s, 0) = 1,

    on the squares between the points of the paths, which are interpolated linearly; the error of the explicit scheme is
    of second order in the step.

    Parameters
    ----------
    x, y : array, shape (A, n, d) and (B, m, d)
        Paths. Add time as a component to distinguish paths through the same points at different times.
    refinement : int
        Each step is divided into ``2**refinement``.
    width : float, optional
        Lift points by the Gaussian kernel of this width first, :math:`e^{-|x - y|^2 / (2 w^2)}`; then the discrepancy
        of two distributions is zero only if they are equal. Without it the inner product of :math:`R^d` is used.

    Returns
    -------
    array, shape (A, B)

    References
    ----------
    1. C. Salvi, T. Cass, J. Foster, T. Lyons, W. Yang, "The signature kernel is the solution of a Goursat PDE", SIAM J.
       Math. Data Sci. 3, 2021.

    Examples
    --------
    >>> import torch
    >>> from hpfracc.ml.path_losses import signature_kernel
    >>> line = torch.linspace(0.0, 1.0, 5, dtype=torch.float64)[None, :, None]
    >>> found = signature_kernel(line, line, refinement=4)
    >>> abs(found.item() - torch.special.i0(torch.tensor(2.0)).item()) < 1e-4
    True
    """
    x, y = _real("x", x), _real("y", y)
    if x.ndim != 3 or y.ndim != 3 or x.shape[2] != y.shape[2] or min(x.shape[1], y.shape[1]) < 2:
        raise ShapeError(
            f"paths have shapes {tuple(x.shape)} and {tuple(y.shape)}; give (A, n, d) and (B, m, d) with two points or "
            "more"
        )
    parts = 2 ** _reading.whole("refinement", refinement, least=0, most=12)
    xp = array_namespace(x)
    if width is None:
        one, other = x[:, 1:] - x[:, :-1], y[:, 1:] - y[:, :-1]
        steps = xp.matmul(one[:, None], xp.moveaxis(other, 1, 2)[None])
    else:
        squares = ((x[:, None, :, None] - y[None, :, None]) ** 2).sum(-1)
        kernel = xp.exp(squares * (-0.5 / _reading.number("width", width, above=0) ** 2))
        steps = kernel[..., 1:, 1:] - kernel[..., :-1, 1:] - kernel[..., 1:, :-1] + kernel[..., :-1, :-1]
    a, b, n, m = steps.shape
    fine = steps[..., :, None, :, None] / parts**2 + xp.zeros((parts, 1, parts), steps.dtype, steps)
    return _goursat(xp, fine.reshape(a, b, n * parts, m * parts))


def signature_mmd(x: Any, y: Any, *, refinement: int = 1, width: float | None = None) -> Any:
    r"""An unbiased estimate of the squared maximum mean discrepancy of two sets of paths, by their signature kernel.

    .. math:: d^2 = \overline{k(x_i, x_j)}_{i \ne j} + \overline{k(y_i, y_j)}_{i \ne j} - 2\, \overline{k(x_i, y_j)},

    which may be negative. Its mean is 0 if both sets have the same distribution.

    Parameters
    ----------
    x, y : array, shape (A, n, d) and (B, m, d)
        Two or more paths each.
    refinement, width
        As in :func:`signature_kernel`.
    """
    x, y = _real("x", x), _real("y", y)
    if x.ndim < 2 or y.ndim < 2:
        raise ShapeError(f"paths have shapes {tuple(x.shape)} and {tuple(y.shape)}; give (paths, times, d)")
    if x.shape[0] < 2 or y.shape[0] < 2:
        raise ShapeError(f"there are {x.shape[0]} and {y.shape[0]} paths; give two or more of each")

    def mean(paths: Any) -> Any:
        kernel = signature_kernel(paths, paths, refinement=refinement, width=width)
        count = paths.shape[0]
        return (kernel.sum() - kernel.trace()) / (count * (count - 1))

    return mean(x) + mean(y) - 2.0 * signature_kernel(x, y, refinement=refinement, width=width).mean()


def _goursat(xp: Namespace, steps: Any) -> Any:
    """The value at the far corner, by diagonals: the squares of a diagonal are independent."""
    if xp.library == "jax":
        return _goursat_scanned(xp, steps)
    *batch, n, m = steps.shape
    row, column = np.indices((n, m))
    order = np.argsort((row + column).ravel(), kind="stable")
    # Squares sorted by diagonal in one gather, whose backward pass is one scatter.
    ordered = steps.reshape(*batch, n * m)[..., xp.asarray(order, steps)]
    squares = ordered * ordered / 12.0
    split = getattr(xp.module, "tensor_split", xp.module.split)  # PyTorch's, by the ends of parts
    ends = np.cumsum(np.bincount((row + column).ravel())).tolist()
    ahead, behind = (split(each, ends[:-1], -1) for each in (1.0 + 0.5 * ordered + squares, 1.0 - squares))
    one = xp.ones_like(steps[..., :1, 0])
    # Values at the points (i, p - i) of the diagonals p - 2 and p - 1, for increasing i.
    before, last = one, xp.concatenate([one, one], -1)
    for p in range(2, n + m + 1):
        # The first i of the new points that are not on an edge, and of the two previous diagonals.
        first, after = max(1, p - m), min(n, p - 1) + 1
        start, earlier = max(0, p - 1 - m), max(0, p - 2 - m)
        left, below = last[..., first - 1 - start : after - 1 - start], last[..., first - start : after - start]
        corner = before[..., first - 1 - earlier : after - 1 - earlier]
        inner = (left + below) * ahead[p - 2] - corner * behind[p - 2]
        edges = [one] if p <= m else [], [one] if p <= n else []
        before, last = last, xp.concatenate([*edges[0], inner, *edges[1]], -1)
    return last[..., 0]


def _goursat_scanned(xp: Namespace, steps: Any) -> Any:
    """The same with diagonals of one length, which JAX compiles once. In PyTorch it takes two to three times longer."""
    *batch, n, m = steps.shape
    width = n + m - 1
    # Each row is shifted by its number, so that squares (i, j) with the same i + j are in one column.
    padded = xp.concatenate([steps, xp.zeros((*batch, n, n), steps.dtype, steps)], -1)
    sheared = padded.reshape(*batch, n * (n + m))[..., : n * width].reshape(*batch, n, width)
    column = np.arange(width)[:, None] - np.arange(n)
    inside = xp.asarray((column >= 0) & (column < m), steps)
    one = xp.ones_like(steps[..., :1, 0])

    def move(kept: tuple[Any, ...], row: tuple[Any, Any]) -> tuple[Any, ...]:
        """From the values at the points (i, p - i), i = 0, ..., n, of two diagonals to those of the next one."""
        last, before = kept
        step, within = row
        square = step * step / 12.0
        inner = (last[..., :-1] + last[..., 1:]) * (1.0 + 0.5 * step + square) - before[..., :-1] * (1.0 - square)
        return xp.concatenate([one, xp.where(within, inner, 1.0)], -1), last

    start = xp.ones_like(xp.concatenate([one] * (n + 1), -1))
    (last, _), _ = scan(xp, move, (start, start), (xp.moveaxis(sheared, -1, 0), inside), keep=False)
    return last[..., n]
