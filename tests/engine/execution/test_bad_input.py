"""Bad operands: typed errors that name the value and the remedy. An empty array is a valid array."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from hpfracc.errors import HpfraccError, InvalidInputError, ShapeError, UnsupportedDtypeError

X = np.arange(4.0)
BAD: list[tuple[Any, type[HpfraccError], str]] = [
    (lambda: hf.causal_convolution(X, np.float64(1.0)), ShapeError, "at least one axis"),
    (lambda: hf.causal_convolution(np.ones((2, 3)), np.ones((5, 3))), ShapeError, r"\(2,\).*\(5,\)"),
    (lambda: hf.causal_convolution(X, X.astype(object)), UnsupportedDtypeError, "object"),
    (lambda: hf.causal_convolution(X, X.astype(np.float16)), UnsupportedDtypeError, "float32"),
    (lambda: hf.matmul(np.ones((2, 3)), np.ones((2, 3))), ShapeError, "2, 3"),
    (lambda: hf.fft(X, kind="dct"), InvalidInputError, "kind='dct'"),
    (lambda: hf.fft(X, axis=3), InvalidInputError, "axis=3"),
    (lambda: hf.fft(X, n=0), InvalidInputError, "n=0"),
    (lambda: hf.reduction(X, kind="median"), InvalidInputError, "median"),
    (lambda: hf.elementwise("x +", x=X), InvalidInputError, "x +"),
    (lambda: hf.elementwise("__import__('os')", x=X), InvalidInputError, "__import__"),
    (lambda: hf.elementwise("x + y", x=X), InvalidInputError, "y"),
    (lambda: hf.bitwise_xor(X, X), UnsupportedDtypeError, "float64"),
    (lambda: hf.causal_convolution(X, X, backend="tensorflow"), InvalidInputError, "tensorflow"),
]


@pytest.mark.parametrize(("call", "error", "words"), BAD, ids=range(len(BAD)))
def test_refused_by_name(call: Any, error: type[Exception], words: str) -> None:
    """The message shows what was given; nothing is computed."""
    expected = (error, hf.errors.ConfigurationError) if words == "tensorflow" else error
    with pytest.raises(expected, match=words):
        call()


def test_empty_arrays_are_arrays() -> None:
    """No points, no rows, no weights: an answer of the right shape each time."""
    assert hf.causal_convolution(np.ones(3), np.empty(0)).shape == (0,)
    assert hf.causal_convolution(np.empty(0), X).tolist() == [0.0] * 4
    assert hf.causal_convolution(np.ones(3), np.empty((0, 5))).shape == (0, 5)
    assert hf.matmul(np.empty((0, 3)), np.empty((3, 2))).shape == (0, 2)
    assert hf.elementwise("x + 1", x=np.empty((2, 0))).shape == (2, 0)
    assert hf.bitwise_xor(np.empty(0, np.int8), np.empty(0, np.int8)).dtype == np.int8
    assert hf.reduction(np.empty(0)) == 0.0


def test_operands_by_name_are_those_by_position():
    """Operands given by name become arrays as those by position do; an optional one may be None."""
    x = [1.0, 2.0, 4.0]
    np.testing.assert_array_equal(hf.engine.fft(x=x), hf.engine.fft(x))
    found = hf.engine.causal_convolution(signal=x, weights=[1.0, 0.5], starts=None)
    np.testing.assert_allclose(found, [1.0, 2.5, 5.0])
    assert hf.engine.fft(x=[]).shape == (0,)
