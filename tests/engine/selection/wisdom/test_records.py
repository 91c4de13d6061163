"""Records: what is read back is what was written, anything else is refused, and the newest are kept."""

from __future__ import annotations

import math
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpfracc.engine.selection import wisdom_records as records_module
from hpfracc.engine.selection.wisdom_records import parse_record, retain
from hpfracc.errors import InvalidInputError
from tests.helpers.measured import sample, samples


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


#: What ``str.isprintable`` takes, without drawing the rest to throw it away.
printable = st.characters(exclude_categories=("C", "Z"), include_characters=" ")
names = st.text(printable, min_size=1, max_size=40)


@given(st.binary(max_size=200))
def test_no_bytes_are_taken_for_a_record(data):
    """Whatever is in a line, it is a record or an InvalidInputError, never another error."""
    with pytest.raises(InvalidInputError):
        parse_record(data)


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
