"""Random functions, compiled where they are accepted, against Python: no number may differ beyond rounding."""

from __future__ import annotations

import importlib.util
import linecache
import math
import random
import sys
import warnings
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from hpfracc.solvers.ode.compiled.reading import BoundSource, read_function

SHAPE = (3,)
ARGS = (0.75, np.float64(-1.25), 2)

#: What the functions capture; some of it may not be.
PRELUDE = """
import math
import random
import numpy as np
from math import sqrt

RATE, NEGATIVE, WHOLE, FLAG, PAIR = 0.5, -2.0, 3, True, (1.5, 2)
TABLE, LIST, DICT = np.array([1.0, 2.0, 3.0]), [1.0, 2.0], {"a": 1.0}

def helper(x, z=2.0):
    if x > z:
        return x - z
    return x * RATE

def partly(x):
    if x > 0.0:
        found = x
    return found
"""

MATH = ("sin", "cos", "tan", "exp", "log", "sqrt", "atan", "tanh", "asin", "acosh", "atanh", "log1p", "expm1", "fabs",
        "floor", "gamma", "erf", "sinh")  # fmt: skip
UFUNCS = ("sin", "cos", "exp", "log", "sqrt", "arctan", "tanh", "abs", "sign", "floor", "square", "log1p", "arcsin",
          "rint", "cbrt", "negative", "reciprocal")  # fmt: skip
BINARY = ("+", "-", "*", "/", "**", "%", "//")
PAIRS = ("maximum", "minimum", "arctan2", "hypot", "power", "copysign", "multiply", "divide", "fmod")


