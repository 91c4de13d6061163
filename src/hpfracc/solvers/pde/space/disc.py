r"""Discs and annuli: waves over the angles, and for each wave the eigenvectors of a matrix along the radius."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from hpfracc import _reading
from hpfracc._arrays import to_host
from hpfracc.errors import InvalidInputError
from hpfracc.history.intervals import order_value
from hpfracc.solvers.pde.boundary import (
    Dirichlet,
    Ends,
    Periodic,
    Robin,
    boundary_value,
    is_function,
    is_homogeneous,
    varies_in_time,
)
from hpfracc.solvers.pde.space.axes import diagonalise
from hpfracc.solvers.pde.space.base import (
    Semidiscretisation,
    SpaceSetting,
    refuse_backwards,
    refuse_complex,
    refuse_conditions,
)
from hpfracc.solvers.pde.space.jacobi import outside_rule, refuse_integral
from hpfracc.solvers.pde.space.variable import check_positive
from hpfracc.solvers.pde.terms import Diffusion, FractionalDiffusion, coefficients_of

Array = np.ndarray[Any, Any]

#: Eigenvalues below this, relative to the largest, are zero.
_ZERO = 1e-13
#: Decay rate of values outside the span of all functions, relative to the fastest one; its inverse is the error.
_REST = 1e6


@final
@dataclass(frozen=True, slots=True)
class Disc:
    """A disc around the origin, given in place of a grid.

    For the integral Laplacian, with exterior data, or :class:`~hpfracc.pde.Diffusion` with a coefficient of the radius
    and the spectral Laplacian, with Dirichlet, Neumann or Robin conditions on the circle.

    Parameters
    ----------
    radius : float
        Radius of the disc.
    radial : int
        Number of points along a radius.
    angles : int
        Number of points on each circle.
    """

    radius: float = 1.0
    radial: int = 24
    angles: int = 48

    def __post_init__(self) -> None:
        _reading.number("Disc: radius", self.radius, above=0.0)
        _reading.whole("Disc: radial", self.radial, least=2)
        _reading.whole("Disc: angles", self.angles, least=1)
        if self.angles // 2 >= 2 * self.radial:
            raise InvalidInputError(
                f"Disc: {self.angles} angles with {self.radial} radial points; use at most {4 * self.radial - 1}, "
                "which the points along a radius can resolve"
            )

    def grid(self, order: float | None = None) -> tuple[Array, Array]:
        """The radii, of which the last is the radius of the disc, and the angles.

        Parameters
        ----------
        order : float, optional
            Order of the integral Laplacian; the radii depend on it. Left out for other operators.
        """
        from scipy.special import roots_jacobi

        if order is None:
            inside = 0.5 * (1.0 + roots_jacobi(self.radial, 1.0, 0.0)[0])
        else:
            order = _reading.number("Disc: order", order, above=0.0, below=2.0)
            inside = np.sqrt(0.5 * (1.0 + roots_jacobi(self.radial, 0.5 * order, 0.0)[0]))
        radii = self.radius * np.append(inside, 1.0)
        return radii, 2.0 * math.pi / self.angles * np.arange(self.angles)

    def coordinates(self, order: float | None = None) -> tuple[Array, Array]:
        """Coordinates x and y of all points, of shape (radial + 1, angles)."""
        return polar_points(*self.grid(order))


@final
@dataclass(frozen=True, slots=True)
class Annulus:
    """A ring between two circles around the origin, given in place of a grid.

    For :class:`~hpfracc.pde.Diffusion` with a coefficient of the radius, and the spectral Laplacian. A pair of
    conditions stands for the inner and the outer circle.

    Parameters
    ----------
    inner, outer : float
        Radii of the circles.
    radial : int
        Number of points along a radius, both ends included.
    angles : int
        Number of points on each circle.

    See Also
    --------
    Disc, Region

    Examples
    --------
    Stationary heat between two circles, which is a logarithm of the radius:

    >>> import numpy as np
    >>> import hpfracc as hf
    >>> from hpfracc import pde
    >>> ring = pde.Annulus(1.0, 2.0, radial=16, angles=8)
    >>> given = {"x": ring, "space": pde.Diffusion(1.0), "boundary": (1.0, 0.0)}
    >>> result = hf.solve_fpde(None, (0.0, 9.0), lambda x, y: 2.0 - np.hypot(x, y), **given)
    >>> bool(np.allclose(result.u[-1, :, 0], 1.0 - np.log2(result.x[0])))
    True
    """

    inner: float
    outer: float
    radial: int = 24
    angles: int = 48

    def __post_init__(self) -> None:
        _reading.number("Annulus: inner", self.inner, above=0.0)
        _reading.number("Annulus: outer", self.outer, above=self.inner)
        _reading.whole("Annulus: radial", self.radial, least=4)
        _reading.whole("Annulus: angles", self.angles, least=1)

    def grid(self) -> tuple[Array, Array]:
        """The radii, from circle to circle, and the angles."""
        from scipy.special import roots_jacobi

        places = np.concatenate([[-1.0], roots_jacobi(self.radial - 2, 1.0, 1.0)[0], [1.0]])
        radii = 0.5 * (self.inner * (1.0 - places) + self.outer * (1.0 + places))
        return radii, 2.0 * math.pi / self.angles * np.arange(self.angles)

    def coordinates(self) -> tuple[Array, Array]:
        """Coordinates x and y of all points, of shape (radial, angles)."""
        return polar_points(*self.grid())


class PolarSpace(Semidiscretisation):
    """An operator on a disc or annulus that is diagonalised: for each wave, by matrices along the radius."""

    coarsens = False
    setting: SpaceSetting
    #: For each wave, to coefficients that fall off along the radius if u is resolved, and back; and the factor of all
    #: solutions at each radius.
    _series: Any
    _functions: Any
    _factor: Any = 1.0
    _weights: Any  # of the integral, at all radii
    #: The conditions at the first and the last radius, and whether these are no unknowns.
    conditions: Ends
    missing: tuple[bool, bool]

    def _diagonalise(self, to: Any, back: Any) -> None:
        """Take a Fourier transform over the angles, then for each wave a matrix product along the radius."""
        xp = self.xp
        rows, columns = (functools.partial(self._along_radius, xp.array(each)) for each in (to, back))
        waves = functools.partial(xp.rfftn, axes=(-1,)), rows
        values = columns, functools.partial(xp.irfftn, sizes=[self.grid[1].size], axes=(-1,))
        self.transforms = waves, values

    def _along_radius(self, matrices: Any, c: Any) -> Any:
        xp = self.xp

        def part(values: Any) -> Any:
            first = xp.moveaxis(values, -1, 0)  # (waves, ..., radii)
            flat = first.reshape(first.shape[0], -1, first.shape[-1])
            product = xp.matmul(flat, xp.moveaxis(matrices, -1, -2))
            return xp.moveaxis(product.reshape((*first.shape[:-1], product.shape[-1])), 0, -1)

        return xp.complex(part(c.real), part(c.imag))

    def _places(self, radii: Array) -> tuple[Any, ...]:
        """The coordinates of these radii at all angles."""
        return tuple(map(self.xp.array, polar_points(radii, self.grid[1])))

    def _datum(self, end: int, t: float) -> Any:
        """The data on a circle."""
        places = self._places(self.grid[0][-end:][:1])
        value = boundary_value(self.conditions[end], t, places)
        return self.setting.face(value, 0, end, places)

    def embed(self, u: Any, t: float) -> Any:
        """Adds the given values on the circles."""
        edge = 0.0 * u[..., :1, :]
        ends = [[edge + self._datum(end, t)] if self.missing[end] else [] for end in (0, 1)]
        return self.xp.concatenate([*ends[0], u, *ends[1]], -2)

    def restrict(self, values: Any) -> Any:
        """Removes the circles with given values."""
        return values[..., int(self.missing[0]) : self.grid[0].size - int(self.missing[1]), :]

    def integrate(self, values: Any) -> Any:
        """A quadrature rule along the radius, the trapezoidal rule over the angles."""
        return (values * self._weights).sum((-2, -1))

    def weighted(self, u: Any, periodic: tuple[bool, ...]) -> Any:
        """By the weights of the integral."""
        return self.restrict(self._weights + self.xp.zeros((self.grid[0].size, self.shape[1]), "float64")) * u

    def space_error(self, u: Any) -> float:
        """The fraction of the coefficients in the highest third, of radii or of waves, times the largest u."""
        largest = float(np.abs(np.asarray(to_host(u))).max(initial=0.0))
        c = np.abs(np.asarray(to_host(self._coefficients(u))))
        return largest * float((c * self._high).sum()) / float(c.sum()) if largest else 0.0

    def unresolved(self, u: Any, *, source: bool = False) -> Any:
        """What the lower coefficients leave of u, or of a source, which does not have the factor of a solution."""
        factor = self._factor if source else 1.0
        low = self._along_radius(self._functions, self._coefficients(factor * u) * ~self._high)
        return np.abs(u - self.xp.irfftn(low, [self.shape[1]], (-1,)) / factor)

    def _coefficients(self, u: Any) -> Any:
        return self._along_radius(self._series, self.xp.rfftn(u, (-1,)))

    @property
    def _high(self) -> Array:
        """The highest third of the coefficients, of radii or of waves."""
        n, waves = self.shape[0], self.shape[1] // 2 + 1
        return (np.arange(n)[:, None] >= n - n // 3) | (np.arange(waves) >= waves - waves // 3)


@final
class JacobiDisc(PolarSpace):
    r""":math:`-c (-\Delta)^{\alpha/2} u` on a disc, with exterior data.

    The unknowns are values at N radii, the zeros of :math:`P_N^{(s,0)}(2r^2-1)`, :math:`s = \alpha/2`, times equal
    angles. The angular wave m has :math:`N - \lceil |m|/2 \rceil` radial functions, for which Gauss quadrature is
    exact, with the eigenvalues :math:`4^s \Gamma(s+k+1)\Gamma(s+k+|m|+1) / (k!\,(k+|m|)!)` that map them to
    :math:`r^{|m|} P_k^{(s,|m|)}`. Values outside the span of these functions decay a million times as fast as the
    fastest of them.

    References
    ----------
    B. Dyda, A. Kuznetsov, M. Kwasnicki, "Fractional Laplace operator and Meijer G-function", Constr. Approx. 45, 2017.
    """

    name = "jacobi_disc"
    accuracy = "spectral for smooth right-hand sides, 2 + 2 alpha in the number of points for evolutions"

    def __init__(self, setting: SpaceSetting) -> None:
        from scipy import special

        (term,), disc, self._outside = setting.terms, setting.domain, setting.boundary[0][0]
        assert isinstance(term, FractionalDiffusion)
        self.setting, self.xp, order = setting, setting.xp, float(term.order)
        xp, n, s, radius = self.xp, disc.radial, 0.5 * order, disc.radius
        t, q = special.roots_jacobi(n, s, 0.0)
        self.grid = disc.grid(order)
        r = self.grid[0][:-1] / radius
        # (1 - t)/2 = 1 - r^2
        omega = (0.5 * (1.0 - t)) ** s
        root = np.sqrt(q / omega)
        waves = disc.angles // 2 + 1
        forward, backward = np.empty((waves, n, n)), np.empty((waves, n, n))
        series, functions = np.zeros((waves, n, n)), np.zeros((waves, n, n))
        eigenvalues = np.empty((n, waves))
        for m in range(waves):
            basis, mu, norms = _radial(t, r, s, m)
            # Galerkin's equations in the values: the basis functions, with the factor omega, are also the test
            # functions.
            scaled = np.sqrt(q * omega)[:, None] * basis / np.sqrt(mu * norms)
            left, singular, _ = np.linalg.svd(scaled, full_matrices=True)
            eigenvalues[:, m] = _REST * singular[-1] ** -2.0
            eigenvalues[: singular.size, m] = singular**-2.0
            forward[m], backward[m] = left.T * root, left / root[:, None]
            series[m, : norms.size] = (basis / norms).T * (q / omega)
            functions[m, :, : norms.size] = omega[:, None] * basis
        self.eigenvalues = radius**-order * eigenvalues
        coefficient: Any = term.coefficient
        refuse_backwards(coefficient)
        self.symbol = -coefficient * xp.array(self.eigenvalues)
        self._diagonalise(forward, backward)
        self._series, self._functions, self._factor = xp.array(series), xp.array(functions), omega[:, None]
        self.shape = (n, disc.angles)
        self.points = self._places(radius * r)
        self.conditions, self.missing = (self._outside, self._outside), (False, True)
        self.forced, self.forcing_varies = not is_homogeneous(self._outside), varies_in_time(self._outside)
        if self.forced:
            rho, extension = _extension(r, s, waves)
            self._far = self._places(radius * rho)
            self._extension = xp.array(extension)
        # The mean over angles, with r dr = dt/4.
        ring = 2.0 * math.pi * radius**2 / disc.angles
        weights = np.append(0.25 * 2.0**-s * q / omega, 0.0) if not self.forced else _plain_rule(t)
        self._weights = xp.array(ring * weights[:, None])

    @classmethod
    def refuses(cls, setting: SpaceSetting) -> str | None:
        """Supports a single integral Laplacian with a constant coefficient on a disc."""
        if any(map(is_function, coefficients_of(setting.terms[0]))):
            return "a disc takes a constant coefficient"
        return refuse_integral(setting, "a disc") or ("a disc takes a real state" if setting.complex_state else None)

    def forcing(self, t: float) -> Any:
        """``-A u_g``, where u_g extends the exterior data to the inside."""
        if not self.forced:
            return None
        data = boundary_value(self._outside, t, self._far)
        if not getattr(data, "ndim", 0):
            return -self.apply(data + self.xp.zeros(self.shape, "float64"))
        waves = self._along_radius(self._extension, self.xp.rfftn(data, (-1,)))
        return -self.apply(self.xp.irfftn(waves, [self.shape[1]], (-1,)))

    def space_error(self, u: Any) -> float:
        """From the coefficients; unknown with data outside."""
        return math.nan if self.forced else super().space_error(u)


@final
class PolarModes(PolarSpace):
    r""":math:`\nabla \cdot (k(r) \nabla u)` or a power of the Laplacian on a disc or annulus.

    For the wave m over the angles the weak form is :math:`\int k (u' w' + m^2 u w/r^2)\,r\,dr`, for polynomials through
    Gauss-Radau points on :math:`(0, R]` or Gauss-Lobatto points between two circles, with their quadrature rule: a
    symmetric matrix and a diagonal of masses, with real eigenvalues. Neumann and Robin conditions are natural ones.

    References
    ----------
    J. P. Boyd, F. Yu, "Comparing seven spectral methods for interpolation and for solving the Poisson equation in a
    disk", J. Comput. Phys. 230, 2011.
    """

    name = "polar_modes"
    accuracy = "spectral, for smooth solutions"
    best_order = math.inf

    def __init__(self, setting: SpaceSetting) -> None:
        from numpy.polynomial import legendre

        (term,) = setting.terms
        self.setting, self.grid, self.xp = setting, setting.grid, setting.xp
        xp, (r, theta) = self.xp, self.grid
        self.conditions = setting.boundary[0]
        inner = r[0] if isinstance(setting.domain, Annulus) else 0.0
        first, last = (isinstance(one, Dirichlet) for one in self.conditions)
        self.missing = inner > 0.0 and first, last
        half = 0.5 * (r[-1] - inner)
        places = (r - inner) / half - 1.0
        values, moments = legendre.legvander(places, r.size - 1), np.zeros(r.size)
        moments[0] = 2.0 * half
        rule = r * np.linalg.solve(values.T, moments)
        slopes = legendre.legval(places, legendre.legder(np.eye(r.size))).T / half
        slopes = np.linalg.solve(values.T, slopes.T).T
        k = self._coefficient(term)
        matrix = slopes.T @ ((rule * k)[:, None] * slopes)
        unknown = slice(int(self.missing[0]), r.size - int(self.missing[1]))
        #: What data of 1 at each end add.
        self._responses: list[Any] = [None, None]
        for end in (0, 1) if inner else (1,):
            condition, response = self.conditions[end], np.zeros(r.size)
            if self.missing[end]:
                response = -matrix[:, -end]
            else:
                a, b = (condition.a, condition.b) if isinstance(condition, Robin) else (0.0, 1.0)
                matrix[-end, -end] += r[-end] * k[-end] * a / b
                response[-end] = r[-end] * k[-end] / b
            if not is_homogeneous(condition):
                self._responses[end] = xp.array((response / rule)[unknown][:, None])
        pairs = []
        for m in range(theta.size // 2 + 1):
            whole = matrix + np.diag(m**2 * rule * k / r**2)
            pairs.append(diagonalise(whole[unknown, unknown], 1.0 / rule[unknown]))
        eigenvalues = np.stack([one[0] for one in pairs], axis=1)
        self.eigenvalues = np.where(eigenvalues < _ZERO * eigenvalues.max(), 0.0, eigenvalues)
        self._diagonalise(*(np.stack([one[part] for one in pairs]) for part in (1, 2)))
        scale, self._power = 1.0, 1.0
        if isinstance(term, FractionalDiffusion):
            scale, self._power = float(check_positive(term.coefficient)), 0.5 * order_value(term.order)
        self.symbol = xp.array(-scale * self.eigenvalues**self._power)
        self._lowering = xp.array(scale * np.where(self.eigenvalues, self.eigenvalues, 1.0) ** (self._power - 1.0))
        self.shape = (r[unknown].size, theta.size)
        self.points = self._places(r[unknown])
        self._weights = xp.array(2.0 * math.pi / theta.size * rule[:, None])
        polynomials = legendre.legvander(places[unknown], self.shape[0] - 1)[None]
        self._series, self._functions = xp.array(np.linalg.inv(polynomials)), xp.array(polynomials)
        used = [self.conditions[end] for end in (0, 1) if self._responses[end] is not None]
        self.forced, self.forcing_varies = bool(used), any(map(varies_in_time, used))

    @classmethod
    def refuses(cls, setting: SpaceSetting) -> str | None:
        """Supports one Diffusion with a coefficient of the radius, or one spectral power, with real numbers."""
        (term, *others) = setting.terms
        spectral = isinstance(term, FractionalDiffusion) and term.kind == "spectral"
        if others or not (spectral or isinstance(term, Diffusion)) or len(coefficients_of(term)) > 1:
            return "a disc or annulus takes one Diffusion(k), or one FractionalDiffusion(order, 'spectral')"
        if setting.complex_state:
            return "a disc or annulus takes a real state"
        if isinstance(setting.boundary[0][0], Periodic):
            return "a circle takes Dirichlet, Neumann or Robin conditions, not 'periodic'"
        return refuse_complex(term) or refuse_conditions(setting, spectral)

    def _coefficient(self, term: Any) -> Array:
        """The coefficient at each radius."""
        if isinstance(term, FractionalDiffusion):
            return np.ones(self.grid[0].size)
        (k,) = coefficients_of(term)
        places = polar_points(*self.grid)
        values = np.broadcast_to(k(*places) if is_function(k) else k, places[0].shape)
        check_positive(values)
        if np.ptp(values, axis=1).max() > 1e-10 * values.max():
            raise InvalidInputError("Diffusion: the coefficient varies over the angles of a circle; use a Region")
        return np.asarray(values[:, 0], dtype=float)

    def forcing(self, t: float) -> Any:
        """The contribution of the boundary data; a spectral power acts on the difference to a harmonic function."""
        if not self.forced:
            return None
        parts = [each * self._datum(end, t) for end, each in enumerate(self._responses) if each is not None]
        total = sum(parts) + self.xp.zeros(self.shape, "float64")
        return total if self._power == 1.0 else self.backward(self._lowering * self.forward(total))


def _radial(t: Array, r: Array, s: float, m: int) -> tuple[Array, Array, Array]:
    """``r^m P_k^(s,m)(t)``, shape (radii, k); the factors of the operator; and the integrals of the squares."""
    from scipy import special

    k = np.arange(max(1, t.size - (m + 1) // 2))
    log = special.gammaln
    values = np.stack([r**m * special.eval_jacobi(j, s, m, t) for j in k], axis=1)
    rise = log(s + k + m + 1.0) - log(k + m + 1.0)
    mu = 4.0**s * np.exp(log(s + k + 1.0) - log(k + 1.0) + rise)
    norms = 2.0 ** (s + 1.0) / (2.0 * k + s + m + 1.0) * np.exp(log(k + s + 1.0) - log(k + 1.0) - rise)
    return values, mu, norms


def _extension(r: Array, s: float, waves: int) -> tuple[Array, Array]:
    r"""Exterior radii, and for each wave the matrix that extends data there to the inside, shape (waves, n, radii).

    Poisson's formula for the ball, with
    :math:`|x-y|^{-2} = (\rho^2-r^2)^{-1} \sum_m (r/\rho)^{|m|} e^{im(\theta-\phi)}`.
    """
    z, rest, measure = outside_rule(s)
    # With rho = 1/z: rho^2 - 1 = (1 - z^2)/z^2, rho^2 - r^2 = (1 - r^2 z^2)/z^2, and d rho = dz/z^2.
    near = (1.0 - r)[:, None]
    distance = (rest + z * near) * (1.0 + r[:, None] * z)
    kernel = 2.0 * math.sin(math.pi * s) / math.pi * ((1.0 - r) * (1.0 + r))[:, None] ** s * measure / distance
    powers = (r[:, None] * z)[None] ** np.arange(waves)[:, None, None]
    return 1.0 / z, powers * kernel


def _plain_rule(t: Array) -> Array:
    """Weights of ``int f r dr`` over (0, 1) at the nodes and the edge, exact for polynomials in r^2."""
    places = np.append(t, 1.0)
    legendre = np.polynomial.legendre.legvander(places, t.size)
    moments = np.zeros(places.size)
    moments[0] = 0.5
    return np.asarray(np.linalg.solve(legendre.T, moments))


def polar_points(r: Array, theta: Array) -> tuple[Array, Array]:
    """The coordinates x and y of all pairs of a radius and an angle."""
    return r[:, None] * np.cos(theta), r[:, None] * np.sin(theta)
