r"""The integral Laplacian on a disc, in the functions :math:`(1-r^2)^s r^{|m|} P_k^{(s,|m|)}(2r^2-1)\,e^{im\theta}`."""

from __future__ import annotations

import math
from typing import Any, final

import numpy as np

from hpfracc._arrays import to_host
from hpfracc._xp import NUMPY, Namespace
from hpfracc.errors import InvalidInputError
from hpfracc.solvers.pde.boundary import Exterior, boundary_value, is_function, is_homogeneous, varies_in_time
from hpfracc.solvers.pde.space.base import Disc, Semidiscretisation, SpaceSetting, polar_points
from hpfracc.solvers.pde.space.jacobi import outside_rule, refuse_integral
from hpfracc.solvers.pde.terms import FractionalDiffusion, coefficients_of

__all__ = ["JacobiDisc"]

Array = np.ndarray[Any, Any]

#: Decay rate of values outside the span of all functions, relative to the fastest one; its inverse is the error.
_REST = 1e6


@final
class JacobiDisc(Semidiscretisation):
    r""":math:`-c (-\Delta)^{\alpha/2} u` on a disc, with exterior data.

    The unknowns are values at N radii, the zeros of :math:`P_N^{(s,0)}(2r^2-1)`, :math:`s = \alpha/2`, times equal
    angles. The angular wave m has :math:`N - \lceil |m|/2 \rceil` radial functions, for which Gauss quadrature is
    exact, with the eigenvalues :math:`4^s \Gamma(s+k+1)\Gamma(s+k+|m|+1) / (k!\,(k+|m|)!)` that map them to
    :math:`r^{|m|} P_k^{(s,|m|)}`. Values outside the span of these functions decay a million times as fast as the
    fastest of them.

    Parameters
    ----------
    disc : Disc
        The domain and its points.
    order : float
        alpha, in (0, 2).
    coefficient : float
        c.
    outside : Exterior
        The exterior data; a function is called with the coordinates x and y.

    References
    ----------
    B. Dyda, A. Kuznetsov, M. Kwasnicki, "Fractional Laplace operator and Meijer G-function", Constr. Approx. 45, 2017.
    """

    name = "jacobi_disc"
    accuracy = "spectral for smooth right-hand sides, 2 + 2 alpha in the number of points for evolutions"
    coarsens = False

    def __init__(
        self,
        disc: Disc,
        order: float,
        coefficient: Any = 1.0,
        outside: Exterior | None = None,
        xp: Namespace = NUMPY,
    ) -> None:
        from scipy import special

        if not 0.0 < order < 2.0:
            raise InvalidInputError(f"JacobiDisc: order={order!r} has to be in (0, 2)")
        self.disc, self.xp = disc, xp
        n, s, radius = disc.radial, 0.5 * order, disc.radius
        t, q = special.roots_jacobi(n, s, 0.0)
        self.grid = disc.grid(order)
        r = self.grid[0][:-1] / radius
        # (1 - t)/2 = 1 - r^2
        omega = (0.5 * (1.0 - t)) ** s
        root = np.sqrt(q / omega)
        waves = disc.angles // 2 + 1
        forward, backward = np.empty((waves, n, n)), np.empty((waves, n, n))
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
        self.eigenvalues = radius**-order * eigenvalues
        self.symbol = -coefficient * xp.array(self.eigenvalues)
        self._forward, self._backward = xp.array(forward), xp.array(backward)
        self.shape = (n, disc.angles)
        self.points = self._places(radius * r)
        self._outside = Exterior(0.0) if outside is None else outside
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
        if setting.domain is None:
            return "it takes a Disc in place of a grid"
        refusal = refuse_integral(setting, "a disc")
        if refusal is not None:
            return refusal
        if any(map(is_function, coefficients_of(setting.terms[0]))):
            return "a disc takes a constant coefficient"
        return "a disc takes a real state" if setting.complex_state else None

    @classmethod
    def make(cls, setting: SpaceSetting) -> JacobiDisc:
        """The discretisation of the setting's disc."""
        (term,), outside = setting.terms, setting.boundary[0][0]
        assert isinstance(term, FractionalDiffusion)
        assert isinstance(outside, Exterior)
        assert setting.domain is not None
        return cls(setting.domain, float(term.order), term.coefficient, outside, setting.xp)

    def forward(self, u: Any) -> Any:
        """A Fourier transform over the angles, then for each wave a matrix product along the radius."""
        return self._along_radius(self._forward, self.xp.rfftn(u, (-1,)))

    def backward(self, c: Any) -> Any:
        """The inverse of :meth:`forward`."""
        return self.xp.irfftn(self._along_radius(self._backward, c), [self.disc.angles], (-1,))

    def _along_radius(self, matrices: Any, c: Any) -> Any:
        xp = self.xp

        def part(values: Any) -> Any:
            first = xp.moveaxis(values, -1, 0)  # (waves, ..., radii)
            flat = first.reshape(first.shape[0], -1, first.shape[-1])
            product = xp.matmul(flat, xp.moveaxis(matrices, -1, -2))
            return xp.moveaxis(product.reshape((*first.shape[:-1], product.shape[-1])), 0, -1)

        return xp.complex(part(c.real), part(c.imag))

    def forcing(self, t: float) -> Any:
        """``-A u_g``, where u_g extends the exterior data to the inside."""
        if not self.forced:
            return None
        data = boundary_value(self._outside, t, self._far)
        if not getattr(data, "ndim", 0):
            return -self.apply(data + self.xp.zeros(self.shape, "float64"))
        waves = self._along_radius(self._extension, self.xp.rfftn(data, (-1,)))
        return -self.apply(self.xp.irfftn(waves, [self.disc.angles], (-1,)))

    def embed(self, u: Any, t: float) -> Any:
        """Adds the values on the boundary circle."""
        edge = 0.0 * u[..., :1, :]
        if self.forced:
            edge = edge + boundary_value(self._outside, t, self._places(self.grid[0][-1:]))
        return self.xp.concatenate([u, edge], -2)

    def _places(self, radii: Array) -> tuple[Any, ...]:
        """The coordinates of these radii at all angles."""
        return tuple(map(self.xp.array, polar_points(radii, self.grid[1])))

    def restrict(self, values: Any) -> Any:
        """Removes the boundary circle."""
        return values[..., :-1, :]

    def space_error(self, u: Any) -> float:
        """The fraction of the coefficients in the highest third, of radii or of waves, times the largest u."""
        values = np.asarray(to_host(u))
        largest = float(np.abs(values).max(initial=0.0))
        if self.forced:
            return math.nan
        c = np.abs(np.asarray(to_host(self.forward(u))))
        n, waves = c.shape[-2:]
        high = np.zeros((n, waves), bool)
        high[n - n // 3 :] = True
        high[:, waves - waves // 3 :] = True
        return largest * float((c * high).sum()) / float(c.sum()) if largest else 0.0

    def integrate(self, values: Any) -> Any:
        """Gauss quadrature along the radius, the trapezoidal rule over the angles."""
        return (values * self._weights).sum((-2, -1))


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
