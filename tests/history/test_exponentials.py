"""Powers as sums of exponentials: the error of the kernel itself, over the whole interval."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

from hpfracc._xp import NUMPY
from hpfracc.errors import InvalidInputError
from hpfracc.history.exponentials import exponential_nodes, exponential_sum, node_weights
from tests.helpers.thinned import thinned

BETAS = [0.0, 1e-6, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1.1, 1.25, 1.5, 1.75, 1.9, 2.5]
RATIOS = [1e-2, 1e-5, 1e-9, 1e-18]


@pytest.mark.parametrize("rtol", [1e-3, 1e-6, 1e-9, 1e-12])
@pytest.mark.parametrize("beta", BETAS)
@thinned(one_in=3)
def test_keeps_its_tolerance_over_the_whole_interval(beta: float, rtol: float) -> None:
    """Everywhere between the shortest and the longest t, the ends included."""
    for ratio in RATIOS:
        t = np.geomspace(3.0 * ratio, 3.0, 1500)
        found = exponential_sum(beta, 3.0 * ratio, 3.0, rtol)
        assert np.max(np.abs(found(t) * t**beta - 1.0)) <= rtol


@pytest.mark.parametrize("beta", [0.1, 0.5, 1.5])
def test_agrees_with_extended_precision(beta: float) -> None:
    """Twelve digits, counted in thirty: NumPy's own power has no part in it."""
    found = exponential_sum(beta, 1e-6, 1.0, 1e-12)
    with mpmath.workdps(30):
        terms = [(mpmath.mpf(float(r)), mpmath.mpf(float(w))) for r, w in zip(found.rates, found.weights, strict=True)]
        for t in np.geomspace(1e-6, 1.0, 23):
            total = mpmath.fsum(w * mpmath.exp(-r * mpmath.mpf(float(t))) for r, w in terms)
            assert abs(total * mpmath.mpf(float(t)) ** beta - 1) <= 1e-12


def test_terms_grow_like_the_two_logarithms() -> None:
    """O(log(T/h) log(1/rtol)): 36 terms for five decades at 1e-6, twice the decades or digits take less than twice."""
    count = {
        (ratio, rtol): len(exponential_sum(0.5, ratio, 1.0, rtol).rates) for ratio in RATIOS for rtol in (1e-6, 1e-12)
    }
    assert count[1e-5, 1e-6] <= 40
    assert count[1e-9, 1e-6] <= 2.0 * count[1e-5, 1e-6]
    assert count[1e-18, 1e-12] <= 2.0 * count[1e-9, 1e-12]
    assert count[1e-9, 1e-12] <= 2.0 * count[1e-9, 1e-6]


def test_all_terms_decay_and_add() -> None:
    """Weights are positive, so that sums lose no digits."""
    found = exponential_sum(0.3, 1e-7, 10.0, 1e-10)
    assert (found.weights > 0).all()
    assert found.rates[0] >= 0.0 and (np.diff(found.rates) > 0).all()


@pytest.mark.parametrize("beta", [0.05, 0.5, 0.8, 1.5])
@pytest.mark.parametrize("rtol", [1e-6, 1e-13])
def test_few_terms_stand_for_the_slow_ones(beta: float, rtol: float) -> None:
    """Eight terms or a fifth fewer than the rule for all powers on 200 steps: a thread's memory on a GPU is so long."""
    all_powers = exponential_nodes(beta, beta, 1.0, 200.0, rtol).rates.size
    found = exponential_sum(beta, 1.0, 200.0, rtol)
    assert found.rates.size <= max(all_powers - 8, 0.85 * all_powers)
    t = np.concatenate([np.linspace(1.0, 3.0, 501), np.geomspace(3.0, 200.0, 501)])
    assert np.max(np.abs(found(t) * t**beta - 1.0)) <= rtol


def test_shorter_distances_append_terms() -> None:
    """The terms of longer distances stay as they are, so that their states remain valid."""
    few, more = (exponential_sum(0.4, shortest, 1.0, 1e-9) for shortest in (1e-6, 1e-12))
    assert len(more.rates) > len(few.rates)
    assert np.array_equal(more.rates[: len(few.rates)], few.rates)
    assert np.array_equal(more.weights[: len(few.rates)], few.weights)


def test_nodes_serve_a_range_of_powers() -> None:
    """One set of nodes for every order between two bounds, as a traced order needs."""
    nodes = exponential_nodes(0.05, 1.0, 1e-4, 1.0, 1e-8)
    t = np.geomspace(1e-4, 1.0, 400)
    for beta in np.linspace(0.05, 1.0, 13):
        value = np.exp(-np.multiply.outer(t, nodes.rates)) @ node_weights(NUMPY, float(beta), nodes)
        assert np.max(np.abs(value * t**beta - 1.0)) <= 1e-8


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((-0.5, 1e-3, 1.0, 1e-6), "beta=-0.5"),
        ((0.5, 0.0, 1.0, 1e-6), "interval from 0"),
        ((0.5, 2.0, 1.0, 1e-6), "must be positive"),
        ((0.5, 1e-3, math.inf, 1e-6), "finite"),
        ((0.5, 1e-3, 1.0, 1e-16), "rtol"),
        ((0.5, 1e-3, 1.0, 2.0), "rtol"),
    ],
)
def test_refuses_what_is_no_such_sum(arguments: tuple[float, ...], words: str) -> None:
    """Growing powers, intervals that are none, tolerances out of reach."""
    with pytest.raises(InvalidInputError, match=words):
        exponential_sum(*arguments)
