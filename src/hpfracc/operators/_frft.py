"""The fractional Fourier transform, by chirps or by eigenvectors, and the fractional FFT, which it uses."""

from __future__ import annotations

import functools
import math
from collections.abc import Hashable
from fractions import Fraction
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy import linalg

from hpfracc._arrays import dtype_name, is_chunked
from hpfracc._reading import choice
from hpfracc._xp import Namespace, array_namespace
from hpfracc.engine.execution.api import composite, fft, matmul
from hpfracc.engine.execution.operation import get_operation
from hpfracc.engine.execution.prepared import prepared_operands
from hpfracc.errors import InvalidInputError
from hpfracc.operators.core.applying import order_beside
from hpfracc.operators.core.order import Order, read_order
from hpfracc.operators.core.values import apply_over_points, constant, flip, join, scalar, zeros
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
        exact = alpha - round(alpha)  # a whole number turns no phase
        alpha = float(exact)
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


@watched
def frft(
    x: Any,
    order: Any,
    axis: int | None = None,
    *,
    dim: Any = None,
    method: Literal["chirp", "eigen"] = "chirp",
    backend: Any = None,
) -> Any:
    r"""The fractional Fourier transform: a rotation of the time-frequency plane by ``order`` quarter turns.

    .. math:: F^a f(u) = \sqrt{1 - i \cot\varphi} \int e^{i\pi (u^2 \cot\varphi - 2uv \csc\varphi + v^2 \cot\varphi)}
              f(v)\, dv, \qquad \varphi = a\pi/2.

    Order 1 is the centred unitary DFT, ``fftshift(fft(ifftshift(x), norm="ortho"))``, 2 reverses the signal about its
    centre, 3 is the inverse DFT, and 4 is the identity; integer orders given as numbers are exact. The centre is sample
    ``N // 2``; sample n is at time ``(n - N // 2) / sqrt(N)``, and likewise for frequencies.

    Parameters
    ----------
    x : array_like, shape (..., N)
        Real or complex samples, equally spaced. Labels of pandas and xarray objects are kept, except along the axis,
        because the result is at other points.
    order : float or scalar array
        Any real number; differentiable if it is a tensor or JAX array.
    axis : int, optional
        The axis of the samples: by default the last one, or the index of a frame.
    dim : hashable, optional
        The name of that axis, for an xarray ``DataArray``.
    method : {"chirp", "eigen"}
        ``"chirp"`` samples the integral, in O(N log N). It is the transform of the sampled *function* to rounding, if
        that function and its spectrum fit into the window ``abs(u) <= sqrt(N)/2`` under every rotation. For other
        signals, such as noise, the part that is rotated out of the window is lost; then the transform is neither
        unitary nor additive in the order, by tens of percent. (For even N the first sample has no mirror image in the
        window; only integer orders given as numbers wrap it around.) ``"eigen"`` rotates the coefficients of discrete
        Hermite-Gauss vectors, in O(N^2). It is unitary and additive in the order to rounding for every signal, and
        equal to the DFT at order 1, but only converges to the integral as N grows. Up to 8,192 points. The vectors are
        cached, up to a limit.
    backend : str, optional
        Backend to run on; by default the engine selects it.

    Returns
    -------
    array, shape (..., N)
        Complex, in the library and precision of ``x``. A non-finite sample makes its whole row non-finite.

    See Also
    --------
    fractional_fft, weyl

    References
    ----------
    H. M. Ozaktas, O. Arikan, M. A. Kutay, G. Bozdagi, IEEE Trans. Signal Process. 44 (1996) 2141-2150 (chirps);
    C. Candan, M. A. Kutay, H. M. Ozaktas, IEEE Trans. Signal Process. 48 (2000) 1329-1337 (eigenvectors).

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> u = (np.arange(64) - 32) / 8.0
    >>> bell = np.exp(-np.pi * u**2)  # its own transform, for every order
    >>> bool(np.allclose(hf.frft(bell, 0.3), bell, atol=1e-14))
    True
    """
    choice("method", method, ("chirp", "eigen"))
    call = functools.partial(_frft, order=order, method=method, backend=backend)
    dtype = np.result_type(x.dtype, np.complex64) if is_chunked(x) else None
    return apply_over_points(call, x, axis, dim, like=order, dtype=dtype, points=False)


def _frft(values: Any, order: Any, method: str, backend: Any) -> Any:
    turned = order_beside(read_order(order, name="order"), values)
    with composite():
        if not values.shape[-1] or turned.is_integer:
            return _whole(values, int(turned.value) % 4 if turned.is_integer else 0, backend)
        return (_by_chirps if method == "chirp" else _by_eigenvectors)(values, turned, backend)


