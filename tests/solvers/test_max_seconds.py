"""``max_seconds`` ends a solve with the part that is done, and one that takes minutes says so; by our own clock."""

from __future__ import annotations

import itertools
import logging
import math

import numpy as np
import pytest

import hpfracc as hf
from hpfracc.pde import Diffusion
from hpfracc.solvers.stepping import options, walk

X = np.linspace(0.0, 1.0, 17)


def ordinary(alpha, **more):
    return hf.solve_fode(lambda t, y: -y + np.sin(9.0 * t), (0.0, 3.0), [1.0], alpha, **more)


def partial(**more):
    space, source = Diffusion(1.0), lambda t, x: x * np.sin(9.0 * t)
    return hf.solve_fpde(None, (0.0, 3.0), np.sin(np.pi * X), x=X, space=space, boundary=0.0, source=source, **more)


SOLVES = {
    "adaptive": lambda **more: ordinary(0.7, **more),
    "whole order": lambda **more: ordinary(1.0, **more),
    "fixed": lambda **more: ordinary(0.7, step=1e-4, compile=False, **more),
    "search": lambda **more: ordinary(0.7, method="l1", **more),
    "several terms": lambda **more: ordinary(0.7, terms=[(1.0, 0.3)], **more),
    "l1": lambda **more: partial(alpha=0.7, method="l1", step=1e-3, **more),
    "partial, adaptive": lambda **more: partial(alpha=0.7, method="adaptive", **more),
    "partial, refined": lambda **more: partial(alpha=0.7, method="l2_1sigma", **more),
}


@pytest.fixture
def clock(monkeypatch):
    """A second passes with each look at the clock."""
    seconds = itertools.count()
    for module in (options, walk):
        monkeypatch.setattr(module, "perf_counter", lambda: float(next(seconds)))


@pytest.mark.parametrize("name", SOLVES)
@pytest.mark.usefixtures("clock")
def test_a_solve_ends_with_what_is_done(name):
    found = SOLVES[name](max_seconds=8.0)
    assert not found.success
    assert "max_seconds=8" in found.message
    assert 0.0 <= found.t[-1] < 3.0
    assert np.isfinite(found.y if hasattr(found, "y") else found.u).all()


@pytest.mark.parametrize("name", ["adaptive", "whole order", "fixed", "l1"])
@pytest.mark.usefixtures("clock")
def test_a_long_solve_says_so_once(name, caplog):
    with caplog.at_level(logging.WARNING, "hpfracc"):
        found = SOLVES[name]()
    assert found.success
    told = [each.getMessage() for each in caplog.records if "minutes" in each.getMessage()]
    assert len(told) == 1
    assert "max_seconds= ends it earlier" in told[0]


def test_short_solves_are_silent_and_whole(caplog):
    found = ordinary(0.7, max_seconds=1e6)
    assert found.success
    assert not caplog.records
    np.testing.assert_array_equal(found.y, ordinary(0.7).y)


@pytest.mark.parametrize("wrong", [0.0, -1.0, math.nan, "1"])
def test_seconds_are_checked(wrong):
    with pytest.raises(hf.errors.InvalidInputError, match="max_seconds"):
        ordinary(0.7, max_seconds=wrong)


def test_tensors_have_no_such_limit():
    torch = pytest.importorskip("torch")
    with pytest.raises(hf.errors.InvalidInputError, match="max_seconds is for NumPy"):
        hf.solve_fode(lambda t, y: -y, (0.0, 1.0), torch.ones(1), 0.5, step=0.1, max_seconds=1.0)
