"""Fractional linear multistep methods, with starting weights: exact on the powers with which a solution starts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import fft
from scipy.special import gamma, rgamma, zetac

from hpfracc._xp import NUMPY
from hpfracc.solvers.ode.fixed.grid import make_grid, order_groups
from hpfracc.solvers.ode.fixed.scheme import Evaluate, Tableau, cached_weights, evaluate_first
from hpfracc.solvers.ode.problem import Problem, jacobian_source, starts_infinite
from hpfracc.solvers.ode.singular import GrowthError, Powers, starting_powers
from hpfracc.solvers.stepping.jacobian import Factors, factorise, is_sparse
from hpfracc.solvers.stepping.newton import Norm, solve_damped, step_scale
from hpfracc.solvers.stepping.options import Options
from hpfracc.solvers.stepping.system import StepFailedError

Array = np.ndarray[Any, Any]
#: The rows of an order, and its starting weights.
Starts = list[tuple[Any, Array]]

#: Maximum number of powers; with more the condition number of the system for the weights exceeds about 1e6.
MAX_POWERS = 7
#: From this point on the error of the sums comes from its expansion in 1/n.
_FAR = 128
_TERMS = 14
#: Number of points whose powers fit into the cache.
_CHUNK = 4096
#: Rounding error of a sum, relative to the sum of the absolute values.
_ROUNDING = 4e-16


def starting_weights(method: Any, alpha: float, omega: Array, powers: Powers) -> Array:
    r"""Weights ``w[j, k]`` of the values at steps ``first + j`` at the points k = 0 .. n-1, for step 1.

    They make :math:`\sum_j w_{k,j} f_j + \sum_{j=0}^{k} \omega_{k-j} f_j` the integral of order alpha if f is a sum
    of the powers; ``omega`` has all n weights of the method. Near the origin the error of the sum is the difference of
    the two sides. Far away these are of size :math:`k^{\nu+\alpha}` and their difference of size :math:`k^{\alpha-1}`,
    which would cancel. There it comes from the expansion of the generating functions at their singularities: each
    :math:`z^s`, with :math:`z = -\log\zeta`, contributes :math:`k^{-s-1}/\Gamma(-s)`.

    References
    ----------
    C. Lubich, SIAM J. Math. Anal. 17 (1986) 704-719; R. Garrappa, Math. Comput. Simul. 110 (2015) 96-112.
    """
    n = len(omega)
    smooth = method.at_one(alpha, _TERMS) if n > _FAR else None
    near = n if smooth is None else _FAR
    steps = np.arange(near, dtype=np.float64)
    missed = np.empty((len(powers.exponents), n))
    for row, power in enumerate(powers.exponents):
        with np.errstate(divide="ignore"):
            samples = steps**power
            exact = gamma(power + 1.0) * rgamma(power + alpha + 1.0) * steps ** (power + alpha)
        if power < 0.0:
            samples[0] = exact[0] = 0.0  # not needed at the origin
        if powers.first == 1 and power == 0.0:
            samples[0] = 0.0
        missed[row, :near] = exact - _convolve(omega[:near], samples)
    if smooth is not None:
        _miss_far(missed, smooth, method.at_minus_one(alpha, _TERMS), alpha, powers)
    nodes = np.arange(powers.first, powers.last + 1, dtype=np.float64)
    table = nodes[None, :] ** np.array(powers.exponents)[:, None]
    return np.linalg.solve(table, missed)


def _convolve(one: Array, other: Array) -> Array:
    """The product of two series, truncated to their length."""
    n = len(one)
    if n <= 4 * _FAR:
        return np.convolve(one, other)[:n]
    size = fft.next_fast_len(2 * n - 1, real=True)
    return np.asarray(fft.irfft(fft.rfft(one, size) * fft.rfft(other, size), size)[:n])


def _miss_far(missed: Array, smooth: Array, bent: Array | None, alpha: float, powers: Powers) -> None:
    """Fill in the exact integral of each power minus its sum, from the point ``_FAR`` on.

    Each is a sum of three series in 1/k: a regular one and one with the power itself from the singularity at 1, and an
    alternating one from that at -1. All use the same powers of 1/k, computed in pieces that fit into the cache.
    """
    m = np.arange(_TERMS)
    nu = np.array(powers.exponents)[:, None]
    at = (1.0 - 2.0 * (m % 2)) * (1.0 + zetac(-nu - m)) / gamma(m + 1.0)
    origin = np.where((nu == 0.0) & (m == 0) & (powers.first == 0), 1.0, 0.0)  # the value at the origin
    regular = _times_series(at + origin, smooth) * rgamma(alpha - m)
    whole = gamma(nu + 1.0) * smooth * rgamma(alpha + nu + 1.0 - m)
    whole[:, 0] = 0.0  # the exact integral
    if bent is not None:
        alternating = _times_series(at * (2.0 ** (1.0 + nu + m) - 1.0) + origin, bent) * rgamma(-alpha - m)
    for begin in range(_FAR, missed.shape[1], _CHUNK):
        k = np.arange(begin, min(begin + _CHUNK, missed.shape[1]), dtype=np.float64)
        table = np.vander(1.0 / k, _TERMS, increasing=True).T
        total = (regular @ table) * k ** (alpha - 1.0) + (whole @ table) * k ** (alpha + nu)
        if bent is not None:
            total += (alternating @ table) * (np.where(k % 2 == 0, 1.0, -1.0) * k ** (-alpha - 1.0))
        missed[:, begin : begin + _CHUNK] = -total


def _times_series(rows: Array, series: Array) -> Array:
    """The product of each row with a series, truncated to their length."""
    lags = np.arange(len(series)) - np.arange(len(series))[:, None]
    return np.asarray(rows @ np.where(lags >= 0, series[lags], 0.0))


def refuse_start(name: str, problem: Problem, options: Options, bound: float = 1.0) -> str | None:
    """Reason why there are no starting weights for powers up to ``bound``, or None."""
    try:
        powers = starting_powers(problem, bound)
    except GrowthError as error:
        return f"method={name!r}: {error}"
    if len(powers.exponents) > MAX_POWERS:
        advice = "'adaptive', without a step" if starts_infinite(problem) else "'implicit_trapezoid'"
        needs = f"would need starting weights for {len(powers.exponents)} powers of t"
        return f"method={name!r} {needs}, and more than {MAX_POWERS} have no digits; use method={advice}"
    if options.step is None:
        return None
    grid = make_grid(problem.t0, problem.t1, options.step)
    together = f"method={name!r} solves its first {powers.last} steps together"
    if grid.steps <= powers.last:
        return f"{together}: take a smaller step"
    shortest = min(problem.delays, default=math.inf)
    if shortest < powers.last * grid.step * (1.0 - 1e-9):
        most = f"{shortest / powers.last:g}"
        return f"{together}, and the delay {shortest:g} is shorter: take a step of at most {most}, or another method"
    return None


def start_together(rule: Any, table: Tableau, evaluate: Evaluate, options: Options, bound: float = 1.0) -> None:
    """Solve the first steps together, and add their starting weights to all later sums."""
    problem, grid = table.problem, table.grid
    table.begins = powers = starting_powers(problem, bound)
    table.powers = MAX_POWERS

    def starts(alpha: float, n: int) -> tuple[Array]:
        return (starting_weights(rule, alpha, rule.weights(NUMPY, alpha, n)[0][0], powers),)

    if powers.first == 0:
        evaluate_first(table, evaluate)
    scaled = [
        (mine, cached_weights(("starts", rule.name, powers), alpha, grid.count, starts)[0] * grid.step**alpha)
        for alpha, mine in order_groups(problem)
    ]
    _solve_first(table, evaluate, options, powers, scaled)
    for mine, each in scaled:
        table.sums[0, mine] += table.f[mine, powers.first : powers.last + 1] @ each
    table.known = powers.last + 1


def _first_weights(table: Tableau, powers: Powers, starts: Starts) -> tuple[Array, Array]:
    """Weights of the values at steps 1 .. last at each of these steps, for every row, and the known part."""
    first, last = powers.first, powers.last
    matrix = np.empty((len(table.y), last, last))
    known = np.array(table.sums[0, :, 1 : last + 1])
    lags = np.arange(1, last + 1)[:, None] - np.arange(first, last + 1)
    for omega, (mine, extra) in zip(table.weights[0], starts, strict=True):
        weights = extra[:, 1 : last + 1].T + np.where(lags >= 0, omega[np.maximum(lags, 0)], 0.0)
        if first == 0:
            known[mine] += table.f[mine, :1] * weights[:, 0]
        matrix[mine] = weights[:, 1 - first :]
    return matrix, known


def _solve_first(table: Tableau, evaluate: Evaluate, options: Options, powers: Powers, starts: Starts) -> None:
    """Solve steps 1 .. last together by Newton's method; the unknowns are (batch, step, component)."""
    shape, d, last = table.problem.shape, table.problem.shape[-1], powers.last
    source = jacobian_source(table.problem, evaluate)
    times = [table.grid.time(n) for n in range(1, last + 1)]
    matrix, known = _first_weights(table, powers, starts)
    finite = table.y[:, :1] if powers.first == 0 else table.sums[0, :, 1:2]
    begin = np.repeat(finite, last, axis=1)
    f = np.empty_like(begin)

    def flat(rows: Array) -> Array:
        """Flatten from (rows, steps)."""
        return np.asarray(rows.reshape(-1, d, last).transpose(0, 2, 1).reshape(-1))

    def rows(values: Array) -> Array:
        return np.asarray(values.reshape(-1, last, d).transpose(0, 2, 1).reshape(-1, last))

    def residual(values: Array) -> Array:
        y = rows(values)
        for n, t in enumerate(times):
            f[:, n] = evaluate(t, np.ascontiguousarray(y[:, n]).reshape(shape)).reshape(-1)
        return flat(y - known - (matrix @ f[:, :, None])[:, :, 0])

    def factors(values: Array) -> Factors | None:
        y = rows(values)
        residual(values)
        slopes = [source(t, np.ascontiguousarray(y[:, n]), f[:, n]) for n, t in enumerate(times)]
        weights = matrix.reshape(-1, d, last, last)
        if is_sparse(slopes[0]):
            from scipy.sparse import block_array, diags_array

            blocks = [[diags_array(weights[0, :, n, j]) @ slopes[j] for j in range(last)] for n in range(last)]
            return factorise(block_array(blocks), 1.0, last * d)
        system = np.einsum("banj,jbac->bnajc", weights, np.stack(slopes))
        return factorise(system.reshape(-1, last * d, last * d), 1.0, values.size)

    start = flat(begin)
    atol = flat(np.repeat(np.broadcast_to(options.atol, shape).reshape(-1, 1), last, axis=1))
    norm = Norm(step_scale(flat(known), start, last * d, options.rtol, atol), last * d)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        # The weights of the first steps are large and cancel, which limits the accuracy of their sums.
        residual(start)
        parts = float((np.abs(known) + (np.abs(matrix) @ np.abs(f)[:, :, None])[:, :, 0]).max())
        found, left = solve_damped(residual, factors, start, norm, rounding=_ROUNDING * parts)
    if found is None:
        where = f"for the first {last} steps, up to t = {times[-1]:g} (residual {left:.3g})"
        remedy = "take a smaller step, give jac, or another method"
        raise StepFailedError(f"Newton's method did not converge {where}: {remedy}.")
    residual(found)
    table.y[:, 1 : last + 1], table.f[:, 1 : last + 1] = rows(found), f
