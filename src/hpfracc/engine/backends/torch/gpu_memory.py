"""What PyTorch's kernels take on a GPU beyond operands and result, told stage by stage; imports no PyTorch.

Checked on an H200 against PyTorch's own counter and the blocks alive at each peak (``benchmarks/memory.py``). cuFFT's
work areas are PyTorch's there, and asked from cuFFT. Non-finite samples are always repaired, which takes copies.
"""

from __future__ import annotations

import math

from hpfracc.engine.backends.cufft import scratch, transform_kind
from hpfracc.engine.backends.footprints import Stage, chirp_stages, footprint, wide_bytes
from hpfracc.engine.numerics.lengths import fast_length
from hpfracc.engine.numerics.mittag_leffler_sum import values_together
from hpfracc.engine.primitives.base import Call
from hpfracc.engine.primitives.causal_convolution import block_length
from hpfracc.engine.primitives.chirp_transform import transform_length
from hpfracc.engine.primitives.operands import dtype_bytes
from hpfracc.engine.primitives.toeplitz_apply import padded_sizes

__all__ = [
    "chirp_transform",
    "convolution_blocked",
    "convolution_direct",
    "convolution_fft",
    "fft",
    "mittag_leffler",
    "reduction",
    "spectral_multiply",
    "stencil_tiles",
    "tile_sides",
    "tiles_together",
    "toeplitz_direct",
    "toeplitz_fft",
]

#: Bytes of the fractions of one value of the Mittag-Leffler function, real and complex: of some fifty nodes, and what
#: their poles take.
_FRACTIONS, _COMPLEX_FRACTIONS = 1450, 1700
#: Side of a tile of a lattice by the number of axes: as many points as fill a GPU with a few tiles, and few steps to
#: cross it; and that of a tile of more axes.
_SIDES, _SMALLEST_SIDE = {1: 4096, 2: 64, 3: 16}, 8
#: Tiles that are worked on together: as many as fill a GPU, and of many a share that a wave mostly has.
_LEAST_TILES, _SHARE_OF_TILES = 256, 8
#: Axes that one plan of cuFFT takes.
_MOST_AXES = 3


def _is_complex(call: Call) -> bool:
    return call.dtype.startswith("complex")


def _is_narrow(call: Call) -> bool:
    return call.itemsize < wide_bytes(call)


# Transforms: what one takes beside its operand and its result.


