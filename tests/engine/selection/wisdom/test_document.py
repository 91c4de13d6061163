"""The files' formats: the same bytes for the same records, and whatever is left of a broken file is read."""

from __future__ import annotations

import pytest

from hpfracc.engine.selection.wisdom_records import (
    JOURNAL_HEAD,
    encode_lines,
    encode_merged,
    read_content,
)
from tests.helpers.measured import samples


def test_merged_cut_at_every_length():
    """Cut anywhere, a merged file is called damaged, and every record whose line is whole is still read."""
    records = samples(3)
    data = encode_merged(records)
    ends = [data.index(record.to_line().encode()) + len(record.to_line()) for record in records]
    for length in range(len(data) - 1):  # the last byte is a line's end, which JSON does not need
        content = read_content(data[:length], journal=False)
        assert content.fault is not None
        assert content.records == records[: sum(end <= length for end in ends)]
    assert read_content(data[:-1], journal=False).fault is None


def test_journal_cut_at_every_length():
    """Cut anywhere, a journal gives every line that has its end, and nothing of the line that has not."""
    records = samples(3)
    data = JOURNAL_HEAD + encode_lines(records)
    for length in range(len(data) + 1):
        content = read_content(data[:length], journal=True)
        assert content.records == records[: max(0, data[:length].count(b"\n") - 1)]
        assert content.skipped == 0


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b"\x00" * 50,
        b'{"hpfracc":"wisdom"}',
        b'{"hpfracc":"wisdom","schema":1}',
        b"[" * 99_999,
    ],
)
def test_what_is_no_merged_file(data):
    """It is called damaged, with a reason, and no error comes out of reading it."""
    content = read_content(data, journal=False)
    assert content.fault
    assert content.records == []
