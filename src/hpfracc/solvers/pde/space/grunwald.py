r"""Riemann-Liouville and Riesz terms on a bounded grid: Toeplitz matrices, by FFT and preconditioned Krylov methods."""

from __future__ import annotations

import functools
import math
from collections import deque
from typing import Any, final

import numpy as np

from hpfracc._arrays import is_array, is_tracer, library_of, to_host
from hpfracc._xp import NUMPY
from hpfracc.errors import InvalidInputError, warn
from hpfracc.history.intervals import order_value
from hpfracc.operators.core.sequences import binomials
from hpfracc.solvers.pde.boundary import (
    Dirichlet,
    Exterior,
    Neumann,
    boundary_value,
    is_function,
    is_homogeneous,
    varies_in_time,
)
from hpfracc.solvers.pde.problem import plain_order
from hpfracc.solvers.pde.space.axes import AxisBasis, diagonalise
from hpfracc.solvers.pde.space.base import GridSpace, SpaceSetting, refuse_grid
from hpfracc.solvers.pde.space.krylov import RTOL, conjugate_gradients, gmres
from hpfracc.solvers.pde.space.toeplitz import (
    ToeplitzPart,
    ToeplitzPreconditioner,
    ToeplitzProduct,
    constant_coefficient,
    merge_parts,
    toeplitz_parts,
)
from hpfracc.solvers.pde.terms import Advection, Diffusion, FractionalDiffusion, OneSided, SpaceTerm, coefficients_of

Array = np.ndarray[Any, Any]

#: Number of points up to which one LU factorisation and its solve are faster than Krylov iterations, even for a new
#: shift at every step: break-even between 400 and 600 points (``benchmarks/pde_space.py --only krylov``).
DENSE = 400
#: Number of points up to which a factorisation is cached for a shift that repeats: at 1,023 points its solve takes a
#: quarter of the time of the iterations or less, and the factorisation as long as ten such solves by iteration. Up to
#: the same number, of an axis or of all points, symmetric matrices are diagonalised.
DENSE_KEPT = 1200
#: Number of shifts whose factorisations are kept.
_KEPT = 4


class ToeplitzSpace(GridSpace):
    """Sums of Toeplitz matrices: systems by LU for few points, otherwise by preconditioned Krylov iterations.

    Parameters
    ----------
    setting : SpaceSetting
        The terms, the grid and the conditions.
    parts : tuple of ToeplitzPart
        The matrices, from which the preconditioner is made.
    """

    #: Whether A is symmetric and real.
    symmetric = False

    def __init__(self, setting: SpaceSetting, parts: tuple[ToeplitzPart, ...]) -> None:
        super().__init__(setting)
        self.parts = parts
        #: Iterations of the last linear system; 0 for LU.
        self.iterations = 0
        self._backend = None if setting.backend == "auto" else setting.backend
        self._traced = any(part.traced or is_tracer(part.coefficient) for part in parts)
        self._factors, self._shifts = functools.lru_cache(_KEPT)(self._factorise), deque[Any](maxlen=_KEPT)

    @functools.cached_property
    def preconditioner(self) -> ToeplitzPreconditioner:
        """The preconditioner, created with the first iteration."""
        parts = tuple(part.on_host() for part in self.parts)
        return ToeplitzPreconditioner(
            parts, self.shape, self.xp, self._backend, complex_state=self.setting.complex_state
        )

    @functools.cached_property
    def matrix(self) -> Any:
        """A as a dense matrix over the flattened unknowns."""
        points = math.prod(self.shape)
        unit = self.xp.array(np.eye(points).reshape(points, *self.shape))
        return self.apply(unit).reshape(points, points).T

    def product(self, part: ToeplitzPart) -> ToeplitzProduct:
        """The product with a part."""
        return ToeplitzProduct(part, self.shape, self.xp, self._backend, self.setting.complex_state)

    def solve(self, shift: Any, rhs: Any, guess: Any = None, rtol: float = RTOL) -> Any:
        """A division if it is diagonalised, LU for few points, otherwise conjugate gradients or GMRES."""
        from scipy.linalg import lu_solve

        self.iterations = 0
        if self.symbol is not None:
            return super().solve(shift, rhs)
        points = math.prod(self.shape)
        if self.xp.library == "numpy" and points <= DENSE_KEPT and isinstance(shift, float | complex):
            repeats = shift in self._shifts
            self._shifts.append(shift)
            if repeats or points <= DENSE:
                return lu_solve(self._factors(shift), rhs.reshape(-1, points).T, check_finite=False).T.reshape(
                    rhs.shape
                )
        elif self.xp.library == "jax" and (self._traced or any(map(is_tracer, (rhs, shift)))):
            return self._solve_traced(shift, rhs)
        precondition = self.preconditioner.for_shift(shift)

        def operator(u: Any) -> Any:
            return shift * u - self.apply(u)

        if self.symmetric and not self.setting.complex_state:
            found, self.iterations = conjugate_gradients(
                operator, precondition, rhs, guess, axes=len(self.shape), rtol=rtol
            )
        else:
            found, self.iterations = gmres(operator, precondition, rhs, guess, rtol=rtol)
        return found

    def _factorise(self, shift: complex) -> Any:
        from scipy.linalg import lu_factor

        return lu_factor(shift * np.eye(math.prod(self.shape)) - self.matrix, overwrite_a=True, check_finite=False)

    def _solve_traced(self, shift: Any, rhs: Any) -> Any:
        """A dense factorisation, which JAX can trace and differentiate."""
        points = math.prod(self.shape)
        if points > DENSE_KEPT or (is_array(shift) and math.prod(shift.shape) > 1):
            raise InvalidInputError(
                f"derivatives and compilation by JAX take up to {DENSE_KEPT:,} points with these terms, and there are "
                f"{points:,}; use tensors of PyTorch, or fewer points"
            )
        matrix = shift * self.xp.array(np.eye(points)) - self.matrix
        return self.xp.module.linalg.solve(matrix, rhs.reshape(-1, points).T).T.reshape(rhs.shape)

    def step_bytes(self) -> int:
        """The matrix and its factors, or the padded transforms and the vectors of GMRES."""
        points = math.prod(self.shape)
        size = 8 * points * (2 if self.setting.complex_state else 1)
        if self.xp.library == "numpy" and points <= DENSE_KEPT:
            return 3 * points * size
        copies: int = 4 * 2 ** len(self.shape) + (6 if self.symmetric else 2 * 12)
        return copies * size


