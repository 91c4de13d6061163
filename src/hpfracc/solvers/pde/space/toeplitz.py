"""Products with Toeplitz matrices along an axis, by FFT of a circulant matrix of twice the size."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.fft import next_fast_len

from hpfracc._xp import Namespace
from hpfracc.engine.execution.api import spectral_multiply, toeplitz_apply
from hpfracc.solvers.pde.space.preconditioner import ToeplitzPart

__all__ = ["ToeplitzProduct"]


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
        self.symbol: Any = None
        self.weights: Any = None
        if part.axis is None:
            self.weights = xp.array(part.lower[tuple(slice(0, n) for n in shape)])
            self.axes = tuple(range(-len(shape), 0))
            return
        n = shape[part.axis]
        tail = (1,) * (-1 - part.axis)
        if part.symmetric:
            weights = part.lower[:n].reshape(-1, *tail)
            self.weights = xp.array(weights) if part.plain else weights
            self.axes = (part.axis,)
            return
        self.size = next_fast_len(2 * n - 1, real=True)
        if not part.plain:
            between = xp.zeros((self.size - 2 * n + 1,), "float64", like=part.lower)
            whole = xp.concatenate([part.lower[:n], between, xp.flip(part.upper[1:n])])
            self.symbol = xp.fftn(whole, (0,)).reshape(-1, *tail)
            return
        circulant = np.zeros(self.size)
        circulant[:n] = part.lower[:n]
        circulant[self.size - n + 1 :] = part.upper[1:n][::-1]
        symbol = np.fft.fft(circulant).reshape(-1, *tail)
        self.symbol = xp.asarray(symbol) if xp.library != "numpy" else symbol

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
