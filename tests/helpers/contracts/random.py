"""Reference and test cases of ``random``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from hpfracc.engine.primitives.base import FLOATS, Primitive
from tests.helpers.contracts import Case, reversed_view, strided_view


def reference(primitive: Primitive, *arrays: np.ndarray[Any, Any], **params: Any) -> np.ndarray[Any, Any]:
    """NumPy's generator, path by path, and the transform in extended precision."""
    call = primitive.describe(*arrays, **params)
    paths, key = (np.asarray(array).astype(np.uint64) for array in arrays)
    pair = np.array([key[0] | key[1] << np.uint64(32), key[2] | key[3] << np.uint64(32)])
    n = call.length
    result = np.empty((call.batch, n), np.longdouble)
    for row, path in zip(result, paths.ravel(), strict=True):
        counter = np.array([0, path, params.get("stream", 0), 0], np.uint64)
        words = np.asarray(np.random.Philox(key=pair, counter=counter).random_raw(n + n % 2))
        if call.facts["kind"] == "uniform":
            bits = 52 if call.dtype == "float64" else 23
            row[:] = ((words[:n] >> np.uint64(64 - bits)) + np.longdouble(0.5)) * np.longdouble(2) ** -bits
            continue
        radii, angles = (words >> np.uint64(11)).reshape(-1, 2).T.astype(np.longdouble)
        radius = np.sqrt(-2 * np.log((radii + 1) * np.longdouble(2) ** -53))
        angle = angles * np.longdouble(2) ** -52 * (4 * np.arctan(np.longdouble(1)))
        row[:] = np.stack([radius * np.cos(angle), radius * np.sin(angle)], -1).ravel()[:n]
    return result.reshape(call.shape).astype(call.dtype)


def cases(primitive: Primitive, dtype: str) -> Iterator[Case]:
    """Both kinds, lengths beside multiples of a block, large paths and streams, memory layouts, empty arrays."""
    if dtype not in FLOATS:
        return
    key = np.array([0x12345678, 0x9ABCDEF0, 0xFFFFFFFF, 0x80000001], np.uint32)
    paths = np.arange(5, dtype=np.int64)

    def case(name: str, paths: np.ndarray[Any, Any], n: int, **more: Any) -> Case:
        return Case(name, (paths, key), {"n": n, "dtype": dtype, **more})

    yield case("plain", paths, 64)
    yield case("uniform", paths, 64, kind="uniform")
    yield case("odd", paths, 37)
    yield case("one number", paths, 1)
    yield case("one path", paths[3, ...], 10)
    yield case("several blocks", paths[:2], 40_003)
    yield case("uniform, several blocks", paths[:2], 40_003, kind="uniform")
    yield case("many paths", np.arange(3000, dtype=np.int64), 5)
    yield case("batched", np.arange(12, dtype=np.int64).reshape(3, 1, 4), 9)
    yield case("paths in any order", np.array([4, 1, 1, 0, 3], np.int64), 6)
    yield case("far paths", np.array([2**31, 2**40 + 3, 2**63 - 1], np.int64), 11)
    yield case("another stream", paths, 16, stream=2**40 + 7)
    yield case("no numbers", paths, 0)
    yield case("no paths", paths[:0], 8)
    yield case("strided", strided_view(paths), 8)
    yield case("reversed", reversed_view(paths), 8)
    yield case("narrow paths", paths.astype(np.uint8), 8)
    yield Case("wide key", (paths, key.astype(np.int64)), {"n": 8, "dtype": dtype})