# Integer orders.


def _whole(values: Any, quarters: int, backend: Any) -> Any:
    """The signal after ``quarters`` quarter turns, exactly."""
    n = values.shape[-1]
    if quarters == 0 or not n:
        return _as_complex(values)
    if quarters == 2:
        mirrored = flip(values) if n % 2 else _mirror(values)
        return _as_complex(mirrored)
    kind = "fft" if quarters == 1 else "ifft"
    return _roll(fft(_roll(values, n - n // 2), kind=kind, norm="ortho", backend=backend), n // 2)


def _as_complex(values: Any) -> Any:
    """A complex array that shares no memory with the caller's."""
    xp = array_namespace(values)
    name = {"float32": "complex64", "float64": "complex128"}.get(dtype_name(values))
    with xp.scope():
        return xp.copy(values) if name is None else xp.astype(values, name)


def _roll(values: Any, count: int) -> Any:
    """Roll by ``count`` points. Half of the points move the zero to the centre, or back."""
    start = values.shape[-1] - count
    return join([values[..., start:], values[..., :start]])


def _mirror(values: Any) -> Any:
    """Move point ``-p`` to p, cyclically."""
    return join([values[..., :1], flip(values[..., 1:])])


# Chirps.


def _by_chirps(values: Any, order: Order, backend: Any) -> Any:
    """Apply integer orders until the rest is between 1/2 and 3/2, where the integral is sampled densely enough."""
    n, xp = values.shape[-1], order.xp
    with xp.scope():
        if order.known is None:
            whole: Any = xp.round(order.value) - 1.0
        else:
            whole = float(round(order.known) - 1)
        beyond = (0.5 * math.pi) * (order.value - whole - 1.0)
        sine = xp.cos(beyond)
        cotangent = -xp.sin(beyond) / sine
        rates = (cotangent / (-8.0 * n), 1.0 / (sine * (2.0 * n)), cotangent / (-2.0 * n))
        size = xp.exp(-0.5 * xp.log(sine)) * (0.5 / math.sqrt(n))  # JAX cannot differentiate a power outside the scope
        real, imag = size * xp.cos(0.5 * beyond), size * xp.sin(0.5 * beyond)
    traced = order.known is None
    fine = _fine_traced(values, xp, whole, backend) if traced else _fine(values, int(whole) % 4, backend)
    centre = n // 2
    result = chirp_transform(
        fine,
        tuple(map(float, rates)) if order.plain else rates,
        order,
        points=n,
        offsets=(-2.0 * centre, -1.0 * centre),
        backend=backend,
    )
    return result * (scalar(real, result) + 1j * scalar(imag, result))


def _fine(values: Any, quarters: int, backend: Any) -> Any:
    """The signal after ``quarters`` quarter turns, at half the spacing: 2N points, the centre at ``2 (N // 2)``."""
    n = values.shape[-1]
    centre = n // 2
    if quarters % 2:
        # The transform at half-integer frequencies is that of the signal padded with zeros.
        padded = join([values[..., centre:], zeros(values, n), values[..., :centre]])
        fine = fft(padded, backend=backend) * (1.0 / math.sqrt(n))
    else:
        spectrum = fft(_roll(values, n - centre), backend=backend)
        # For even N the frequency -N/2 stays on the side where order 1 has it.
        padded = join([spectrum[..., : n - centre], zeros(spectrum, n), spectrum[..., n - centre :]])
        fine = fft(padded, kind="ifft", backend=backend) * 2.0
    return _roll(_mirror(fine) if quarters >= 2 else fine, 2 * centre)


def _fine_traced(values: Any, xp: Namespace, whole: Any, backend: Any) -> Any:
    """The same for a traced number of turns: all four are computed, and one is selected."""
    with xp.scope():
        quarters = whole - 4.0 * xp.round(whole / 4.0 - 0.375)
        chosen = [quarters == float(i) for i in range(4)]
    taken = _fine(values, 0, backend)
    for i in (1, 2, 3):
        taken = xp.where(chosen[i], _fine(values, i, backend), taken)
    return taken


# Eigenvectors.


def _by_eigenvectors(values: Any, order: Order, backend: Any) -> Any:
    """Fold into even and odd parts, rotate the coefficients of each, unfold."""
    n = values.shape[-1]
    centre = n // 2
    vectors = hermite_gauss(n)
    parts = [values.real, values.imag] if "complex" in dtype_name(values) else [values]
    stacked = array_namespace(values).stack(parts)
    right, left = stacked[..., centre + 1 :], flip(stacked[..., :centre])
    pairs, half = right.shape[-1], math.sqrt(0.5)
    even = join([stacked[..., centre : centre + 1], (right + left[..., :pairs]) * half, left[..., pairs:]])
    odd = (right - left[..., :pairs]) * half
    even = _rotate(even, vectors.even, vectors.even_index, order, ("hermite-gauss", n, 0), backend)
    if pairs:
        odd = _rotate(odd, vectors.odd, vectors.odd_index, order, ("hermite-gauss", n, 1), backend) * half
        pair = even[..., 1 : pairs + 1] * half
        left = join([pair - odd, even[..., pairs + 1 :]])
        joined = join([flip(left), even[..., :1], pair + odd])
    else:
        joined = join([flip(even[..., 1:]), even[..., :1]])
    return joined[0] + 1j * joined[1]


def _rotate(parts: Any, vectors: Any, index: Any, order: Order, key: tuple[Any, ...], backend: Any) -> Any:
    """``V exp(-i pi k a / 2) V^T``: real and imaginary parts along the first axis; the input may be real only."""
    basis = constant(vectors, parts, key)
    found = matmul(parts, basis, backend=backend)
    cosine, sine = (constant(factor, parts) for factor in _phases(order, index))
    if parts.shape[0] == 2:
        rotated = [found[:1] * cosine + found[1:] * sine, found[1:] * cosine - found[:1] * sine]
    else:
        rotated = [found * cosine, found * -sine]
    return matmul(array_namespace(parts).concatenate(rotated), basis.T, backend=backend)


def _phases(order: Order, index: Any) -> tuple[Any, Any]:
    """Cosine and sine of ``pi k a / 2``. Full turns are removed first, because they would cost digits."""
    xp = order.xp
    with xp.scope():
        k = xp.array(index)
        short = xp.round(order.value * 2.0**26) * 2.0**-26
        turns = k * short
        angle = (0.5 * math.pi) * (turns - 4.0 * xp.round(0.25 * turns) + k * (order.value - short))
        return xp.cos(angle), xp.sin(angle)


#: Longest signal: its two matrices take a quarter of a gigabyte.
MAX_POINTS = 1 << 13


class HermiteGauss(NamedTuple):
    """Vectors as columns, on the folded axis, and the number of zeros of each.

    ``even`` acts on ``[x_0, (x_j + x_-j)/sqrt(2), ..., x_{N/2} if N is even]``, ``odd`` on ``(x_j - x_-j)/sqrt(2)``.
    """

    even: np.ndarray[Any, Any]
    odd: np.ndarray[Any, Any]
    even_index: np.ndarray[Any, Any]
    odd_index: np.ndarray[Any, Any]


def hermite_gauss(n: int) -> HermiteGauss:
    """The vectors for ``n`` points; cached and read-only."""
    if n > MAX_POINTS:
        raise InvalidInputError(
            f"method='eigen' with {n:,} points needs matrices of {4 * n * n / 2**30:.1f} GiB; use method='chirp', or "
            f"at most {MAX_POINTS:,} points"
        )
    found: HermiteGauss = prepared_operands.get(("Hermite-Gauss vectors", n), lambda: _make(n))
    return found


def _make(n: int) -> HermiteGauss:
    half = n // 2
    even = 2.0 * np.cos(2.0 * np.pi * np.arange(half + 1) / n)
    odd = even[1 : (n + 1) // 2].copy()
    if n % 2 and half:  # the last point is adjacent to its own mirror image
        even[-1] += 1.0
        odd[-1] -= 1.0
    beside = np.ones(max(0, even.size - 1))
    beside[:1] *= np.sqrt(2.0)
    if n % 2 == 0:
        beside[-1:] *= np.sqrt(2.0)
    # Sorted by number of zeros, i.e. by decreasing eigenvalue; for even N the Fourier matrix has no vector N - 1.
    found = HermiteGauss(
        _vectors(even, beside),
        _vectors(odd, np.ones(max(0, odd.size - 1))),
        2.0 * np.arange(even.size),
        2.0 * np.arange(odd.size) + 1.0,
    )
    for array in found:
        array.setflags(write=False)
    return found


def _vectors(diagonal: np.ndarray[Any, Any], beside: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if diagonal.size == 0:
        return np.zeros((0, 0))
    return np.ascontiguousarray(linalg.eigh_tridiagonal(diagonal, beside)[1][:, ::-1])
