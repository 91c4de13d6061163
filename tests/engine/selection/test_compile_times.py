"""What compiling will take: seen, seen nearby, expected, or nothing."""

from __future__ import annotations

import pytest

from hpfracc.engine.selection.compile_times import CompileTimes

KEY = ("op", "numba:direct@cpu", "host", "float64")


def test_what_was_compiled_here_is_free_whatever_the_key():
    """Compile keys are shared: another start of the same kernel pays nothing."""
    times = CompileTimes()
    times.learn(KEY, "code", 0.5, None, done=True)
    assert times.cost(KEY, "code") == 0.0
    assert times.cost(("op", "numba:direct@cpu", "device", "float64"), "code") == 0.0
    assert times.is_done("code") and times.is_done(None) and not times.is_done("other")


def test_what_was_compiled_elsewhere_is_known_but_to_be_paid():
    """From wisdom, say."""
    times = CompileTimes()
    times.learn(KEY, "code", 0.5, 16.0, done=False)
    assert times.cost(KEY, "code") == 0.5


def test_a_new_shape_takes_the_median_of_its_neighbours():
    """The first one, with the library's own start in it, is not taken for typical."""
    times = CompileTimes()
    for x, seconds in ((16.0, 0.350), (256.0, 0.001), (4096.0, 0.004), (65536.0, 0.003), (1e8, 0.9)):
        times.learn(KEY, x, seconds, x, done=False)
    assert times.cost(KEY, "new", 64.0) == 0.004
    assert times.cost(KEY, "new", 16384.0) == 0.003
    assert times.cost(KEY, "new") == 0.004  # without its work: the median of all


@pytest.mark.parametrize(
    ("prior", "expected"), [((KEY, 2.0), 2.0), (("numba:*", 1.5), 1.5), (("jax:*", 1.5), 0.0), ((None, 0.0), 0.0)]
)
def test_before_anything_was_seen_the_prior_speaks(prior: tuple[object, float], expected: float):
    """Of this key, or of arms of that name; 0 where there is none."""
    times = CompileTimes()
    times.set_prior(*prior)
    assert times.cost(KEY, "code") == expected


def test_a_key_of_its_own_goes_before_a_pattern():
    """And what was seen before both."""
    times = CompileTimes()
    times.set_prior("numba:*", 1.0)
    times.set_prior(KEY, 0.0)
    assert times.cost(KEY, "code") == 0.0
    times.learn(KEY, "other", 3.0, None, done=False)
    assert times.cost(KEY, "code") == 3.0