class Writer:
    """Writes functions in a language that is larger than the accepted one."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.names: list[str] = []
        self.arrays: list[str] = []

    def pick(self, *choices: str) -> str:
        return self.rng.choice(choices)

    def number(self, depth: int) -> str:
        """An expression that is mostly a number."""
        rng = self.rng
        if depth <= 0 or rng.random() < 0.15:
            index = rng.choice((0, 1, 2, 0, 1, 2, -1, -3, 3))
            leaves = ["t", "t", f"y[{index}]", f"y[{index}]", f"y[..., {index}]", "a", "b", "whole", "RATE", "NEGATIVE",
                      "WHOLE", "PAIR[0]", "PAIR[1]", "0.0", "-0.0", "2", "3", "0.5", "1e-3", "7.25", "math.pi", "1e200",
                      *self.names, *self.names]  # fmt: skip
            if rng.random() < 0.02:
                leaves = ["TABLE[1]", "LIST[0]", "DICT['a']", "int(t)", "np.random.rand()", "random.random()", "FLAG",
                          "unbound", "len(LIST)", "y.size", "np.float32(t)", "partly(y[0])", "complex(t)"]  # fmt: skip
            return rng.choice(leaves)
        one, two = self.number(depth - 1), self.number(depth - 1)
        kind = rng.random()
        if kind < 0.45:
            return f"({one} {self.pick(*BINARY, '+', '-', '*', '*', '/')} {two})"
        if kind < 0.53:
            return f"math.{self.pick(*MATH)}({one})"
        if kind < 0.63:
            return f"np.{self.pick(*UFUNCS)}({one})"
        if kind < 0.68:
            return f"np.{self.pick(*PAIRS)}({one}, {two})"
        if kind < 0.73:
            return f"({one} if {self.condition(depth - 1)} else {two})"
        if kind < 0.77:
            return f"{self.pick('max', 'min', 'math.pow', 'pow', 'math.atan2', 'math.hypot')}({one}, {two})"
        if kind < 0.81:
            return f"{self.pick('abs', 'float', 'helper', 'sqrt', 'round', 'int', 'np.float64')}({one})"
        if kind < 0.84:
            return f"(-{one})"
        if kind < 0.87:
            return f"np.sum({self.array(depth - 1)})"
        if kind < 0.89:
            return f"sum({self.pick('y[i] * 2 for i in range(3)', 'x for x in y', '[t, 1.0]', 'y', 'zip(y, y)')})"
        if kind < 0.91:
            return f"np.where({self.condition(depth - 1)}, {one}, {two})"
        if kind < 0.93:
            return f"({self.condition(depth - 1)}) * {one}"
        if kind < 0.95:
            return f"np.clip({one}, {self.pick('-1.0', '0', 'a')}, {self.pick('1.0', '2', 'y[0]')})"
        if kind < 0.97:
            return f"np.dot({self.array(depth - 1)}, y)"
        return f"({one} {self.pick('or', 'and')} {two})"

    def condition(self, depth: int) -> str:
        one, two, three = self.number(depth - 1), self.number(depth - 1), self.number(depth - 1)
        return self.pick(f"{one} {self.pick('<', '<=', '>', '>=', '==', '!=')} {two}", f"{one} < {two} < {three}",
                         f"not {one} > {two}", f"{one} > {two} and {two} > {three}", f"{one} == 0 or {two} < 1", one,
                         f"math.isnan({one})", f"y > {one}")  # fmt: skip

    def array(self, depth: int) -> str:
        """An expression that is mostly an array of the state's shape."""
        if depth <= 0 or self.rng.random() < 0.2:
            return self.pick("y", "y", "-y", "y[::-1]", "np.roll(y, 1)", "np.ones(3)", "y[:2]", "y[1:]", "y.copy()",
                             "TABLE" if self.rng.random() < 0.02 else "y", *self.arrays, *self.arrays)  # fmt: skip
        one, two = self.array(depth - 1), self.number(depth - 1)
        return self.pick(
            f"({one} {self.pick(*BINARY)} {two})",
            f"({two} {self.pick(*BINARY)} {one})",
            f"({one} {self.pick('+', '-', '*', '/', '**')} {self.array(depth - 1)})",
            f"np.{self.pick(*UFUNCS)}({one})",
            f"np.{self.pick(*PAIRS)}({one}, {two})",
            f"np.array([{two}, {self.number(depth - 1)}, {self.number(depth - 1)}])",
            f"np.stack([{two}, {self.number(depth - 1)}, y[0]])",
            f"np.where({one} > {two}, {self.array(depth - 1)}, {two})",
            f"np.concatenate([{one}[:2], y[:1]])",
            f"[{two}, y[1], {self.number(depth - 1)}]",
            f"np.array([{two} * v for v in y])",
            f"({one} > {two}) * y",
            f"np.asarray({one})",
        )

    def statements(self, indent: str, depth: int) -> list[str]:
        """Some lines."""
        rng, lines = self.rng, []
        for _ in range(rng.randint(1, 3)):
            kind, name = rng.random(), f"x{rng.randint(0, 3)}"
            if kind < 0.4:
                lines.append(f"{indent}{name} = {self.number(3)}")
                self.names.append(name)
            elif kind < 0.5:
                array = f"w{rng.randint(0, 1)}"
                made = self.pick("np.zeros(3)", "np.empty_like(y)", "np.zeros_like(y)", self.array(2))
                lines.append(f"{indent}{array} = {made}")
                lines += [
                    f"{indent}{array}[{n}] {self.pick('=', '=', '+=')} {self.number(2)}"
                    for n in range(rng.randint(0, 3))
                ]
                self.arrays.append(array)
            elif kind < 0.6 and self.names:
                lines.append(f"{indent}{rng.choice(self.names)} {self.pick('+=', '*=', '-=')} {self.number(2)}")
            elif kind < 0.64:
                lines.append(
                    f"{indent}{self.pick('y', *(self.arrays or ['y']))} {self.pick('+=', '*=')} {self.number(1)}"
                )
            elif kind < 0.7:
                lines.append(f"{indent}x0, x1, x2 = {self.pick('y', 'y * t', '(t, a, 1.0)', '(float(v) for v in y)')}")
                self.names += ["x0", "x1", "x2"]
            elif kind < 0.85 and depth:
                lines.append(f"{indent}if {self.condition(2)}:")
                lines += self.statements(indent + "    ", depth - 1)
                if rng.random() < 0.7:
                    lines.append(f"{indent}else:")
                    lines += self.statements(indent + "    ", depth - 1)
            elif kind < 0.93 and depth:
                head = self.pick(
                    "i in range(2)", "i in range(len(y))", "i, x0 in enumerate(y)", "x0 in y", "i in range(0)"
                )
                lines.append(f"{indent}for {head}:")
                lines += self.statements(indent + "    ", 0)
            else:
                last = self.pick("pass", "raise ValueError('no')", "assert t < 2.0", "global RATE", "print('', end='')")
                lines.append(indent + (last if rng.random() < 0.3 else "pass"))
        return lines

    def function(self, name: str) -> str:
        self.names, self.arrays = [], []
        lines = [f"def {name}(t, y, a, b, whole):"]
        if self.rng.random() < 0.7:
            lines += self.statements("    ", 2)
        if not any("global" in line for line in lines):
            lines.append(f"    return {self.array(3)}")
        else:
            lines = [lines[0], "    return y"]
        return "\n".join(lines)


