"""The fractional FFT: the Fourier sum with any spacing of frequencies."""

from __future__ import annotations

import functools
from collections.abc import Hashable
from fractions import Fraction
from typing import Any

import numpy as np

from hpfracc._arrays import is_chunked
from hpfracc._clusters import cluster_support
from hpfracc._frames import has_labels, open_samples
from hpfracc.engine.execution.operation import get_operation
from hpfracc.operators.core.applying import order_beside
from hpfracc.operators.core.order import Order, read_order
from hpfracc.operators.core.values import as_values, check_axis, move_axis
from hpfracc.profiling.recorder import watched

__all__ = ["chirp_transform", "fractional_fft"]


@watched
def fractional_fft(
    x: Any, alpha: Any, axis: int | None = None, *, dim: Any = None, points: int | None = None, backend: Any = None
) -> Any:
    r"""The fractional fast Fourier transform of Bailey and Swarztrauber.

    .. math:: G_k = \sum_{n=0}^{N-1} x_n e^{-2\pi i n k \alpha}, \qquad k = 0, \dots, M-1.

    With ``alpha = 1/N`` it is the Fourier transform; a smaller alpha looks at the low frequencies through a lens, a
    negative one turns the sign. Not to be confused with the fractional Fourier *transform*, :func:`hpfracc.frft`.

    Parameters
    ----------
    x : array_like, shape (..., N)
        Real or complex samples, equally spaced. Those of pandas and xarray come back with their labels, but for those
        along the axis, which becomes that of the frequencies.
    alpha : float, Fraction or scalar array
        The spacing of the frequencies in turns per sample, any real number; a tensor or JAX array carries its
        derivative. A :class:`fractions.Fraction` is taken exactly: ``1/N`` as a float is wrong by a rounding, which at
        the last of a million frequencies has grown to 1e-10.
    axis : int, optional
        The axis of the samples: the last one by default, the index of a frame.
    dim : hashable, optional
        The name of that axis, for an xarray ``DataArray``.
    points : int, optional
        M, how many frequencies; as many as there are samples by default.
    backend : str, optional
        Where the engine is to do the work.

    Returns
    -------
    array, shape (..., M)
        Complex, of the library of ``x``, in its precision.

    Notes
    -----
    Three FFTs of length N + M - 1 or a little more, one of them kept where a plain ``alpha`` comes back. The phases
    are reduced exactly: the error is that of an FFT, some eps log2(N) times the 2-norm of ``x``.

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
    if is_chunked(x) and dim is None:
        call = functools.partial(_call_block, alpha, {"axis": axis, "points": points, "backend": backend})
        dtype = np.result_type(x.dtype, np.complex64)
        return cluster_support().apply_function("fractional_fft", call, x, axis, dtype=dtype, points=points)
    if dim is not None or has_labels(x):
        opened = open_samples(x, axis=axis, dim=dim, by_row=True, chunked=True)
        found = fractional_fft(opened.values, alpha, opened.axis, points=points, backend=backend)
        return opened.close(found, points=False)
    low = 0.0
    if isinstance(alpha, Fraction):
        exact, alpha = alpha, float(alpha)
        low = float(exact - Fraction(alpha))
    order = read_order(alpha)
    values = as_values(x, order.value)
    axis = check_axis(-1 if axis is None else axis, values.ndim)
    values = move_axis(values, axis, -1)
    rates = (0.0, order.value, 0.0, 0.0, low, 0.0) if low else (0.0, order.value, 0.0)
    result = chirp_transform(values, rates, order, points=points, backend=backend)
    return result if axis == -1 else move_axis(result, -1, axis)


def _call_block(alpha: Any, options: dict[str, Any], block: Any) -> Any:
    return fractional_fft(block, alpha, **options)


def chirp_transform(
    values: Any,
    rates: tuple[Any, ...],
    order: Order,
    *,
    points: int | None = None,
    offsets: tuple[float, float] = (0.0, 0.0),
    backend: Any = None,
) -> Any:
    """The engine's chirp transform, its rates made in the namespace of ``order``; its chirps kept for a plain one."""
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
