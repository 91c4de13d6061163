"""Every public callable answers a wrong value with a typed error, or takes it: nothing raw comes from deep inside."""

from __future__ import annotations

import contextlib
import datetime
import enum
import functools
import importlib
import inspect
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from hpfracc import _lazy, noise, pde, profiling
from hpfracc.errors import HpfraccError, OutOfMemoryError

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
#: Values that some arguments take, and that are odd everywhere else.
ODD: dict[str, Any] = {
    "a long integer": 10**400,
    "a long negative integer": -(10**400),
    "a size that no memory holds": 10**12,
    "the end of the floats": 1e308,
    "a decimal": Decimal("0.5"),
    "no decimal": Decimal("nan"),
    "a fraction": Fraction(1, 2),
    "True": True,
    "a time difference": datetime.timedelta(1),
    "a time difference of NumPy": np.timedelta64(3, "s"),
    "a date of NumPy": np.datetime64("2020-01-01"),
    "dates": np.array(["2020-01-01", "2020-01-02"], "M8[D]"),
    "masked": np.ma.array([1.0, 2.0], mask=[True, False]),
    "a masked number": np.ma.array(0.5, mask=True),
    "objects": np.array([None, 1.0], object),
    "flags": np.array([True, False]),
    "an array": np.array([0.5, 0.7]),
    "three axes": np.zeros((2, 2, 2)),
    "no entries": np.zeros(0),
    "an array with nan": np.array([np.nan, 1.0]),
    "a complex array": np.array([1j, 2.0]),
    "a short integer": np.int8(3),
    "a record": np.zeros(2, [("a", float)]),
    "a list of text": ["a"],
    "nested lists": [[[1]]],
    "a lone surrogate": "\ud800",
    "an array of bytes": bytearray(b"ab"),
    "a range": range(3),
}
#: A few that each kind of reader meets; the others are in the slow set.
FEW = ("nothing", "an object", "text", "an array of text")

#: What the library makes and users read.
RECORDS = {
    hf.transport.Estimate,
    profiling.Comparison,
    profiling.Span,
    hf.engine.Decision,
    hf.engine.Explanation,
    hf.SweepResult,
    noise.HoskingStream,
}
#: Parameters that take functions: a class is one, and what it raises is the caller's.
FUNCTIONS = {"fun", "func", "function", "drift", "diffusion", "progress", "events", "save"}

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


def calls(path: str, wrong: dict[str, Any]) -> Iterator[tuple[str, str, Callable[[], Any]]]:
    """Parameter, words and call for each wrong value of each argument, beside right ones."""
    target = CALLABLES[path]
    try:
        parameters = inspect.signature(target).parameters.values()
    except (TypeError, ValueError):
        return
    named = [each for each in parameters if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
    required = {each.name: RIGHT.get(each.name, 0.5) for each in named if each.default is each.empty}
    for parameter in named:
        for words, value in wrong.items():
            if words == "a class" and parameter.name in FUNCTIONS:
                continue
            given = {**required, parameter.name: value}
            positional = [
                given.pop(each.name) for each in named if each.kind is each.POSITIONAL_ONLY and each.name in given
            ]
            yield parameter.name, words, functools.partial(target, *positional, **given)


def raw_errors(path: str, wrong: dict[str, Any]) -> list[str]:
    """Calls with one wrong argument that ended with an error which is not ours."""
    found = []
    for parameter, words, call in calls(path, wrong):
        try:
            call()
        except HpfraccError:
            continue
        except Exception as error:
            found.append(f"{path}({parameter}={words}): {type(error).__name__}: {str(error)[:100]}")
    return found


#: Values whose meaning an array of numbers loses, and the arguments that may have them: points, and names of any kind.
LOSSY = {
    "masked": np.ma.array(T, mask=T > 0.5),
    "a masked number": np.ma.array(0.5, mask=True),
    "dates": np.arange("2020-01-01", "2020-01-18", dtype="M8[D]"),
    "time differences": np.arange(17).astype("m8[s]"),
    "a time difference": np.timedelta64(3, "s"),
}
TAKES = {
    "args",
    "name",
    "weights_key",
    "backend",
    "device",
    "size",
    "batchable",
    "memory",
    "work",
    "enable_auto_cleanup",
}


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some wrong values are the name of a new folder."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", CALLABLES)
def test_a_wrong_value_is_refused_in_words(path: str):
    """A few wrong values for every argument."""
    assert raw_errors(path, {name: WRONG[name] for name in FEW}) == []


