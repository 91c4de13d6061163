"""Every cut that a primitive offers gives the result of the whole call, and calls that do not fit are cut so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hpfracc.engine.execution.batch.chunks import convolve_block
from hpfracc.engine.primitives import PRIMITIVES
from hpfracc.engine.primitives.base import ArraySpec, Cut
from tests.helpers.contracts import cases, reference
from tests.helpers.thinned import thinned


def piece(array: Any, axis: int | None, begin: int, end: int) -> Any:
    return array if axis is None else array[(..., slice(begin, end), *(slice(None),) * (-axis - 1))]


def put_together(primitive: Any, case: Any, cut: Cut, size: int) -> np.ndarray:
    parts, sizes = [], []
    for begin in range(0, cut.length, size):
        end = min(cut.length, begin + size)
        low = max(0, begin - cut.before)
        arrays = [piece(array, axis, low, end) for array, axis in zip(case.arrays, cut.operands, strict=True)]
        result = reference(primitive, *arrays, **case.params)
        parts.append(piece(result, cut.axis, begin - low, end - low) if cut.before else result)
        sizes.append(end - begin)
    if cut.merges:
        return primitive.merge(np.stack(parts), tuple(sizes), **case.params)
    return np.concatenate(parts, axis=cut.axis)


@pytest.mark.parametrize("name", PRIMITIVES)
@thinned(one_in=2)
def test_a_cut_changes_nothing(name: str) -> None:
    """Any axis, pieces of any size, operands that broadcast, vectors, axes that are reduced: every case there is."""
    for case in cases(PRIMITIVES[name], "int64" if name == "bitwise_xor" else "float64"):
        if max((array.size for array in case.arrays), default=0) <= 1000:
            check_cuts(name, case)


def check_cuts(name: str, case: Any) -> None:
    primitive = PRIMITIVES[name]
    call = primitive.describe(*case.arrays, **case.params)
    whole = reference(primitive, *case.arrays, **case.params)
    for cut in primitive.cuts(call, *case.arrays, **case.params):
        assert cut.length > 1
        if name == "mittag_leffler" and cut.length > 100:
            continue
        if cut.before and len(case.arrays) > 2:
            continue  # starting weights are added when all of time is there: test_chunked.py
        for size in {1, -(-cut.length // 3)} if cut.length < 50 else {-(-cut.length // 3)}:
            found = put_together(primitive, case, cut, size)
            assert found.shape == whole.shape and found.dtype == whole.dtype
            np.testing.assert_allclose(found, whole, rtol=1e-12, atol=1e-12, err_msg=f"{case.name}, {cut}")


def test_every_large_call_can_be_cut() -> None:
    """A primitive whose calls have rows offers at least one cut."""
    for name, primitive in PRIMITIVES.items():
        arrays, params = primitive.example((50, 60), "float64")
        if name == "stencil_relax":  # all of the shape is one lattice; its rows are maps
            arrays = (arrays[0], ArraySpec((3, 50, 60)))
        call = primitive.describe(*arrays, **params)
        assert list(primitive.cuts(call, *arrays, **params)), name


@pytest.mark.parametrize(("length", "taps"), [(100, 100), (100, 7), (50, 90), (1, 1), (64, 64), (97, 31)])
def test_blocks_of_time_and_parts_of_weights_are_the_sum(length: int, taps: int) -> None:
    """Whatever their sizes, every output is there once."""
    for block, part in [(1, 1), (7, 3), (10, 10), (5, 40), (200, 200), (40, 2)]:
        check_blocks(length, taps, block, part)


def check_blocks(length: int, taps: int, block: int, part: int) -> None:
    random = np.random.default_rng(0)
    w, x = random.standard_normal(taps), random.standard_normal(length)
    result = np.full(length, np.nan)
    used = min(taps, length)
    for begin in range(0, length, block):
        end = min(length, begin + block)
        total: Any = None
        for start, some in convolve_block(lambda a, b, _: np.convolve(a, b)[: b.size], w, x, begin, end, part, used):
            if total is None:
                assert (start, some.size) == (begin, end - begin)
                total = some
            else:
                total[start - begin :] += some
        result[begin:end] = total
    np.testing.assert_allclose(result, np.convolve(w, x)[:length], atol=1e-12)
