r"""The kernel of the Caputo equation as a sum of exponentials, and the integrals over the newest step.

.. math:: \frac{1}{h} \int_{jh}^{(j+1)h} \frac{s^{\alpha-1}}{\Gamma(\alpha)}\,ds = \sum_l w_l\,d_l^{\,j-1},
    \qquad j \ge 1,

to 8 digits (:mod:`hpfracc.history.exponentials`). The rates do not depend on the order, the weights are smooth in it
up to :math:`\alpha = 1`. The history of a path is a sum over about 40 decaying states, so the cost of a step does not
depend on its length.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from hpfracc._xp import NUMPY, Namespace, namespace_of, of_variables
from hpfracc.history.exponentials import Nodes, exponential_nodes, node_weights

__all__ = ["count_rates", "decayed", "kernel_weights", "past"]

#: Relative error of the kernel.
_RTOL = 1e-8


def _nodes(steps: int) -> Nodes:
    """Nodes for the steps that ended 1 to ``steps`` steps ago, in units of the step."""
    return exponential_nodes(0.0, 1.0, 1.0, max(steps, 2.0), _RTOL)


def count_rates(steps: int) -> int:
    """Number of decaying states of a component."""
    return _nodes(steps).logs.size + 1


def kernel_weights(alpha: Any, steps: int, h: float) -> tuple[Any, ...]:
    """Decays over a step, weights, and the integrals over the newest step: of the drift, and of the noise.

    Returns
    -------
    decay, weights : array, shape (rates,)
        The mean of the kernel over the step that ended j steps ago, j >= 1, is ``sum(weights * decay**(j - 1))``.
    drift : scalar
        The integral of the kernel over the newest step.
    cross, spread : scalar
        The integral of white noise over the newest step is ``cross dW + spread N`` with a normal number N, for orders
        above 1/2; ``cross`` is the mean of the kernel.
    """
    xp = namespace_of(alpha)
    if xp.library == "numpy":
        return _kept_weights(float(alpha), steps, h)
    decay = np.exp(-_nodes(steps).rates)
    with xp.scope():
        made = of_variables(xp, lambda order: _weights(xp, order, steps, h))(xp.array(alpha))
        return (xp.array(decay), *made)


@lru_cache(maxsize=16)
def _kept_weights(alpha: float, steps: int, h: float) -> tuple[Any, ...]:
    weights, drift, cross, spread = _weights(NUMPY, alpha, steps, h)
    decay = np.exp(-_nodes(steps).rates)
    decay.flags.writeable = weights.flags.writeable = False
    return decay, weights, float(drift), float(cross), float(spread)


def _weights(xp: Namespace, alpha: Any, steps: int, h: float) -> tuple[Any, ...]:
    """Weights, without differences or quotients that lose digits near order 1."""
    power, nodes = 1.0 - alpha, _nodes(steps)
    gamma = xp.rgamma(xp.array(alpha))
    fast = nodes.rates[1:]
    means = np.concatenate([[1.0], np.exp(-fast) * -np.expm1(-fast) / fast])
    unit = xp.exp((alpha - 1.0) * math.log(h))
    weights = node_weights(xp, xp.array(power), nodes) * xp.array(means) * (unit * gamma)
    drift = h * unit * gamma / alpha
    cross = unit * gamma / alpha
    excess = 2.0 * alpha - 1.0
    spread = math.sqrt(h) * unit * gamma * power / (alpha * xp.sqrt(xp.where(excess > 0.0, excess, 1.0)))
    return weights, drift, cross, spread


def past(xp: Namespace, weights: Any, states: Any) -> Any:
    """``sum(weights * states)`` over the rates, for states of shape ``(rates, paths, d)``.

    On the host in the same order for any number of paths: with two or more columns the rows are accumulated in one
    pass. The result of a BLAS matrix product would depend on the number of columns.
    """
    rows = states.reshape(states.shape[0], -1)
    if xp.library != "numpy":
        return xp.matmul(weights, rows).reshape(states.shape[1:])
    if rows.shape[1] == 1:
        rows = np.repeat(rows, 2, axis=1)
    return np.einsum("l,lk->k", weights, rows)[: states[0].size].reshape(states.shape[1:])


def decayed(xp: Namespace, decay: Any, states: Any, change: Any) -> Any:
    """``decay * states + change``, in place in NumPy and in one pass in PyTorch."""
    if xp.library == "torch":
        return xp.module.addcmul(change, decay[:, None, None], states)
    if xp.library != "numpy":
        return decay[:, None, None] * states + change
    rows = states.reshape(states.shape[0], -1)
    rows *= decay[:, None]
    rows += change.ravel()
    return states
