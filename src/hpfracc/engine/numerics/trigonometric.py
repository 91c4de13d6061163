"""Cosine and sine transforms by Fourier transforms of the permuted or extended signal.

For libraries that have only Fourier transforms. They are compositions of library functions, so they can be
differentiated, traced and mapped. All run along the last axis and are exact to rounding, with the scaling of
``scipy.fft`` without ``norm``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from hpfracc._xp import Namespace

#: Cosine and sine transforms, by their names in ``kinds``.
TRIGONOMETRIC = ("dct1", "dct2", "dst1", "dst2")


def forward(xp: Namespace, kind: str, x: Any) -> Any:
    """The transform of ``kind`` along the last axis."""
    return _by_parts(xp, _FORWARD[kind], x)


def backward(xp: Namespace, kind: str, x: Any) -> Any:
    """Its inverse."""
    return _by_parts(xp, _BACKWARD[kind], x)


def _by_parts(xp: Namespace, transform: Callable[[Namespace, Any], Any], x: Any) -> Any:
    """Apply to real and imaginary parts separately, because the transforms need a real signal."""
    if not xp.is_complex(x):
        return transform(xp, x)
    both = transform(xp, xp.stack((x.real, x.imag)))
    return xp.complex(both[0], both[1])


def _zero(xp: Namespace, x: Any) -> Any:
    """One zero per row."""
    return xp.zeros_like(x[..., :1])


def _phases(xp: Namespace, count: int, n: int, like: Any) -> Any:
    """``exp(-i pi k / (2 n))`` for k below ``count``, in the precision of ``like``."""
    single = "32" in str(like.dtype)
    # JAX has double precision here only if the samples have.
    angles = xp.arange(0, count, "float32" if single and xp.library == "jax" else "float64", like)
    angles = angles * (-math.pi / (2 * n))
    return xp.astype(xp.unit(angles), "complex64" if single else "complex128")


# Type I: the signal extended to a period, evenly or oddly about its end points.


def _dct1(xp: Namespace, x: Any) -> Any:
    return xp.fft.rfft(xp.concatenate([x, xp.flip(x[..., 1:-1])], -1)).real


def _dst1(xp: Namespace, x: Any) -> Any:
    zero = _zero(xp, x)
    return -xp.fft.rfft(xp.concatenate([zero, x, zero, -xp.flip(x)], -1)).imag[..., 1 : x.shape[-1] + 1]


# Type II: the even samples followed by the odd samples in reverse form a signal of the same length whose Fourier
# transform, after a phase shift, has the cosine transform in its real and imaginary parts (J. Makhoul, IEEE
# Trans. Acoust. Speech Signal Process. 28 (1980) 27-34). A sine transform is the reversed cosine
# transform of the signal with alternating signs.


def _dct2(xp: Namespace, x: Any) -> Any:
    permuted, n = xp.concatenate([x[..., ::2], xp.flip(x[..., 1::2])], -1), x.shape[-1]
    turned = xp.fft.rfft(permuted) * _phases(xp, n // 2 + 1, n, permuted)
    return 2.0 * xp.concatenate([turned.real, -xp.flip(turned.imag[..., 1 : (n + 1) // 2])], -1)


def _idct2(xp: Namespace, x: Any) -> Any:
    n = x.shape[-1]
    half = n // 2 + 1
    other = xp.concatenate([_zero(xp, x), xp.flip(x)[..., : half - 1]], -1)
    turned = xp.complex(x[..., :half], -other) * _phases(xp, half, n, x).conj()
    permuted = 0.5 * xp.fft.irfft(turned, n)
    even, odd = permuted[..., : (n + 1) // 2], xp.flip(permuted[..., (n + 1) // 2 :])
    if n % 2:
        odd = xp.concatenate([odd, _zero(xp, even)], -1)
    return xp.stack((even, odd), -1).reshape(*even.shape[:-1], 2 * even.shape[-1])[..., :n]


def _signs(xp: Namespace, x: Any) -> Any:
    return xp.astype(1 - 2 * (xp.arange(0, x.shape[-1], "int32", x) % 2), x.dtype)


_FORWARD: dict[str, Callable[[Namespace, Any], Any]] = {
    "dct1": _dct1,
    "dct2": _dct2,
    "dst1": _dst1,
    "dst2": lambda xp, x: xp.flip(_dct2(xp, x * _signs(xp, x))),
}
_BACKWARD: dict[str, Callable[[Namespace, Any], Any]] = {
    "dct1": lambda xp, x: _dct1(xp, x) / (2.0 * (x.shape[-1] - 1)),
    "dct2": _idct2,
    "dst1": lambda xp, x: _dst1(xp, x) / (2.0 * (x.shape[-1] + 1)),
    "dst2": lambda xp, x: _idct2(xp, xp.flip(x)) * _signs(xp, x),
}
