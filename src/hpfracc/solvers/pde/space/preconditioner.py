r"""Approximate inverses of shifted Toeplitz matrices: tau (DST) and Strang's circulant (FFT).

With varying coefficients, row i of the inverse is taken from a constant matrix with the coefficients at point i. Such
inverses are computed for a few points and interpolated between them.

References
----------
1. S. Noutsos, S. Serra-Capizzano, P. Vassalos, "Essential spectral equivalence via multiple step preconditioning and
   applications to ill conditioned Toeplitz matrices", Linear Algebra Appl. 491, 2016 (tau).
2. J. Pan, R. Ke, M. K. Ng, H.-W. Sun, "Preconditioning techniques for diagonal-times-Toeplitz matrices in fractional
   diffusion equations", SIAM J. Sci. Comput. 36, 2014 (interpolated rows).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpfracc._arrays import is_array, is_tracer, library_of
from hpfracc._xp import Namespace
from hpfracc.engine.execution.api import spectral_multiply

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
        lower = _host(self.lower)
        upper = lower if self.upper is self.lower else _host(self.upper)
        return ToeplitzPart(self.axis, lower, upper, self.coefficient, self.begins)

    @property
    def complex(self) -> bool:
        """Whether the coefficient is complex."""
        return "complex" in str(getattr(self.coefficient, "dtype", type(self.coefficient)))

    @property
    def varies(self) -> bool:
        """Whether the coefficient varies in space."""
        return is_array(self.coefficient) and math.prod(self.coefficient.shape) > 1


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
            places, mix = _nodes([np.abs(_host(part.coefficient)) for part in varying], shape[0])
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


def _host(x: Any) -> Array:
    return np.asarray(x.detach().cpu() if hasattr(x, "detach") else x)
