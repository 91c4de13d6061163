"""Chunk sizes: few of them, halved when memory runs out, found to within a tenth, remembered."""

from __future__ import annotations

import pytest

from hpfracc.engine.execution.batching.sizes import ChunkSizer, largest_that_fits, remembered_sizes, round_size


def test_few_sizes() -> None:
    """Powers of two and one and a half times those, never more than was asked for, never far less."""
    sizes = {round_size(count) for count in range(1, 10_001)}
    assert len(sizes) == 26
    assert all(2 / 3 * count < round_size(count) <= count for count in range(1, 10_001))


@pytest.mark.parametrize("limit", [0, 1, 2, 37, 1000, 99_999, 100_000, 2_000_000])
def test_the_largest_that_fits(limit: int) -> None:
    """To within one per cent, and never more."""
    found = largest_that_fits(lambda count: count <= limit, 100_000)
    best = min(limit, 100_000)
    assert found <= best and found >= best * 0.99 - 1


def simulate(sizer: ChunkSizer, limit: int, rounds: int = 60) -> list[int]:
    sizes = []
    for _ in range(rounds):
        size = sizer.size
        sizes.append(size)
        if size <= limit:
            sizer.succeeded(size)
        elif not sizer.failed(size):
            break
    return sizes


@pytest.mark.parametrize("limit", [3, 10, 70, 333, 700])
def test_the_search_ends_close_below_what_fails(limit: int) -> None:
    """Halving, then bisection to within 10 %, then 5 % less; few failures on the way."""
    sizer = ChunkSizer(1000, 1000)
    sizes = simulate(sizer, limit)
    assert sizer.settled
    assert limit * 0.85 - 1 <= sizes[-1] <= limit
    assert sum(size > limit for size in sizes) <= 13
    assert len(set(sizes[-20:])) == 1


def test_what_was_found_is_remembered() -> None:
    """The next batch of this kind begins there; another kind does not."""
    simulate(ChunkSizer(1000, 1000, key="a"), 333)
    assert ChunkSizer(1000, 1000, key="a").size == pytest.approx(333 * 0.9, rel=0.1)
    assert ChunkSizer(1000, 1000, key="b").size == 1000
    remembered_sizes.clear()
    assert ChunkSizer(1000, 1000, key="a").size == 1000


def test_nothing_smaller_than_one() -> None:
    """A single item that does not fit is told."""
    sizer = ChunkSizer(4, 100)
    assert sizer.failed(4) and sizer.failed(2)
    assert sizer.size == 1
    assert not sizer.failed(1)


def test_memory_that_comes_free_is_used() -> None:
    """What failed once and fits now is no bound any more."""
    sizer = ChunkSizer(64, 64)
    sizer.failed(64)
    sizer.succeeded(32)
    sizer.succeeded(64)
    assert sizer.bad is None


def test_memory_that_is_taken_is_noticed() -> None:
    """What fitted and fails now makes chunks smaller again."""
    sizer = ChunkSizer(64, 64)
    sizer.succeeded(64)
    sizer.failed(64)
    sizer.failed(32)
    assert sizer.size <= 16
