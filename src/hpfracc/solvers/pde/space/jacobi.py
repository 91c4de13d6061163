r"""The integral Laplacian on an interval, in the functions :math:`(1-x^2)^s P_n^{(s,s)}(x)`."""

from __future__ import annotations

import functools
import math
from functools import lru_cache
from typing import Any, final

import numpy as np

from hpfracc import _reading
from hpfracc._arrays import is_array, to_host
from hpfracc.solvers.pde.boundary import Exterior, boundary_value, is_function, is_homogeneous, varies_in_time
from hpfracc.solvers.pde.problem import plain_order
from hpfracc.solvers.pde.space.axes import diagonalise, matrix_product
from hpfracc.solvers.pde.space.base import Semidiscretisation, SpaceSetting, refuse_backwards, refuse_grid, trapezoid
from hpfracc.solvers.pde.space.krylov import RTOL
from hpfracc.solvers.pde.terms import FractionalDiffusion

Array = np.ndarray[Any, Any]

#: Largest number of functions; their matrices have the square of this number of elements.
MAX = 512
#: Step and number of nodes of the double exponential rule for exterior data: 14 digits for smooth data.
_STEP = 1.0 / 32.0


def jacobi_grid(points: int, order: float, interval: tuple[float, float] = (-1.0, 1.0)) -> Array:
    r"""The grid on which the integral Laplacian of an interval is spectrally accurate.

    Parameters
    ----------
    points : int
        Number of interior points; the two ends are added.
    order : float
        Order of the :class:`~hpfracc.solvers.pde.terms.FractionalDiffusion`, :math:`0 < \alpha < 2`.
    interval : (float, float)
        The ends.

    Returns
    -------
    numpy.ndarray, shape (points + 2,)
        The zeros of :math:`P_n^{(\alpha/2,\alpha/2)}` and the ends.

    Examples
    --------
    >>> jacobi_grid(3, 1.0).round(4)
    array([-1.    , -0.7071,  0.    ,  0.7071,  1.    ])
    """
    order = _reading.number("jacobi_grid: order", order, above=0.0, below=2.0)
    points = _reading.count("jacobi_grid: points", points)
    low, high = _reading.pair("jacobi_grid: interval", interval)
    inside = _basis(points, 0.5 * order).x
    return np.concatenate([[low], low + 0.5 * (high - low) * (1.0 + inside), [high]])


def interval_eigenvalues(count: int, order: float, points: int = 0) -> Array:
    r"""The lowest eigenvalues of :math:`(-\Delta)^{\alpha/2}` on (-1, 1), with zero exterior data.

    Parameters
    ----------
    count : int
        Number of eigenvalues.
    order : float
        alpha, in (0, 2).
    points : int
        Number of basis functions; by default 128 more than twice ``count``.

    Examples
    --------
    >>> interval_eigenvalues(2, 1.5).round(8)
    array([1.59750355, 5.05975993])
    """
    from scipy import special

    order = _reading.number("interval_eigenvalues: order", order, above=0.0, below=2.0)
    count = _reading.count("interval_eigenvalues: count", count)
    points = _reading.count("interval_eigenvalues: points", points, least=0)
    number, s = points or 2 * count + 128, 0.5 * order
    x, q = special.roots_jacobi(number, 2.0 * s, 2.0 * s)
    basis = _basis(number, s)
    # Galerkin's equations; the masses have the weight (1 - x^2)^(2s), for which this Gauss rule is exact.
    scaled = np.sqrt(q)[:, None] * basis.polynomials(x) / np.sqrt(basis.mu * basis.norms)
    return np.asarray(np.linalg.svd(scaled, compute_uv=False)[:count] ** -2.0)


