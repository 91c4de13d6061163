"""Contract of the spectral multiplication: transform, multiply by a symbol, transform back."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, final

import numpy as np

from hpfracc.engine.numerics.lengths import row_scratch
from hpfracc.engine.numerics.trigonometric import TRIGONOMETRIC
from hpfracc.engine.primitives.base import (
    INEXACT,
    INTEGERS,
    ArraySpec,
    Call,
    Case,
    Primitive,
    Transform,
    reversed_view,
    samples,
    strided_view,
)
from hpfracc.engine.primitives.cuts import Cut, outer_cuts
from hpfracc.engine.primitives.operands import (
    broadcast,
    complex_of,
    dtype_bytes,
    elements,
    normal_axis,
    read_dtype,
    shape_of,
)
from hpfracc.errors import InvalidInputError, ShapeError

__all__ = ["KINDS", "SpectralAxes", "SpectralMultiply", "is_half", "plan_axes"]

_TAKES = INEXACT | INTEGERS
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
    chosen = list(axes) if isinstance(axes, Sequence) else [axes]
    named = [kinds] * len(chosen) if isinstance(kinds, str) else list(kinds)
    if not chosen:
        raise InvalidInputError(f"{name}: axes={axes!r} names no axis; give at least one")
    if len(named) != len(chosen):
        raise InvalidInputError(f"{name}: {len(named)} kinds for {len(chosen)} axes; give one for each, or one for all")
    numbers = [normal_axis(name, axis, ndim) - ndim for axis in chosen]
    if len(set(numbers)) < len(numbers):
        raise InvalidInputError(f"{name}: axes={axes!r} names an axis twice; name each once")
    for kind in named:
        if kind not in KINDS:
            raise InvalidInputError(f"{name}: kind {kind!r} is not a transform; use {', '.join(KINDS)}")
    pairs = list(zip(numbers, named, strict=True))
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
        factor = read_dtype(self.name, "symbol", symbol, _TAKES)
        sampled = read_dtype(self.name, "signal", signal, _TAKES)
        dtype = sampled if sampled in INEXACT else "float64"
        points, given = shape_of(signal), shape_of(symbol)
        if not points:
            raise ShapeError(f"{self.name}: signal has no axis to transform along; give it at least one")
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
        size, item = elements(tuple(full)), dtype_bytes(dtype)
        symbol_bytes = elements(given) * item * (2 if is_real and factor.startswith("complex") else 1)
        return Call(
            operation=self.name,
            batch=batch,
            length=length,
            dtype=dtype,
            shape=tuple(full),
            input_bytes=symbol_bytes + elements(points) * item,
            output_bytes=size * item,
            facts={
                "waves": plan.waves,
                "turns": plan.turns,
                "real": is_real,
                "spectrum_bytes": self._spectrum_bytes(plan, points, dtype),
            },
        )

    @staticmethod
    def _spectrum_bytes(plan: SpectralAxes, points: tuple[int, ...], dtype: str) -> int:
        size = elements(points) * dtype_bytes(dtype)
        if dtype.startswith("complex") or not plan.turns:
            return size
        along = points[plan.turns[-1]]
        return size // max(1, along) * 2 * (along // 2 + 1)

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

    def cuts(self, call: Call, *arrays: Any, **params: Any) -> Iterator[Cut]:
        """Every axis that is not transformed, the longest first."""
        return outer_cuts(
            map(shape_of, arrays), call.shape, (*(axis for axis, _ in call.facts["waves"]), *call.facts["turns"])
        )

    def example(self, shape: tuple[int, ...], dtype: str) -> tuple[tuple[ArraySpec, ...], dict[str, Any]]:
        """A real symbol along the last axis, periodic: a fractional Laplacian of each row."""
        real = {"complex64": "float32", "complex128": "float64"}.get(dtype, dtype)
        return (ArraySpec(shape[-1:] or (1,), real), ArraySpec(shape or (1,), dtype)), {}

    def reference(self, *arrays: np.ndarray[Any, Any], **params: Any) -> np.ndarray[Any, Any]:
        """A product with the matrix of each transform, and with its inverse, in extended precision."""
        call = self.describe(*arrays, **params)
        precision = np.finfo(call.dtype).dtype
        symbol, signal = (
            np.asarray(array).astype(np.result_type(precision, array.dtype) if array.dtype.kind == "c" else precision)
            for array in map(np.asarray, arrays)
        )
        symbol, signal = symbol.astype(np.clongdouble), signal.astype(np.clongdouble)
        chosen = [*call.facts["waves"], *((axis, "fft") for axis in call.facts["turns"])]
        if call.facts["real"] and call.facts["turns"]:
            axis = call.facts["turns"][-1]
            if symbol.ndim >= -axis and is_half(signal.shape[axis], symbol.shape[axis]):
                symbol = _whole_symbol(symbol, signal.shape[axis], call.facts["turns"])
        with np.errstate(all="ignore"):
            for axis, kind in chosen:
                signal = _along(signal, axis, _transform_matrix(kind, signal.shape[axis]))
            signal = signal * symbol
            for axis, kind in chosen:
                signal = _along(signal, axis, _inverse_matrix(kind, signal.shape[axis]))
        signal = np.broadcast_to(signal, call.shape)
        return np.ascontiguousarray(signal.real if call.facts["real"] else signal).astype(call.dtype)

    def cases(self, dtype: str) -> Iterator[Case]:
        """Each kind and mixtures of them, odd and even lengths, batches, layouts, and symbols of every shape."""
        real = not dtype.startswith("complex")
        number = "float32" if dtype in ("float32", "complex64") else "float64"
        for kind in KINDS:
            for points in (2 if kind == "dct1" else 1, 7, 12):
                symbol = _even_symbol(number, (points,), (-1,) if kind == "fft" else ())
                yield Case(
                    f"{kind} of {points}", (symbol, samples(dtype, points, 1)), {"kinds": kind}, points in (7, 12)
                )
            x = samples(dtype, (3, 2, 9), 2)
            symbol = _even_symbol(number, (9,), (-1,) if kind == "fft" else ())
            yield Case(f"{kind} batched", (symbol, x), {"kinds": kind}, differentiable=True)
            yield Case(f"{kind} along the first axis", (symbol[:, None, None], np.moveaxis(x, -1, 0)), _at(0, kind))
            yield Case(f"{kind} strided", (strided_view(symbol), strided_view(x)), {"kinds": kind})
            yield Case(f"{kind} reversed", (reversed_view(symbol), reversed_view(x)), {"kinds": kind})
            yield Case(f"{kind} of no rows", (symbol, samples(dtype, (0, 9), 3)), {"kinds": kind})
            yield Case(f"{kind} of no points", (samples(number, 1, 3), samples(dtype, (2, 0), 3)), {"kinds": kind})
        x = samples(dtype, (2, 5, 6, 4), 4)
        symbol = _even_symbol(number, (5, 6, 4), (-3, -2, -1))
        yield Case("three axes", (symbol, x), {"axes": (-3, -2, -1)}, differentiable=True)
        yield Case("four axes", (_even_symbol(number, (2, 5, 6, 4), (0, 1, 2, 3)), x), {"axes": (0, 1, 2, 3)})
        mixed = {"axes": [1, 3, 2], "kinds": ["dst1", "fft", "dct2"]}
        yield Case("mixed", (_even_symbol(number, (5, 6, 4), (-1,)), x), mixed, differentiable=True)
        yield Case("a symbol each", (_even_symbol(number, (2, 5, 6, 4), (-1,)), x), {})
        yield Case("more axes in the symbol", (_even_symbol(number, (3, 1, 4), (-1,)), x[0, 0]), {}, True)
        yield Case("one factor for all", (samples(number, 1, 5), x), {"axes": (-1, -2)})
        yield Case("a number", (samples(number, (), 5), x), {"kinds": "dst1"})
        if real:
            half = _even_symbol(number, (5, 6, 3), (-3, -2))
            yield Case("half a symbol", (half, x), {"axes": (-3, -2, -1)}, differentiable=True)
            wave = _hermitian("complex64" if number == "float32" else "complex128", 9)
            yield Case("a Hermitian symbol", (wave, samples(dtype, (2, 9), 6)), {"real": True}, differentiable=True)
            yield Case("half a Hermitian symbol", (wave[:5], samples(dtype, (2, 9), 6)), {"real": True})
            both = {"axes": (-2, -1), "kinds": ("dct2", "fft"), "real": True}
            yield Case("Hermitian and cosines", (wave, samples(dtype, (4, 9), 6)), both)
            if dtype == "float64":
                yield Case("integers", (symbol[0, 0], np.arange(-2, 2)), {})
                yield Case("a symbol of integers", (np.array([3, 1, 2, 1]), x), {})
        else:
            yield Case("a complex symbol", (samples(dtype, (6, 4), 7), x), {"axes": (-2, -1)}, differentiable=True)
            yield Case("a complex symbol of cosines", (samples(dtype, 4, 7), x), {"kinds": "dct2"})
            yield Case("a complex symbol of a real signal", (samples(dtype, 4, 7), samples(number, (3, 4), 8)), {})
            asked = {"real": False}
            yield Case("a one-sided symbol", (samples(number, 4, 7), samples(number, (3, 4), 8)), asked)


def _at(axis: int, kind: str) -> dict[str, Any]:
    return {"axes": axis, "kinds": kind}


def _even_symbol(dtype: str, shape: tuple[int, ...], axes: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Real numbers that do not change when all frequencies of ``axes`` change sign."""
    symbol = samples(dtype, shape, 9)
    mirrored = symbol
    for axis in axes:
        mirrored = np.roll(np.flip(mirrored, axis), 1, axis)
    return np.asarray((symbol + mirrored) / np.asarray(2, dtype))