def make_module(source: str, folder: Path, name: str) -> ModuleType:
    path = folder / f"{name}.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        spec.loader.exec_module(module)
    linecache.checkcache(str(path))
    return module


def in_python(function: Any, t: float, y: Any) -> Any:
    """The value, or the exception."""
    try:
        value = np.asarray(function(t, y.copy(), *ARGS))
    except Exception as error:
        return error
    return value


SMOOTH = {
    **{
        name: getattr(np, name)
        for name in [
            "sin",
            "cos",
            "tan",
            "sinh",
            "cosh",
            "tanh",
            "exp",
            "expm1",
            "log",
            "log10",
            "log1p",
            "log2",
            "sqrt",
            "hypot",
        ]
    },
    **{name: getattr(np, f"arc{name[1:]}") for name in ["asin", "acos", "atan", "atan2", "asinh", "acosh", "atanh"]},
    **{name: getattr(math, name) for name in ["gamma", "lgamma", "erf", "erfc"]},
    "hypot": np.hypot,
    "pow": np.power,
}
EXACT = {
    **{name: getattr(np, name) for name in ["fmod", "copysign", "isfinite", "floor", "ceil", "trunc", "rint", "fabs"]},
    "nan": np.float64(np.nan),
    "inf": np.inf,
}


def interpreter(bound: BoundSource, noise: random.Random | None) -> Any:
    """The generated source, run by Python on NumPy's numbers; ``noise`` disturbs the last digits."""

    def loose(function: Any) -> Any:
        def apply(*values: Any) -> Any:
            try:
                found = np.float64(function(*(np.float64(value) for value in values)))
            except (ArithmeticError, ValueError):
                found = np.float64(np.nan)
            return found if noise is None else found * (1.0 + 4e-16 * noise.uniform(-1.0, 1.0))

        return apply

    lines = []
    for line in bound.source.splitlines():
        text = line.lstrip()
        lines.append(f"    {line[: len(line) - len(text)]}{'return' if text == 'bail' else text}")
    scope: dict[str, Any] = {**{name: loose(each) for name, each in SMOOTH.items()}, **EXACT}
    exec("def call(t, y, p, out):\n" + "\n".join(lines), scope)
    parameters = [np.float64(value) for value in bound.parameters]

    def run(t: float, y: Any) -> Any:
        out: list[Any] = [np.nan] * math.prod(SHAPE)
        try:
            scope["call"](np.float64(t), [np.float64(value) for value in y], parameters, out)
        except ZeroDivisionError:  # of two constants, which are not NumPy's here
            return np.full(SHAPE, np.nan)
        return np.array(out, dtype=float).reshape(SHAPE)

    return run