@pytest.mark.parametrize(
    "call",
    [
        lambda: hf.batch.causal_convolution(LOSSY["masked"], T),
        lambda: hf.batch.elementwise("2*x", x=LOSSY["masked"]),
        lambda: hf.variable_order(T, T, LOSSY["a time difference"]),
        lambda: hf.mittag_leffler(-1.0, 0.5, LOSSY["dates"]),
        lambda: hf.mittag_leffler(-1.0, LOSSY["a time difference"]),
        lambda: hf.solve_fsde(lambda t, y: -y, LOSSY["a masked number"], (0.0, 1.0), [1.0], step=0.1),
    ],
)
def test_a_mask_or_a_unit_is_refused(call: Callable[[], Any]):
    """Computed with, masked values would count and time differences be numbers of some unit."""
    with pytest.raises(HpfraccError, match="masked array|time difference|real number here"):
        call()


@pytest.mark.parametrize(
    "call",
    [
        lambda: hf.special.grunwald_weights(0.5, 10**12),
        lambda: hf.solve_fsde(lambda t, y: -y, lambda t, y: 1.0, (0.0, 1.0), [1.0], step=1e-12, interpretation="ito"),
        lambda: hf.sweep(lambda a, b: a, hf.grid(a=np.arange(10**6), b=np.arange(10**10, 10**10 + 10**6), c=T)),
        lambda: hf.smooth_derivative(T, T, 0.5, nodes=10**12),
        lambda: hf.transport.labelled_tracks(3, 10**12),
        lambda: hf.transport.labelled_tracks(3, 10, dimensions=10**12),
    ],
)
def test_a_size_that_no_memory_holds_is_refused(call: Callable[[], Any]):
    """Before an array is made, with what it would need."""
    with pytest.raises(OutOfMemoryError, match=r"needs .* and this machine has"):
        call()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: hf.control.pade(1e308), "another unit of time"),
        (lambda: hf.control.FOPIDController(T, 0.1, (0.0, 1.0), 1.0, 0.0, False), r"call FOPID\(...\).controller"),
        (lambda: hf.sweep(lambda a: a, LOSSY["a masked number"]), "not parameters"),
        (
            lambda: hf.solve_fsde(lambda t, y: -y, lambda t, y: 1.0, (0.0, 1.0), [1.0], step=0.1, correlation=10**400),
            "a matrix of numbers",
        ),
    ],
)
def test_odd_values_are_named(call: Callable[[], Any], words: str):
    """What no number can hold, and what is of another kind."""
    with pytest.raises(HpfraccError, match=words):
        call()


@pytest.mark.parametrize("sizes", [(10**12, 3), (3, 10**12), (10**7, 10**7)])
def test_layers_that_no_memory_holds_are_refused(sizes: tuple[int, int]):
    ml = pytest.importorskip("hpfracc.ml")
    for layer in (ml.FractionalLSTM, ml.FractionalRNN):
        with pytest.raises(OutOfMemoryError, match="this machine has"):
            layer(*sizes, 0.5)


def numerical_functions() -> list[str]:
    """Functions of samples, numbers and equations; classes look at their arguments when they are used."""
    rooms = ("hpfracc", "hpfracc.special", "hpfracc.engine", "hpfracc.batch", "hpfracc.noise", "hpfracc.pde")
    makers = ("create_fractional_derivative", "create_fractional_integral", "operation")
    named = [path for path in CALLABLES if path.rpartition(".")[0] in rooms and path.rpartition(".")[2] not in makers]
    return [path for path in named if not inspect.isclass(CALLABLES[path])]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", numerical_functions())
def test_masks_and_units_are_never_dropped(path: str):
    """A masked array, a date or a time difference is refused, or is what the argument wants."""
    found = []
    for parameter, words, call in calls(path, LOSSY):
        if parameter not in TAKES and not (parameter == "t" and "mask" not in words):
            with contextlib.suppress(HpfraccError, TypeError):
                call()
                found.append(f"{path}({parameter}={words})")
    assert found == []


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("room", sorted({path.rpartition(".")[0] for path in CALLABLES}))
def test_one_odd_value_of_a_thousand_at_most_ends_in_a_raw_error(room: str):
    """Long integers, decimals, dates, masks, flags in arrays and sizes that no memory holds, for every argument."""
    paths = [path for path in CALLABLES if path.rpartition(".")[0] == room]
    found = [each for path in paths for each in raw_errors(path, ODD)]
    count = sum(1 for path in paths for _ in calls(path, ODD))
    assert len(found) <= 1e-3 * count, found


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", CALLABLES)
def test_every_wrong_value_is_refused_in_words(path: str):
    """All of them."""
    assert raw_errors(path, WRONG) == []
