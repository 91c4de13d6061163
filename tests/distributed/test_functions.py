"""Hashes of functions: a changed captured value is noticed, an unchanged one is not, and the rest is named."""

from __future__ import annotations

import collections
import copy
import datetime
import decimal
import enum
import fractions
import functools
import os
import subprocess
import sys
import threading
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from hpfracc.distributed.functions import digest_of
from hpfracc.errors import InvalidInputError, StoreError
from tests.distributed import work


class Slotted:
    __slots__ = ("rate",)

    def __init__(self, rate: float) -> None:
        self.rate = rate


@dataclass
class Held:
    rate: Any


class Choice(enum.Enum):
    ONE = 1
    TWO = 2


class Settings:
    rate = 1.0


def nested(depth: int, value: Any) -> Any:
    for _ in range(depth):
        value = [value]
    return value


def numba_functions() -> tuple[Any, Any]:
    numba = pytest.importorskip("numba")
    return numba.njit(lambda x: x + 1.0), numba.njit(lambda x: x + 2.0)


def splines() -> tuple[Any, Any]:
    from scipy.interpolate import CubicSpline

    return CubicSpline([0, 1, 2], [0, 1, 4]), CubicSpline([0, 1, 2], [0, 1, 5])


def frames() -> tuple[Any, Any]:
    pandas = pytest.importorskip("pandas")
    return pandas.DataFrame({"a": [1.0, 2.0]}), pandas.DataFrame({"a": [1.0, 3.0]})


def labelled() -> tuple[Any, Any]:
    xarray = pytest.importorskip("xarray")
    return (xarray.Dataset({"a": ("x", [1, 2])}, {"x": [0, 1]}), xarray.Dataset({"a": ("x", [1, 2])}, {"x": [0, 2]}))


def tensors() -> tuple[Any, Any]:
    torch = pytest.importorskip("torch")
    return torch.ones(2, dtype=torch.bfloat16), torch.zeros(2, dtype=torch.bfloat16)


PAIRS: dict[str, Any] = {
    "frames": frames,
    "labelled": labelled,
    "splines": splines,
    "numba": numba_functions,
    "tensors": tensors,
    "fractions": (fractions.Fraction(1, 3), fractions.Fraction(1, 4)),
    "decimals": (decimal.Decimal("1.1"), decimal.Decimal("1.2")),
    "durations": (datetime.timedelta(1), datetime.timedelta(2)),
    "deques": (collections.deque([1, 2]), collections.deque([1, 3])),
    "slots": (Slotted(1.0), Slotted(2.0)),
    "fields": (Held(1), Held(2)),
    "choices": (Choice.ONE, Choice.TWO),
    "deep": (nested(100, 1), nested(100, 2)),
    "methods": (Held(1).__eq__, Held(2).__eq__),
    "partial": (functools.partial(max, 1), functools.partial(max, 2)),
    "cached": (functools.lru_cache(lambda x: x), functools.lru_cache(lambda x: 2 * x)),
    "masked": (np.ma.masked_array([1, 2], [0, 1]), np.ma.masked_array([1, 2], [1, 0])),
    "sets": ({"a", "b"}, {"a", "c"}),
    "objects": (np.array([1, "a"], object), np.array([1, "b"], object)),
    "generators": (np.random.default_rng(1), np.random.default_rng(2)),
    "zeros": (0.0, -0.0),
    "bools": (1, True),
    "namespaces": (types.SimpleNamespace(a=1), types.SimpleNamespace(a=2)),
}


def digest_with(value: Any) -> tuple[str, list[str]]:
    def function(x: float) -> Any:
        return x, value

    return digest_of(function)


@pytest.mark.parametrize("name", PAIRS)
def test_a_changed_captured_value_is_noticed(name: str):
    """And an equal copy is not another value."""
    one, two = PAIRS[name]() if callable(PAIRS[name]) else PAIRS[name]
    digest, uncompared = digest_with(one)
    assert digest != digest_with(two)[0] and uncompared == []
    if name not in ("numba", "cached"):  # functions are copied by reference
        assert digest == digest_with(copy.deepcopy(one))[0]


FACTOR = 1.0


