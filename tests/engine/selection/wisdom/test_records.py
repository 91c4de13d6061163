"""Records: what is read back is what was written, anything else is refused, and the newest are kept."""

from __future__ import annotations

import json
import math
import os
import time
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpfracc.engine.selection import wisdom_records as records_module
from hpfracc.engine.selection.wisdom_records import Record, new_id, parse_record, retain, unite
from hpfracc.errors import InvalidInputError
from tests.helpers.forked import run_in_child
from tests.helpers.measured import sample, samples

few = st.integers(0, 2)
small = st.builds(
    sample,
    kind=st.sampled_from(["sample", "knot", "compile", "transfer"]),
    arm=st.sampled_from(["numpy:fft@cpu", "torch:fft@cpu"]),
    bucket=st.tuples(few, few),
    x=st.sampled_from([1.0, 2.0]),
    nbytes=st.sampled_from([1, 1000]),
    route=st.sampled_from(["a->b", "b->a"]),
    time=st.integers(0, 5).map(float),
    id=st.integers(0, 60).map(str),
)
collections = st.lists(small, max_size=40, unique_by=lambda record: record.id)


@settings(deadline=None)
@given(collections, collections, collections)
def test_order_of_merging_does_not_matter(first, second, third):
    """Trimming between merges, or not, in any order, leaves the same records."""
    bounds = {"PER_GROUP": dict.fromkeys(records_module.PER_GROUP, 2), "MAX_SAMPLES": 5, "MAX_OTHERS": 4}
    # The same identity always names the same record; only tampering makes two of it.
    known = unite(first, second, third)
    first, second, third = ([known[record.id] for record in part] for part in (first, second, third))
    with mock.patch.multiple(records_module, **bounds):

        def merged(*parts):
            return retain(unite(*parts).values())

        everything = merged(first, second, third)
        assert merged(third, second, first) == everything
        assert merged(merged(first, second), third) == everything
        assert merged(first, merged(third, merged(second))) == everything
        assert merged(everything, everything) == everything


def test_the_last_32_of_each_group():
    """Samples of one fingerprint, operation, arm, start, dtype and bucket are counted together, others apart."""
    crowd = [sample(bucket=(0, 0), time=float(number)) for number in range(100)]
    loners = [sample(**{field: "other"}) for field in ("fingerprint", "operation", "arm", "start", "dtype")]
    loners.append(sample(bucket=(0, 1)))
    kept = retain([*loners, *crowd])
    assert [record.time for record in kept if record in crowd] == [float(number) for number in range(68, 100)]
    assert all(record in kept for record in loners)


def test_a_calibration_is_not_pushed_out_by_runs():
    """However many runs there are, knots have room of their own; and each place of a curve keeps its newest."""
    knots = [sample(kind="knot", x=float(x), time=float(when)) for when in range(6) for x in (10, 20)]
    with mock.patch.multiple(records_module, MAX_SAMPLES=50, MAX_OTHERS=50):
        kept = retain([*knots, *samples(500)])
    assert sum(record.kind == "sample" for record in kept) == 50
    assert sorted((record.x, record.time) for record in kept if record.kind == "knot") == [
        (float(x), float(when)) for x in (10, 20) for when in (2, 3, 4, 5)
    ]


def test_two_records_of_one_identity():
    """Only tampering makes them; the same one is kept whichever comes first."""
    one, two = sample(1, id="a"), sample(2, id="a")
    assert unite([one], [two]) == unite([two], [one]) == {"a": two}


#: What ``str.isprintable`` takes, without drawing the rest to throw it away.
printable = st.characters(exclude_categories=("C", "Z"), include_characters=" ")
texts = st.text(printable, max_size=40)
names = st.text(printable, min_size=1, max_size=40)
sizes = st.integers(0, 2**60)
times = st.floats(0, 1e8)
records = st.builds(
    Record,
    kind=st.sampled_from(["knot", "sample", "compile", "transfer"]),
    operation=texts,
    arm=texts,
    fingerprint=names,
    start=texts,
    dtype=texts,
    seconds=times,
    bucket=st.tuples(sizes, sizes),
    x=times,
    nbytes=sizes,
    route=texts,
    time=times,
    id=names,
)