@final
class _Basis:
    r"""Nodes, eigenvalues and orthonormal eigenvectors for one number of functions.

    With :math:`\omega = (1-x^2)^s`, :math:`(-\Delta)^s (\omega P_n^{(s,s)}) = \mu_n P_n^{(s,s)}`,
    :math:`\mu_n = \Gamma(2s+n+1)/n!`: at the zeros :math:`x_j` of :math:`P_N^{(s,s)}`, with the weights
    :math:`q_j` of Gauss quadrature, the operator on values of u is
    :math:`V\,\mathrm{diag}(\mu_n/h_n)\,V^T\,\mathrm{diag}(q_j/\omega_j)`, :math:`V_{jn} = P_n(x_j)`. It is
    symmetric after scaling with :math:`\sqrt{q_j/\omega_j}`.
    """

    def __init__(self, count: int, s: float) -> None:
        from scipy import special

        found = special.roots_jacobi(count, s, s)
        self.s: float = s
        self.x: Array = found[0]
        q: Array = found[1]
        self.omega = (1.0 - self.x**2) ** s
        self.mu, self.norms = _stiffness(count, s)
        values = self.polynomials(self.x)
        self.root = root = np.sqrt(q / self.omega)
        left, singular, _ = np.linalg.svd(root[:, None] * values * np.sqrt(self.mu / self.norms))
        self.eigenvalues, vectors = singular[::-1] ** 2, left[:, ::-1]
        self.forward, self.backward = vectors.T * root, vectors / root[:, None]
        self.expand = (values / self.norms).T * (q / self.omega)
        self.functions = self.omega[:, None] * values

    def polynomials(self, x: Array) -> Array:
        """``P_n^(s,s)(x)``, shape (points, n), by the three-term recurrence."""
        count, s = len(self.norms), self.s
        found = np.empty((x.size, count))
        found[:, 0] = 1.0
        if count > 1:
            found[:, 1] = (s + 1.0) * x
        for n in range(1, count - 1):
            c = 2.0 * n + 2.0 * s
            first = 2.0 * (n + 1.0) * (n + 2.0 * s + 1.0) * c
            middle = (c + 1.0) * c * (c + 2.0)
            last = 2.0 * (n + s) ** 2 * (c + 2.0)
            found[:, n + 1] = (middle * x * found[:, n] - last * found[:, n - 1]) / first
        return found

    def evaluation(self, x: Array) -> Array:
        """The matrix from values at the nodes to values at points ``x`` of [-1, 1]."""
        edge = np.clip(1.0 - x**2, 0.0, None) ** self.s
        return np.asarray(edge[:, None] * (self.polynomials(x) @ self.expand))

    def integrals(self) -> Array:
        """Weights at the nodes of the integral over (-1, 1): only ``P_0`` contributes, by orthogonality."""
        return np.asarray(self.norms[0] * self.expand[0])


def _stiffness(count: int, s: float) -> tuple[Array, Array]:
    """``mu_n``, and ``h_n``, the integral of ``P_n^2`` with the weight."""
    from scipy import special

    n = np.arange(count)
    rise = special.gammaln(2.0 * s + n + 1.0) - special.gammaln(n + 1.0)
    scale = (2.0 * s + 1.0) * math.log(2.0) - np.log(2.0 * n + 2.0 * s + 1.0)
    norms = scale + 2.0 * (special.gammaln(n + s + 1.0) - special.gammaln(n + 1.0)) - rise
    return np.exp(rise), np.exp(norms)


@lru_cache(maxsize=8)
def _basis(count: int, s: float) -> _Basis:
    return _Basis(count, s)


def harmonic_extension(x: Array, s: float) -> tuple[Array, Array]:
    r"""Points outside [-1, 1], and the matrix that maps data there to their extension at points ``x`` inside.

    The extension has :math:`(-\Delta)^s u = 0` inside: Poisson's formula,
    :math:`u(x) = \frac{\sin \pi s}{\pi} \int_{|y|>1} \big(\frac{1-x^2}{y^2-1}\big)^s \frac{g(y)}{|x-y|}\,dy`, by the
    double exponential rule in :math:`z = 1/y`.

    Returns
    -------
    numpy.ndarray, numpy.ndarray
        The points y, shape (m,), and the matrix, shape (n, m).
    """
    z, rest, measure = outside_rule(s)
    factor = math.sin(math.pi * s) / math.pi * ((1.0 - x) * (1.0 + x)) ** s
    right = measure / (rest + z * (1.0 - x)[:, None])
    left = measure / (rest + z * (1.0 + x)[:, None])
    return np.concatenate([1.0 / z, -1.0 / z]), factor[:, None] * np.concatenate([right, left], axis=1)


def outside_rule(s: float) -> tuple[Array, Array, Array]:
    """Nodes z in (0, 1), ``1 - z``, and weights of a double exponential rule with ``z^(2s-1) (1 - z^2)^-s``."""
    # Up to where the integrand is below rounding: like z^(2s) at 0, and like (1 - z)^(1-s) at 1.
    low, high = (-math.asinh(min(41.0 / (2.0 * s), 690.0) / math.pi), math.asinh(41.0 / (1.0 - s) / math.pi))
    tau = np.arange(math.floor(low / _STEP), math.ceil(high / _STEP) + 1) * _STEP
    inner = math.pi * np.sinh(tau)
    log_z, log_rest = -np.logaddexp(0.0, -inner), -np.logaddexp(0.0, inner)
    z, rest = np.exp(log_z), np.exp(log_rest)
    measure = _STEP * math.pi * np.cosh(tau) * np.exp(2.0 * s * log_z + (1.0 - s) * log_rest) * (1.0 + z) ** -s
    return z, rest, measure