class Model:
    def __call__(self, x: float) -> float:
        return self.scaled(x)

    def scaled(self, x: float) -> float:
        return FACTOR * x


def reads_module(x: float) -> float:
    return work.RATE * x  # type: ignore[attr-defined]


def imports_inside(x: float) -> float:
    from tests.distributed import work as here

    return here.RATE * x  # type: ignore[attr-defined]


def imports_value(x: float) -> float:
    from tests.distributed.work import RATE  # type: ignore[attr-defined]

    return RATE * x


def reads_class(x: float) -> float:
    return Settings.rate * x


@pytest.mark.parametrize("function", [reads_module, imports_inside, imports_value])
def test_attributes_of_modules_are_captured(function: Any, monkeypatch: pytest.MonkeyPatch):
    """Of modules that are globals, and of those imported inside the function."""
    monkeypatch.setattr(work, "RATE", 1.0, raising=False)
    before = digest_of(function)
    assert before == digest_of(function)
    monkeypatch.setattr(work, "RATE", 2.0)
    assert digest_of(function)[0] != before[0]


@pytest.mark.parametrize("function", [Model(), Model().scaled])
def test_globals_of_methods_are_captured(function: Any, monkeypatch: pytest.MonkeyPatch):
    """Of the method that is called and of those that it calls."""
    before = digest_of(function)
    monkeypatch.setattr(sys.modules[__name__], "FACTOR", 2.0)
    assert digest_of(function)[0] != before[0]


def test_class_attributes_are_captured(monkeypatch: pytest.MonkeyPatch):
    before = digest_of(reads_class)
    monkeypatch.setattr(Settings, "rate", 2.0)
    assert digest_of(reads_class)[0] != before[0]


def stable_digests() -> list[Any]:
    names = ("sets", "deques", "slots", "fields", "choices", "masked", "objects", "generators")
    return [*map(digest_with, map(PAIRS.__getitem__, names)), digest_of(Model()), digest_of(lambda x: x in {"a", "b"})]


def test_hashes_are_the_same_in_every_process():
    """Whatever the order of sets, and whether or not two values are one object."""
    here = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": os.pathsep.join([str(here / "src"), str(here)])}
    program = "from tests.distributed import test_functions as tests; print(tests.stable_digests())"
    found = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=True, text=True)
    assert found.stdout.strip() == str(stable_digests())


def test_what_cannot_be_compared_is_named_and_version_stands_for_it(tmp_path: Path):
    """A lock has no content: the result says so, here and read from the store; ``version=`` is compared instead."""
    lock = threading.Lock()

    def locked(x: float) -> float:
        with lock:
            return 2.0 * x

    items = hf.grid(x=[1.0, 2.0])
    result = hf.sweep(locked, items, store=tmp_path / "one")
    assert result.uncompared == ("lock (lock)",) and "could not be compared: lock (lock); give version=" in str(result)
    assert hf.distributed.open_sweep(tmp_path / "one").uncompared == ("lock (lock)",)
    result = hf.sweep(locked, items, store=tmp_path / "two", version=1)
    assert result.uncompared == ()
    assert hf.sweep(locked, items, store=tmp_path / "two", version=1).complete
    with pytest.raises(StoreError, match="differs in its function"):
        hf.sweep(locked, items, store=tmp_path / "two", version=2)
    with pytest.raises(InvalidInputError, match="version=1.5"):
        hf.sweep(locked, items, version=1.5)  # type: ignore[arg-type]


def test_old_and_new_results_are_not_mixed(tmp_path: Path):
    """A captured data frame that changed between two runs ends the second one."""
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"rate": [1.0]})

    def scaled(x: float) -> float:
        return float(table.rate[0] * x)

    def stop(progress: Any) -> None:
        raise KeyboardInterrupt

    items, store = hf.grid(x=np.arange(6.0)), tmp_path / "store"
    with pytest.raises(KeyboardInterrupt):
        hf.sweep(scaled, items, store=store, batch=3, progress=stop)
    table.loc[0, "rate"] = 10.0
    with pytest.raises(StoreError, match="differs in its function"):
        hf.sweep(scaled, items, store=store)
    table.loc[0, "rate"] = 1.0
    assert np.array_equal(hf.sweep(scaled, items, store=store).values, np.arange(6.0))
