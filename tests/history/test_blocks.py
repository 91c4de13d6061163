"""The blockwise history is the plain sum over the past."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from hpfracc.history import blocks as module
from hpfracc.history.blocks import BLOCK, DIRECT_BELOW, History


@pytest.mark.parametrize("n", [1, 7, 8, 9, 64, 65, 150])
@pytest.mark.parametrize("kind", [float, complex])
@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("engine", [False, True])
def test_every_pair_is_counted_once(
    n: int, kind: type, several: bool, engine: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks of 8 and the sums within them give ``s[n] + sum_{j<n} w[n-j] f_j``, for one order and for several."""
    monkeypatch.setattr(module, "ENGINE_FROM", 0)
    rng = np.random.default_rng(n)
    rows = 3
    distinct = 2 if several else 1
    which = np.array([0, 1, 0]) if several else None
    weights = rng.standard_normal((2, distinct, n))
    f = rng.standard_normal((rows, n)).astype(kind)
    if kind is complex:
        f = f + 1j * rng.standard_normal((rows, n))
    start = rng.standard_normal((2, rows, n)).astype(kind)
    index = which if which is not None else np.zeros(rows, int)
    expected = start.copy()
    for m in range(n):
        for j in range(m):
            expected[:, :, m] += weights[:, index, m - j] * f[:, j]

    sums, values = start.copy(), np.zeros_like(f)
    history = History(weights, which, values, sums, 8, engine=engine)
    for begin in range(0, n, 8):
        if begin:
            history.complete(begin)
        for m in range(begin, min(begin + 8, n)):
            for j in range(begin, m):
                sums[:, :, m] += weights[:, index, m - j] * values[:, j]
            values[:, m] = f[:, m]
    np.testing.assert_allclose(sums, expected, atol=1e-11 * n)


@pytest.mark.parametrize(
    ("steps", "history"),
    [(BLOCK - 1, "direct"), (BLOCK, "direct"), (DIRECT_BELOW, "direct"), (DIRECT_BELOW + 1, "fft")],
)
def test_a_solve_says_how_it_summed(steps: int, history: str):
    """By FFT beyond ``DIRECT_BELOW`` steps only, and not where all points happen to be as many as a block has."""
    found = hf.solve_fode(lambda t, y: -y, (0.0, 1.0), [1.0], 0.5, method="explicit_rectangle", step=1.0 / steps)
    assert found.decision.history == history


@pytest.mark.parametrize("steps", [2048, 2047 + BLOCK])
def test_long_contributions_are_computed_by_the_engine(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those with enough sums, unless a backend was asked for; the solution is the same to rounding."""
    calls: list[int] = []
    multiply = module.spectral_multiply

    def counted(symbol: Any, signal: Any, **options: Any) -> Any:
        calls.append(signal.shape[-1])
        return multiply(symbol, signal, **options)

    def solve(**options: Any) -> Any:
        calls.clear()
        step = 1.0 / steps
        return hf.solve_fode(lambda t, y: -y, (0.0, 1.0), [1.0, 2.0], 0.5, method="pece", step=step, **options).y

    monkeypatch.setattr(module, "spectral_multiply", counted)
    expected = solve()
    assert not calls
    monkeypatch.setattr(module, "ENGINE_FROM", 2 * 2 * 1024)  # two kinds of weights, two components
    found = solve()
    assert calls == [2048]
    np.testing.assert_allclose(found, expected, rtol=1e-13)
    solve(backend="numpy")
    assert not calls
    with hf.use_backend("numpy"):
        solve()
    assert not calls
