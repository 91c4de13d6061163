"""Buffers have one owner, no stale numbers, the dtype and shape that were asked for, and a bound."""

from __future__ import annotations

import numpy as np
import pytest

from hpfracc.engine.memory.buffers import BufferPool
from hpfracc.errors import InvalidInputError


@pytest.mark.parametrize("dtype", ["float64", "float32", "complex128", "int8", "bool"])
@pytest.mark.parametrize("shape", [7, (3, 5), (0, 4), (), (2, 3, 4)])
def test_what_is_asked_for_is_what_comes(shape: tuple[int, ...] | int, dtype: str) -> None:
    """Any shape and dtype, also out of a buffer that held another before."""
    pool = BufferPool()
    first = pool.allocate((50, 50), "float64", clear=False)
    first.fill(3.0)
    pool.release(first)
    buffer = pool.allocate(shape, dtype)
    assert buffer.dtype == dtype
    assert buffer.shape == (shape if isinstance(shape, tuple) else (shape,))
    assert not buffer.any()
    buffer[...] = 1


def test_a_buffer_comes_back_and_is_cleared() -> None:
    """The second request is a hit; zeros unless stale numbers are asked for."""
    pool = BufferPool()
    for _ in range(3):
        buffer = pool.allocate(1000)
        assert not buffer.any()
        buffer.fill(7.0)
        pool.release(buffer)
    stale = pool.allocate(1000, clear=False)
    assert (stale == 7.0).all()
    stats = pool.stats()
    assert (stats.hits, stats.misses, stats.hit_rate) == (3, 1, 0.75)
    assert stats.used_bytes >= 8000 and stats.held_bytes == 0


def test_two_owners_never_share() -> None:
    """Buffers that are out at the same time are different memory."""
    pool = BufferPool()
    buffers = [pool.allocate(500) for _ in range(20)]
    for number, buffer in enumerate(buffers):
        buffer.fill(number)
    assert all((buffer == number).all() for number, buffer in enumerate(buffers))


def test_released_twice_or_foreign_is_refused() -> None:
    """And the pool is as it was: the memory is not handed out to two."""
    pool = BufferPool()
    buffer = pool.allocate(1000)
    pool.release(buffer)
    with pytest.raises(InvalidInputError, match="released before"):
        pool.release(buffer)
    with pytest.raises(InvalidInputError, match="not from this pool"):
        pool.release(np.zeros(1000))
    one, two = pool.allocate(1000), pool.allocate(1000)
    one.fill(1)
    assert not two.any()
    with pytest.raises(ValueError, match="read-only"):
        buffer.fill(9)  # who gave it back cannot write any more


def test_memory_that_somebody_holds_a_part_of_is_not_handed_out() -> None:
    """A slice that outlives its buffer keeps its numbers."""
    pool = BufferPool()
    buffer = pool.allocate(1000)
    buffer.fill(5)
    part = buffer[10:20]
    pool.release(buffer)
    other = pool.allocate(1000)
    other.fill(1)
    assert (part == 5).all()
    assert pool.stats().dropped == 1


def test_the_bound_holds() -> None:
    """What is kept for later never exceeds the capacity; the longest unused goes first."""
    pool = BufferPool(capacity=100_000)
    buffers = [pool.allocate(5000) for _ in range(6)]
    for buffer in buffers:
        pool.release(buffer)
    stats = pool.stats()
    assert stats.held_bytes <= 100_000
    assert stats.dropped == 4
    huge = pool.allocate(50_000)
    pool.release(huge)
    assert pool.stats().held_bytes <= 100_000
    assert pool.clear() > 0 and pool.stats().held_bytes == 0


def test_one_that_is_forgotten_is_counted_back() -> None:
    """Letting go of a buffer without releasing it loses it to the pool and nothing else."""
    pool = BufferPool()
    buffer = pool.allocate(10_000)
    assert pool.stats().used_bytes > 0
    del buffer
    assert pool.stats().used_bytes == 0


def test_objects_are_refused() -> None:
    """Raw memory cannot hold references."""
    with pytest.raises(InvalidInputError, match="Python objects"):
        BufferPool().allocate(3, object)
