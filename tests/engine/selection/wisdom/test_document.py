"""The files' formats: the same bytes for the same records, and whatever is left of a broken file is read."""

from __future__ import annotations

import json

import pytest

from hpfracc.engine.selection.wisdom_records import (
    JOURNAL_HEAD,
    SCHEMA,
    encode_lines,
    encode_merged,
    read_content,
)
from tests.helpers.measured import samples


@pytest.mark.parametrize("count", [0, 1, 3])
def test_merged_there_and_back(count):
    """A merged file is JSON with a schema, and gives back what was put in."""
    records = samples(count)
    data = encode_merged(records)
    assert json.loads(data)["schema"] == SCHEMA
    content = read_content(data, journal=False)
    assert (content.records, content.skipped, content.fault, content.newer) == (records, 0, None, False)


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


def test_bad_lines_are_skipped_and_counted():
    """A bad line in the middle of a journal costs only itself."""
    records = samples(2)
    bad = b'garbage\n\xff\n{"kind":"sample"}\n'
    content = read_content(JOURNAL_HEAD + encode_lines(records[:1]) + bad + encode_lines(records[1:]), journal=True)
    assert (content.records, content.skipped) == (records, 3)
    assert content.fault is not None


def test_bad_entries_of_a_merged_file_are_skipped_and_counted():
    """A merged file that holds entries that are no records is not damaged as a whole."""
    good, bad = samples(2)
    line = bad.to_line().replace('"seconds":', '"seconds":-')
    content = read_content(encode_merged([good, bad]).replace(bad.to_line().encode(), line.encode()), journal=False)
    assert (len(content.records), content.skipped) == (1, 1)
    assert "seconds" in str(content.fault)


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


def test_files_of_a_later_version_are_not_judged():
    """A higher schema is neither damaged nor read."""
    later = SCHEMA + 1
    merged = read_content(f'{{"hpfracc":"wisdom","schema":{later},"knowledge":[]}}'.encode(), journal=False)
    journal = read_content(f'{{"hpfracc":"journal","schema":{later}}}\nsomething else\n'.encode(), journal=True)
    for content in (merged, journal):
        assert content.newer
        assert (content.records, content.skipped, content.fault) == ([], 0, None)
