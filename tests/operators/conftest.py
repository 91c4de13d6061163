"""Operators are compared with themselves to the last bit, so every call of a test takes the same arms."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import hpfracc as hf


@pytest.fixture(autouse=True)
def same_arms(fresh_state: None) -> Iterator[None]:
    with hf.config(deterministic=True):
        yield
