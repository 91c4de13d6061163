"""Merging may be cut off or overtaken at any step: nothing that was acknowledged is ever missing.

The file system's own calls are the steps. Before each of them a test can look at the folder, end the process, or let
another process merge, so all interleavings of two mergers, one of which runs through, are tried, not some.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest

from hpfracc.engine.selection.wisdom import Wisdom, WisdomLayout, list_files, read_folder
from hpfracc.engine.selection.wisdom_records import JOURNAL_HEAD, encode_lines, encode_merged
from tests.helpers.forked import run_in_child
from tests.helpers.measured import ids, samples

STEPS = ("open", "write", "fsync", "replace", "rename", "unlink", "listdir", "close")


@contextmanager
def before_each_step(act: Callable[[int], None]) -> Iterator[None]:
    """Call ``act`` with the step's number before every call of the file system, except those it makes itself."""
    count, busy = 0, False

    def spied(real):
        def step(*arguments, **options):
            nonlocal count, busy
            if not busy:
                busy = True
                try:
                    act(count)
                finally:
                    busy = False
                count += 1
            return real(*arguments, **options)

        return step

    with mock.patch.multiple(os, **{name: spied(getattr(os, name)) for name in STEPS}):
        yield


def abandoned_journal(folder: Path, count: int) -> set[str]:
    """A journal whose writer has ended, and what it acknowledged."""
    records = samples(count)
    WisdomLayout(folder).new_journal().write_bytes(JOURNAL_HEAD + encode_lines(records))
    return ids(records)


def scene(folder: Path) -> set[str]:
    """Two generations, as two mergers at once leave them, journals, and a merged file that lacks half."""
    folder.mkdir()
    first, second = samples(3), samples(3)
    for part in (first, second):
        WisdomLayout(folder).new_generation().write_bytes(encode_merged(part))
    WisdomLayout(folder).merged.write_bytes(encode_merged(first))
    return ids(first + second) | abandoned_journal(folder, 2) | abandoned_journal(folder, 2)


def on_disk(folder: Path) -> set[str]:
    return {record.id for source in read_folder(WisdomLayout(folder)) for record in source.content.records}


def count_steps(folder: Path) -> int:
    """How many steps a merge of the scene takes."""
    scene(folder)
    numbers = []
    with before_each_step(numbers.append):
        Wisdom(folder).merge()
    return len(numbers)


def test_no_moment_at_which_anything_is_missing(tmp_path):
    """Before every single step of a merge, everything acknowledged can be read from the folder."""
    acknowledged = scene(tmp_path / "w")
    seen = []

    def look(step):
        assert on_disk(tmp_path / "w") >= acknowledged
        seen.append(step)

    with before_each_step(look):
        Wisdom(tmp_path / "w").merge()
    assert len(seen) > 20
    assert on_disk(tmp_path / "w") == acknowledged
    assert [kind for _, kind in list_files(WisdomLayout(tmp_path / "w"))] == ["generation", "merged"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.parametrize("stride", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_killed_before_any_step(tmp_path, stride):
    """A merger that ends before its n-th step, for every n, loses nothing, and the next one finishes the work."""
    for last in range(0, count_steps(tmp_path / "count"), stride):
        folder = tmp_path / str(last)
        acknowledged = scene(folder)

        def die_at(step, last=last):
            if step == last:
                os._exit(9)

        def in_child(folder=folder, die_at=die_at):
            with before_each_step(die_at):
                Wisdom(folder).merge()

        run_in_child(in_child, expect=9)
        assert on_disk(folder) == acknowledged
        assert Wisdom(folder).merge() == len(acknowledged)
        assert on_disk(folder) == acknowledged


def test_overtaken_at_any_step(tmp_path):
    """Another process merges, and one more ends with a full journal, before the n-th step, for every n."""
    for at in range(count_steps(tmp_path / "count")):
        folder = tmp_path / str(at)
        acknowledged = scene(folder)

        def overtake(step, at=at, folder=folder, acknowledged=acknowledged):
            if step == at:
                acknowledged |= abandoned_journal(folder, 2)
                Wisdom(folder).merge()
            assert on_disk(folder) >= acknowledged

        with before_each_step(overtake):
            Wisdom(folder).merge()
        assert on_disk(folder) == acknowledged
        assert Wisdom(folder).merge() == len(acknowledged)
        merged_file = Wisdom(folder / "wisdom.json", read_only=True)
        assert ids(merged_file.load()) == acknowledged


def test_three_at_once(tmp_path):
    """One is overtaken by a second that is itself overtaken by a third, at every third step of each."""
    steps = count_steps(tmp_path / "count")
    for outer in range(0, steps, 3):
        for inner in range(0, steps, 3):
            folder = tmp_path / f"{outer}-{inner}"
            acknowledged = scene(folder)

            def third(step, inner=inner, folder=folder, acknowledged=acknowledged):
                if step == inner:
                    acknowledged |= abandoned_journal(folder, 1)
                    Wisdom(folder).merge()

            def second(step, outer=outer, folder=folder, third=third):
                if step == outer:
                    with before_each_step(third):
                        Wisdom(folder).merge()

            with before_each_step(second):
                Wisdom(folder).merge()
            assert on_disk(folder) == acknowledged


def test_a_writer_at_work_while_others_merge(tmp_path):
    """A living process that flushes before the n-th step of a merge, for every n, loses none of it."""
    for at in range(count_steps(tmp_path / "count")):
        folder = tmp_path / str(at)
        acknowledged = scene(folder)
        writer = Wisdom(folder)
        first = samples(1)
        writer.append(first)
        assert writer.flush()
        acknowledged |= ids(first)

        def write(step, at=at, writer=writer, acknowledged=acknowledged):
            if step == at:
                more = samples(2)
                writer.append(more)
                assert writer.flush()
                acknowledged |= ids(more)

        with before_each_step(write):
            Wisdom(folder).merge()
        writer.flush()
        assert on_disk(folder) == acknowledged
