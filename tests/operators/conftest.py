"""Operators are compared with themselves to the last bit, so every call of a test takes the same arms.

Where slow tests are left out, Numba is too: its kernels would be compiled for every dtype that a test happens to use,
which takes seconds each. ``tests/conformance/`` has them all. A test that is about Numba asks for ``with_numba``.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import hpfracc as hf
from hpfracc import _config


@pytest.fixture
def with_numba() -> None:
    """Numba's kernels may be chosen."""


@pytest.fixture(autouse=True)
def same_arms(request: pytest.FixtureRequest, fresh_state: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if "with_numba" not in request.fixturenames and "not slow" in request.config.getoption("markexpr"):
        monkeypatch.setenv("HPFRACC_DISABLE_NUMBA", "1")
        _config.reset()
    with hf.config(deterministic=True):
        yield