@settings(max_examples=30)
@given(records)
def test_there_and_back(record):
    """What is written is one line, and read back it is equal to the last bit."""
    line = record.to_line()
    assert "\n" not in line
    assert parse_record(line) == record
    assert parse_record(line.encode()) == record


@given(st.binary(max_size=200))
def test_no_bytes_are_taken_for_a_record(data):
    """Whatever is in a line, it is a record or an InvalidInputError, never another error."""
    with pytest.raises(InvalidInputError):
        parse_record(data)


@settings(max_examples=30)
@given(records, st.data())
def test_damage_is_never_another_error(record, data):
    """A line with bytes changed is a record or an InvalidInputError."""
    line = bytearray(record.to_line().encode())
    for _ in range(data.draw(st.integers(1, 3))):
        line[data.draw(st.integers(0, len(line) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = parse_record(bytes(line))
    except InvalidInputError:
        return
    assert parse_record(found.to_line()) == found


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("kind", "guess"),
        ("kind", None),
        ("id", ""),
        ("id", 7),
        ("id", "x" * 257),
        ("fingerprint", ""),
        ("operation", None),
        ("seconds", -1.0),
        ("seconds", math.nan),
        ("seconds", math.inf),
        ("seconds", "1"),
        ("seconds", True),
        ("seconds", 10**400),
        ("seconds", 1e308),
        ("x", 1e300),
        ("time", 1e300),
        ("operation", "\x1b[31mred"),
        ("operation", "\ud800"),
        ("arm", "two\nlines"),
        ("fingerprint", "\u202egnp.exe"),
        ("time", None),
        ("x", None),
        ("x", [1]),
        ("bucket", None),
        ("bucket", (1,)),
        ("bucket", (1, 2, 3)),
        ("bucket", (1, -2)),
        ("bucket", (1, 2.5)),
        ("bucket", "ab"),
        ("nbytes", 1.5),
        ("nbytes", -1),
        ("route", 3),
    ],
)
def test_a_wrong_value_is_named(field, value):
    """Every field is checked, and the error names it."""
    with pytest.raises(InvalidInputError, match=field.split("[")[0]) as caught:
        sample(**{field: value})
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(("kind", "missing"), [("transfer", "nbytes"), ("transfer", "route")])
def test_what_a_kind_needs(kind, missing):
    """A transfer without its bytes or route says nothing."""
    facts = {"nbytes": 10, "route": "cpu->cuda:0", missing: None}
    with pytest.raises(InvalidInputError, match=missing):
        sample(kind=kind, **facts)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "[]",
        "7",
        "null",
        "{}",
        '{"kind":NaN}',
        "[" * 100_000,
        sample().to_line()[:-1],
        sample().to_line().replace('"x":100.0', '"x":NaN'),
        sample().to_line().replace('"x":100.0', '"x":1e999'),
        sample().to_line().replace('"x"', '"y"'),
        sample().to_line().replace("{", '{"more":1,'),
        b"\xff\xfe",
    ],
    ids=map(str, range(13)),
)
def test_lines_that_are_no_record(line):
    """Cut, foreign and extended lines are refused."""
    with pytest.raises(InvalidInputError):
        parse_record(line)


def test_numbers_have_one_form():
    """A whole number given for a time is the same as the float, so that the same records give the same bytes."""
    assert sample(x=3, seconds=1, time=5, id="a").to_line() == sample(x=3.0, seconds=1.0, time=5.0, id="a").to_line()
    assert parse_record(json.loads(sample(bucket=[3, 4]).to_line())).bucket == (3, 4)


def test_defaults_are_now_and_new():
    """Time and identity fill themselves in; what is None is not written."""
    before = time.time()
    record = Record(kind="compile", operation="fft", arm="a:b@cpu", fingerprint="f", start="host", dtype="", seconds=1)
    assert before <= record.time <= time.time()
    assert record.to_dict().keys() & {"x", "bucket", "nbytes", "route"} == set()
    assert record.backend == "a"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_identities_differ_after_a_fork():
    """A child does not go on with its parent's."""
    mine = {new_id() for _ in range(2000)}
    assert len(mine) == 2000

    def in_child():
        assert mine.isdisjoint(new_id() for _ in range(2000))

    run_in_child(in_child)
