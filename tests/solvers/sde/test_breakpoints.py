"""Times at which drift and diffusion jump: steps end there, and each uses the values of its own side."""

from __future__ import annotations

import numpy as np
import pytest

import hpfracc as hf
from hpfracc.errors import InvalidInputError

JUMP = 0.3


def slope(t, y, before=1.0, after=-2.0, closed=False):
    """A drift that jumps, from the left (``t <= JUMP``) or from the right."""
    left = t <= JUMP if closed else t < JUMP
    return 0.0 * y + (before if left else after)


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("method", ["euler", "second_order", "doss_sussmann", "implicit_euler"])
def test_no_step_crosses_a_jump(method, closed):
    """Without noise the solution is piecewise linear, and every method is exact."""
    found = hf.solve_fsde(
        lambda t, y: slope(t, y, closed=closed), lambda t, y: 0.0 * y, (0.0, 1.0), 0.0, step=0.07, rng=1,
        breakpoints=[JUMP], method=method, interpretation="ito" if "euler" in method else "stratonovich",
    )  # fmt: skip
    assert found.t.size == 21
    assert abs(found.t[6] - JUMP) < 1e-15
    exact = np.where(found.t < JUMP, found.t, JUMP - 2.0 * (found.t - JUMP))
    np.testing.assert_allclose(found.y[0, 0], exact, atol=1e-13)


def test_two_jumps_of_the_diffusion():
    """The variance is the integral of the squared diffusion: exact with additive steps that end at its jumps."""

    def strength(t, y):
        return 0.0 * y + (3.0 if 0.2 <= t < 0.6 else 1.0)

    options = {"rng": 5, "paths": 3, "interpretation": "ito", "method": "euler"}
    found = hf.solve_fsde(lambda t, y: 0.0 * y, strength, (0.0, 1.0), 0.0, step=0.1, breakpoints=[0.2, 0.6], **options)
    change, strengths = np.diff(found.noise[:, 0]), np.array([1, 1, 3, 3, 3, 3, 1, 1, 1, 1.0])
    np.testing.assert_allclose(found.y[:, 0, 1:], np.cumsum(strengths * change, axis=-1), rtol=1e-12)


@pytest.mark.parametrize("alpha", [0.6, 0.9])
def test_order_below_one(alpha):
    """A Caputo equation whose drift jumps: each piece is a power of its distance from the beginning."""
    found = hf.solve_fsde(
        slope, 0.0, (0.0, 1.0), 0.0, step=0.1, alpha=alpha, breakpoints=[JUMP], rng=1, interpretation="ito"
    )
    late = np.maximum(found.t - JUMP, 0.0)
    exact = (found.t**alpha - 3.0 * late**alpha) / hf.gamma(1.0 + alpha)
    np.testing.assert_allclose(found.y[0, 0], exact, atol=1e-7)


@pytest.mark.parametrize("library", ["torch", "jax"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_tensors(library, dtype):
    """Times in single precision are on the right side too."""
    xp = pytest.importorskip("jax.numpy" if library == "jax" else library)

    def drift(t, y):
        one = 0.0 * y + 1.0
        return xp.where(xp.asarray(t) < JUMP, one, -2.0 * one)

    if library == "jax":
        jax = pytest.importorskip("jax")
        with jax.enable_x64(dtype == "float64"):
            start = xp.zeros((1,), dtype=dtype)
            found = hf.solve_fsde(drift, 0.0, (0.0, 1.0), start, step=0.1, breakpoints=[JUMP], key=jax.random.key(1))
    else:
        start = xp.zeros(1, dtype=getattr(xp, dtype))
        found = hf.solve_fsde(drift, 0.0, (0.0, 1.0), start, step=0.1, breakpoints=[JUMP], rng=1)
    exact = np.where(found.t < JUMP, found.t, JUMP - 2.0 * (found.t - JUMP))
    np.testing.assert_allclose(np.asarray(found.y)[0, 0], exact, atol=1e-13 if dtype == "float64" else 1e-6)


def test_steps_are_as_short_as_a_breakpoint_needs():
    """At 0.333 beside a step of 0.1 there are 1,000 of them, and the integral of a jump there is exact."""
    found = hf.solve_fsde(
        lambda t, y: 0.0 * y + (t > 0.333), 0.0, (0.0, 1.0), 0.0, step=0.1, breakpoints=[0.333], rng=1
    )  # fmt: skip
    assert found.t.size == 1001 and found.y[0, 0, -1] == pytest.approx(0.667, abs=1e-12)


@pytest.mark.parametrize("noise", [hf.noise.Brownian(), hf.noise.StableLevy(1.5)])
def test_a_number_needs_no_interpretation(noise):
    """A diffusion that returns a plain number is additive; one that depends on y is not, and is refused."""
    given = {"t_span": (0.0, 1.0), "y0": 1.0, "step": 0.1, "rng": 1, "noise": noise}
    free, ito = (
        hf.solve_fsde(lambda t, y: -y, lambda t, y: 0.3 + t, **given, **each)
        for each in ({}, {"interpretation": "ito"})
    )
    np.testing.assert_array_equal(free.y, ito.y)
    for other in (lambda t, y: 0.3 * y, lambda t, y: float(y[0, 0])):
        with pytest.raises(InvalidInputError, match="interpretation='ito'"):
            hf.solve_fsde(lambda t, y: -y, other, **given)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([0.0], "increasing times between 0 and 1"),
        ([0.6, 0.3], "increasing times between 0 and 1"),
        ([1.5], "increasing times between 0 and 1"),
        ([float("nan")], "breakpoints"),
        (0.3, "not a sequence"),
        ([0.1234567], "no equal steps from 0.0001 to 0.1"),
    ],
)
def test_refusals(given, words):
    """Outside the interval, not increasing, or at no time of equal steps: said before the first step."""
    with pytest.raises(InvalidInputError, match=words):
        hf.solve_fsde(slope, 1.0, (0.0, 1.0), 0.0, step=0.1, breakpoints=given)