@final
class ShiftedGrunwald(ToeplitzSpace):
    r"""One-sided, Riesz and classical terms as a sum of Toeplitz matrices with diagonal coefficients.

    A one-sided derivative is a weighted shifted Grünwald difference, with shifts (1, 0) of order 2; a Riesz term is the
    centred difference of the same order, with the symbol :math:`-|2 \sin(\theta/2)|^\alpha / h^\alpha`.

    Order 2 requires a smooth solution whose extension by zero is smooth: for a one-sided derivative at its own end, for
    Riesz and integral terms at both. Solutions of these equations behave like :math:`\rho^{\alpha/2}` at distance
    :math:`\rho` from the boundary; then the largest error is of order :math:`\alpha/2`, at the points next to the
    boundary.

    Symmetric matrices are diagonalised once, up to 1,200 points along each axis (in all, for an integral Laplacian in
    several dimensions), so that linear equations need no linear systems: constant coefficients, or a single term with a
    positive coefficient that varies. Linear systems of others: LU up to 400 points (1,200 if a shift repeats). Above,
    symmetric matrices by conjugate gradients with the tau preconditioner (DST), others by GMRES with Strang's circulant
    preconditioner (FFT). For varying coefficients in one dimension, rows of several such inverses are interpolated. 5
    to 10 iterations at any number of points.
    """

    name = "grunwald"
    accuracy = "order 2 where the solution, extended by zero, is smooth; alpha/2 next to the boundary otherwise"

    def __init__(self, setting: SpaceSetting) -> None:
        parts = merge_parts([part for term in setting.terms for part in toeplitz_parts(term, setting)])
        super().__init__(setting, parts)
        for term in setting.terms:
            if isinstance(term, FractionalDiffusion) and term.kind == "integral" and not order_value(term.order) >= 2.0:
                s = 0.5 * order_value(term.order)
                text = (
                    f"the integral Laplacian by centred differences: where the solution behaves like rho^{s:g} at the "
                    f"boundary, the largest error is of order {s:g} only; on an interval without other terms and with "
                    "a constant coefficient the Jacobi method has no such limit"
                )
                self.notes += (text,)
                warn(text)
        # Solutions of equations with Riesz and integral terms are not smooth at the boundary.
        self.best_order = 1.0 if any(isinstance(term, FractionalDiffusion) for term in setting.terms) else 2.0
        self.symmetric = all(part.symmetric and not part.varies and not part.complex for part in parts)
        self._products = [self.product(part) for part in parts]
        self._bases: dict[int, AxisBasis] = {}
        if all(part.symmetric and part.plain for part in parts):
            self._diagonalise()

    def _diagonalise(self) -> None:
        """Eigenvectors along each axis, or of the whole matrix, if it is not too large."""
        from scipy.linalg import toeplitz

        coefficient, shape, flat = self.parts[0].coefficient, self.shape, False
        constant = all(isinstance(part.coefficient, float | complex) for part in self.parts)
        along = {part.axis: part for part in self.parts if part.axis is not None}
        total: Any = 0.0
        if constant and len(along) == len(self.parts) and max(self.shape) <= DENSE_KEPT:
            for axis, size in enumerate(self.shape, -len(self.shape)):
                if axis in along:
                    values, *matrices = diagonalise(toeplitz(along[axis].lower[:size]))
                    total = total + along[axis].coefficient * values.reshape(-1, *(1,) * (-1 - axis))
                    self._bases[axis] = self._basis(values, *matrices)
        elif len(self.parts) == 1 and math.prod(self.shape) <= DENSE_KEPT and (constant or _is_positive(coefficient)):
            scale, flat = np.reshape(coefficient, (-1, 1)), True
            plain = np.real(to_host(self.matrix) / scale)
            values, *matrices = diagonalise(0.5 * (plain + plain.T), None if constant else scale[:, 0])
            total = (coefficient if constant else 1.0) * values.reshape(self.shape)
            self._bases[-1] = self._basis(values, *matrices)
        else:
            return
        real = not self.setting.complex_state
        both = [
            [basis.transform(axis, back=back, real=real) for axis, basis in self._bases.items()]
            for back in (False, True)
        ]
        if flat:  # the points of all axes in one
            for each in both:
                each.insert(0, lambda u: u.reshape(*u.shape[: u.ndim - len(shape)], -1))
                each.append(lambda u: u.reshape(*u.shape[:-1], *shape))
        self.transforms = tuple(both[0]), tuple(both[1])
        total = total + np.zeros(self.shape)
        self.symbol = self.xp.array(total) if not np.iscomplexobj(total) else self.xp.asarray(total)

    def _basis(self, values: Array, to: Array, back: Array) -> AxisBasis:
        matrices = self.xp.array(to), self.xp.array(back)
        return AxisBasis(self.xp, "dense", False, values.size, -values, matrices=matrices)

    @classmethod
    def refuses(cls, setting: SpaceSetting) -> str | None:
        """Refuses non-uniform grids, conditions other than given values, and terms that are not Toeplitz matrices."""
        if not any(isinstance(term, OneSided | FractionalDiffusion) for term in setting.terms):
            return "it is for fractional terms in space; there are none"
        for axis, ends in enumerate(setting.boundary):
            if not all(isinstance(one, Dirichlet | Exterior) for one in ends):
                return f"axis {axis} has {type(ends[0]).__name__} conditions; it takes Dirichlet and Exterior"
            if isinstance(ends[0], Exterior) and any(map(varies_in_time, ends)):
                return (
                    "exterior data that are a function; it takes a number (the Jacobi method on an interval takes both)"
                )
            if setting.ndim > 1 and not all(map(is_homogeneous, ends)):
                return "boundary values that are not zero in several dimensions; subtract a function that has them"
        return refuse_grid(setting) or next(
            filter(None, (_refuses_term(term, setting) for term in setting.terms)), None
        )

    def apply(self, u: Any) -> Any:
        """One FFT product per axis and coefficient."""
        first, *others = (product(u) for product in self._products)
        return sum(others, first)

    def forcing(self, t: float) -> Any:
        """The contribution of boundary or exterior values."""
        if not self.forced:
            return None
        (lower, upper), (x,) = self.setting.boundary[0], self.grid
        n = self.shape[0]
        if isinstance(lower, Exterior):
            value = boundary_value(lower, t, (x[0],))
            # The operator maps constants to zero: A (u - g) is the operator of u with exterior value g.
            return -value * self.apply(self.xp.array(np.ones(self.shape)))
        left, right = boundary_value(lower, t, (x[:1],)), boundary_value(upper, t, (x[-1:],))
        total: Any = None
        for part in self.parts:
            _check_ends(part, left, right)
            # The boundary points are i + 1 points before unknown i and n - i points after it.
            before, after = (self._weights(one[1 : n + 1]) for one in (part.lower, part.upper))
            one = part.coefficient * (left * before + right * self.xp.flip(after))
            total = one if total is None else total + one
        return total

    def _weights(self, values: Any) -> Any:
        return self.xp.array(values) if isinstance(values, np.ndarray) else values

    def step_bytes(self) -> int:
        """The matrices to the eigenvectors and back, or what a linear system needs."""
        return sum(16 * basis.count**2 for basis in self._bases.values()) or super().step_bytes()