def _half(lengths: tuple[int, ...], batch: int, item: int) -> int:
    """Bytes of the spectrum of real numbers of ``item`` bytes."""
    return batch * math.prod(lengths[:-1]) * (lengths[-1] // 2 + 1) * 2 * item


def _forward(dtype: str, lengths: tuple[int, ...], batch: int, whole: bool = False) -> int:
    """A work area; ``whole`` says that the first two axes of an array are transformed.

    Then, and where there are more axes than a plan takes, real numbers go along the last axis first, and from there
    into a second spectrum.
    """
    if dtype.startswith("complex"):
        return _complex(dtype, lengths, batch)
    if len(lengths) <= _MOST_AXES and not whole:
        return scratch(transform_kind(dtype), lengths, batch)
    spectrum = _half(lengths, batch, dtype_bytes(dtype))
    return spectrum + max(0, _others(dtype, lengths, batch))


def _back(dtype: str, lengths: tuple[int, ...], batch: int, whole: bool = False) -> int:
    """A work area, and on the way to real numbers a copy of the spectrum, which that spoils."""
    if dtype.startswith("complex"):
        return _complex(dtype, lengths, batch)
    kind, spectrum = transform_kind(dtype, back=True), _half(lengths, batch, dtype_bytes(dtype))
    if len(lengths) <= _MOST_AXES and not whole:
        return spectrum + scratch(kind, lengths, batch)
    last = scratch(kind, lengths[-1:], batch * math.prod(lengths[:-1]))
    return spectrum + max(last, _others(dtype, lengths, batch) - spectrum)


def _complex(dtype: str, lengths: tuple[int, ...], batch: int) -> int:
    if len(lengths) <= _MOST_AXES:
        return scratch(transform_kind(dtype), lengths, batch)
    inner, outer = lengths[-_MOST_AXES:], lengths[:-_MOST_AXES]
    work = scratch(transform_kind(dtype), inner, batch * math.prod(outer))
    return work + batch * math.prod(lengths) * dtype_bytes(dtype)


def _others(dtype: str, lengths: tuple[int, ...], batch: int) -> int:
    """The work area of the axes before the last, whose transforms lie side by side."""
    kind = "C2C" if dtype == "float32" else "Z2Z"
    return scratch(kind, lengths[:-1][-_MOST_AXES:], batch * (lengths[-1] // 2 + 1), layout="columns")


def _covers(axes: tuple[int, ...], ndim: int) -> bool:
    """Whether the first two axes of an array are the first that are transformed."""
    return len(axes) > 1 and axes[0] == -ndim and axes[1] == 1 - ndim


def fft(call: Call) -> int:
    """A padded copy, one that ``irfft`` spoils, and cuFFT's own."""
    kind, given = call.facts["kind"], call.facts["given"]
    lengths, rows = (call.length,), call.batch
    if kind == "irfft":
        wanted: int = call.facts["frequencies"]
        real = "float32" if call.dtype == "complex64" else "float64"
        work = rows * wanted * call.itemsize + scratch(transform_kind(real, back=True), lengths, rows)
    else:
        wanted = call.length
        # Of real numbers half the spectrum is transformed, into the place of the whole.
        halved = kind != "rfft" and not _is_complex(call)
        work = scratch(transform_kind(call.dtype), lengths, rows, "whole" if halved else "rows")
    return work + (rows * wanted * call.itemsize if given < wanted else 0)


# Convolutions.


def _around(call: Call) -> int:
    """Differences take a signal; starting weights are added in place."""
    return int(call.facts["differences"]) * call.batch * call.length * call.itemsize


def convolution_direct(call: Call) -> int:
    """The matrix; the signal without its bad samples, reversed, multiplied, in double precision and back."""
    n, rows, wide = call.length, call.facts["weight_rows"], wide_bytes(call)
    signal, double = call.batch * n * call.itemsize, call.batch * n * wide
    product: Stage = ((1, signal), (2, double), (int(_is_narrow(call)), signal), (1, rows * n * n * wide))
    return footprint([product], False) - call.output_bytes + _around(call)


def convolution_fft(call: Call) -> int:
    """Signal without its bad samples, padded and transformed; the way back; cuFFT's own."""
    n, rows, taps = call.length, call.facts["weight_rows"], call.facts["taps"]
    if not call.batch * n * taps:
        return 0
    size, given = fast_length(n + taps - 1), call.facts["signal_rows"]
    weights, signal, padded = (count * size * call.itemsize for count in (rows, given, call.batch))
    forward, back = _forward(call.dtype, (size,), given), _back(call.dtype, (size,), call.batch)
    # Complex numbers are padded by the transform, for as long as it takes; real ones before, for longer.
    around = given * n * call.itemsize if _is_complex(call) else signal
    stages: list[Stage] = [
        ((2, weights), (1, _forward(call.dtype, (size,), rows))),
        ((1, weights), (1, around), (2 if _is_complex(call) else 1, signal), (1, forward)),
        ((1, weights), (1, around), (1, signal), (1 if rows == 1 else 2, padded), (1, back)),
        ((1, weights), (1, around), (1, padded), (1, call.output_bytes), (2, given * n)),
    ]
    return footprint(stages, False) - call.output_bytes + _around(call)


def convolution_blocked(call: Call) -> int:
    """Signal without its bad samples, and once more with zeros behind; its blocks as one long transform."""
    rows, taps = call.facts["weight_rows"], call.facts["taps"]
    if not call.batch * call.length * taps:
        return 0
    size = block_length(taps)
    blocks = call.batch * -(-call.length // (size - taps + 1))
    weights, padded = rows * size * call.itemsize, blocks * size * call.itemsize
    filled = blocks * (size - taps + 1) * call.itemsize
    kept: Stage = ((1, weights), (1, call.output_bytes), (1, filled))
    stages: list[Stage] = [
        (*kept, (2, padded), (1, _forward(call.dtype, (size,), blocks))),
        (*kept, (2 if rows == 1 else 3, padded), (1, _back(call.dtype, (size,), blocks))),
        (*kept, (1, padded), (1, filled)),
    ]
    return footprint(stages, False) - call.output_bytes + _around(call)


def toeplitz_direct(call: Call) -> int:
    """The matrix, and the distances it is gathered by; signal and product in double precision."""
    n, rows, wide = call.length, call.facts["weight_rows"], wide_bytes(call)
    signal, double, narrow = call.output_bytes, call.batch * n * wide, int(_is_narrow(call))
    cleaned = int(call.facts["used"] != call.facts["points"])
    matrix = (1, rows * n * n * wide)
    stages: list[Stage] = [
        ((2, 8 * n * n),),
        ((1, 8 * n * n), matrix),
        (matrix, (cleaned + narrow, signal), (1 + narrow, double)),
        (matrix, (1 + cleaned, signal), (4 * cleaned, call.batch * n)),
    ]
    return footprint(stages, False) - call.output_bytes


def toeplitz_fft(call: Call) -> int:
    """The weights continued and their spectrum; then rows padded, transformed and transformed back."""
    if not call.batch * call.length * call.facts["taps"]:
        return 0
    sizes, rows = padded_sizes(call.facts["points"], call.facts["used"]), call.facts["weight_rows"]
    row = math.prod(sizes) * call.itemsize
    weights, signals = rows * row, call.batch * row
    whole = _covers(call.facts["axes"], len(call.shape))
    # The spectrum of real weights is real.
    kept = (1, weights if _is_complex(call) else weights // 2)
    cleaned = (int(call.facts["used"] != call.facts["points"]), call.output_bytes)
    stages: list[Stage] = [
        ((2, weights), (1, _forward(call.dtype, sizes, rows, whole))),
        ((2, weights), kept),
        (kept, cleaned, (2, signals), (1, _forward(call.dtype, sizes, call.batch, whole))),
        (kept, cleaned, (2, signals), (1, _back(call.dtype, sizes, call.batch, whole))),
        (kept, (1, signals), cleaned, (4 * cleaned[0], call.batch * call.length)),
    ]
    return footprint(stages, False) - call.output_bytes


def chirp_transform(call: Call) -> int:
    """Chirps while their phases are reduced; then those and the rows, multiplied, padded and transformed."""
    stages, kept, multiplied, padded = chirp_stages(call, 5, in_place=False)
    lengths, rows = (transform_length(call.length, call.facts["points"]),), max(1, call.facts["rate_rows"])
    work = (1, _complex(call.facts["result"], lengths, call.batch))
    between = 16 * lengths[0] * rows
    chirps: Stage = ((1, 16 * call.length * rows), (1, 16 * call.facts["points"] * rows))
    narrow: Stage = (kept[0], kept[2]) if dtype_bytes(call.facts["result"]) < 16 else ()
    stages += [
        (*chirps, (2, between), (1, _complex("complex128", lengths, rows))),
        (*chirps, (2, between), *narrow),
        (*kept, (1, multiplied), (2, padded), work),
        (*kept, (2, padded), work),
        (*kept, (1, padded), (1, call.output_bytes)),
    ]
    return footprint(stages, False) - call.output_bytes


# Spectral multiplication.


def spectral_multiply(call: Call) -> int:
    """The spectrum and its product, and what the way back takes; cosines by copies."""
    if not call.batch * call.length:
        return 0
    out, turns, fits = call.output_bytes, call.facts["turns"], call.facts["fits"]
    stages: list[Stage] = []
    for number, (axis, kind) in enumerate(call.facts["waves"]):
        stages += _wave(call, axis, kind, int(number > 0))
    if turns or not call.facts["waves"]:
        lengths = tuple(call.shape[axis] for axis in turns)
        each = math.prod(lengths) if _is_complex(call) else _half(lengths, 1, 1) // 2 if lengths else 1
        item = call.itemsize if _is_complex(call) else 2 * call.itemsize
        spectrum: int = call.facts["spectrum_bytes"]
        whole = _covers(turns, len(call.shape))
        batch = math.prod(call.shape) // max(1, math.prod(lengths))
        given = spectrum // max(1, each * item)
        product = spectrum if fits else batch * each * item
        before = (int(bool(call.facts["waves"])), out)
        stages += [
            (before, (1, spectrum), (1, _forward(call.dtype, lengths, given, whole) if turns else 0)),
            ((1, spectrum), (int(not fits), product)),
            ((1, product), (1, out), (1, _back(call.dtype, lengths, batch, whole) if turns else 0)),
        ]
    return max(0, footprint(stages, False) - out)


def _wave(call: Call, axis: int, kind: str, later: int) -> list[Stage]:
    """A cosine or sine transform and its inverse, of ``out`` bytes; ``later`` if its operand is not the signal."""
    out, n = call.output_bytes, call.shape[axis]
    real = {"complex64": "float32", "complex128": "float64"}.get(call.dtype, call.dtype)
    rows = out // max(1, n * dtype_bytes(real))
    parts = int(_is_complex(call))  # real and imaginary part one behind the other
    if kind in ("dct1", "dst1"):
        # Continued to twice the length. What is real of a transform is a view, which keeps the rest.
        work = _forward(real, (2 * (n + 1 if kind == "dst1" else n - 1),), rows)
        views = int(kind == "dct1" and not parts and not call.facts["turns"])
        return [((later + parts + 4, out), (1, work)), ((1 + parts + views + 4, out), (1, work))]
    # Permuted, transformed, turned, joined, doubled; back: half of it backwards, joined, turned, transformed. A sine
    # transform goes backwards as a whole.
    backwards = int(kind == "dst2")
    return [
        ((later + parts + 2, out), (1, _forward(real, (n,), rows))),
        ((later + parts + 4, out),),
        ((1 + parts + backwards + 2, out), (1, out // 2), (1, _back(real, (n,), rows))),
        ((1 + parts + backwards + 3, out), (1, out // 2)),
    ]


# The rest.


def reduction(call: Call) -> int:
    """Of a norm along axes that are not the last, the absolute values and their squares."""
    if call.facts["kind"] != "norm" or call.facts["trailing"]:
        return 0
    return 2 * call.input_bytes


def mittag_leffler(call: Call) -> int:
    """In double precision: points, values, moduli, bands and places in them; and the fractions of one block."""
    together = min(call.length, values_together(call.length))
    if _is_complex(call):
        return call.length * (48 if _is_narrow(call) else 24) + _COMPLEX_FRACTIONS * together
    return call.length * (56 if _is_narrow(call) else 44) + _FRACTIONS * together


def tile_sides(lattice: tuple[int, ...]) -> tuple[int, ...]:
    """Sides of the tiles that a lattice is cut into."""
    side = _SIDES.get(len(lattice), _SMALLEST_SIDE)
    return tuple(min(side, length) for length in lattice)


def tiles_together(tiles: int) -> int:
    """Of so many tiles, those that are worked on together."""
    return max(_LEAST_TILES, tiles // _SHARE_OF_TILES)


def stencil_tiles(call: Call) -> int:
    """Costs of each step with a layer around; then both operands, and copies of the tiles that are worked on."""
    lattice, item = call.facts["lattice"], call.itemsize
    if not call.batch * call.length:
        return 0
    sides = tile_sides(lattice)
    full = [-(-side // tile) * tile for side, tile in zip(lattice, sides, strict=True)]
    tile, around = math.prod(sides) * item, math.prod(side + 2 for side in sides) * item
    closed, points = math.prod(full) * item, call.length * item
    maps = call.batch * math.prod(side + 2 for side in full) * item
    steps = call.facts["steps"] if call.facts["edges"] else 1
    tiles = call.batch * math.prod(full) // math.prod(sides)
    active = min(tiles, tiles_together(tiles))
    ghosted = math.prod(side + 2 for side in lattice) * item
    # Costs that are taken along a step: open ones, those and a layer, shifted, both together, and up to whole tiles.
    priced: Stage = ((1, points), (1, closed), (1, call.length))
    if call.facts["edges"]:
        priced = ((2 * steps, points), (steps // 2, ghosted), (steps, closed))
    stages: list[Stage] = [
        priced,
        ((steps, closed), (1, maps), (1, call.batch * closed), (3, call.batch * closed // item)),
        ((steps, closed), (1, maps), (active, around), ((steps + 2) * active, tile)),
        ((steps, closed), (1, maps), (1, call.batch * points)),
    ]
    return footprint(stages, False) - call.output_bytes
