"""Results do not depend on how many items go together: any operation, any chunk, any mixture, any random stream."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hpfracc as hf
from hpfracc import batch
from hpfracc.engine.execution.batch.items import STACKED_AXES
from hpfracc.engine.execution.operation import get_operation
from hpfracc.engine.primitives import PRIMITIVES
from tests.helpers.own_operations import own_operation
from tests.helpers.thinned import thinned

#: Sums by BLAS, and transforms of several rows at once in vector registers, differ in the last places.
BY_ROUNDING = {"matmul", "history_sum", "exponential_recurrence", "causal_convolution", "toeplitz_apply"}


def items_of(name: str, random: np.random.Generator, count: int, size: int) -> tuple[list[Any], dict[str, Any]]:
    """``count`` calls of an operation, of one or two kinds, and their common parameters."""

    def rows(*shape: int) -> np.ndarray[Any, Any]:
        return random.standard_normal(shape)

    def varied(k: int) -> int:
        return size + (k % 3 == 2)

    times = np.cumsum(0.5 + random.random(size + 1))
    weights = rows(size)
    made: dict[str, tuple[Any, dict[str, Any]]] = {
        "causal_convolution": (lambda k: (weights, rows(varied(k))), {}),
        "chirp_transform": (lambda k: (rows(varied(k)), np.array([0.0, 0.01, 0.002])), {}),
        "elementwise": (lambda k: (rows(varied(k)), rows(1)), {"expression": "x*y + sin(x)", "names": ("x", "y")}),
        "bitwise_xor": (lambda k: (random.integers(0, 99, varied(k)), np.int64(k)), {}),
        "exponential_recurrence": (lambda k: (np.ones(3), np.ones(3), np.array(0.1), rows(size), np.zeros(3)), {}),
        "fft": (lambda k: (rows(2, varied(k)),), {"kind": "rfft", "axis": 1}),
        "history_sum": (lambda k: (times[: varied(k)], rows(varied(k)), np.array(-0.5)), {}),
        "matmul": (lambda k: (rows(3, varied(k)), rows(varied(k), 2)), {}),
        "mittag_leffler": (lambda k: (-np.abs(rows(varied(k))),), {"alpha": 0.7}),
        "random": (lambda k: (np.arange(varied(k)), np.arange(4, dtype=np.uint32) + np.uint32(k)), {"n": 6}),
        "reduction": (lambda k: (rows(2, varied(k)),), {"kind": "norm", "axis": -1}),
        "spectral_multiply": (lambda k: (np.ones(size), rows(2, size)), {"axes": 1}),
        "stencil_relax": (
            lambda k: (1.0 + rows(3, 4) ** 2, np.where(np.arange(12).reshape(3, 4) == k % 12, 0.0, np.inf)),
            {},
        ),
        "toeplitz_apply": (lambda k: (weights[:, None], rows(size, 2)), {"axes": 0}),
        "tridiagonal_solve": (lambda k: (rows(size), 9.0 + rows(size), rows(size), rows(2, size)), {}),
    }
    make, params = made[name]
    return [make(k) for k in range(count)], params


def test_every_operation_is_looked_at() -> None:
    """None is left out below, and whatever is stacked is among them."""
    names = {name for name in PRIMITIVES if items_of(name, np.random.default_rng(0), 1, 4)}
    assert names == set(PRIMITIVES) >= set(STACKED_AXES)


@pytest.mark.parametrize("name", sorted(PRIMITIVES))
@settings(max_examples=12, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 99),
    count=st.integers(1, 17),
    size=st.integers(2, 9),
    chunk=st.integers(1, 20),
    lists=st.booleans(),
)
@thinned(one_in=2)
def test_any_chunk_gives_what_the_whole_does(
    name: str, seed: int, count: int, size: int, chunk: int, lists: bool
) -> None:
    """To the last bit where no BLAS is involved, to rounding elsewhere; and what single calls give, to rounding."""
    items, params = items_of(name, np.random.default_rng(seed), count, size)
    operation = get_operation(name)
    given_items = items if lists else iter(items)
    whole = batch.run(operation, given_items, backend="numpy", **params)
    parts = batch.run(operation, items, backend="numpy", batch_size=chunk, **params)
    for item, one, other in zip(items, whole, parts, strict=True):
        if name in BY_ROUNDING:
            np.testing.assert_allclose(one, other, rtol=1e-13, atol=1e-13)
        else:
            np.testing.assert_array_equal(one, other)
        np.testing.assert_allclose(one, operation(*item, backend="numpy", **params), rtol=1e-11, atol=1e-11)


def noisy(x: Any, rng: Any) -> Any:
    """A batched function: rows get numbers of their own."""
    noise = (
        [each.standard_normal(x.shape[1:]) for each in rng] if isinstance(rng, list) else rng.standard_normal(x.shape)
    )
    return x + np.asarray(noise)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 2**40),
    count=st.integers(1, 23),
    chunk=st.one_of(st.none(), st.integers(1, 25)),
    way=st.sampled_from(["alone", "threads", "batched", "registered", "registered, batchable", "rows"]),
)
def test_random_numbers_belong_to_items(seed: int, count: int, chunk: int | None, way: str) -> None:
    """However they are grouped, stacked, registered or spread over threads, item k sees stream k, to the last bit."""
    items = np.random.default_rng(1).standard_normal((count, 5))
    wanted = [noisy(row, rng=_stream(seed, k)) for k, row in enumerate(items)]
    if way.startswith("registered"):
        with own_operation(noisy, batchable="batchable" in way) as operation:
            found = batch.run(operation, list(items), seed=seed, batch_size=chunk)
    else:
        options = {"batched": True} if way in ("batched", "rows") else {"workers": 3} if way == "threads" else {}
        given_items = items if way == "rows" else list(items)
        found = batch.run(noisy, given_items, seed=seed, batch_size=chunk, **options)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one, other)


def _stream(seed: int, index: int) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(index,)))


@settings(max_examples=20, deadline=None, derandomize=True)
@given(count=st.integers(1, 30), chunk=st.integers(1, 31), budget=st.integers(20_000, 400_000))
def test_neither_does_a_budget_nor_one_array(count: int, chunk: int, budget: int) -> None:
    """The rows of an array, in chunks as a budget allows, are the items of a list."""
    array = np.random.default_rng(count).standard_normal((count, 300))
    weights = np.linspace(1.0, 0.1, 40)
    whole = batch.run(hf.causal_convolution, [(weights, row) for row in array], backend="numpy")
    parts = batch.run(hf.causal_convolution, array, common=(weights,), backend="numpy", batch_size=chunk, budget=budget)
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)
