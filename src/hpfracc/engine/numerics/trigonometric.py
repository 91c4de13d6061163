"""Cosine and sine transforms by Fourier transforms of the permuted or extended signal.

For libraries that have only the latter: each hands in its few functions (:class:`Functions`), and the transforms here
are compositions of those, so that they are differentiated, traced and mapped as the library does it. All run along the
last axis and are exact to rounding; scaling is that of ``scipy.fft`` without ``norm``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["TRIGONOMETRIC", "Functions", "backward", "forward"]

#: Cosine and sine transforms, by the name ``kinds`` knows them by.
TRIGONOMETRIC = ("dct1", "dct2", "dst1", "dst2")


@dataclass(frozen=True, slots=True)
class Functions:
    """What the transforms are composed of, in one library; all along the last axis.

    Attributes
    ----------
    rfft, irfft : callable
        ``rfft(x)`` and ``irfft(spectrum, n)``.
    join : callable
        Arrays one after the other.
    flip : callable
        Backwards.
    stack : callable
        Two arrays along a new first axis.
    interleave : callable
        ``a[0], b[0], a[1], b[1], ...`` of two equally long arrays.
    complex : callable
        From real and imaginary part.
    phases : callable
        ``phases(count, n, like)``: ``exp(-i pi k / (2 n))`` for k below ``count``, with the digits of ``like``.
    zeros : callable
        ``zeros(x)``: one zero a row.
    is_complex : callable
        Whether an array is.
    """

    rfft: Callable[[Any], Any]
    irfft: Callable[[Any, int], Any]
    join: Callable[[Sequence[Any]], Any]
    flip: Callable[[Any], Any]
    stack: Callable[[Any, Any], Any]
    interleave: Callable[[Any, Any], Any]
    complex: Callable[[Any, Any], Any]
    phases: Callable[[int, int, Any], Any]
    zeros: Callable[[Any], Any]
    is_complex: Callable[[Any], bool]


def forward(of: Functions, kind: str, x: Any) -> Any:
    """The transform of ``kind`` along the last axis."""
    return _by_parts(of, _FORWARD[kind], x)


def backward(of: Functions, kind: str, x: Any) -> Any:
    """Its inverse."""
    return _by_parts(of, _BACKWARD[kind], x)


def _by_parts(of: Functions, transform: Callable[[Functions, Any], Any], x: Any) -> Any:
    """Real and imaginary part side by side: the transforms use that their signal is real."""
    if not of.is_complex(x):
        return transform(of, x)
    both = transform(of, of.stack(x.real, x.imag))
    return of.complex(both[0], both[1])


# Type I: the signal continued to a period, evenly or oddly about its end points.


def _dct1(of: Functions, x: Any) -> Any:
    return of.rfft(of.join([x, of.flip(x[..., 1:-1])])).real


def _idct1(of: Functions, x: Any) -> Any:
    return _dct1(of, x) / (2.0 * (x.shape[-1] - 1))


def _dst1(of: Functions, x: Any) -> Any:
    zero = of.zeros(x)
    return -of.rfft(of.join([zero, x, zero, -of.flip(x)])).imag[..., 1 : x.shape[-1] + 1]


def _idst1(of: Functions, x: Any) -> Any:
    return _dst1(of, x) / (2.0 * (x.shape[-1] + 1))


# Type II: samples of even number, then those of odd number backwards, is a signal of the same length whose Fourier
# transform, turned by a quarter of a step, has the cosine transform in its real and imaginary parts (J. Makhoul, IEEE
# Trans. Acoust. Speech Signal Process. 28 (1980) 27-34). A sine transform is one of the signal with alternating signs,
# backwards.


def _dct2(of: Functions, x: Any) -> Any:
    return _cosine(of, of.join([x[..., ::2], of.flip(x[..., 1::2])]))


def _dst2(of: Functions, x: Any) -> Any:
    return of.flip(_cosine(of, of.join([x[..., ::2], -of.flip(x[..., 1::2])])))


def _cosine(of: Functions, permuted: Any) -> Any:
    n = permuted.shape[-1]
    half = n // 2 + 1
    turned = of.rfft(permuted) * of.phases(half, n, permuted)
    return 2.0 * of.join([turned.real, -of.flip(turned.imag[..., 1 : (n + 1) // 2])])


def _idct2(of: Functions, x: Any) -> Any:
    even, odd = _permuted(of, x)
    return _in_order(of, even, odd, x.shape[-1])


def _idst2(of: Functions, x: Any) -> Any:
    even, odd = _permuted(of, of.flip(x))
    return _in_order(of, even, -odd, x.shape[-1])


def _permuted(of: Functions, x: Any) -> tuple[Any, Any]:
    """Samples of even number, and of odd number, from their cosine transform."""
    n = x.shape[-1]
    half = n // 2 + 1
    other = of.join([of.zeros(x), of.flip(x)[..., : half - 1]])
    turned = of.complex(x[..., :half], -other) * of.phases(half, n, x).conj()
    permuted = 0.5 * of.irfft(turned, n)
    return permuted[..., : (n + 1) // 2], of.flip(permuted[..., (n + 1) // 2 :])


def _in_order(of: Functions, even: Any, odd: Any, n: int) -> Any:
    if n % 2:
        odd = of.join([odd, of.zeros(even)])
    return of.interleave(even, odd)[..., :n]


_FORWARD = {"dct1": _dct1, "dct2": _dct2, "dst1": _dst1, "dst2": _dst2}
_BACKWARD = {"dct1": _idct1, "dct2": _idct2, "dst1": _idst1, "dst2": _idst2}