POINTS = [
    (0.0, np.array([0.0, -0.0, 1.0])),
    (1.0, np.array([1.0, -1.0, 2.0])),
    (0.3, np.array([0.7, -1.9, 0.01])),
    (2.5, np.array([-3.2, 0.4, 5.5])),
    (12.75, np.array([1e160, -1e-170, 3.0])),
    (3.0, np.array([2.0, 3.0, -2.0])),
]


def check(module: ModuleType, name: str, counts: Counter[str], *, compiled: bool) -> None:
    """Compare one function at all points, and count what happened."""
    function = getattr(module, name)
    bound = read_function(function, ARGS, SHAPE, SHAPE, np.float64)
    if isinstance(bound, str):
        counts["refused"] += 1
        return
    counts["accepted"] += 1
    plain, disturbed = interpreter(bound, None), interpreter(bound, random.Random(1))
    found_by = plain
    if compiled:
        from hpfracc.solvers.ode.compiled.functions import compile_bound

        machine = compile_bound(bound, SHAPE, SHAPE)
        found_by = lambda t, y: machine(t, y, SHAPE)  # noqa: E731
    for t, y in POINTS:
        wanted = in_python(function, t, y)
        found = found_by(t, y)
        if not np.isfinite(found).all():  # the solver evaluates it in Python
            failed = isinstance(wanted, Exception) or not np.isfinite(wanted).all()
            counts["left to Python" if failed else "left to Python needlessly"] += 1
            continue
        where = f"{name} at t={t}, y={y}:\n{bound.source}"
        assert not isinstance(wanted, Exception), f"{wanted!r} is lost in {where}"
        assert wanted.shape == SHAPE and wanted.dtype.kind in "fiu", where
        near = np.stack([disturbed(t, y) for _ in range(6)])
        spread = np.max(np.abs(near - plain(t, y)), axis=0)
        allowed = 1e-13 * np.abs(wanted) + 30.0 * np.where(np.isfinite(spread), spread, np.inf) + 1e-300
        assert np.all(np.abs(found - wanted) <= allowed), f"{found} is not {wanted} in {where}"
        counts["compared"] += 1


def campaign(count: int, seed: int, folder: Path, *, compiled: bool) -> Counter[str]:
    writer, counts = Writer(random.Random(seed)), Counter[str]()
    functions = [writer.function(f"f{n}") for n in range(count)]
    module = make_module(PRELUDE + "\n\n" + "\n\n".join(functions) + "\n", folder, f"random_functions_{seed}")
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for n in range(count):
            check(module, f"f{n}", counts, compiled=compiled)
    sys.modules.pop(module.__name__, None)
    return counts


def test_what_is_read_means_the_same(tmp_path: Path):
    """Hundreds of functions: what was written down for those accepted, run by Python, gives Python's numbers."""
    counts = campaign(200, 1, tmp_path, compiled=False)
    assert counts["accepted"] > 30 and counts["refused"] > 30 and counts["compared"] > 100, counts
    assert counts["left to Python needlessly"] < 0.1 * counts["compared"], counts


def test_some_are_the_same_when_compiled(tmp_path: Path):
    """A few of them, compiled by Numba."""
    pytest.importorskip("numba")
    counts = campaign(12, 2, tmp_path, compiled=True)
    assert counts["accepted"] >= 2 and counts["compared"] >= 5, counts


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("seed", range(100, 110))
def test_thousands_are_the_same_when_compiled(seed: int, tmp_path: Path):
    """Ten times 500 functions, each compared at six points, among them zeros of both signs and overflowing states."""
    pytest.importorskip("numba")
    counts = campaign(500, seed, tmp_path, compiled=True)
    print(f"\nseed {seed}: {dict(counts)}")
    assert counts["accepted"] > 100 and counts["compared"] > 300, counts


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_tens_of_thousands_mean_the_same(tmp_path: Path):
    """As the quick test, for 20,000 functions."""
    counts = Counter[str]()
    for seed in range(1000, 1020):
        counts += campaign(1000, seed, tmp_path, compiled=False)
    print(f"\n{dict(counts)}")
    assert counts["accepted"] > 4000 and counts["compared"] > 10_000, counts
