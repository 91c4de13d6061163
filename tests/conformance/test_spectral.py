"""What the kernels of spectral multiplication and of the Toeplitz product have in common, beyond the right answers."""

from __future__ import annotations

import numpy as np
import pytest

import hpfracc as hf
from hpfracc.engine.primitives import PRIMITIVES
from tests.helpers.conformance import Subject, each, solved
from tests.helpers.contracts import reference
from tests.helpers.tolerance import bound, disagreement

TOEPLITZ, SPECTRAL = "toeplitz_apply", "spectral_multiply"
PREPARED_CASES = {
    TOEPLITZ: ("two axes", "short weights", "no taps", "broadcast weights", "no rows", "along the first axis"),
    SPECTRAL: ("mixed", "a Hermitian symbol", "dst1 batched", "half a symbol", "fft of no rows"),
}


@each(TOEPLITZ, SPECTRAL, prepared=True)
def test_a_prepared_operand_gives_the_same_answer(subject: Subject) -> None:
    """What is kept changes the time, not the result, however operands broadcast."""
    names = PREPARED_CASES[subject.spec.primitive][: 2 if subject.spec.compiles == "shape" else None]
    found = 0
    for solution in solved(subject.spec.primitive, "float64"):
        case, call = solution.case, solution.call
        if case.name not in names or not subject.serves(call):
            continue
        found += 1
        result = subject.run_prepared(call, case.arrays, case.params)
        words = disagreement(result, solution.answer, bound(call, case.arrays, case.params, solution.answer))
        assert words is None, case.name
    assert found


@pytest.mark.parametrize("name", [TOEPLITZ, SPECTRAL])
def test_a_key_serves_every_shape_of_call(name: str) -> None:
    """The same weights under one key, used along one axis and along another: nothing kept is mistaken for the other."""
    operation = getattr(hf, name)
    weights = np.add.outer(np.arange(6.0) ** 2, np.cos(np.arange(6.0)))
    weights = weights + weights[np.ix_(-np.arange(6), -np.arange(6))]
    signal = np.random.default_rng(1).standard_normal((6, 6))
    for axes in ((0, 1), (1,), (0,), (1, 0)):
        expected = reference(PRIMITIVES[name], weights, signal, axes=axes)
        for _ in range(2):
            found = operation(weights, signal, axes=axes, weights_key=("a test", 6))
            np.testing.assert_allclose(found, expected, atol=1e-11)
    for wider in (signal[:, :5], signal[:5]) if name == TOEPLITZ else ():
        found = operation(weights, wider, axes=(0, 1), weights_key=("a test", 6))
        np.testing.assert_allclose(found, reference(PRIMITIVES[name], weights, wider, axes=(0, 1)), atol=1e-11)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("taps", [30, 6])
@each(TOEPLITZ)
def test_bad_samples_reach_only_their_neighbours(subject: Subject, taps: int, bad: float) -> None:
    """A bad sample reaches every output whose sum involves it, on both sides, and leaves all others right."""
    weights = np.random.default_rng(1).standard_normal(taps)
    signal = np.random.default_rng(2).standard_normal((3, 30))
    call = PRIMITIVES[TOEPLITZ].describe(weights, signal)
    answer = reference(PRIMITIVES[TOEPLITZ], weights, signal)
    allowed = bound(call, (weights, signal), {}, answer)
    signal[1, 11] = bad
    touched = np.zeros(signal.shape, bool)
    touched[1, max(0, 12 - taps) : 11 + taps] = True
    result = subject.run(call, (weights, signal), {})
    assert not np.isfinite(result[touched]).any()
    assert disagreement(np.where(touched, 0, result), np.where(touched, 0, answer), allowed) is None


@each(SPECTRAL)
def test_a_bad_sample_spoils_its_own_transform_only(subject: Subject) -> None:
    """Every output of a transform involves every sample; other rows stay as they are."""
    symbol, signal = np.ones(8), np.random.default_rng(3).standard_normal((3, 8))
    signal[1, 2] = np.nan
    for kind in ("fft", "dct2", "dst1"):
        call = PRIMITIVES[SPECTRAL].describe(symbol, signal, kinds=kind)
        result = subject.run(call, (symbol, signal), {"kinds": kind})
        assert np.isnan(result[1]).all()
        np.testing.assert_allclose(result[[0, 2]], signal[[0, 2]], atol=1e-14)


@pytest.mark.parametrize("kind", ["fft", "dct1", "dct2", "dst1", "dst2"])
def test_symbols_are_eigenvalues(kind: str) -> None:
    """Each wave of the documented table is multiplied by its own element of the symbol."""
    n = 9
    j, k = np.arange(n), np.arange(n)[:, None]
    waves = {
        "fft": np.exp(2j * np.pi * k * j / n),
        "dct1": np.cos(np.pi * k * j / (n - 1)),
        "dct2": np.cos(np.pi * k * (j + 0.5) / n),
        "dst1": np.sin(np.pi * (k + 1) * (j + 1) / (n + 1)),
        "dst2": np.sin(np.pi * (k + 1) * (j + 0.5) / n),
    }[kind]
    symbol = 1.0 + np.arange(n) ** 2
    np.testing.assert_allclose(hf.spectral_multiply(symbol, waves, kinds=kind), symbol[:, None] * waves, atol=1e-12)
