"""Chunk sizes: few of them, halved when memory runs out."""

from __future__ import annotations

import pytest

from hpfracc.engine.execution.batch.driver import (
    ChunkSizer,
    ChunkTooLargeError,
    round_size,
    run_chunks,
    sizes_below,
)
from hpfracc.errors import OutOfMemoryError


def test_few_sizes() -> None:
    """Powers of two and one and a half times those, never more than was asked for, never far less."""
    sizes = {round_size(count) for count in range(1, 10_001)}
    assert len(sizes) == 26
    assert all(2 / 3 * count < round_size(count) <= count for count in range(1, 10_001))


def test_sizes_below_a_length() -> None:
    """The same sizes, from the largest to one."""
    assert list(sizes_below(13)) == [12, 8, 6, 4, 3, 2, 1]
    assert list(sizes_below(12)) == [8, 6, 4, 3, 2, 1]
    assert list(sizes_below(1)) == []


def test_nothing_smaller_than_one() -> None:
    """A single item that does not fit is told."""
    sizer = ChunkSizer(4, 100)
    assert sizer.failed(4) and sizer.failed(2)
    assert sizer.size == 1
    assert not sizer.failed(1)


def never(begin: int, end: int, short: ChunkTooLargeError) -> None:
    pytest.fail("nothing should be stuck")


@pytest.mark.parametrize("backwards", [False, True])
def test_chunks_cover_everything_once(backwards: bool) -> None:
    """In order, or from the end; the last chunk is what is left."""
    taken: list[tuple[int, int]] = []
    done = run_chunks(
        10,
        ChunkSizer(4, 10),
        lambda begin, end: end - begin,
        lambda begin, end, result: taken.append((begin, end)),
        stuck=never,
        backwards=backwards,
    )
    assert done
    assert taken == ([(6, 10), (2, 6), (0, 2)] if backwards else [(0, 4), (4, 8), (8, 10)])


def test_a_chunk_without_room_is_tried_again_smaller() -> None:
    """Nothing is lost or done twice."""
    taken: list[int] = []

    def source(begin: int, end: int) -> list[int]:
        if end - begin > 3:
            raise ChunkTooLargeError("no room")
        return list(range(begin, end))

    assert run_chunks(20, ChunkSizer(16, 20), source, lambda begin, end, found: taken.extend(found), stuck=never)
    assert taken == list(range(20))


def test_what_cannot_be_smaller_goes_to_stuck() -> None:
    """Its result is taken, its None ends the work, its error goes through."""

    def source(begin: int, end: int) -> int:
        raise ChunkTooLargeError("no room")

    taken: list[tuple[int, int, int]] = []
    sink = lambda begin, end, result: taken.append((begin, end, result))  # noqa: E731
    assert run_chunks(2, ChunkSizer(2, 2), source, sink, stuck=lambda begin, end, short: 7)
    assert taken == [(0, 1, 7), (1, 2, 7)]
    assert not run_chunks(2, ChunkSizer(2, 2), source, sink, stuck=lambda begin, end, short: None)
    assert len(taken) == 2

    def give_up(begin: int, end: int, short: ChunkTooLargeError) -> None:
        raise OutOfMemoryError(str(short))

    with pytest.raises(OutOfMemoryError, match="no room"):
        run_chunks(2, ChunkSizer(2, 2), source, sink, stuck=give_up)


def test_last_chunks_are_rounded_to_sizes_that_came_before() -> None:
    """Of 23 in chunks of 8 the last 7 go as 6 and 1; all at once stay together."""
    sizes: list[int] = []
    run_chunks(
        23,
        ChunkSizer(8, 23, rounds=True),
        lambda begin, end: 0,
        lambda begin, end, result: sizes.append(end - begin),
        stuck=never,
    )
    assert sizes == [8, 8, 6, 1]
    assert ChunkSizer(23, 23, rounds=True).next(23) == 23
