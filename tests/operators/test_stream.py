"""Operators fed in chunks: the values of the whole signal, whatever the chunks, from a state that does not grow."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from hpfracc._xp import NUMPY
from hpfracc.errors import HpfraccError, InvalidInputError, ShapeError, UnsupportedDtypeError
from hpfracc.operators.core import sequences
from hpfracc.operators.core.stream_plans import HORIZON, WINDOW, plan_stream
from tests.helpers.thinned import thinned

STEP = 1e-2
ORDERS = [0.1, 0.25, 0.5, 0.75, 0.9, 1.3, 1.8, 2.5]
STREAMED = [
    *(hf.Caputo(alpha, method) for alpha in ORDERS for method in ("l1-2", "l1")),
    *(hf.RiemannLiouville(alpha, method) for alpha in ORDERS for method in ("l1-2", "l1")),
    *(hf.GrunwaldLetnikov(alpha, method) for alpha in (-0.6, *ORDERS) for method in ("gl", "wsgl")),
    *(hf.RiemannLiouvilleIntegral(mu, method) for mu in ORDERS[:5] for method in ("simpson", "trapezoid")),
    hf.Caputo(-0.5),
]


def signal(n: int, seed: int = 1) -> np.ndarray:
    """Two tones and a walk: something at every scale of time."""
    t = STEP * np.arange(n)
    walk = np.random.default_rng(seed).standard_normal(n).cumsum() * np.sqrt(STEP)
    return np.sin(2.0 * t) + np.cos(0.3 * t) + 0.3 * walk


def chunks(x: np.ndarray, sizes: Iterator[int] | list[int]) -> Iterator[np.ndarray]:
    """The signal cut in pieces of these lengths, the last of which takes the rest."""
    first = 0
    for size in sizes:
        yield x[..., first : first + size]
        first += size
    yield x[..., first:]


def pushed(stream: Any, x: np.ndarray, sizes: list[int]) -> np.ndarray:
    return np.concatenate([stream.push(chunk) for chunk in chunks(x, sizes)], -1)


def distance(value: np.ndarray, whole: np.ndarray) -> float:
    """The largest error, relative to the largest value beyond the origin; equal infinities agree."""
    finite = np.isfinite(whole)
    np.testing.assert_array_equal(value[~finite], whole[~finite])
    return float(np.abs(value[finite] - whole[finite]).max() / np.abs(whole[finite]).max())


RAGGED = [1, 0, 3, 100, 87, 1, 1, 700, 0, 2048, 5]


@pytest.mark.parametrize("operator", STREAMED, ids=str)
@thinned(one_in=4)
def test_equals_the_whole_signal(operator: Any) -> None:
    """Within rtol of the maximum, for chunks of any size, none among them."""
    x = signal(6000)
    whole = operator(x, step=STEP)
    stream = operator.stream(STEP)
    found = pushed(stream, x, RAGGED)
    waiting = np.isnan(found)
    assert not waiting[4:].any()
    assert waiting[:4].all() == (operator.alpha > 1.0 and stream.method[0] == "l") == waiting.any()
    assert distance(found[~waiting], whole[~waiting]) <= 1e-6
    assert stream.count == 6000
    assert stream.method in ("l1", "l1-2", "gl", "wsgl", "simpson", "trapezoid")


@pytest.mark.parametrize("operator", [hf.Caputo(0.5), hf.RiemannLiouvilleIntegral(0.3)], ids=str)
def test_a_long_signal(operator: Any) -> None:
    """1e5 points in ragged chunks."""
    x = signal(100_000)
    stream = operator.stream(STEP)
    assert distance(pushed(stream, x, [317, 1, 5000, 40_000, 12]), operator(x, step=STEP)) <= 1e-6


@pytest.mark.slow
@pytest.mark.parametrize(
    "operator",
    [hf.Caputo(0.5), hf.RiemannLiouville(1.5), hf.GrunwaldLetnikov(0.1), hf.RiemannLiouvilleIntegral(0.9)],
    ids=str,
)
def test_ten_million_points(operator: Any) -> None:
    """1e7 points in chunks of random sizes."""
    n = 10_000_000
    x = signal(n)
    sizes = np.random.default_rng(4).integers(0, 1_000_000, 15).tolist()
    assert distance(pushed(operator.stream(STEP), x, sizes), operator(x, step=STEP)) <= 1e-6


@pytest.mark.parametrize("rtol", [1e-4, 1e-9])
@pytest.mark.parametrize("alpha", [0.1, 0.5, 0.9])
def test_far_weights_hold_to_the_horizon(alpha: float, rtol: float) -> None:
    """At lags from the window to 1e12, that no test could push, against the formulae of the weights."""
    k = np.round(np.geomspace(WINDOW, 0.9 * HORIZON, 300))
    rgamma = NUMPY.rgamma
    last = np.asarray(sequences.binomials(NUMPY, alpha - 1.0, 129))[-1]
    formulae = {
        hf.Caputo(alpha, "l1"): sequences.power_difference(NUMPY, 1.0 - alpha, k) * rgamma(2.0 - alpha),
        hf.GrunwaldLetnikov(alpha): sequences.binomial(NUMPY, alpha - 1.0, k, last),
        hf.RiemannLiouvilleIntegral(alpha, "trapezoid"): sequences.second_difference(NUMPY, alpha + 1.0, k)
        * rgamma(alpha + 2.0),
    }
    for operator, right in formulae.items():
        far = plan_stream(*operator._streamed(), rtol, "it").far(k - WINDOW)
        assert np.abs(far / right - 1.0).max() <= 2.0 * rtol, operator


def test_the_state_does_not_grow() -> None:
    """As many numbers after 50,000 points as after 1,000, and a pickle of a few kilobytes."""
    stream = hf.Caputo(0.5).stream(STEP)
    stream.push(signal(1000))
    size, state = len(pickle.dumps(stream)), stream.state_size
    stream.push(signal(49_000))
    assert stream.state_size == state < 400
    assert len(pickle.dumps(stream)) <= size + 64 < 8000


@pytest.mark.parametrize("at", [0, 50, 192, 900])
def test_a_pickle_goes_on_where_it_was(at: int) -> None:
    """Before anything came, while the first samples are kept, and beyond."""
    x = signal(1500)
    stream = hf.RiemannLiouville(1.3).stream(STEP, rtol=1e-8)
    before = stream.push(x[:at])
    other = pickle.loads(pickle.dumps(stream))
    np.testing.assert_array_equal(other.push(x[at:]), stream.push(x[at:]))
    assert len(before) == at
    assert repr(other) == repr(stream)


def test_reset_starts_a_new_signal() -> None:
    """Of another shape, too."""
    stream = hf.Caputo(0.4).stream(STEP)
    x = signal(600)
    first = stream.push(x)
    stream.reset()
    np.testing.assert_allclose(stream.push(np.stack([x, x]))[1], first, rtol=1e-12, atol=1e-14)


def test_batches_axes_and_dtypes() -> None:
    """Rows of any shape along any axis; single precision stays so, complex numbers work, integers are promoted."""
    x = np.stack([signal(700, seed) for seed in range(6)]).reshape(2, 3, 700)
    stream = hf.Caputo(0.6).stream(STEP, axis=1)
    moved = np.moveaxis(x, -1, 1)
    value = np.concatenate([stream.push(moved[:, :300]), stream.push(moved[:, 300:])], 1)
    whole = hf.caputo(x, step=STEP, alpha=0.6)
    assert distance(np.moveaxis(value, 1, -1), whole) <= 1e-6
    for dtype, tolerance in (("float32", 1e-5), ("complex64", 1e-5), ("complex128", 1e-6)):
        rows = x.astype(dtype)
        result = pushed(hf.Caputo(0.6).stream(STEP), rows, [250, 3])
        assert result.dtype == dtype
        assert distance(result, whole.astype(dtype)) <= tolerance
    numbers = np.arange(500)
    assert (
        distance(pushed(hf.Caputo(0.6).stream(STEP), numbers, [99]), hf.caputo(numbers, step=STEP, alpha=0.6)) <= 1e-6
    )


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_chunks_of_other_libraries(library: str) -> None:
    """What comes back is what went in: library, dtype, shape."""
    module = __import__("torch") if library == "torch" else __import__("jax").numpy
    x = signal(492)
    whole = hf.caputo(x, step=STEP, alpha=0.5)
    stream = hf.Caputo(0.5).stream(STEP)
    made = module.asarray(x.astype(np.float32))
    # Of equal lengths: JAX compiles for each.
    parts = [stream.push(made[:192]), stream.push(made[192:342]), stream.push(made[342:])]
    assert all(type(part) is type(made) and part.dtype == made.dtype for part in parts)
    assert distance(np.concatenate([np.asarray(part) for part in parts]), whole) <= 1e-5
    again = pickle.loads(pickle.dumps(stream))
    np.testing.assert_allclose(np.asarray(again.push(made[:150])), np.asarray(stream.push(made[:150])), rtol=1e-6)


@pytest.mark.parametrize("place", [20, 400])
def test_bad_samples_stay_causal(place: int) -> None:
    """Values before a nan are what they were, its own and all later ones are nan."""
    x = signal(900)
    clean = pushed(hf.Caputo(0.5).stream(STEP), x, [150, 300])
    x[place] = np.nan
    value = pushed(hf.Caputo(0.5).stream(STEP), x, [150, 300])
    np.testing.assert_array_equal(value[:place], clean[:place])
    assert np.isnan(value[place:]).all()


def after(*pushes: Any) -> Callable[[], Any]:
    def run() -> None:
        stream = hf.Caputo(0.5).stream(STEP)
        for chunk in pushes:
            stream.push(chunk)

    return run


BAD: list[tuple[Callable[[], Any], type[HpfraccError], str]] = [
    (lambda: hf.Caputo(0.5).stream(0.0), InvalidInputError, "step=0"),
    (lambda: hf.Caputo(0.5).stream(float("nan")), InvalidInputError, "step=nan"),
    (lambda: hf.Caputo(0.5).stream(0.1, rtol=1e-15), InvalidInputError, "rtol=1e-15: give"),
    (lambda: hf.Caputo(0.5).stream(0.1, rtol=2.0), InvalidInputError, "rtol=2"),
    (lambda: hf.Caputo(1.0).stream(0.1), InvalidInputError, "whole order"),
    (lambda: hf.Caputo(0.5, "fast").stream(0.1), InvalidInputError, "fast by itself"),
    (lambda: hf.Caputo(0.5, "gl").stream(0.1), InvalidInputError, "no method 'gl'"),
    (lambda: hf.RiemannLiouville(0.5, "cq2").stream(0.1), InvalidInputError, "'cq2' cannot be streamed"),
    (lambda: hf.RiemannLiouvilleIntegral(1.5).stream(0.1), InvalidInputError, "does not decay"),
    (lambda: hf.GrunwaldLetnikov(-1.5).stream(0.1), InvalidInputError, "does not decay"),
    (after(np.ones((2, 5)), 1.0), ShapeError, r"rows of shape \(2,\)"),
    (after(np.ones(5), np.ones((2, 5))), ShapeError, r"rows of shape \(\)"),
    (after(np.ones(5), np.ones(5, np.float32)), UnsupportedDtypeError, "began with dtype float64"),
    (after(np.array(["a"])), UnsupportedDtypeError, "not supported"),
]


@pytest.mark.parametrize(("call", "error", "words"), BAD)
def test_refuses(call: Callable[[], Any], error: type[HpfraccError], words: str) -> None:
    """Typed, with the value and what to do."""
    with pytest.raises(error, match=words):
        call()


def test_a_learnable_order_is_refused() -> None:
    """A stream has one order, a plain number."""
    torch = pytest.importorskip("torch")
    with pytest.raises(InvalidInputError, match="plain number"):
        hf.Caputo(torch.tensor(0.5, requires_grad=True)).stream(0.1)
