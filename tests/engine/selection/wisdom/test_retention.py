"""What is kept: the newest of each group, not more than so many, and the same whoever merges first."""

from __future__ import annotations

from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from hpfracc.engine.selection.wisdom import retention
from hpfracc.engine.selection.wisdom.retention import retain, unite
from tests.helpers.measured import sample, samples

few = st.integers(0, 2)
small = st.builds(
    sample,
    kind=st.sampled_from(["sample", "knot", "compile", "transfer", "memory"]),
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
    bounds = {"PER_GROUP": dict.fromkeys(retention.PER_GROUP, 2), "MOST_SAMPLES": 5, "MOST_OTHERS": 4}
    # The same identity always names the same record; only tampering makes two of it.
    known = unite(first, second, third)
    first, second, third = ([known[record.id] for record in part] for part in (first, second, third))
    with mock.patch.multiple(retention, **bounds):

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
    with mock.patch.multiple(retention, MOST_SAMPLES=50, MOST_OTHERS=50):
        kept = retain([*knots, *samples(500)])
    assert sum(record.kind == "sample" for record in kept) == 50
    assert sorted((record.x, record.time) for record in kept if record.kind == "knot") == [
        (float(x), float(when)) for x in (10, 20) for when in (2, 3, 4, 5)
    ]


def test_two_records_of_one_identity():
    """Only tampering makes them; the same one is kept whichever comes first."""
    one, two = sample(1, id="a"), sample(2, id="a")
    assert unite([one], [two]) == unite([two], [one]) == {"a": two}
