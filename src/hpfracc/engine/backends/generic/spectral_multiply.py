"""Spectral multiplication by the library's Fourier transforms, with cosine and sine transforms composed of them.

Compositions of library functions, so the library can differentiate (also twice), trace and map them, in the symbol too.
Nothing is copied from the host: phases are computed on the device of the signal.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from hpfracc._arrays import dtype_name
from hpfracc._xp import Namespace
from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.backends.generic.library import Library
from hpfracc.engine.numerics.trigonometric import backward, forward
from hpfracc.engine.primitives.base import INEXACT, ArraySpec, Call
from hpfracc.engine.primitives.spectral_multiply import SpectralAxes, SpectralMultiply, is_half, plan_axes

_CONTRACT = SpectralMultiply()


def make_kernels(library: Library) -> dict[str, Kernel]:
    """One kernel for all transforms."""
    xp = library.xp
    there, back = library.waves or (partial(_composed, xp, forward), partial(_composed, xp, backward))
    compiled = xp.jit(partial(_multiply, library, there, back), static=("plan", "as_real"))

    def spectral_multiply(
        symbol: Any, signal: Any, axes: Any = -1, kinds: Any = "fft", real: bool | None = None, **options: Any
    ) -> Any:
        plan = plan_axes(axes, kinds, signal.ndim)
        if 0 in signal.shape or 0 in symbol.shape:
            specs = (ArraySpec(tuple(array.shape), dtype_name(array)) for array in (symbol, signal))
            call = _CONTRACT.describe(*specs, axes=axes, kinds=kinds, real=real)
            return xp.zeros(call.shape, call.dtype, signal)
        as_real = not xp.is_complex(signal) and (not xp.is_complex(symbol) if real is None else real)
        return compiled(symbol, signal, plan, as_real, **options)

    def prepare(symbol: Any, call: Call) -> Any:
        # A copy, because the cached array must not change with the caller's.
        return xp.copy(_in_precision(xp, symbol, call.dtype))

    run = library.finished(spectral_multiply, threads=True)
    return {"fft": Kernel(run, library.unrecorded(prepare), run)}


def _composed(xp: Namespace, transform: Callable[..., Any], x: Any, kind: str, axis: int) -> Any:
    return xp.moveaxis(transform(xp, kind, xp.moveaxis(x, axis, -1)), -1, axis)


def _multiply(
    library: Library,
    there: Callable[..., Any],
    back: Callable[..., Any],
    symbol: Any,
    signal: Any,
    plan: SpectralAxes,
    as_real: bool,
    **options: Any,
) -> Any:
    """Transform, multiply, transform back; cosines and sines innermost, while the numbers are real."""
    xp = library.xp
    if dtype_name(signal) not in INEXACT:
        signal = xp.astype(signal, "float64")
    symbol = _in_precision(xp, symbol, dtype_name(signal))
    n = signal.shape
    spectrum = signal
    for axis, kind in plan.waves:
        spectrum = there(spectrum, kind, axis, **options)
    if plan.turns:
        spectrum = (xp.rfftn if as_real else xp.fftn)(spectrum, plan.turns, **options)
        symbol = _cut_symbol(symbol, plan.turns[-1], n) if as_real else symbol
    elif not as_real and not xp.is_complex(spectrum) and not xp.is_complex(symbol):
        symbol = xp.complex(symbol, xp.zeros_like(symbol))
    spectrum = spectrum * symbol if spectrum is signal else library.multiply(spectrum, symbol)
    if plan.turns:
        sizes = [n[axis] for axis in plan.turns]
        spectrum = (xp.irfftn if as_real else xp.ifftn)(spectrum, sizes, plan.turns, **options, **library.back_options)
    for axis, kind in reversed(plan.waves):
        spectrum = back(spectrum, kind, axis, **options)
    return spectrum


def _cut_symbol(symbol: Any, axis: int, points: tuple[int, ...]) -> Any:
    """The non-negative frequencies along the halved axis."""
    if symbol.ndim < -axis or symbol.shape[axis] == 1 or is_half(points[axis], symbol.shape[axis]):
        return symbol
    return symbol[(..., slice(points[axis] // 2 + 1), *(slice(None),) * (-axis - 1))]


def _in_precision(xp: Namespace, symbol: Any, dtype: str) -> Any:
    """``symbol`` in the precision of a signal of ``dtype``."""
    single = dtype in ("float32", "complex64")
    if xp.is_complex(symbol):
        return xp.astype(symbol, "complex64" if single else "complex128")
    return xp.astype(symbol, "float32" if single else "float64")
