"""Losses between sampled paths and data: the energy score, and the signature-kernel MMD."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hpfracc import _reading
from hpfracc.errors import ShapeError

__all__ = ["energy_score", "signature_kernel", "signature_mmd"]


def energy_score(samples: Any, observed: Any, *, beta: float = 1.0, event: int = 1) -> Any:
    r"""The energy score of samples of shape (S, ..., d) against an observation of shape (..., d).

    .. math:: \frac1S \sum_i |x_i - y|^\beta - \frac{1}{2 S (S-1)} \sum_{i \ne j} |x_i - x_j|^\beta.

    See :func:`hpfracc.ml.torch.path_losses.energy_score`; the last ``event`` axes form one vector.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from hpfracc.ml.jax.path_losses import energy_score
    >>> float(energy_score(jnp.array([[0.0], [2.0]]), jnp.array([1.0])))
    0.0
    """
    beta = _reading.number("beta", beta, above=0, below=2)
    samples, observed = (
        jnp.asarray(_reading.array("samples", samples)),
        jnp.asarray(_reading.array("observed", observed)),
    )
    if samples.ndim < 1 or samples.shape[1:] != observed.shape:
        raise ShapeError(
            f"samples have shape {samples.shape} and the observation {observed.shape}; give (S, ..., d) and (..., d)"
        )
    if samples.shape[0] < 2:
        raise ShapeError("there is one sample; the spread needs two or more along the first axis")
    event = _reading.whole("event", event, least=1, most=observed.ndim)
    count = samples.shape[0]
    y = observed.reshape(*observed.shape[: observed.ndim - event], -1)
    x = samples.reshape(count, *y.shape)
    near = _power(x - y, beta).mean(0)
    one, other = np.triu_indices(count, 1)
    return near - _power(x[one] - x[other], beta).sum(0) / (count * (count - 1))


def _power(difference: Any, beta: float) -> Any:
    """The norm to the power beta, with derivative 0 where the norm is 0."""
    square = (difference**2).sum(-1)
    zero = square == 0
    return jnp.where(zero, 0.0, jnp.where(zero, 1.0, square) ** (0.5 * beta))


def signature_kernel(x: Any, y: Any, *, refinement: int = 1, width: float | None = None) -> Any:
    """Inner products of the signatures of paths, each of ``x`` with each of ``y``: shape (A, B).

    See :func:`hpfracc.ml.torch.path_losses.signature_kernel`. Paths have shapes (A, n, d) and (B, m, d). Solves
    Goursat's equation with each step divided into ``2**refinement``, on points lifted by a Gaussian kernel if a
    ``width`` is given.
    """
    x, y = jnp.asarray(_reading.array("x", x)), jnp.asarray(_reading.array("y", y))
    if x.ndim != 3 or y.ndim != 3 or x.shape[2] != y.shape[2] or min(x.shape[1], y.shape[1]) < 2:
        raise ShapeError(
            f"paths have shapes {x.shape} and {y.shape}; give (A, n, d) and (B, m, d) with two points or more"
        )
    refinement = _reading.whole("refinement", refinement, least=0, most=12)
    width = None if width is None else _reading.number("width", width, above=0)
    if width is None:
        steps = jnp.einsum("aid,bjd->abij", jnp.diff(x, axis=1), jnp.diff(y, axis=1), precision="highest")
    else:
        squares = ((x[:, None, :, None] - y[None, :, None]) ** 2).sum(-1)
        steps = jnp.diff(jnp.diff(jnp.exp(squares * (-0.5 / float(width) ** 2)), axis=-1), axis=-2)
    parts = 2**refinement
    return _goursat(jnp.repeat(jnp.repeat(steps, parts, -1), parts, -2) / parts**2)


def signature_mmd(x: Any, y: Any, *, refinement: int = 1, width: float | None = None) -> Any:
    """An unbiased estimate of the squared maximum mean discrepancy of two sets of paths, by their signature kernel.

    See :func:`hpfracc.ml.torch.path_losses.signature_mmd`; each set needs two or more paths.
    """
    x, y = jnp.asarray(_reading.array("x", x)), jnp.asarray(_reading.array("y", y))
    if x.ndim < 2 or y.ndim < 2:
        raise ShapeError(f"paths have shapes {x.shape} and {y.shape}; give (paths, times, d)")
    if x.shape[0] < 2 or y.shape[0] < 2:
        raise ShapeError(f"there are {x.shape[0]} and {y.shape[0]} paths; give two or more of each")

    def mean(paths: Any) -> Any:
        kernel = signature_kernel(paths, paths, refinement=refinement, width=width)
        count = paths.shape[0]
        return (kernel.sum() - jnp.trace(kernel)) / (count * (count - 1))

    return mean(x) + mean(y) - 2.0 * signature_kernel(x, y, refinement=refinement, width=width).mean()


def _goursat(steps: Any) -> Any:
    """The value at the far corner, by diagonals: the squares of a diagonal are independent."""
    n, m = steps.shape[-2:]
    i = np.arange(n + 1)
    diagonals = np.arange(2, n + m + 1)
    j = diagonals[:, None] - i
    inside = (i >= 1) & (j >= 1) & (j <= m)
    # The squares below and to the left of the points (i, p - i); those outside are not used.
    chosen = steps[..., np.clip(i - 1, 0, n - 1), np.clip(j - 1, 0, m - 1)]
    ones = jnp.ones((*steps.shape[:-2], n + 1), steps.dtype)

    def move(kept: tuple[Any, Any], row: tuple[Any, Any]) -> tuple[tuple[Any, Any], None]:
        before, last = kept
        step, within = row
        square = step * step / 12.0
        left, corner = jnp.roll(last, 1, -1), jnp.roll(before, 1, -1)
        inner = (left + last) * (1.0 + 0.5 * step + square) - corner * (1.0 - square)
        return (last, jnp.where(within, inner, 1.0)), None

    (_, last), _ = jax.lax.scan(move, (ones, ones), (jnp.moveaxis(chosen, -2, 0), jnp.asarray(inside)))
    return last[..., n]
