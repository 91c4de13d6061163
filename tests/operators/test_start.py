"""The start of Caputo's derivatives of samples above order 1: fitted with powers of t^alpha, or given by `initial=`."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.special import gamma, hyp2f1, rgamma

import hpfracc as hf
from hpfracc.errors import HpfraccError, InvalidInputError, ShapeError
from hpfracc.operators.core.grids import Grid
from hpfracc.operators.core.order import read_order
from hpfracc.operators.core.values import Samples
from hpfracc.operators.rules.l1 import L12

T = np.linspace(0.0, 2.0, 401)


def solution(alpha: float, t: np.ndarray = T) -> np.ndarray:
    """``E_alpha(-t^alpha)``, whose Caputo derivative is its negative, and whose first derivatives at 0 are 0."""
    return np.asarray(hf.mittag_leffler(-(t**alpha), alpha))


def error_of(value: Any, exact: np.ndarray, skipped: int = 12) -> float:
    return float(np.abs(np.asarray(value) - exact)[..., skipped:].max())


def test_a_solution_of_an_equation():
    """The case that was wrong by 0.13 at the end, with an estimate of 5e-7; at the origin it is -1."""
    t = np.linspace(0.0, 2.0, 2001)
    y = solution(1.2, t)
    found = hf.caputo(y, t, 1.2, full_output=True)
    error = np.abs(found.value + y)
    assert error[0] < 1e-6 and error[-1] < 1e-6
    known = np.isfinite(found.error_estimate)
    assert known[5:].all()
    assert (error[known] <= 3.0 * found.error_estimate[known]).all()
    assert found.error_estimate[-1] < 1e-5


@pytest.mark.parametrize("alpha", [1.05, 1.3, 1.5, 1.95, 2.2, 2.8, 3.4])
def test_orders_above_one(alpha: float):
    """Right beyond the first points for all orders, within three times the estimate."""
    y = solution(alpha)
    found = hf.caputo(y, T, alpha, full_output=True)
    known = np.isfinite(found.error_estimate)
    assert (np.abs(found.value + y)[known] <= 3.0 * found.error_estimate[known]).all()
    assert error_of(found.value, -y, 200) < 1e-3


LIKE: dict[str, Callable[..., Any]] = {
    "l1": lambda y, **more: hf.caputo(y, T, 1.3, method="l1", **more),
    "fast": lambda y, **more: hf.caputo(y, T, 1.3, method="fast", **more),
    "caputo_hadamard": lambda y, **more: hf.caputo_hadamard(y, np.exp(T), 1.3, **more),
    "psi_caputo": lambda y, **more: hf.psi_caputo(y, T, 1.3, lambda t: t, **more),
    "tempered_caputo": lambda y, **more: (
        np.exp(T) * hf.tempered_caputo(np.exp(-T) * y, T, 1.3, 1.0, **({"initial": [-1.0]} if more else {}))
    ),
    "variable_order": lambda y, **more: hf.variable_order(y, T, np.full(T.size, 1.3), **more),
    "right": lambda y, **more: hf.caputo(y[::-1].copy(), T, 1.3, side="right", **more)[::-1],
    "stream": lambda y, **more: np.concatenate(
        [hf.Caputo(1.3, **more).stream(T[1]).push(chunk) for chunk in np.array_split(y, 1)]
    ),
}


@pytest.mark.parametrize("name", LIKE)
def test_all_that_need_initial_derivatives_agree(name: str):
    """Each is the same derivative, without and with `initial=`; polynomials at the origin were off by 0.2."""
    y = solution(1.3)
    assert error_of(LIKE[name](y), -y) < 2e-3
    assert error_of(LIKE[name](y)[-100:], -y[-100:], 0) < 1e-4
    assert error_of(LIKE[name](y, initial=[0.0])[-100:], -y[-100:], 0) < 1e-4


def test_any_grid():
    """Graded and uneven points."""
    t = 2.0 * np.linspace(0.0, 1.0, 301) ** 1.7
    y = solution(1.6, t)
    assert error_of(hf.caputo(y, t, 1.6), -y) < 1e-2
    assert error_of(hf.caputo(y, t, 1.6)[-50:], -y[-50:], 0) < 3e-3


def test_smooth_samples_keep_the_polynomial():
    """The values are those of the rule alone, on fine samples of rounding errors, on noise and on constants too."""
    rng = np.random.default_rng(3)
    for t in (T, np.linspace(0.0, 1.0, 20_001)):
        rows = np.stack([np.cos(3.0 * t), np.exp(-t) + t**2, rng.standard_normal(t.size), np.full(t.size, 1e6 / 3.0)])
        for alpha in (1.05, 1.5, 1.95, 2.5) if t is T else (1.63,):
            found, alone = (
                hf.caputo(rows, t, alpha),
                L12().apply(Samples(rows, Grid(t.size, 0.0, t[1])), read_order(alpha)),
            )
            np.testing.assert_array_equal(found, alone)
            assert not found[3].any()


def test_single_samples_do_not_ask_for_powers():
    """A one among zeros, wherever it is: linear maps have columns, and noise is a sum of them."""
    found = hf.caputo(np.eye(40), step=0.1, alpha=1.1)
    np.testing.assert_array_equal(found, L12().apply(Samples(np.eye(40), Grid(40, 0.0, 0.1)), read_order(1.1)))


def test_a_given_derivative_is_taken_as_it_is():
    """A wrong one changes the result by its effect; a right one removes the effect of noise in the samples."""
    y = np.sin(T)
    change = hf.caputo(y, T, 1.5, initial=[1.5]) - hf.caputo(y, T, 1.5, initial=[1.0])
    np.testing.assert_allclose(change[1:], -0.5 * T[1:] ** -0.5 * rgamma(0.5), rtol=1e-9)
    cubic = 1.0 + 2.0 * T - 3.0 * T**2 + T**3
    right = gamma(4.0) * rgamma(1.5) * T**0.5
    assert error_of(hf.caputo(cubic, T, 2.5, initial=[2.0, -6.0]), right) < 1e-6
    rng = np.random.default_rng(1)
    noisy = y + 1e-4 * rng.standard_normal(T.size)
    given, fitted = (hf.Caputo(1.5, initial=i)(noisy, T, full_output=True) for i in ([1.0], None))
    assert np.nanmin((fitted.error_estimate - given.error_estimate)[10:]) > 0.0


def test_a_derivative_for_each_row():
    """One number for each row of samples, along any axis."""
    slopes = np.array([0.0, 0.7, -2.0])
    y = solution(1.3)
    rows = y + slopes[:, None] * T
    assert error_of(hf.caputo(rows, T, 1.3, initial=[slopes])[:, -100:], -y[-100:], 0) < 1e-4
    assert error_of(hf.caputo(rows.T, T, 1.3, initial=[slopes], axis=0).T[:, -100:], -y[-100:], 0) < 1e-4
    with pytest.raises(ShapeError, match="one for each row"):
        hf.caputo(rows, T, 1.3, initial=[slopes[:2]])


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: hf.caputo(T, T, 0.5, initial=[1.0]), "no initial derivatives"),
        (lambda: hf.caputo(T, T, 2.0, initial=[1.0]), "no initial derivatives"),
        (lambda: hf.caputo(T, T, 1.5, initial=1.0), "is not a list"),
        (lambda: hf.caputo(T, T, 2.5, initial=[1.0]), "needs 2"),
        (lambda: hf.caputo(np.sin, 1.0, 1.5, initial=[1.0]), "is for samples"),
        (lambda: hf.tempered_caputo(np.sin, 1.0, 1.5, initial=[1.0]), "is for samples"),
        (lambda: hf.variable_order(T, T, 0.5, at="s", initial=[1.0]), "no initial derivatives"),
        (lambda: hf.create_fractional_derivative(1.5, "riesz", initial=[1.0]), "initial"),
    ],
)
def test_refused_in_words(call: Callable[[], Any], words: str):
    """Where there is nothing to give, and where it is given wrongly."""
    with pytest.raises(HpfraccError, match=words):
        call()


def test_by_the_factory():
    """`create_fractional_derivative` takes it too."""
    y = solution(1.3)
    operator = hf.create_fractional_derivative(1.3, "caputo", initial=(0.0,))
    np.testing.assert_allclose(operator(y, T), hf.caputo(y, T, 1.3, initial=[0.0]))


def test_a_stream_waits_for_its_start():
    """nan until the first n + 9 samples are there, and then as the whole signal."""
    y = solution(1.3)
    stream = hf.Caputo(1.3).stream(T[1])
    found = np.concatenate([stream.push(chunk) for chunk in np.split(y, [3, 10, 40, 300])])
    assert np.isnan(found[:10]).all()
    np.testing.assert_allclose(found[10:], hf.caputo(y, T, 1.3)[10:], rtol=1e-5, atol=1e-6)


def test_tensors_with_gradients():
    """The same values; gradients in samples and in `initial=` as by differences."""
    torch = importlib.import_module("torch")
    y = solution(1.3)
    x, slope = torch.tensor(y, requires_grad=True), torch.tensor(0.0, dtype=torch.float64, requires_grad=True)
    value = hf.caputo(x, T, 1.3)
    np.testing.assert_allclose(value.detach(), hf.caputo(y, T, 1.3), rtol=1e-6, atol=1e-6)
    moved = 1e-11 * np.eye(T.size)[2]  # too small to change the choice
    by_x = (hf.caputo(y + moved, T, 1.3)[-1] - hf.caputo(y - moved, T, 1.3)[-1]) / 2e-11
    assert float(torch.autograd.grad(value[-1], x)[0][2]) == pytest.approx(by_x, rel=1e-3)
    last = hf.caputo(x, T, 1.3, initial=[slope])[-1]
    effect = -(2.0**-0.3) * rgamma(0.7)
    assert float(torch.autograd.grad(last, slope)[0]) == pytest.approx(effect, rel=1e-9)


@pytest.mark.slow
def test_under_jit():
    """Traced samples have the same start; a traced order has a polynomial, unless the derivative is given."""
    jax = importlib.import_module("jax")
    y = solution(1.3)
    with jax.enable_x64(True):
        run = jax.jit(lambda y: hf.caputo(y, step=T[1], alpha=1.3))
        assert error_of(run(y), hf.caputo(y, step=T[1], alpha=1.3), 0) < 1e-10
        given = jax.jit(lambda y, alpha: hf.caputo(y, step=T[1], alpha=alpha, ceiling=2, initial=[0.0]))
        assert error_of(given(y, 1.3), -y) < 2e-3


@pytest.mark.parametrize("method", ["centred", "centred4"])
@pytest.mark.parametrize("alpha", [0.3, 1.0, 1.7])
def test_riesz_at_singular_ends(alpha: float, method: str):
    """Getoor's function: both centred rules share the error that its ends cause, which the estimate now shows."""
    x = np.linspace(-1.0, 1.0, 201)
    f = (1.0 - x**2) ** (alpha / 2.0)
    exact = -(2.0**alpha) * gamma((1.0 + alpha) / 2.0) * gamma(1.0 + alpha / 2.0) / gamma(0.5)
    exact = exact * hyp2f1((1.0 + alpha) / 2.0, 0.0, 0.5, 0.0)
    found = hf.riesz(f, x, alpha, method=method, full_output=True)
    inside = np.abs(x) < 0.9
    assert (np.abs(found.value - exact)[inside] <= 3.0 * found.error_estimate[inside]).all()


def test_a_missing_estimate_has_a_reason():
    """Few samples, and a rule without an estimate."""
    assert "no error estimate" in hf.caputo(T[:2], T[:2], 0.5, method="l1", full_output=True).message
    periodic = np.linspace(0.0, 1.0, 16, endpoint=False)
    assert "no error estimate" in hf.weyl(np.sin(periodic), periodic, 0.5, full_output=True).message
    with pytest.raises(InvalidInputError):
        hf.Caputo(1.5, initial="slope")(T, T)


@pytest.mark.parametrize("alpha", [1.3, 2.4])
def test_the_start_of_samples_of_any_size(alpha: float):
    """Which fit is taken does not depend on the unit of f, and the dtype stays: single precision too."""
    f = solution(1.3)
    plain = hf.caputo(f, T, alpha)
    for size in (1e-300, 1e-170, 1e170, 1e280):
        np.testing.assert_allclose(hf.caputo(f * size, T, alpha) / size, plain, rtol=1e-6)
    single = hf.caputo(f.astype(np.float32), T, 1.3)
    for size in (1.0, 2.0**83, 2.0**-83):
        found = hf.caputo((f * size).astype(np.float32), T, 1.3)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found / np.float32(size), single, rtol=1e-4)
