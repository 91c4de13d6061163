r"""Terms in space as Toeplitz matrices on the interior points of a uniform grid: weights, products, inverses.

One-sided derivatives are weighted shifted Grünwald differences. With :math:`g_k = (-1)^k \binom{\beta}{k}` a difference
shifted by p steps is :math:`h^{-\beta} \sum_k g_k u_{i-k+p} = D^\beta u(x_i) + O(h)`; a weighted mean over several
shifts has a higher order.

Shifted matrices have approximate inverses: tau (DST) and Strang's circulant (FFT). With varying coefficients, row i of
the inverse is taken from a constant matrix with the coefficients at point i. Such inverses are computed for a few
points and interpolated between them.

References
----------
1. M. M. Meerschaert, C. Tadjeran, "Finite difference approximations for fractional advection-dispersion flow
   equations", J. Comput. Appl. Math. 172, 2004.
2. W. Tian, H. Zhou, W. Deng, "A class of second order difference approximations for solving space fractional diffusion
   equations", Math. Comp. 84, 2015.
3. S. Noutsos, S. Serra-Capizzano, P. Vassalos, "Essential spectral equivalence via multiple step preconditioning and
   applications to ill conditioned Toeplitz matrices", Linear Algebra Appl. 491, 2016 (tau).
4. J. Pan, R. Ke, M. K. Ng, H.-W. Sun, "Preconditioning techniques for diagonal-times-Toeplitz matrices in fractional
   diffusion equations", SIAM J. Sci. Comput. 36, 2014 (interpolated rows).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.fft import next_fast_len

from hpfracc._arrays import is_array, is_tracer, library_of, to_host
from hpfracc._xp import NUMPY, Namespace
from hpfracc.engine.execution.api import spectral_multiply, toeplitz_apply
from hpfracc.errors import InvalidInputError
from hpfracc.history.intervals import order_value
from hpfracc.operators.core.sequences import binomials, centred_binomials
from hpfracc.operators.rules.space import lattice_power_weights
from hpfracc.solvers.pde.boundary import is_function
from hpfracc.solvers.pde.problem import plain_order
from hpfracc.solvers.pde.space.base import SpaceSetting, broadcast_points, refuse_backwards
from hpfracc.solvers.pde.terms import Advection, Diffusion, FractionalDiffusion, OneSided, SpaceTerm, coefficients_of

Array = np.ndarray[Any, Any]

#: Change of a coefficient's logarithm between adjacent interpolated inverses, and their largest number: 9 to 10
#: iterations at a range of 1:100, and 15 with half as many inverses (``benchmarks/pde_space.py --only krylov``).
_SPACING = 0.7
_MAX = 24
#: Smaller coefficients, relative to the largest, are replaced by this one.
_MIN = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class ToeplitzPart:
    """``coefficient`` times a Toeplitz matrix along ``axis``, or times a symmetric one over all axes.

    Attributes
    ----------
    axis : int or None
        Counted from the end; None for a multidimensional matrix over all axes.
    lower, upper : numpy.ndarray
        The weights of the points k places before and after, for k = 0 .. n: one more than there are unknowns, for the
        point on the boundary. With ``axis=None``, ``lower`` has all axes and ``upper`` is not used. If the order
        carries a gradient, the weights are tensors or JAX arrays.
    coefficient : float, complex or array
        A number or values at the unknowns.
    begins : str
        ``"lower"`` or ``"upper"`` for a one-sided derivative that starts at that end.
    """

    axis: int | None
    lower: Any
    upper: Any
    coefficient: Any
    begins: str = ""

    @property
    def symmetric(self) -> bool:
        """Whether the matrix without its coefficient is symmetric."""
        if self.axis is None or self.lower is self.upper:
            return True
        return self.plain and bool(np.array_equal(self.lower, self.upper))

    @property
    def plain(self) -> bool:
        """Whether the weights are NumPy arrays."""
        return isinstance(self.lower, np.ndarray)

    @property
    def traced(self) -> bool:
        """Whether the weights are traced and have no values."""
        return is_tracer(self.lower) and library_of(self.lower) == "jax"

    def on_host(self) -> ToeplitzPart:
        """The part with NumPy weights, without gradients."""
        if self.plain:
            return self
        lower = to_host(self.lower)
        upper = lower if self.upper is self.lower else to_host(self.upper)
        return ToeplitzPart(self.axis, lower, upper, self.coefficient, self.begins)

    @property
    def complex(self) -> bool:
        """Whether the coefficient is complex."""
        return "complex" in str(getattr(self.coefficient, "dtype", type(self.coefficient)))

    @property
    def varies(self) -> bool:
        """Whether the coefficient varies in space."""
        return is_array(self.coefficient) and math.prod(self.coefficient.shape) > 1


def shifted_grunwald(xp: Namespace, order: Any, count: int) -> tuple[Any, Any]:
    r"""Weights of the difference from the left with step 1, of the points before and of those after, each with its own.

    The mean of the shifts 1 and 0 that has order 2: :math:`w_0 = \tfrac{\beta}{2} g_0` belongs to the next point, and
    :math:`w_k = \tfrac{\beta}{2} g_k + \tfrac{2-\beta}{2} g_{k-1}` to the one k - 1 places before. Both shifts have a
    symbol whose real part has the sign of diffusion, so that implicit steps are stable.

    Parameters
    ----------
    order : float or scalar array
        Beta, in (0, 2), not 1; the weights carry its gradient.
    count : int
        Number of weights of each side.

    Examples
    --------
    >>> shifted_grunwald(NUMPY, 1.5, 3)
    (array([-0.875   , -0.09375 ,  0.140625]), array([-0.875,  0.75 ,  0.   ]))
    """
    g = binomials(xp, order, count + 1)
    near = 0.5 * order * g[1:] + (1.0 - 0.5 * order) * g[:-1]
    first = xp.stack([near[0], 0.5 * order * g[0]])
    return near, xp.concatenate([first, xp.zeros((count - 2,), "float64", like=g)])


def toeplitz_parts(term: SpaceTerm, setting: SpaceSetting) -> list[ToeplitzPart]:
    """The matrices of a term, on the interior points."""
    ndim, points = setting.ndim, broadcast_points(setting.xp, tuple(x[1:-1] for x in setting.grid))
    steps, sizes = [setting.spacing(axis) for axis in range(ndim)], [x.size for x in setting.grid]
    if isinstance(term, OneSided | FractionalDiffusion):
        order, coefficient = plain_order(term.order), _values(term.coefficient, points, setting)
        xp = NUMPY if isinstance(order, float) else setting.xp
        scales = [xp.exp(-math.log(step) * order) for step in steps]
    if isinstance(term, OneSided):
        axis = range(ndim)[term.axis]
        near, far = (scales[axis] * one for one in shifted_grunwald(xp, order, sizes[axis]))
        if not math.isnan(order_value(order)):
            coefficient = _signed(coefficient, order_value(order))
        left = term.side == "left"
        lower, upper = (near, far) if left else (far, near)
        return [ToeplitzPart(axis - ndim, lower, upper, coefficient, "lower" if left else "upper")]
    if isinstance(term, FractionalDiffusion):
        orders = [order_value(getattr(one, "order", 2.0)) for one in setting.terms if not isinstance(one, Advection)]
        if not order_value(term.order) < max(orders):  # no term of higher order damps short waves
            refuse_backwards(coefficient)
        if term.kind == "integral" and ndim > 1:
            ratios = tuple((steps[0] / step) ** 2 for step in steps)
            lattice = lattice_power_weights(NUMPY, order, tuple(size - 1 for size in sizes), ratios)
            weights = -scales[0] * np.asarray(lattice)
            return [ToeplitzPart(None, weights, weights, coefficient)]
        found = []
        for axis in range(ndim):
            weights = -scales[axis] * centred_binomials(xp, order, sizes[axis])
            found.append(ToeplitzPart(axis - ndim, weights, weights, coefficient))
        return found
    found = []
    each = coefficients_of(term)
    for axis, one in enumerate(each * ndim if len(each) == 1 else each):
        h, size = steps[axis], sizes[axis]
        lower, upper = np.zeros(size), np.zeros(size)
        if isinstance(term, Diffusion):
            lower[:2] = upper[:2] = -2.0 / h**2, 1.0 / h**2
        else:
            lower[1], upper[1] = 0.5 / h, -0.5 / h
        found.append(ToeplitzPart(axis - ndim, lower, upper, _values(one, points, setting)))
    return found


def merge_parts(parts: list[ToeplitzPart]) -> tuple[ToeplitzPart, ...]:
    """Merge parts of one axis with plain real coefficients into one matrix."""
    kept: list[ToeplitzPart] = []
    sums: dict[int, ToeplitzPart] = {}
    for part in parts:
        if part.axis is None or not isinstance(part.coefficient, float) or not part.plain:
            kept.append(part)
            continue
        c, before = part.coefficient, sums.get(part.axis)
        lower, upper = c * part.lower, c * part.upper
        if before is not None:
            lower, upper = lower + before.lower, upper + before.upper
        sums[part.axis] = ToeplitzPart(part.axis, lower, upper, 1.0)
    return (*sums.values(), *kept)


def _values(coefficient: Any, points: tuple[Any, ...], setting: SpaceSetting) -> Any:
    """A number as float or complex, a tensor unchanged, a function as its values at the unknowns."""
    if is_function(coefficient):
        shape = tuple(x.size - 2 for x in setting.grid)
        values = coefficient(*points)
        return values + setting.xp.array(np.zeros(shape))
    if is_array(coefficient) and library_of(coefficient) != "numpy":
        return coefficient
    value = complex(coefficient)
    return value if value.imag else value.real


def constant_coefficient(coefficient: Any, setting: SpaceSetting, order: float = math.nan) -> Any:
    """A constant coefficient in any form that a term accepts; with an ``order``, that of a one-sided term."""
    one = coefficient[0] if isinstance(coefficient, tuple | list) else coefficient
    return _signed(_values(one, (), setting), order)


def _signed(coefficient: Any, order: float) -> Any:
    """The coefficient; refused if it makes the equation ill-posed."""
    if isinstance(coefficient, complex) or is_tracer(coefficient):
        return coefficient
    plain = isinstance(coefficient, float)
    low, high = (coefficient,) * 2 if plain else (order_value(coefficient.min()), order_value(coefficient.max()))
    if order > 1.0 and low < 0.0:
        raise InvalidInputError(
            f"OneSided: a coefficient of {low:g} with order {order:g} is diffusion backwards, which is ill-posed; use "
            "coefficients of 0 and above"
        )
    if order < 1.0 and high > 0.0:
        raise InvalidInputError(
            f"OneSided: a coefficient of {high:g} with order {order:g}, below 1, lets waves grow; use coefficients of "
            "0 and below"
        )
    return coefficient


class ToeplitzProduct:
    """The product with a part, with its transformed weights cached.

    Parameters
    ----------
    part : ToeplitzPart
        Weights and coefficient.
    shape : tuple of int
        Number of unknowns along each axis.
    xp : Namespace
        The library of the arrays.
    backend : str or None
        Passed to the engine.
    complex_state : bool
        Whether vectors are complex.
    """

    def __init__(
        self, part: ToeplitzPart, shape: tuple[int, ...], xp: Namespace, backend: str | None, complex_state: bool
    ) -> None:
        self.part, self.xp, self.backend = part, xp, backend
        self.real = not complex_state
        self.weights: Any = None
        if part.axis is None:
            self.weights = xp.array(part.lower[tuple(slice(0, n) for n in shape)])
            self.axes = tuple(range(-len(shape), 0))
            return
        n, column = shape[part.axis], (-1, *(1,) * (-1 - part.axis))
        lower, upper = (xp.array(one) if part.plain else one for one in (part.lower[:n], part.upper[1:n]))
        if part.symmetric:
            self.weights, self.axes = lower.reshape(column), (part.axis,)
            return
        self.size = next_fast_len(2 * n - 1, real=True)
        between = xp.zeros((self.size - 2 * n + 1,), "float64", like=lower)
        self.symbol = xp.fftn(xp.concatenate([lower, between, xp.flip(upper)]), (0,)).reshape(column)

    def __call__(self, u: Any) -> Any:
        """The product, by one padded transform along the axis."""
        if self.weights is not None:
            return self.part.coefficient * toeplitz_apply(self.weights, u, axes=self.axes, backend=self.backend)
        axis = self.part.axis
        assert axis is not None
        shape = [*u.shape]
        n, shape[axis] = shape[axis], self.size - shape[axis]
        padded = self.xp.concatenate([u, self.xp.zeros(shape, str(u.dtype).removeprefix("torch."), like=u)], axis)
        options = {"real": True} if self.real else {}
        product = spectral_multiply(self.symbol, padded, axes=axis, backend=self.backend, **options)
        inside = [slice(None)] * len(shape)
        inside[axis] = slice(0, n)
        return self.part.coefficient * product[tuple(inside)]


class ToeplitzPreconditioner:
    """Approximate inverses of ``shift - sum of parts``.

    Parameters
    ----------
    parts : sequence
        Toeplitz parts, with their coefficients.
    shape : tuple of int
        Number of unknowns along each axis.
    xp : Namespace
        The library of the arrays.
    backend : str or None
        Passed to the engine.
    complex_state : bool
        Whether vectors are complex.
    """

    def __init__(
        self,
        parts: Sequence[ToeplitzPart],
        shape: tuple[int, ...],
        xp: Namespace,
        backend: str | None,
        *,
        complex_state: bool,
    ) -> None:
        self.xp, self.backend, self.shape = xp, backend, shape
        self.kind = "dst1" if all(part.symmetric for part in parts) else "fft"
        self.real = not complex_state
        self.axes = tuple(range(-len(shape), 0))
        eigenvalues = [_eigenvalues(part, shape, self.kind) for part in parts]
        varying = [part for part in parts if part.varies]
        self.mix: Any = None
        if varying and len(shape) == 1:
            places, mix = _nodes([np.abs(to_host(part.coefficient)) for part in varying], shape[0])
            self.mix = xp.array(mix)
            self.levels = [self._level(parts, eigenvalues, place) for place in places]
        else:
            self.levels = [self._level(parts, eigenvalues, None)]
        self._kept: tuple[Any, Callable[[Any], Any]] | None = None

    def _level(self, parts: Sequence[ToeplitzPart], eigenvalues: list[Array], place: int | None) -> Any:
        """Eigenvalues with the coefficients at one point, or with their means."""
        total: Any = 0.0
        for part, one in zip(parts, eigenvalues, strict=True):
            coefficient = part.coefficient
            if part.varies:
                coefficient = coefficient.mean() if place is None else coefficient[place]
            total = total + coefficient * self._array(one)
        return total

    def for_shift(self, shift: Any) -> Callable[[Any], Any]:
        """The approximate inverse, as a function of a vector or a batch of them."""
        if self._kept is not None and self._kept[0] is shift:
            return self._kept[1]
        inverses = [1.0 / (shift - level) for level in self.levels]
        options: dict[str, Any] = {"axes": self.axes, "kinds": self.kind, "backend": self.backend}
        if self.kind == "fft" and self.real:
            options["real"] = True

        def plain(r: Any) -> Any:
            return spectral_multiply(inverses[0], r, **options)

        def interpolated(r: Any) -> Any:
            symbols = self.xp.stack(inverses, 0)
            # (levels, 1, .., n) against (..., n): one transform forward, and one per level back. Shifts that differ
            # between components have axes of their own.
            rows = symbols.shape[1:-1]
            symbols = symbols.reshape(len(inverses), *(1,) * (r.ndim - 1 - len(rows)), *rows, -1)
            rows = spectral_multiply(symbols, r, **options)
            return (self.mix.reshape(len(inverses), *(1,) * (r.ndim - 1), -1) * rows).sum(0)

        chosen = plain if len(inverses) == 1 else interpolated
        self._kept = (shift, chosen)
        return chosen

    def _array(self, values: Array) -> Any:
        return values if self.xp.library == "numpy" else self.xp.asarray(values)


def _eigenvalues(part: ToeplitzPart, shape: tuple[int, ...], kind: str) -> Array:
    """Eigenvalues of the tau or circulant approximation of a part, shaped to broadcast over all axes."""
    if part.axis is None:
        return _tau(part.lower, shape)
    n = shape[part.axis]
    if kind == "dst1":
        found = _tau(part.lower, (n,))
    else:
        half = n // 2
        column = np.zeros(n)
        column[: half + 1] = part.lower[: half + 1]
        after = part.upper[1 : n - half]
        column[n - len(after) :] += after[::-1]
        found = np.fft.fft(column)
    return np.asarray(found.reshape(-1, *(1,) * (-1 - part.axis)))


def _tau(weights: Array, shape: tuple[int, ...]) -> Array:
    """``w_0 + 2 sum_k w_k cos(k theta_j)`` at ``theta_j = pi j / (n + 1)``, j = 1 .. n, over all axes."""
    from scipy.fft import dctn

    padded = np.pad(weights[tuple(slice(0, n + 1) for n in shape)], (0, 1))
    return np.asarray(dctn(padded, type=1)[tuple(slice(1, -1) for _ in shape)])


def _nodes(coefficients: list[Array], n: int) -> tuple[list[int], Array]:
    """Points spread evenly over the total variation of the coefficients, and hat functions, shape (levels, n)."""
    path = np.zeros(n)
    for values in coefficients:
        logs = np.log(np.maximum(values, _MIN * max(float(values.max()), 1e-300)))
        path[1:] += np.abs(np.diff(logs))
    path = np.cumsum(path)
    levels = int(min(_MAX, max(2, math.ceil(path[-1] / _SPACING) + 1)))
    # Strictly increasing positions along the path, so that every hat has a width.
    places = sorted({int(np.searchsorted(path, x)) for x in np.linspace(0.0, path[-1], levels)} | {0, n - 1})
    at = np.interp(path, path[places], np.arange(len(places))) if path[-1] > 0.0 else np.zeros(n)
    mix = np.maximum(0.0, 1.0 - np.abs(at - np.arange(len(places))[:, None]))
    return places, mix
