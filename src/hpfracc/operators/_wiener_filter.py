r"""The fractional derivative of a Wiener process that is integrated p times, given noisy samples of it.

The states :math:`x = (f, f', \ldots, f^{(p)})` at two samples are related by :math:`x_{i+1} = A x_i + \eta_i`.
Orthogonal transformations eliminate one state after the other (Paige and Saunders), so that nothing need be known about
the first one and no variance is a difference. :math:`D^\alpha f = I^{p-\alpha} f^{(p)}` is a sum of exponentials of
the past (:mod:`hpfracc.history.states`) and of the newest interval. Given the states at its ends, what an interval adds
is linear in them, with a variance that is left; both follow from the responses to white noise at its points.

References
----------
C. C. Paige, M. A. Saunders, SIAM J. Numer. Anal. 14 (1977) 180-193; G. Wahba, J. R. Statist. Soc. B 40 (1978) 364-372,
for the equivalence with splines.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from scipy import linalg, special

from hpfracc.history.states import exponential_kernel

Array = np.ndarray[Any, Any]

#: Relative error of the kernel.
_KERNEL = 1e-7
#: Steps that differ by less than this share have the same coefficients.
_SAME_STEP = 1e-9
#: Gauss-Legendre points of an interval, in panels that shrink towards its end, where the kernel is singular.
_PANELS = np.concatenate([[0.0], 0.25 ** np.arange(7.0, -1.0, -1.0)])
_POINTS, _WEIGHTS = special.roots_legendre(10)
_LAGS = (_PANELS[:-1, None] + np.diff(_PANELS)[:, None] * 0.5 * (_POINTS + 1.0)).ravel()
_ROOTS = np.sqrt(0.5 * np.diff(_PANELS)[:, None] * _WEIGHTS).ravel()


class _Step(NamedTuple):
    """What a step does: to the states, and to the functionals (exponentials, derivative and value)."""

    length: float
    whiten: Array  # times x_new - A x_old is white noise of the size of the roughness
    advance: Array  # A
    decays: Array  # of the functionals; those of the derivative and of the value are 0
    shares: Array  # of the old functionals in the new derivative
    old: Array  # coefficients of x_old in the new functionals
    new: Array
    left: Array  # variance that the states do not explain, in units of the roughness

    def moved(self, functionals: Array) -> Array:
        """The part of the new functionals that the old ones are; for each column."""
        found = self.decays[:, None] * functionals
        found[..., -2, :] = self.shares @ functionals
        return found


class Functionals(NamedTuple):
    """The derivative and the value at a sample: a mean and a variance, and coefficients of the state there."""

    means: Array
    variances: Array
    coefficients: Array

    def given(self, state: Array, covariance: Array) -> tuple[Array, Array]:
        """Their means and variances, given those of the state."""
        rows = self.coefficients
        return self.means + (rows @ state)[..., 0], self.variances + ((rows @ covariance) * rows).sum(axis=-1)


class Elimination(NamedTuple):
    """``square @ x + right @ (the next x) = constant`` plus white noise."""

    square: Array
    right: Array
    constant: Array

    def before(self, state: Array, covariance: Array) -> tuple[Array, Array]:
        """Mean and covariance of x, given those of the next one."""
        unit = np.broadcast_to(np.eye(state.shape[-2]), self.square.shape)
        columns = np.concatenate([self.constant - self.right @ state, self.right, unit], axis=-1)
        mean, gain, own = np.split(np.linalg.solve(self.square, columns), [1, 1 + state.shape[-2]], axis=-1)
        return mean, gain @ covariance @ gain.mT + own @ own.mT


class WienerFilter:
    """The derivative of order ``order`` at the newest of samples that come one by one, for K processes at once.

    Parameters
    ----------
    order : float
        Order of the derivative, above 0 and at most ``degree``.
    degree : int
        How often the process is integrated.
    shortest, longest : float
        The shortest step, and the longest time.
    noise, roughness : numpy.ndarray, shape (K,)
        Standard deviations of the noise, and of the change of the derivative of order ``degree`` per unit of time.
    """

    def __init__(
        self, order: float, degree: int, shortest: float, longest: float, noise: Array, roughness: Array
    ) -> None:
        self._memory, self._degree = degree - order, degree
        self._rates, shares = np.zeros(0), np.zeros(0)
        if self._memory > 0.0:
            kernel = exponential_kernel(self._memory, shortest, longest, _KERNEL)
            count = kernel.needed(shortest)
            self._rates, shares = kernel.rates[:count], kernel.weights[:count]
        self._shares = np.append(shares, [0.0, 0.0])
        self._noise, self._roughness = noise[:, None], roughness[:, None, None]
        self._step: _Step | None = None
        size, states, many = self._rates.size + 2, degree + 1, noise.size
        # Of the samples so far: the equations of the newest state, and the functionals' means, variances and
        # coefficients of that state.
        self._rows: Array = np.zeros((many, 0, states + 1))
        self._means, self._variances = np.zeros((many, size, 1)), np.zeros((many, size, size))
        self._open = np.zeros((many, size, states))
        #: The equations of the last state that was eliminated.
        self.eliminated: Elimination | None = None

    def push(self, value: float, step: float, share: Any = 1.0) -> None:
        """Take the next sample, ``step`` after the last one (of the first the step is ignored).

        ``share``, a number or one for each process, is by how much the roughness differs during that step.
        """
        many, count, wide = self._rows.shape
        states = wide - 1
        observed = np.zeros((many, 1, wide))
        observed[:, :, 0], observed[:, :, -1] = 1.0 / self._noise, value / self._noise
        if not count:
            self._rows, self._open[:, -1, 0] = observed, 1.0
            self._open[:, -2, -1] = not self._memory
            return
        if self._step is None or abs(step - self._step.length) > _SAME_STEP * step:
            self._step = self._made(step)
        made = self._step
        roughness = self._roughness * np.reshape(share, (-1, 1, 1))
        whiten = made.whiten / roughness
        system = np.zeros((many, count + states + 1, states + wide))
        system[:, :count, :states], system[:, :count, -1] = self._rows[..., :-1], self._rows[..., -1]
        system[:, count:-1, :states], system[:, count:-1, states:-1] = -whiten @ made.advance, whiten
        system[:, -1:, states:] = observed
        system = np.asarray(np.linalg.qr(system, mode="r"))
        gone = Elimination(system[:, :states, :states], system[:, :states, states:-1], system[:, :states, -1:])
        parts = np.linalg.solve(gone.square.mT, (made.moved(self._open) + made.old).mT).mT
        self._means = made.moved(self._means) + parts @ gone.constant
        self._variances = made.moved(made.moved(self._variances).mT) + parts @ parts.mT
        self._variances += roughness**2 * made.left
        self._open = made.new - parts @ gone.right
        self._rows, self.eliminated = system[:, states : 2 * states, states:], gone

    def functionals(self) -> Functionals:
        """The derivative and the value at the newest sample."""
        variances = np.diagonal(self._variances, axis1=-2, axis2=-1)[:, -2:]
        return Functionals(self._means[:, -2:, 0], variances.copy(), self._open[:, -2:])

    def newest(self) -> tuple[Array, Array]:
        """Mean and covariance of the newest state given the samples so far; nan if they are too few."""
        many, count, wide = self._rows.shape
        if count < wide - 1:
            return np.full((many, wide - 1, 1), math.nan), np.full((many, wide - 1, wide - 1), math.nan)
        inverse = np.linalg.inv(self._rows[..., :-1])
        return inverse @ self._rows[..., -1:], inverse @ inverse.mT

    def _made(self, step: float) -> _Step:
        states, count = self._degree + 1, self._rates.size
        powers = self._degree - np.arange(states)
        # Responses of the states to white noise at points before the end of a step of length 1.
        basis, triangle = np.linalg.qr(_ROOTS[:, None] * _LAGS[:, None] ** powers / special.factorial(powers))
        whiten = linalg.solve_triangular(triangle, np.diag(step ** -(powers + 0.5)), trans="T")
        # Responses of the functionals to a jump of f^(degree) at these points, and at the beginning of the step.
        lags = step * np.append(_LAGS, 1.0)[:, None]
        responses = np.zeros((lags.size, count + 2))
        responses[:, :count] = lags * special.exprel(-lags * self._rates)
        if self._memory:
            responses[:, count] = lags[:, 0] ** self._memory / math.gamma(self._memory + 1.0)
        noises = responses[:-1] * _ROOTS[:, None] * math.sqrt(step)
        explained = basis.T @ noises
        rest = noises - basis @ explained
        advance = np.triu(linalg.toeplitz(np.zeros(states), step ** powers[::-1] / special.factorial(powers[::-1])))
        np.fill_diagonal(advance, 1.0)
        new = explained.T @ whiten
        old = -new @ advance
        old[:, -1] += responses[-1]
        new[-1, 0] = 1.0
        if not self._memory:
            new[-2, -1] = 1.0
        decays = np.append(np.exp(-self._rates * step), [0.0, 0.0])
        return _Step(step, whiten, advance, decays, self._shares * decays, old, new, rest.T @ rest)


def mixed(means: Array, variances: Array, chances: Array) -> tuple[Array, Array]:
    """Mean and standard deviation of a mixture over the last axis."""
    mean = np.asarray(means @ chances)
    return mean, np.sqrt((variances + (means - mean[..., None]) ** 2) @ chances)
