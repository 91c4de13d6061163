"""Every public callable answers a wrong value with a typed error, or takes it: nothing raw comes from deep inside."""

from __future__ import annotations

import enum
import importlib
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from hpfracc import _lazy, noise, pde, profiling
from hpfracc.errors import HpfraccError

MODULES = [
    "hpfracc",
    *(f"hpfracc.{name}" for name in sorted(_lazy.modules("hpfracc") - {"errors", "operators", "solvers"})),
    "hpfracc.ml.jax",
    "hpfracc.solvers.ode",
    "hpfracc.solvers.ode_solvers",
]
#: None of these is what any argument wants, but for the few that take anything.
WRONG: dict[str, Any] = {
    "nothing": None,
    "an object": object(),
    "text": "no such thing",
    "bytes": b"x",
    "nan": float("nan"),
    "infinity": float("inf"),
    "a negative number": -1,
    "a complex number": 1j,
    "an empty list": [],
    "a dict": {"a": 1},
    "a set": {1, 2},
    "an array of text": np.array(["a", "b"]),
    "a class": int,
    "rows of two lengths": [[1, 2], [3]],
}
#: A few that each kind of reader meets; the others are in the slow set.
FEW = ("nothing", "an object", "text", "an array of text")

#: What the library makes and users read.
RECORDS = {
    profiling.Comparison,
    profiling.Span,
    hf.engine.Decision,
    hf.engine.Explanation,
    hf.SweepResult,
    noise.HoskingStream,
}
#: Parameters that take functions: a class is one, and what it raises is the caller's.
FUNCTIONS = {"fun", "func", "function", "drift", "diffusion", "progress", "events"}

T = np.linspace(0.0, 1.0, 17)
#: Right values for the other required arguments, by name.
RIGHT: dict[str, Any] = {
    "f": T, "t": T, "x": T, "y": T, "samples": T, "signal": T, "weights": T, "path": T, "data": T, "times": T,
    "alpha": 0.5, "order": 0.5, "hurst": 0.3, "z": 0.5, "a": 0.5, "b": 0.7, "n": 8,
    "y0": [1.0], "t_span": (0.0, 1.0), "fun": lambda t, y, *args: -y, "func": lambda t, y, *args: -y,
    "u0": np.sin(np.pi * T), "space": pde.Diffusion(1.0), "dimensions": 2, "size": 3, "name": "a",
    "operator": hf.Caputo(0.5), "drift": lambda t, y: -y, "diffusion": lambda t, y: 1.0, "step": 0.1,
}  # fmt: skip


def public_callables() -> Iterator[tuple[str, Callable[..., Any]]]:
    seen = set()
    for path in MODULES:
        try:
            module = importlib.import_module(path)
            values = {name: getattr(module, name) for name in getattr(module, "__all__", ())}
        except ImportError:
            continue  # needs a library that is not installed
        for name, value in values.items():
            others = inspect.isclass(value) and (issubclass(value, BaseException | enum.Enum) or value in RECORDS)
            if callable(value) and not others and id(value) not in seen:
                seen.add(id(value))
                yield f"{path}.{name}", value


CALLABLES = dict(public_callables())


def raw_errors(path: str, wrong: dict[str, Any]) -> list[str]:
    """Calls with one wrong argument that ended with an error which is not ours."""
    target = CALLABLES[path]
    try:
        parameters = inspect.signature(target).parameters.values()
    except (TypeError, ValueError):
        return []
    named = [each for each in parameters if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
    required = {each.name: RIGHT.get(each.name, 0.5) for each in named if each.default is each.empty}
    found = []
    for parameter in named:
        for words, value in wrong.items():
            if words == "a class" and parameter.name in FUNCTIONS:
                continue
            given = {**required, parameter.name: value}
            positional = [
                given.pop(each.name) for each in named if each.kind is each.POSITIONAL_ONLY and each.name in given
            ]
            try:
                target(*positional, **given)
            except HpfraccError:
                continue
            except Exception as error:
                found.append(f"{path}({parameter.name}={words}): {type(error).__name__}: {str(error)[:100]}")
    return found


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some wrong values are the name of a new folder."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", CALLABLES)
def test_a_wrong_value_is_refused_in_words(path: str):
    """A few wrong values for every argument."""
    assert raw_errors(path, {name: WRONG[name] for name in FEW}) == []


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", CALLABLES)
def test_every_wrong_value_is_refused_in_words(path: str):
    """All of them."""
    assert raw_errors(path, WRONG) == []
