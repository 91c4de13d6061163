"""Arrays of libraries that are not ours are refused: a result would be of another library without a word."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from hpfracc.errors import UnsupportedDtypeError


class Array:
    """What the array API standard asks for, as far as NumPy would read it."""

    def __init__(self, values: Any) -> None:
        self.values = np.asarray(values)
        self.dtype, self.shape, self.ndim = self.values.dtype, self.values.shape, self.values.ndim

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        return np

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return self.values

    def __len__(self) -> int:
        return len(self.values)


def strict(values: Any) -> Any:
    return pytest.importorskip("array_api_strict").asarray(values)


@pytest.mark.parametrize("make", [Array, strict])
@pytest.mark.parametrize(
    "call",
    [
        lambda x: hf.caputo(x, step=0.1, alpha=0.5),
        lambda x: hf.Caputo(0.5)(np.ones(9), x),
        lambda x: hf.Caputo(0.5).stream(step=0.1).push(x),
        lambda x: hf.fractional_difference(x, 0.4),
        lambda x: hf.mittag_leffler(x, 0.5),
        lambda x: hf.solve_fode(lambda t, y: -y, (0.0, 1.0), x, 0.5, step=0.1),
        lambda x: hf.causal_convolution(x, np.ones(9)),
        lambda x: hf.control.step_response(1 / (hf.control.s + 1), x),
    ],
)
def test_arrays_of_another_library_are_refused(call: Callable[[Any], Any], make: Callable[[Any], Any]):
    """By a sentence that names the library and what to do, where NumPy would take them as its own."""
    library = "tests" if make is Array else "array_api_strict"
    with pytest.raises(UnsupportedDtypeError, match=rf"array of {library}.*np\.asarray\(\.\.\.\)"):
        call(make(np.linspace(0.1, 0.9, 9)))
