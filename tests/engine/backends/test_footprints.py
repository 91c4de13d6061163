"""A footprint is the largest of its stages, with what the heap keeps; models of every kernel are told in bytes."""

from __future__ import annotations

from typing import Any

import pytest

from hpfracc.engine.backends import registry
from hpfracc.engine.backends.base import Arm
from hpfracc.engine.backends.footprints import footprint, recurrence
from hpfracc.engine.numerics.history_weights import largest_block, output_blocks
from hpfracc.engine.numerics.lengths import fast_length, row_scratch
from hpfracc.engine.primitives import PRIMITIVES
from hpfracc.engine.primitives.base import ArraySpec
from hpfracc.engine.selection.candidates import modelled_bytes

MIB = 2**20
BACKENDS = ("numpy", "numba", "torch", "jax", "cupy")
#: Each of the primitives whose models are made of stages, with operands of about 64 KiB a row.
CALLS: list[tuple[str, list[tuple[int, ...]], dict[str, Any]]] = [
    ("history_sum", [(64,), (0, 64), ()], {}),
    ("exponential_recurrence", [(9,), (9,), (), (0, 512), (9,)], {}),
    ("exponential_recurrence", [(9,), (9,), (512,), (0, 512), (9,)], {"final": True}),
    ("chirp_transform", [(0, 512), (3,)], {}),
    ("toeplitz_apply", [(100,), (0, 512)], {}),
    ("toeplitz_apply", [(7, 9), (0, 16, 32)], {"axes": (1, 2)}),
    ("spectral_multiply", [(512,), (0, 512)], {}),
    ("spectral_multiply", [(512,), (0, 512)], {"kinds": "dct2"}),
    ("stencil_relax", [(16, 32), (0, 16, 32)], {}),
]


@pytest.mark.parametrize(
    ("stages", "on_host", "trimmed", "most"),
    [
        ([((1, 5), (2, 3)), ((1, 9),)], True, True, 11),  # small blocks leave nothing worth counting
        ([((4, 40 * MIB),), ((1, 50 * MIB),)], True, True, 160 * MIB),  # large ones go back to the system
        ([((2, 20 * MIB),), ((1, 100 * MIB),)], True, True, 140 * MIB),  # those between stay in the heap
        ([((2, 20 * MIB),), ((1, 100 * MIB),)], False, True, 100 * MIB),  # of which a GPU has none
        ([((2, 20 * MIB),), ((1, 20 * MIB), (1, 100 * MIB))], True, True, 140 * MIB),  # and serve their like again
        ([((9, 20 * MIB),), ((1, 200 * MIB),)], True, True, 264 * MIB),  # up to a bound
        ([((9, 20 * MIB),), ((1, 200 * MIB),)], True, False, 380 * MIB),
    ],
)
def test_the_most_of_all_stages(stages: Any, on_host: bool, trimmed: bool, most: int) -> None:
    """Block by block, as glibc's malloc has them."""
    assert footprint(stages, on_host, trimmed) == most


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("name", "shapes", "params"), CALLS)
def test_needs_grow_with_the_rows_and_by_threads(
    name: str, shapes: list[tuple[int, ...]], params: dict[str, Any], backend: str
) -> None:
    """Ten times the rows need at most ten times as much, never less than operands and result; threads never less."""
    for spec in registry.adapter(backend).specs.get(name, ()):
        for device in ("cpu", "cuda:0") if backend in ("torch", "jax") else ("cuda:0" if backend == "cupy" else "cpu",):
            found = []
            for rows in (10, 100):
                given = [ArraySpec((rows, *shape[1:]) if shape[:1] == (0,) else shape) for shape in shapes]
                call = PRIMITIVES[name].describe(*given, **params)
                if spec.refuses is not None and spec.refuses(call):
                    continue
                need = modelled_bytes(PRIMITIVES[name], call, Arm(backend, spec, device))
                assert call.input_bytes + call.output_bytes <= need < 60 * (call.input_bytes + call.output_bytes)
                assert isinstance(need, int)
                if spec.threads:  # buffers of their own
                    assert modelled_bytes(PRIMITIVES[name], call, Arm(backend, spec, device, 4)) >= need
                found.append(need)
            if found:
                assert found[0] < found[1] <= 10 * found[0]


@pytest.mark.parametrize(("block", "most"), [(1 << 16, 256), (1 << 17, 2048), (1 << 10, 64)])
@pytest.mark.parametrize("n", [1, 7, 300, 5000, 70_000])
def test_blocks_of_outputs_fit(n: int, block: int, most: int) -> None:
    """They are all outputs once, none has more weights than a block or a row, and the largest is what is told."""
    blocks = output_blocks(n, block, most)
    assert [low for low, _ in blocks] == [0, *(high for _, high in blocks[:-1])] and blocks[-1][1] == n
    weights, rows = largest_block(n, block, most)
    largest = max((high - low) * high for low, high in blocks)
    assert largest <= max(block, n) and largest <= weights <= 1.6 * largest
    assert max(high - low for low, high in blocks) == rows


def test_stretches_of_a_recurrence() -> None:
    """Padded where the steps do not come out even, and one state a stretch."""
    describe = PRIMITIVES["exponential_recurrence"].describe
    shapes = [(9,), (9,), (), (3, 1000), (9,)]
    parts = recurrence(describe(*map(ArraySpec, shapes)), 1)
    assert (parts.values, parts.states, parts.padded) == (3 * 1024 * 8, 3 * 8 * 9 * 8, ((1, 3 * 1024 * 8),))
    even = recurrence(describe(*map(ArraySpec, [*shapes[:3], (3, 1024), (9,)])), 1)
    assert even.padded == () and even.values == even.signal


@pytest.mark.parametrize(
    ("points", "rough"), [(4096, False), (15_015, False), (17, False), (101, True), (1_000_003, True)]
)
def test_lengths_with_large_primes_take_more(points: int, rough: bool) -> None:
    """Bluestein's transform of at least twice the points; a row as it is where the factors are small."""
    assert row_scratch(points, "float64") == ((fast_length(2 * points - 1) + points) * 16 if rough else points * 8)
    assert row_scratch(points, "complex64") * 2 == row_scratch(points, "complex128")
