"""Contract of the spectral multiplication: transform, multiply by a symbol, transform back."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, final

from hpfracc import _reading
from hpfracc.engine.numerics.lengths import row_scratch
from hpfracc.engine.numerics.trigonometric import TRIGONOMETRIC
from hpfracc.engine.primitives.base import (
    ArraySpec,
    Call,
    Primitive,
    Transform,
    broadcast,
    complex_of,
    inexact,
    itemsize,
    normal_axes,
    read_dtype,
    read_shape,
    real_of,
    shape_of,
)
from hpfracc.errors import InvalidInputError, ShapeError

KINDS = ("fft", *TRIGONOMETRIC)


class SpectralAxes(NamedTuple):
    """The axes by kind, counted from the end.

    ``waves`` are those of cosine and sine transforms with their kinds, ``turns`` those of Fourier transforms in the
    given order: the last of these is halved if the result is real.
    """

    waves: tuple[tuple[int, str], ...]
    turns: tuple[int, ...]

    @property
    def axes(self) -> tuple[int, ...]:
        """All of them."""
        return (*(axis for axis, _ in self.waves), *self.turns)


def plan_axes(axes: Any, kinds: Any, ndim: int) -> SpectralAxes:
    """Check ``axes`` and ``kinds`` for a signal with ``ndim`` axes."""
    name = SpectralMultiply.name
    numbers = [axis - ndim for axis in normal_axes(name, axes, ndim)]
    named = [kinds] * len(numbers) if isinstance(kinds, str) else _reading.listed("kinds", kinds, "one for each axis")
    if not numbers:
        raise InvalidInputError(f"{name}: axes={axes!r} names no axis; give at least one")
    if len(named) != len(numbers):
        raise InvalidInputError(
            f"{name}: {len(named)} kinds for {len(numbers)} axes; give one for each, or one for all"
        )
    pairs = [(axis, _reading.choice(f"{name}: kind", kind, KINDS)) for axis, kind in zip(numbers, named, strict=True)]
    return SpectralAxes(
        tuple((axis, kind) for axis, kind in pairs if kind != "fft"),
        tuple(axis for axis, kind in pairs if kind == "fft"),
    )


def is_half(points: int, given: int) -> bool:
    """Whether a symbol with ``given`` frequencies along the halved axis has only the non-negative ones."""
    return given != 1 and given == points // 2 + 1


@final
class SpectralMultiply(Primitive):
    """``spectral_multiply(symbol, signal, axes=-1, kinds="fft", real=None)``: transform, multiply, transform back.

    ``axes`` is an axis of the signal or several, ``kinds`` the transform along all of them or one for each. Index
    ``k`` of the symbol along such an axis of ``n`` points stands for

    - ``"fft"``: ``exp(2 pi i k j / n)``, in the order of ``numpy.fft.fftfreq``: periodic;
    - ``"dct2"``: ``cos(pi k (j + 1/2) / n)``: bounded, free ends half a step outside (the path graph);
    - ``"dct1"``: ``cos(pi k j / (n - 1))``: free ends at the first and last point;
    - ``"dst1"``: ``sin(pi (k + 1) (j + 1) / (n + 1))``: zero one step outside;
    - ``"dst2"``: ``sin(pi (k + 1) (j + 1/2) / n)``: zero half a step outside.

    ``symbol`` broadcasts against the spectrum, which has the shape of the signal; it may have more leading axes, which
    the result then has too. The computation is in the precision of the signal (float64 for integers).

    The result is real if signal and symbol are, complex otherwise. A real symbol of a real signal must be even,
    ``symbol[-k] = symbol[k]`` (otherwise use ``real=False``), and ``real=True`` asserts that a complex one is
    Hermitian, ``symbol[-k] = conj(symbol[k])``, which makes the result real. For a real result only the ``n // 2 + 1``
    non-negative frequencies of the last Fourier axis are used, and a symbol may have only those.

    A non-finite sample makes its whole transform non-finite, and no other. Differentiable in both operands.
    """

    name = "spectral_multiply"
    operands = ("symbol", "signal")
    prepared_operand = 0
    casts = False

    def describe(
        self, symbol: Any, signal: Any, *, axes: Any = -1, kinds: Any = "fft", real: bool | None = None
    ) -> Call:
        """Check both operands; ``facts``: ``waves``, ``turns``, ``real`` (the result), ``spectrum_bytes``."""
        factor = read_dtype(self.name, "symbol", symbol)
        dtype = inexact(read_dtype(self.name, "signal", signal))
        points, given = read_shape(self.name, "signal", signal), shape_of(symbol)
        plan = plan_axes(axes, kinds, len(points))
        is_real = self._is_real(plan, dtype, factor, real)
        if not is_real:
            dtype = complex_of(dtype)
        spectrum = list(points)
        for axis, kind in plan.waves:
            if kind == "dct1" and points[axis] == 1:
                raise ShapeError(f"{self.name}: 'dct1' along axis {axis} of 1 point; it needs 2, or use 'dct2'")
        if is_real and plan.turns:
            axis = plan.turns[-1]
            if len(given) >= -axis and is_half(points[axis], given[axis]):
                spectrum[axis] = given[axis]
        self._check_symbol(plan, tuple(spectrum), points, given)
        full = [*broadcast(self.name, given, tuple(spectrum))]
        chosen = plan.axes
        for axis in chosen:
            full[axis] = points[axis]
        length = math.prod(points[axis] for axis in chosen)
        batch = math.prod(size for axis, size in enumerate(full, -len(full)) if axis not in chosen)
        # A complex symbol of a real result takes twice the bytes.
        doubled = [given] if is_real and factor.startswith("complex") else []
        spectrum_bytes = math.prod(points) * itemsize(dtype)
        if is_real and plan.turns:
            along = points[plan.turns[-1]]
            spectrum_bytes = spectrum_bytes // max(1, along) * 2 * (along // 2 + 1)
        return self.call(
            dtype,
            tuple(full),
            [given, points, *doubled],
            batch=batch,
            length=length,
            inner=chosen,
            waves=plan.waves,
            turns=plan.turns,
            real=is_real,
            spectrum_bytes=spectrum_bytes,
        )

    def _is_real(self, plan: SpectralAxes, dtype: str, factor: str, real: Any) -> bool:
        if real not in (None, True, False):
            raise InvalidInputError(f"{self.name}: real={real!r}; use True, False or None")
        sampled, weighted = not dtype.startswith("complex"), not factor.startswith("complex")
        if not real:
            return sampled and weighted and real is None
        if not sampled:
            raise InvalidInputError(f"{self.name}: real=True for a signal of dtype {dtype}; give its real part")
        if not weighted and not plan.turns:
            raise InvalidInputError(
                f"{self.name}: real=True with a complex symbol and no Fourier axis; give the symbol's real part"
            )
        return True

    def _check_symbol(
        self, plan: SpectralAxes, spectrum: tuple[int, ...], points: tuple[int, ...], given: tuple[int, ...]
    ) -> None:
        for axis in plan.axes:
            if len(given) >= -axis and given[axis] not in (1, spectrum[axis]):
                raise ShapeError(
                    f"{self.name}: symbol has {given[axis]} frequencies along axis {axis}, where the signal has "
                    f"{points[axis]} points; give the same number, or 1 for all"
                )

    def work(self, call: Call, algorithm: str) -> float:
        """``n log n`` for each transform of all axes."""
        return float(call.batch * call.length * max(1.0, math.log2(max(1, call.length))))

    def workspace(self, call: Call, algorithm: str) -> int:
        """The spectrum, or the result if that is larger; twice that for cosines by Fourier transforms.

        SciPy transforms complex data and cosines in place.
        """
        if not call.length:
            return 0
        waves, turns, spectrum = call.facts["waves"], call.facts["turns"], int(call.facts["spectrum_bytes"])
        if algorithm == "scipy":
            rows = row_scratch(call.length, call.dtype) if len(turns) == 1 and not waves else 0
            return rows + (spectrum if turns and call.facts["real"] else 0)
        return (2 if waves else 1) * max(spectrum, call.output_bytes)

    def transform(self, call: Call, algorithm: str) -> Transform | None:
        """The transform along all Fourier axes at once."""
        turns = call.facts["turns"]
        if not turns or not call.batch * call.length:
            return None
        lengths = tuple(call.shape[axis] for axis in turns)
        return Transform(lengths, math.prod(call.shape) // math.prod(lengths), call.dtype, inverse=True)

    def example(self, shape: tuple[int, ...], dtype: str) -> tuple[tuple[ArraySpec, ...], dict[str, Any]]:
        """A real symbol along the last axis, periodic: a fractional Laplacian of each row."""
        return (ArraySpec(shape[-1:] or (1,), real_of(dtype)), ArraySpec(shape or (1,), dtype)), {}
