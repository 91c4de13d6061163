"""Contract of counter-based random numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, final

import numpy as np

from hpfracc import _reading
from hpfracc.engine.primitives.base import (
    FLOATS,
    INTEGERS,
    ArraySpec,
    Call,
    Cut,
    Primitive,
    itemsize,
    read_dtype,
    shape_of,
)
from hpfracc.errors import ShapeError, UnsupportedDtypeError

KINDS = ("normal", "uniform")

_NUMBERS = INTEGERS - {"bool"}
#: Dtypes of a key, which has four words of 32 bits.
_WIDE = frozenset({"uint32", "int64", "uint64"})


@final
class Random(Primitive):
    r"""``random(paths, key, n=, kind="normal", stream=0, dtype="float64")``: n random numbers for each path.

    A number depends only on the key, the stream, its path and its position, not on batches, threads, devices or
    machines. Word ``j`` of path ``p`` is word ``j mod 4`` of the Philox4x64-10 block [1] with counter
    :math:`(\lfloor j/4 \rfloor + 1, p, s, 0)`, as in ``numpy.random.Philox``.

    ``paths`` are non-negative integers of any shape; ``key`` has four words of 32 bits, low ones first. The result has
    the shape of ``paths`` with a further axis of length ``n``. ``kind="uniform"`` gives :math:`(k + 1/2) 2^{-52}` with
    the upper 52 bits k of a word (23 bits in float32), ``"normal"`` the Box-Muller transform of pairs of words:

    .. math:: \sqrt{-2 \ln u}\,(\cos 2 \pi v, \sin 2 \pi v), \quad u = (\lfloor w_1/2^{11} \rfloor + 1) 2^{-53}, \quad
        v = \lfloor w_2/2^{11} \rfloor 2^{-53}.

    float32 is rounded from float64. Not differentiable.

    Algorithms: ``streams``, a generator moved from path to path; ``arithmetic``, the words of many paths at once;
    ``compiled`` and ``fused``, number by number in one pass.

    References
    ----------
    1. J. K. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", Proc. SC11, 2011.
    """

    name = "random"
    operands = ("paths", "key")
    casts = False

    def describe(
        self, paths: Any, key: Any, *, n: int, kind: str = "normal", stream: int = 0, dtype: str = "float64"
    ) -> Call:
        """Check operands and parameters; ``facts``: ``kind``."""
        places = read_dtype(self.name, "paths", paths, _NUMBERS)
        words = read_dtype(self.name, "key", key, _WIDE)
        if shape_of(key) != (4,):
            raise ShapeError(f"{self.name}: key has shape {shape_of(key)}; give four words of 32 bits, low ones first")
        n = _reading.whole(f"{self.name}: n", n, least=0)
        _reading.choice(f"{self.name}: kind", kind, KINDS)
        _reading.whole(f"{self.name}: stream", stream, least=0, most=2**63 - 1)
        if dtype not in FLOATS:
            raise UnsupportedDtypeError(f"{self.name}: dtype={dtype!r}; use 'float64' or 'float32'")
        shape = shape_of(paths)
        more = math.prod(shape) * itemsize(places) + 4 * itemsize(words)
        return self.call(dtype, (*shape, n), (), more_bytes=more, kind=kind)

    def work(self, call: Call, algorithm: str) -> float:
        """Numbers; moving a generator to a path costs as much as 500 of them."""
        return float(call.batch * (call.length + (500 if algorithm == "streams" else 0)))

    def workspace(self, call: Call, algorithm: str) -> int:
        """The paths as 64-bit numbers."""
        return call.batch * 8

    def block_elements(self, call: Call, algorithm: str) -> int:
        """The numbers, which are drawn in blocks."""
        return call.batch * call.length

    def cuts(self, call: Call, *arrays: Any, **params: Any) -> Iterator[Cut]:
        """Paths, along the longest of their axes first.

        A path is not cut: kernels work through it in blocks, so it takes little more than its result (in JAX, whose
        kernel makes all words at once, five times as much).
        """
        axes = [axis for axis in range(-len(call.shape), -1) if call.shape[axis] > 1]
        for axis in sorted(axes, key=lambda axis: -call.shape[axis]):
            yield Cut(axis, call.shape[axis], (axis + 1, None))

    def example(self, shape: tuple[int, ...], dtype: str) -> tuple[tuple[ArraySpec, ...], dict[str, Any]]:
        """Normal numbers of that shape."""
        *paths, n = shape or (1,)
        params = {"n": n, "dtype": dtype if dtype in FLOATS else "float64"}
        return (ArraySpec(tuple(paths), "int32"), ArraySpec((4,), "uint32")), params

    def typical(self, arrays: list[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
        """The first paths."""
        paths, key = arrays
        return [np.arange(paths.size, dtype=paths.dtype).reshape(paths.shape), key]