def _is_positive(coefficient: Any) -> bool:
    """Whether a coefficient is an array of positive numbers of NumPy."""
    return isinstance(coefficient, np.ndarray) and coefficient.dtype.kind == "f" and bool(coefficient.min() > 0.0)


def _refuses_term(term: SpaceTerm, setting: SpaceSetting) -> str | None:
    """Why a term is not a Toeplitz matrix here; None if it is."""
    order = getattr(term, "order", 1.0)
    if isinstance(plain_order(order), float):
        pass
    elif library_of(order) != setting.xp.library:
        return f"an order of {library_of(order)} for a state of {setting.xp.library}; use arrays of one library"
    elif isinstance(term, FractionalDiffusion) and term.kind == "integral" and setting.ndim > 1:
        return (
            "the order of an integral Laplacian in several dimensions cannot carry a gradient; use kind='riesz' or "
            "'spectral', whose orders can, or a plain number"
        )
    if isinstance(term, FractionalDiffusion):
        outside = isinstance(setting.boundary[0][0], Exterior)
        if term.kind not in ("riesz", "integral"):
            return f"kind={term.kind!r} is not a Toeplitz matrix; it takes 'riesz' and 'integral'"
        if term.kind == "integral" and not outside:
            return "kind='integral' needs data outside; use boundary=Exterior(value)"
        if not outside and not setting.homogeneous:
            return (
                "a Riesz term with boundary values that are not zero is infinite at the boundary; subtract a "
                "function that has them, or use kind='integral' with Exterior(value)"
            )
    elif isinstance(term, OneSided):
        if not -setting.ndim <= term.axis < setting.ndim:
            return f"OneSided has axis={term.axis}, and the grid has {setting.ndim}"
        if isinstance(setting.boundary[term.axis][0], Exterior):
            return "a one-sided derivative has no data outside; use Dirichlet(value)"
    elif isinstance(term, Diffusion):
        if any(map(is_function, coefficients_of(term))):
            return "Diffusion with a coefficient that varies, beside a fractional term; use a constant one"
    elif isinstance(term, Advection):
        if term.conservative and any(map(is_function, coefficients_of(term))):
            return "Advection in conservative form with a velocity that varies, beside a fractional term"
    else:
        return f"{type(term).__name__} is not known to it"
    return None