def _hermitian(dtype: str, n: int) -> np.ndarray[Any, Any]:
    """The frequencies of a real signal."""
    return np.fft.fft(samples("float64", n, 10)).astype(dtype)


# The transforms by definition, in extended precision, against which kernels are tested.


def _whole_symbol(half: np.ndarray[Any, Any], n: int, turns: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """All frequencies from the non-negative ones along the last of ``turns``, by Hermitian symmetry."""
    axis = turns[-1]
    tail = np.conj(np.take(half, range(n - n // 2 - 1, 0, -1), axis=axis))
    for other in turns[:-1]:
        if half.ndim >= -other:
            tail = np.roll(np.flip(tail, other), 1, other)
    return np.concatenate([half, tail], axis=axis)


def _along(x: np.ndarray[Any, Any], axis: int, matrix: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.moveaxis(np.matmul(np.moveaxis(x, axis, -1), matrix.T), -1, axis)


def _transform_matrix(kind: str, n: int) -> np.ndarray[Any, Any]:
    """``M[k, j]`` of the transform."""
    pi = np.arccos(np.longdouble(-1))
    j = np.arange(n, dtype=np.longdouble)
    k = j[:, None]
    if kind == "fft":
        return np.asarray(np.exp(-2j * pi * ((k * j) % max(n, 1)) / max(n, 1)))
    if kind == "dct1":
        ends = np.where((j == 0) | (j == n - 1), 1, 2)
        return np.asarray(ends * np.cos(pi * k * j / max(n - 1, 1)))
    if kind == "dct2":
        return np.asarray(2 * np.cos(pi * k * (j + 0.5) / max(n, 1)))
    if kind == "dst1":
        return np.asarray(2 * np.sin(pi * (k + 1) * (j + 1) / (n + 1)))
    return np.asarray(2 * np.sin(pi * (k + 1) * (j + 0.5) / max(n, 1)))


def _inverse_matrix(kind: str, n: int) -> np.ndarray[Any, Any]:
    """``M[j, k]`` of the inverse: the transpose, divided by the squared norms of the rows."""
    forward = _transform_matrix(kind, n)
    if kind == "fft":
        return forward.conj().T / max(n, 1)
    if kind == "dct1":
        return forward / (2 * max(n - 1, 1))
    # Rows of a cosine or sine matrix are orthogonal.
    return np.asarray(forward.T / (forward * forward).sum(axis=1))
