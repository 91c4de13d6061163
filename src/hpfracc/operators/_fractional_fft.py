"""The fractional FFT: the Fourier sum with an arbitrary frequency spacing."""

from __future__ import annotations

import functools
from collections.abc import Hashable
from fractions import Fraction
from typing import Any

import numpy as np

from hpfracc._arrays import is_chunked
from hpfracc.engine.execution.operation import get_operation
from hpfracc.operators.core.applying import order_beside
from hpfracc.operators.core.order import Order, read_order
from hpfracc.operators.core.values import apply_over_points
from hpfracc.profiling.recorder import watched


@watched
def fractional_fft(
    x: Any, alpha: Any, axis: int | None = None, *, dim: Any = None, points: int | None = None, backend: Any = None
) -> Any:
    r"""The fractional fast Fourier transform of Bailey and Swarztrauber.

    .. math:: G_k = \sum_{n=0}^{N-1} x_n e^{-2\pi i n k \alpha}, \qquad k = 0, \dots, M-1.

    With ``alpha = 1/N`` it is the discrete Fourier transform. A smaller alpha resolves low frequencies more finely; a
    negative one changes the sign of the exponent. Not to be confused with the fractional Fourier *transform*,
    :func:`hpfracc.frft`.

    Parameters
    ----------
    x : array_like, shape (..., N)
        Real or complex samples, equally spaced. Labels of pandas and xarray objects are kept, except along the axis,
        which becomes the frequency axis.
    alpha : float, Fraction or scalar array
        The spacing of the frequencies in cycles per sample, any real number; differentiable if it is a tensor or JAX
        array. A :class:`fractions.Fraction` is used exactly. As a float, ``1/N`` has a rounding error, which grows to
        1e-10 at the last of a million frequencies.
    axis : int, optional
        The axis of the samples: by default the last one, or the index of a frame.
    dim : hashable, optional
        The name of that axis, for an xarray ``DataArray``.
    points : int, optional
        M, the number of frequencies; N by default.
    backend : str, optional
        Backend to run on; by default the engine selects it.

    Returns
    -------
    array, shape (..., M)
        Complex, in the library and precision of ``x``.

    See Also
    --------
    frft, hpfracc.engine.fft

    Notes
    -----
    Three FFTs of length N + M - 1 or slightly more; one of them is cached for each number ``alpha``. The phases are
    reduced exactly, so the error is that of an FFT: about eps log2(N) times the 2-norm of ``x``.

    References
    ----------
    D. H. Bailey, P. N. Swarztrauber, SIAM Review 33 (1991) 389-404.

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> x = np.array([1.0, 2.0, 3.0, 4.0])
    >>> bool(np.allclose(hf.fractional_fft(x, 1 / 4), np.fft.fft(x)))
    True
    """
    call = functools.partial(_fractional_fft, alpha=alpha, points=points, backend=backend)
    dtype = np.result_type(x.dtype, np.complex64) if is_chunked(x) else None
    return apply_over_points(call, x, axis, dim, like=alpha, dtype=dtype, count=points, points=False)


def _fractional_fft(values: Any, alpha: Any, points: int | None, backend: Any) -> Any:
    low = 0.0
    if isinstance(alpha, Fraction):
        exact, alpha = alpha, float(alpha)
        low = float(exact - Fraction(alpha))
    order = read_order(alpha)
    rates = (0.0, order.value, 0.0, 0.0, low, 0.0) if low else (0.0, order.value, 0.0)
    return chirp_transform(values, rates, order, points=points, backend=backend)


def chirp_transform(
    values: Any,
    rates: tuple[Any, ...],
    order: Order,
    *,
    points: int | None = None,
    offsets: tuple[float, float] = (0.0, 0.0),
    backend: Any = None,
) -> Any:
    """The engine's chirp transform, with rates in the namespace of ``order``. Chirps are cached for plain orders."""
    key: Hashable = None
    if order.plain:
        key = (rates, values.shape[-1], points, offsets)
        array: Any = np.array(rates)
    else:
        order = order_beside(order, values)
        with order.xp.scope():
            array = order.xp.stack([order.xp.array(rate) for rate in rates])
    return get_operation("chirp_transform")(
        values, array, points=points, offsets=offsets, backend=backend, weights_key=key
    )