def refuse_integral(setting: SpaceSetting, who: str) -> str | None:
    """Why the terms are no single integral Laplacian with exterior data and an order that is a number; None if so."""
    (term, *others) = setting.terms
    if others or not isinstance(term, FractionalDiffusion):
        return f"{who} takes one FractionalDiffusion(order, 'integral') and no other term"
    if term.kind != "integral":
        return f"{who} takes kind='integral', not {term.kind!r}"
    if not isinstance(plain_order(term.order), float):
        return (
            f"the order for {who} cannot carry a gradient; give a number, or take a box with kind='spectral' or "
            "'riesz', whose orders can"
        )
    if float(term.order) >= 2.0:
        return "order 2 is Diffusion; use that"
    if not isinstance(setting.boundary[0][0], Exterior):
        return "kind='integral' needs data outside; use boundary=Exterior(value)"
    return None


@final
class JacobiInterval(Semidiscretisation):
    r""":math:`-c (-\Delta)^{\alpha/2} u` on an interval, with exterior data.

    The unknowns are the values at the zeros of :math:`P_n^{(\alpha/2,\alpha/2)}` (:func:`jacobi_grid`), for any grid.
    On another grid the initial values are interpolated by cubic splines and the results are evaluated there. The basis
    contains the factor :math:`\rho^{\alpha/2}` of the solution at the ends. For a stationary problem with smooth
    right-hand side the error falls exponentially; for the lowest eigenfunctions, and hence for evolutions, like
    :math:`n^{-2-2\alpha}`.

    Exterior data :math:`u = g` are extended to the inside by the function :math:`u_g` with
    :math:`(-\Delta)^{\alpha/2} u_g = 0` there, so that the operator acts on :math:`u - u_g`.

    References
    ----------
    1. G. Acosta, J. P. Borthagaray, O. Bruno, M. Maas, "Regularity theory and high order numerical methods for the
       (1d)-fractional Laplacian", Math. Comp. 87, 2018.
    2. B. Dyda, A. Kuznetsov, M. Kwasnicki, "Eigenvalues of the fractional Laplace operator in the unit ball", J. London
       Math. Soc. 95, 2017.
    """

    name = "jacobi"
    accuracy = "spectral for smooth right-hand sides, 2 + 2 alpha in the number of points for evolutions"
    best_order = 4.0

    def __init__(self, setting: SpaceSetting) -> None:
        (term,), (x,) = setting.terms, setting.grid
        assert isinstance(term, FractionalDiffusion)
        self.setting, self.xp, self.grid = setting, setting.xp, setting.grid
        s = 0.5 * float(term.order)
        self._middle, self._half = 0.5 * float(x[0] + x[-1]), 0.5 * float(x[-1] - x[0])
        local = np.clip((x - self._middle) / self._half, -1.0, 1.0)
        count = min(x.size - 2, MAX)
        basis = _basis(count, s)
        self._basis, xp = basis, setting.xp
        self.shape = (count,)
        self.points = (xp.array(self._middle + self._half * basis.x),)
        self.nodal = count == x.size - 2 and bool(np.allclose(local[1:-1], basis.x, rtol=0.0, atol=1e-10))
        self.coarsens = not self.nodal  # every second node is no grid of fewer functions
        self._forward, self._backward = xp.array(basis.forward), xp.array(basis.backward)
        if not self.nodal:
            self._evaluation = xp.array(basis.evaluation(local))
            self._spline = xp.array(_spline_matrix(local, basis.x))
            self.notes = (
                "initial values on this grid are interpolated to the zeros of Jacobi polynomials, with an error of "
                "order 4 where they are smooth; x=jacobi_grid(n, order, (a, b)) has none",
            )
        self._eigenvalues = -(self._half ** (-2.0 * s)) * basis.eigenvalues
        coefficient: Any = term.coefficient
        self._varying: Any = None
        if is_function(coefficient):
            self._varying = coefficient(*self.points) + xp.array(np.zeros(count))
            refuse_backwards(self._varying)
            if isinstance(self._varying, np.ndarray) and self._varying.dtype.kind == "f" and self._varying.min() > 0.0:
                self._diagonalise(self._varying)
        else:
            refuse_backwards(coefficient)
            self.symbol = xp.array(self._eigenvalues) * coefficient
        to, back = (functools.partial(matrix_product, xp, each) for each in (self._forward, self._backward))
        self.transforms = (to,), (back,)
        lower = setting.boundary[0][0]
        assert isinstance(lower, Exterior)
        self._outside = lower
        self.forced, self.forcing_varies = not is_homogeneous(lower), varies_in_time(lower)
        if self.forced:
            self._y, inside = harmonic_extension(basis.x, s)
            self._y = self._middle + self._half * self._y
            self._to_nodes = xp.array(inside)
            self._to_grid = xp.array(harmonic_extension(local[1:-1], s)[1])
        gauss = self.nodal and not self.forced
        self._weights = xp.array(np.pad(self._half * basis.integrals(), 1) if gauss else trapezoid(x))

    def _diagonalise(self, coefficient: Array) -> None:
        """The eigenvectors with a positive coefficient that varies."""
        basis = self._basis
        vectors = basis.forward / basis.root
        values, to, back = diagonalise((vectors.T * self._eigenvalues) @ vectors, coefficient)
        self.symbol, self._varying = values, None
        self._forward, self._backward = to * basis.root, back / basis.root[:, None]

    @classmethod
    def refuses(cls, setting: SpaceSetting) -> str | None:
        """Supports a single integral Laplacian on an interval with exterior data."""
        if setting.ndim != 1:
            return f"it takes one dimension, and the grid has {setting.ndim}"
        return refuse_integral(setting, "an interval") or refuse_grid(setting, 3, uniform=False)

    def apply(self, u: Any) -> Any:
        """Transform, multiply by the eigenvalues, transform back."""
        if self._varying is None:
            return super().apply(u)
        return self._varying * self.backward(self.xp.array(self._eigenvalues) * self.forward(u))

    def solve(self, shift: Any, rhs: Any, guess: Any = None, rtol: float = RTOL) -> Any:
        """Division by the shifted eigenvalues; with a coefficient that is not positive everywhere, a dense system."""
        if self._varying is None:
            return super().solve(shift, rhs)
        xp = self.xp
        if is_array(shift) and math.prod(shift.shape) > 1:  # one per component
            return xp.stack([self.solve(one.reshape(()), part) for one, part in zip(shift, rhs, strict=True)])
        core = xp.matmul(self._backward * xp.array(self._eigenvalues), self._forward)
        matrix = shift * xp.array(np.eye(self.shape[0])) - self._varying.reshape(-1, 1) * core
        flat = rhs.reshape(-1, self.shape[0])
        return xp.module.linalg.solve(matrix, flat.T).T.reshape(rhs.shape)

    def forcing(self, t: float) -> Any:
        """``-A u_g``."""
        return None if not self.forced else -self.apply(self._lift(t, self._to_nodes))

    def _lift(self, t: float, matrix: Any) -> Any:
        data = boundary_value(self._outside, t, (self.xp.array(self._y),))
        if not getattr(data, "ndim", 0):
            return data + 0.0 * matrix[:, 0]
        return self.xp.matmul(matrix, self.xp.array(data).reshape(-1, 1)).reshape(-1)

    def embed(self, u: Any, t: float) -> Any:
        """Evaluates on the given grid, with the exterior data at its ends."""
        xp, x = self.xp, self.grid[0]
        edge = 0.0 * u[..., :1]
        ends = [0.0, 0.0]
        if self.forced:
            ends = [boundary_value(self._outside, t, (xp.array(x[place : place + 1]),)) for place in (0, x.size - 1)]
        if self.nodal:
            inside = u
        elif not self.forced:
            inside = matrix_product(xp, self._evaluation, u)[..., 1:-1]
        else:
            rest = u - self._lift(t, self._to_nodes)
            inside = matrix_product(xp, self._evaluation, rest)[..., 1:-1] + self._lift(t, self._to_grid)
        return xp.concatenate([edge + ends[0], inside, edge + ends[1]], -1)

    def restrict(self, values: Any) -> Any:
        """At the nodes: the values themselves, or a cubic spline through the values on another grid."""
        return values[..., 1:-1] if self.nodal else matrix_product(self.xp, self._spline, values)

    def integrate(self, values: Any) -> Any:
        """Gauss quadrature at the nodes if the exterior data are zero; otherwise the trapezoidal rule."""
        return (values * self._weights).sum(-1)

    def space_error(self, u: Any) -> float:
        """The largest of what is not resolved; nan with exterior data."""
        return math.nan if self.forced else float(self.unresolved(to_host(u)).max())

    def unresolved(self, u: Any, *, source: bool = False) -> Any:
        """The absolute sum of the last third of the polynomials, with their factor that a source does not have."""
        last, factor = slice(2 * self.shape[0] // 3, None), self._basis.omega if source else 1.0
        return np.abs((factor * u) @ self._basis.expand[last].T) @ np.abs(self._basis.functions[:, last]).T / factor

    def step_bytes(self) -> int:
        """Two matrices."""
        return 8 * 2 * self.shape[0] ** 2


def _spline_matrix(x: Array, nodes: Array) -> Array:
    """Values at ``nodes`` of the cubic spline (not-a-knot) through values at ``x``."""
    from scipy.interpolate import make_interp_spline

    degree = min(3, x.size - 1)
    return np.asarray(make_interp_spline(x, np.eye(x.size), k=degree)(nodes))