def _check_ends(part: ToeplitzPart, left: Any, right: Any) -> None:
    """Refuse a nonzero value at the end where a one-sided derivative starts: it is infinite there."""
    for value, weights, side in ((left, part.lower, "lower"), (right, part.upper, "upper")):
        begins = np.count_nonzero(weights) > 3 if part.plain else part.begins == side
        if begins and np.any(np.asarray(value) != 0.0):
            raise InvalidInputError(
                f"the boundary value {value!r} at the {side} end, where a Riemann-Liouville derivative begins, makes "
                "it infinite there; subtract a function that has this value (a lift), or use 0"
            )


# -- zero flux ---------------------------------------------------------------------------------------------------------


@final
class ReflectingGrunwald(ToeplitzSpace):
    r""":math:`u_t = -\partial_x F` on an interval with :math:`F = 0` at both ends.

    The flux of a one-sided term is :math:`F = -c\,D^{\beta-1} u`, of advection :math:`v u`, of diffusion
    :math:`-k u_x`. All points of the grid are unknowns, with cells of length h, or h/2 at the ends. Fluxes between them
    are Grünwald differences of order :math:`\beta - 1`, averaged over the shifts 1/2 and -1/2. What leaves a cell
    enters its neighbour, so the sum over the cells is conserved to rounding.

    Stationary solutions are multiples of :math:`\rho^{\beta-2}`, with :math:`\rho` the distance from the end where the
    derivative starts, and infinite there; the value at that point is the mean over half a cell. Of order 1 elsewhere.

    References
    ----------
    B. Baeumer, M. Kovacs, M. M. Meerschaert, H. Sankaranarayanan, "Boundary conditions for fractional diffusion", J.
    Comput. Appl. Math. 336, 2018.
    """

    name = "reflecting_grunwald"
    accuracy = "order 1, away from the end where the derivative begins"
    best_order = 1.0

    def __init__(self, setting: SpaceSetting) -> None:
        parts = [part for term in setting.terms for part in toeplitz_parts(term, setting)]
        super().__init__(setting, tuple(parts))
        (self._volumes,) = self._quadrature
        self._fluxes = [self._flux(term) for term in setting.terms]
        self.notes = (
            "zero flux with a one-sided derivative: the solution is infinite, with a finite integral, at the end where "
            "it begins; the value there is the mean over half a cell",
        )

    @classmethod
    def refuses(cls, setting: SpaceSetting) -> str | None:
        """Supports one-sided diffusion with constant coefficients and zero flux on a uniform interval."""
        if not any(isinstance(term, OneSided) for term in setting.terms):
            return "it is for one-sided derivatives; there are none"
        if setting.ndim != 1:
            return f"it takes one dimension, and the grid has {setting.ndim}"
        for end in setting.boundary[0]:
            if not isinstance(end, Neumann) or not is_homogeneous(end):
                return "it takes zero flux at both ends; use boundary='neumann'"
        return refuse_grid(setting) or next(filter(None, map(_refuses_flux, setting.terms)), None)

    def _flux(self, term: SpaceTerm) -> tuple[Any, ToeplitzProduct]:
        """The weights of a flux, and the factors by which its points are multiplied first."""
        count, h = self.shape[0], self.setting.spacing(0)
        lower, upper, own = np.zeros(count + 1), np.zeros(count + 1), np.ones(count)
        if isinstance(term, OneSided):
            order = float(plain_order(term.order)) - 1.0
            coefficient = constant_coefficient(term.coefficient, self.setting, order + 1.0)
            near, far = 0.5 * (1.0 + order), 0.5 * (1.0 - order)  # of order 2 midway between the shifts
            g = h**-order * binomials(NUMPY, order, count + 2)
            before, after = near * g[1:] + far * g[:-1], near * g[0]
            own[0 if term.side == "left" else -1] = 0.5  # the cell there has half the length
            if term.side == "left":
                lower, upper[0], upper[1] = -before, -before[0], -after
            else:  # mirrored: the flux refers to the previous point and has the opposite sign
                upper[1:], lower[0], upper[0] = before[:-1], after, after
        elif isinstance(term, Diffusion):
            coefficient = constant_coefficient(term.coefficient, self.setting)
            lower[0], upper[0], upper[1] = 1.0 / h, 1.0 / h, -1.0 / h
        else:
            assert isinstance(term, Advection)
            coefficient = constant_coefficient(term.velocity, self.setting)
            lower[0], upper[0], upper[1] = 0.5, 0.5, 0.5
        return self.xp.array(own), self.product(ToeplitzPart(-1, lower, upper, coefficient))

    def apply(self, u: Any) -> Any:
        """Differences of the fluxes between cells."""
        first, *others = (product(own * u) for own, product in self._fluxes)
        total = sum(others, first)
        inner = total[..., :-1]  # from each point to the next
        edge = 0.0 * inner[..., :1]
        xp = self.xp
        return (xp.concatenate([edge, inner], -1) - xp.concatenate([inner, edge], -1)) / self._volumes


def _refuses_flux(term: SpaceTerm) -> str | None:
    if isinstance(term, OneSided):
        order = plain_order(term.order)
        if not isinstance(order, float):
            return "an order that carries a derivative; Dirichlet conditions take one, or give a number"
        if order < 1.0:
            return f"a one-sided term of order {order:g}; zero flux is for orders above 1"
    elif not isinstance(term, Diffusion | Advection):
        return f"it takes OneSided, Diffusion and Advection, not {type(term).__name__}"
    if len(coefficients_of(term)) > 1 or any(map(is_function, coefficients_of(term))):
        return f"{type(term).__name__} with a coefficient that varies; use a constant one"
    return None
