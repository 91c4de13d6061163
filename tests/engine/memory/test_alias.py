"""Writable looks at read-only memory."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

from hpfracc.engine.memory.alias import unlocked


@pytest.mark.parametrize("shape", [(), (0,), (7,), (3, 4)])
@pytest.mark.parametrize("dtype", ["float64", "complex64", "int16", "bool"])
def test_shares_the_memory(shape: tuple[int, ...], dtype: str):
    """What is written through the alias is seen in the array, whatever its shape and dtype."""
    owner = np.zeros((2, *shape), dtype)
    array = owner[0, ...]
    array.flags.writeable = False
    alias = unlocked(array)
    assert alias.flags.writeable
    assert (alias.shape, alias.dtype) == (array.shape, array.dtype)
    assert alias.strides == array.strides or not array.size
    alias[...] = 1
    assert (array == np.ones(shape, dtype)).all()


def test_keeps_the_memory_alive():
    """The alias outlives the last other reference to the array."""
    array = np.arange(1000.0)
    array.flags.writeable = False
    gone = weakref.ref(array)
    alias = unlocked(array)
    del array
    gc.collect()
    assert gone() is not None
    assert alias.sum() == 499_500


def test_a_writable_array_is_itself():
    """Nothing is wrapped that need not be."""
    array = np.zeros(3)
    assert unlocked(array) is array
