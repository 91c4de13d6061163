"""Making the packaged prior: disturbances taken out, knots thinned without bending the curve, machines merged."""

from __future__ import annotations

import json
import math
from itertools import pairwise

import pytest

from benchmarks import make_prior


def test_a_time_above_that_of_a_larger_call_is_a_disturbance():
    """It is brought down to the larger call's; times that rise are left as they are."""
    points = [(1.0, 1e-6), (2.0, 9e-6), (4.0, 3e-6), (8.0, 5e-6)]
    assert make_prior.undisturbed(points) == [(1.0, 1e-6), (2.0, 3e-6), (4.0, 3e-6), (8.0, 5e-6)]


def test_thinning_keeps_the_ends_and_the_bends():
    """A straight segment needs two knots, and a curve is followed within a few per cent by ten."""
    straight = [(2.0**k, 1e-9 * 2.0**k) for k in range(4, 22)]
    assert make_prior.thinned(straight) == [straight[0], straight[-1]]
    bent = [(2.0**k, 1e-6 + 1e-9 * 2.0**k) for k in range(4, 22)]
    kept = make_prior.thinned(bent)
    assert 3 <= len(kept) <= make_prior.MAX_KNOTS
    assert (kept[0], kept[-1]) == (bent[0], bent[-1])
    for x, seconds in bent:
        assert interpolate(kept, x) == pytest.approx(seconds, rel=0.05)


def interpolate(points: list[tuple[float, float]], x: float) -> float:
    for (x0, y0), (x1, y1) in pairwise(points):
        if x0 <= x <= x1:
            share = math.log(x / x0) / math.log(x1 / x0)
            return y0 * (y1 / y0) ** share
    raise AssertionError(x)


def made(part: str, **content: dict[str, object]) -> dict[str, object]:
    return {"made": [{"part": part}], "knots": {}, "compile": {}, "transfers": {}, **content}


def test_merging_keeps_what_the_other_machine_measured():
    """The processor's part replaces the processor's part; the GPUs' rows, compile times and transfers stay."""
    gpus = made(
        "gpus",
        knots={"fft": {"torch:default@cuda": {"device": {"float64": [[1, 2]]}}}},
        compile={"torch:*@cuda*": 0.2},
        transfers={"host->cuda": [1e-5, 1e10]},
    )
    old = made("cpu", knots={"fft": {"numpy:scipy@cpu": {"host": {"float64": [[1, 1]], "float32": [[1, 3]]}}}})
    new = made(
        "cpu", knots={"fft": {"numpy:scipy@cpu": {"host": {"float64": [[9, 9]]}}}}, compile={"numba:*@cpu*": 1.0}
    )
    both = make_prior.merge(make_prior.merge(make_prior.merge({}, gpus), old), new)
    assert [entry["part"] for entry in both["made"]] == ["gpus", "cpu"]
    assert both["knots"]["fft"] == {
        "numpy:scipy@cpu": {"host": {"float64": [[9, 9]], "float32": [[1, 3]]}},
        "torch:default@cuda": {"device": {"float64": [[1, 2]]}},
    }
    assert both["compile"] == {"numba:*@cpu*": 1.0, "torch:*@cuda*": 0.2}
    assert both["transfers"] == {"host->cuda": [1e-5, 1e10]}
    assert make_prior.merge(both, new) == both


def test_the_file_reads_back():
    """One line for a row of knots, and the same content."""
    data = make_prior.merge({}, made("cpu", knots={"fft": {"a": {"host": {"float64": [[1.0, 2.0], [3.0, 4.0]]}}}}))
    text = make_prior.dump(data)
    assert json.loads(text) == data
    assert '"float64": [[1.0,2.0],[3.0,4.0]]' in text
