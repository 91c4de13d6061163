"""An operation defined again has none of the old one's kernels, and the old one computes nothing any more."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

import hpfracc as hf
from hpfracc.engine.backends import registry
from hpfracc.engine.execution.operation import unregister
from hpfracc.errors import BackendUnavailableError, InvalidInputError

X = np.arange(5.0)
NAME = "operation_that_is_defined_again"


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    yield
    registry.remove_operation(NAME)
    unregister(NAME)


def scaled(factor: float) -> Callable[..., np.ndarray]:
    def scale(x: np.ndarray) -> np.ndarray:
        return x * factor

    return scale


def test_kernels_of_the_earlier_definition_are_gone() -> None:
    """A notebook's cell run again with another formula must not leave a kernel of the old one behind."""
    pytest.importorskip("torch")
    first = hf.operation(name=NAME)(scaled(2.0))
    first.kernel("torch")(scaled(2.0))
    again = hf.operation(name=NAME)(scaled(3.0))
    with pytest.raises(BackendUnavailableError, match="kernel not implemented"):
        again(X, backend="torch")
    for _ in range(50):
        np.testing.assert_array_equal(again(X), 3.0 * X)


def test_the_earlier_object_does_not_compute_what_the_later_one_does() -> None:
    """Two operations under one name: the first says so, rather than give the second's results."""
    first = hf.operation(name=NAME)(scaled(2.0))
    np.testing.assert_array_equal(first(X), 2.0 * X)
    hf.operation(name=NAME)(scaled(3.0))
    for array in (X, X[:3]):
        with pytest.raises(InvalidInputError, match="defined again.*rename"):
            first(array)
    with pytest.raises(InvalidInputError, match="defined again"):
        first.kernel("torch")(scaled(2.0))
