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

from hpfracc.engine.selection.wisdom import Wisdom, WisdomLayout, read_folder
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
