"""Causal operators over chunks of time: by spectra, and by what is carried over the boundaries."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from hpfracc.distributed.chunked.history import _prepared
from hpfracc.distributed.chunked.planning import Resources
from hpfracc.errors import InvalidInputError
from hpfracc.history.exponentials import Exponentials
from hpfracc.operators.core.stream_plans import WINDOW
from tests.helpers.thinned import thinned

da = pytest.importorskip("dask.array")

N, STEP = 1500, 0.01
DATA = np.cumsum(np.random.default_rng(0).standard_normal((3, N)), axis=1)
OPERATORS = [
    hf.Caputo(0.1),
    hf.Caputo(1.6),
    hf.RiemannLiouville(1.4),
    hf.GrunwaldLetnikov(1.7, method="wsgl"),
    hf.GrunwaldLetnikov(-0.4),
    hf.RiemannLiouvilleIntegral(0.3),
    hf.RiemannLiouvilleIntegral(0.8, method="trapezoid"),
]


@pytest.fixture(autouse=True)
def in_this_thread() -> Any:
    import dask

    with hf.use_backend("numpy"), dask.config.set(scheduler="synchronous"):
        yield


def bound(operator: Any, data: np.ndarray) -> float:
    """A few eps of the summed sizes of the weights times the largest input."""
    plan = _prepared(operator, 0)[2]
    size = np.abs(plan.weights(0, data.shape[-1])).sum() * np.abs(plan.inputs(data)).max()
    return float(32 * np.finfo(data.dtype).eps * size * STEP**plan.scale)


@pytest.mark.parametrize("operator", OPERATORS, ids=repr)
@thinned(one_in=2)
def test_chunks_of_time_agree_with_one_call(operator: Any):
    """Spectrum and carry, uneven chunks and rows: a few eps of sum|w| max|u|, with the chunks of the samples."""
    expected = operator(DATA, step=STEP)
    finite = np.isfinite(expected)
    samples = da.from_array(DATA, chunks=(2, (400, 300, 500, 300)))
    for way in ("spectrum", "carry"):
        found = hf.distributed.apply(operator, samples, step=STEP, way=way)
        assert found.chunks == samples.chunks
        values = found.compute()
        assert np.array_equal(np.isfinite(values), finite)
        assert np.abs(values[finite] - expected[finite]).max() <= bound(operator, DATA)


@pytest.mark.parametrize("alpha", [0.02, 0.3, 0.7, 0.98])
def test_far_weights_are_exponentials_to_full_precision(alpha: float):
    """For every order, up to a million lags: some eps of each weight, with fewer than 260 terms."""
    for operator in (hf.Caputo(alpha), hf.GrunwaldLetnikov(alpha), hf.RiemannLiouvilleIntegral(alpha)):
        plan = _prepared(operator, 1 << 20)[2]
        for begin in (WINDOW, 5000, 70_000, (1 << 20) - 200):
            lags = np.arange(begin, begin + 200)
            found = plan.far(lags - WINDOW)
            if plan.alternating is not None:
                odd = Exponentials(plan.far.rates, plan.alternating)(lags - WINDOW)
                found = found + np.where(lags % 2, -odd, odd)
            assert np.max(np.abs(found / plan.weights(begin, begin + 200) - 1.0)) < 2e-14
        assert len(plan.far.rates) < 260


def test_a_line_has_its_closed_form():
    """D^(1/2) t = 2 sqrt(t / pi), over 15 boundaries and along the first axis."""
    t = np.linspace(0.0, 3.0, 3001)
    samples = da.from_array(np.stack([t, -2.0 * t], axis=1), chunks=(200, 2))
    found = hf.distributed.apply(hf.Caputo(0.5), samples, t, axis=0, way="carry").compute()
    right = 2.0 * np.sqrt(t / np.pi)
    assert np.allclose(found, np.stack([right, -2.0 * right], axis=1), rtol=0.0, atol=2e-13)


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_dtypes_are_kept(dtype: str):
    """Single precision to its own eps; complex samples by both ways."""
    data = (DATA[0] * (1.0 + 0.5j if dtype == "complex128" else 1.0)).astype(dtype)
    expected = hf.caputo(data, step=STEP, alpha=0.5)
    for way in ("spectrum", "carry"):
        found = hf.distributed.apply(hf.Caputo(0.5), da.from_array(data, chunks=400), step=STEP, way=way)
        assert found.dtype == dtype and found.compute().dtype == dtype
        assert np.abs(found.compute() - expected).max() <= bound(hf.Caputo(0.5), data.real)


@pytest.mark.parametrize("way", ["spectrum", "carry"])
def test_a_nan_reaches_nothing_before_its_time(way: str):
    """Nor the other rows; everything after it is nan."""
    data = DATA.copy()
    data[1, 700] = np.nan
    found = hf.distributed.apply(hf.Caputo(0.5), da.from_array(data, chunks=(3, 400)), step=STEP, way=way).compute()
    right = hf.caputo(DATA, step=STEP, alpha=0.5)
    assert np.allclose(found[[0, 2]], right[[0, 2]]) and np.allclose(found[1, :700], right[1, :700])
    assert np.isnan(found[1, 700:]).all()


def test_the_way_is_chosen_by_length(monkeypatch: pytest.MonkeyPatch):
    """A long row is carried; short rows are rechunked; ``hf.explain`` shows tasks and bytes."""
    row, rows = da.zeros((1, 1 << 22), chunks=(1, 1 << 18)), da.zeros((64, 4096), chunks=(32, 2048))
    monkeypatch.setattr(Resources, "known", classmethod(lambda cls: cls(16, 1 << 34)))
    (plan,) = hf.explain(hf.caputo, row, step=STEP, alpha=0.5).plans
    assert plan.chosen == "carry"
    ways = {way.name: way for way in plan.ways}
    assert list(ways) == ["carry", "spectrum", "rechunk"]
    # Not more than the spectra of all chunks.
    assert ways["spectrum"].task_bytes <= 12 * 16 * (row.shape[1] + 16)
    assert ways["carry"].moved_bytes < 1e-2 * ways["rechunk"].moved_bytes < ways["spectrum"].moved_bytes
    assert "carry" in str(hf.explain(hf.caputo, row, step=STEP, alpha=0.5))
    monkeypatch.setattr(Resources, "known", classmethod(lambda cls: cls(4, 1 << 34)))
    assert hf.explain(hf.caputo, rows, step=STEP, alpha=0.5).plans[0].chosen == "rechunk"


def test_ways_that_are_not_there_are_refused():
    """Memories that do not fade, short chunks, other operators, points that are not uniform, no operator at all."""
    long, short = da.from_array(DATA, chunks=(3, 400)), da.from_array(DATA, chunks=(3, 100))
    with pytest.raises(InvalidInputError, match="way='carry' is not possible for RiemannLiouvilleIntegral"):
        hf.distributed.apply(hf.RiemannLiouvilleIntegral(1.5), long, step=STEP, way="carry")
    with pytest.raises(InvalidInputError, match="use 'auto' or rechunk"):
        hf.distributed.apply(hf.Caputo(0.5), short, step=STEP, way="spectrum")
    with pytest.raises(InvalidInputError, match="use 'auto' or rechunk"):
        hf.distributed.apply(hf.CaputoFabrizio(0.5), long, step=STEP, way="carry")
    with pytest.raises(InvalidInputError, match="use 'auto' or rechunk"):
        hf.distributed.apply(hf.Caputo(0.5), long, np.linspace(0.0, 1.0, N) ** 2, way="carry")
    with pytest.raises(InvalidInputError, match="is no FractionalOperator"):
        hf.distributed.apply(0.5, long, step=STEP)
