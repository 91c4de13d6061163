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


def _idct1(xp: Namespace, x: Any) -> Any:
    return _dct1(xp, x) / (2.0 * (x.shape[-1] - 1))


def _dst1(xp: Namespace, x: Any) -> Any:
    zero = _zero(xp, x)
    return -xp.fft.rfft(xp.concatenate([zero, x, zero, -xp.flip(x)], -1)).imag[..., 1 : x.shape[-1] + 1]


def _idst1(xp: Namespace, x: Any) -> Any:
    return _dst1(xp, x) / (2.0 * (x.shape[-1] + 1))


# Type II: the even samples followed by the odd samples in reverse form a signal of the same length whose Fourier
# transform, after a phase shift, has the cosine transform in its real and imaginary parts (J. Makhoul, IEEE
# Trans. Acoust. Speech Signal Process. 28 (1980) 27-34). A sine transform is the reversed cosine
# # transform of the signal with alternating signs.


def _dct2(xp: Namespace, x: Any) -> Any:
    return _cosine(xp, xp.concatenate([x[..., ::2], xp.flip(x[..., 1::2])], -1))


def _dst2(xp: Namespace, x: Any) -> Any:
    return xp.flip(_cosine(xp, xp.concatenate([x[..., ::2], -xp.flip(x[..., 1::2])], -1)))


def _cosine(xp: Namespace, permuted: Any) -> Any:
    n = permuted.shape[-1]
    half = n // 2 + 1
    turned = xp.fft.rfft(permuted) * _phases(xp, half, n, permuted)
    return 2.0 * xp.concatenate([turned.real, -xp.flip(turned.imag[..., 1 : (n + 1) // 2])], -1)


def _idct2(xp: Namespace, x: Any) -> Any:
    even, odd = _permuted(xp, x)
    return _in_order(xp, even, odd, x.shape[-1])


def _idst2(xp: Namespace, x: Any) -> Any:
    even, odd = _permuted(xp, xp.flip(x))
    return _in_order(xp, even, -odd, x.shape[-1])


def _permuted(xp: Namespace, x: Any) -> tuple[Any, Any]:
    """Even and odd samples from their cosine transform."""
    n = x.shape[-1]
    half = n // 2 + 1
    other = xp.concatenate([_zero(xp, x), xp.flip(x)[..., : half - 1]], -1)
    turned = xp.complex(x[..., :half], -other) * _phases(xp, half, n, x).conj()
    permuted = 0.5 * xp.fft.irfft(turned, n)
    return permuted[..., : (n + 1) // 2], xp.flip(permuted[..., (n + 1) // 2 :])


def _in_order(xp: Namespace, even: Any, odd: Any, n: int) -> Any:
    if n % 2:
        odd = xp.concatenate([odd, _zero(xp, even)], -1)
    return xp.stack((even, odd), -1).reshape(*even.shape[:-1], 2 * even.shape[-1])[..., :n]


_FORWARD = {"dct1": _dct1, "dct2": _dct2, "dst1": _dst1, "dst2": _dst2}
_BACKWARD = {"dct1": _idct1, "dct2": _idct2, "dst1": _idst1, "dst2": _idst2}
