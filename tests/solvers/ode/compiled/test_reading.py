"""Which right-hand sides are compiled unasked: only those whose numbers cannot differ from Python's beyond rounding."""

from __future__ import annotations

import ast
import functools
import importlib
import math
import re
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from examples import fractional_brusselator
from hpfracc.errors import ShapeError
from hpfracc.solvers.ode import problems
from hpfracc.solvers.ode.compiled.reading import BoundSource, read_function
from hpfracc.solvers.ode.fixed import stepping
from hpfracc.solvers.ode.fixed import walk as fixed_solve
from tests.helpers.thinned import thinned

pytest.importorskip("numba")

ROOT = Path(__file__).parents[4]
EQUATIONS = {
    make.__name__: make()
    for make in (
        problems.bagley_torvik,
        problems.brusselator,
        problems.diethelm,
        problems.duffing,
        problems.lorenz,
        problems.lotka_volterra,
        problems.pharmacokinetics,
        problems.relaxation,
        problems.viscoelastic_oscillator,
    )
}

RATE, TABLE, LIST, STATE = 1.0, np.array([1.0, 2.0]), [1.0], {"rate": 1.0}


def read(fun: Any, args: tuple[Any, ...] = (), d: int = 2) -> BoundSource | str:
    return read_function(fun, args, (d,), (d,), np.float64)


# -- what is accepted -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EQUATIONS)
def test_the_library_s_problems_are_compiled(name: str):
    """Right-hand side and Jacobian of each; and the solve says so."""
    equation = EQUATIONS[name]
    d = equation.y0.size
    assert isinstance(read(equation.fun, (), d), BoundSource)
    assert equation.jac is not None and isinstance(
        read_function(equation.jac, (), (d,), (d, d), np.float64), BoundSource
    )


@pytest.mark.parametrize("method", ["pece", pytest.param("implicit_trapezoid", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["duffing", pytest.param("pharmacokinetics", marks=pytest.mark.slow)])
def test_a_problem_is_solved_by_its_compiled_functions(name: str, method: str):
    """By default once it pays, here because Numba is asked for; the same solution as in Python."""
    equation = EQUATIONS[name]
    arguments = (equation.fun, (0.0, 1.0), equation.y0, equation.alpha)
    options = {"method": method, "step": 0.01, "jac": equation.jac}
    found = hf.solve_fode(*arguments, **options, backend="numba")
    assert found.decision.compiled  # type: ignore[union-attr]
    np.testing.assert_allclose(found.y, hf.solve_fode(*arguments, **options, compile=False).y, rtol=1e-11)


def test_those_of_benchmarks_and_examples_are_compiled(monkeypatch: pytest.MonkeyPatch):
    """All of them."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    benchmark = importlib.import_module("ode")
    functions = {name: entry[0] for name, entry in benchmark.ADAPTIVE.items()}
    functions["example"] = fractional_brusselator.brusselator
    assert {name for name, fun in functions.items() if not isinstance(read(fun), BoundSource)} == set()


def documented() -> dict[str, tuple[Any, int]]:
    """Right-hand sides of NumPy problems in the documentation, by page and text, with the size of their state."""
    found: dict[str, tuple[str, int]] = {}
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    for page in (each for each in pages if each.name != "ensembles-and-gradients.md"):  # of other libraries
        for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
            for node in ast.walk(ast.parse(textwrap.dedent(block))):
                if isinstance(node, ast.FunctionDef | ast.Lambda) and [each.arg for each in node.args.args] == [
                    "t",
                    "y",
                ]:
                    text = ast.unparse(node)
                    returns_number = page.name == "solve-equations.md" and "- 0.5" in text  # an event
                    if not returns_number and "torch" not in text and "jnp" not in text:
                        found[f"{page.name}: {text}"] = (text, 3 if "y[2]" in text else 2 if "y[1]" in text else 1)
    return found  # type: ignore[return-value]


def test_those_of_the_documentation_are_compiled(tmp_path: Path):
    """All but those that hold an array, which can change, or call what is not among the known functions."""
    names: dict[str, str] = {}
    lines = ["import math", "import numpy as np", "matrix = table = fall = np.eye(1)", "rate = 2.0", ""]
    for n, (key, (text, _)) in enumerate(documented().items()):
        lines.append(f"f{n} = {text}" if text.startswith("lambda") else re.sub(r"def \w+", f"def f{n}", text, count=1))
        names[key] = f"f{n}"
    path = tmp_path / "documented_functions.py"
    path.write_text("\n".join(lines) + "\n")
    space: dict[str, Any] = {"__name__": "documented_functions"}
    exec(compile(path.read_text(), str(path), "exec"), space)
    refused = {
        key for key, (_, d) in documented().items() if not isinstance(read(space[names[key]], (), d), BoundSource)
    }
    known = ("matrix", "table", "fall", "np.pad", "drift(y)", "net(y)", "peak", "KeyboardInterrupt")
    assert len(names) > 8
    assert {key for key in refused if not any(word in key for word in known)} == set()


def changing(t: float, y: Any) -> Any:
    out = np.zeros_like(y)
    for i in range(len(y)):
        out[i] = -y[i] * (i + 1)
    out[1] += math.sqrt(t) if t > 0.5 else 0.0
    return out


def test_arrays_made_inside_may_be_written():
    """Loops of known length, elements set one by one, conditions."""
    bound = read(changing)
    assert isinstance(bound, BoundSource)


def test_captured_numbers_are_parameters():
    """The next function with another number is not compiled again."""

    def made(rate: float) -> Any:
        return lambda t, y: -rate * y

    one, other = read(made(1.0)), read(made(2.0))
    assert isinstance(one, BoundSource) and isinstance(other, BoundSource)
    assert one.source == other.source and (one.parameters, other.parameters) == ((1.0,), (2.0,))


def run(bound: BoundSource, t: float, y: Any) -> Any:
    """The generated source, run by Python."""
    scope: dict[str, Any] = {name: getattr(math, name) for name in ("sin", "sqrt", "isfinite", "copysign", "fmod")}
    body = textwrap.indent(bound.source.replace("bail", "return"), "    ")
    exec(f"def call(t, y, p, out):\n{body}", scope)
    out = np.full(len(y), np.nan)
    scope["call"](t, y, bound.parameters, out)
    return out


def in_place(t: float, y: Any) -> Any:
    y *= 2.0
    return -y


def in_place_view(t: float, y: Any) -> Any:
    first = y[..., 0]
    first += 1.0
    return -y


def aliased(t: float, y: Any) -> Any:
    out = np.zeros(2)
    view = out[:1]
    out[0] = t
    return np.array([view[0], y[1]])


def unset(t: float, y: Any) -> Any:
    out = np.empty_like(y)
    out[0] = t
    return out


def endless(t: float, y: Any) -> Any:
    return endless(t, y)


def with_default(t: float, y: Any, table: Any = LIST) -> Any:
    return -table[0] * y


def globally(t: float, y: Any) -> Any:
    global RATE
    RATE = 1.0
    return -y


def twice(t: float, y: Any) -> Any:
    values = zip(y, y, strict=True)
    return np.array([sum(a * b for a, b in values), sum(a * b for a, b in values)])


class _Private:
    def fun(t: float, y: Any) -> Any:  # noqa: N805 - a plain function in a class
        __k = 3.0
        return -__k * y


def chosen(t: float, y: Any, *more: Any) -> Any:
    found = [x for x in y if t > 0.0]
    found.append(max(t, 0.25))
    return found[:2] if len(found) > 2 else np.diff([1.0, t, 2.0])


def through_views(t: float, y: Any) -> Any:
    out = np.zeros((2, 1), dtype=float)
    flat = np.ravel(out)
    flat[0], out[1, 0] = t, 2.0 * flat[0]
    more = np.full(y.shape, t, y.dtype)
    more[0] += np.array([1, t], dtype=np.float64)[0]
    return out.reshape(2) + more + np.ones(2, float) * np.array([1, 2], float)


#: Python and NumPy run these themselves, so what they do to arrays of their own needs no rules.
NATIVE: dict[str, Any] = {
    "a product of integers": lambda t, y: -y * np.array([3, 4]).prod(),
    "an integer array": lambda t, y: y * np.arange(2) + np.arange(2),
    "the state changed": in_place,
    "a view of the state changed": in_place_view,
    "an array seen through a view": aliased,
    "an iterator used twice": twice,
    "any arguments": lambda t, y, *more: -y,
    "private names": _Private.fun,
    "lists and conditions": chosen,
    "views and dtypes": through_views,
    "differences": lambda t, y: np.diff([t, y[0], 2.0]),
    "largest and running sums": lambda t, y: y.max() * y.cumsum() - np.mean(y * y) + np.maximum.reduce(y),
    "means along an axis": lambda t, y: np.mean(np.stack([y, t * y]), axis=0) + y.prod(),
    "without source": eval("lambda t, y: -y if t < 1.0 else (lambda z: z[::-1])(y)", {"np": np}),
}


@pytest.mark.parametrize("case", NATIVE)
def test_what_python_does_to_values_is_kept(case: str):
    """The source gives Python's numbers."""
    bound = read(NATIVE[case])
    assert isinstance(bound, BoundSource), bound
    for t, y in ((0.3, np.array([0.5, -2.0])), (1.5, np.array([-1.25, 3.0]))):
        np.testing.assert_allclose(run(bound, t, y.copy()), NATIVE[case](t, y.copy()), rtol=1e-15)


def test_the_same_helpers_in_other_places_are_another_function():
    """Which of them stands where is part of what a reading depends on."""

    def made(a: Any, b: Any, c: Any) -> Any:
        return lambda t, y: np.array([a(y[0]) + b(y[1]), c(y[0])])

    double, negate = (lambda x: 2.0 * x), (lambda x: -x)
    y = np.array([0.5, 3.0])
    for fun in (made(double, double, negate), made(double, negate, negate), made(double, negate, double)):
        bound = read(fun)
        assert isinstance(bound, BoundSource)
        np.testing.assert_array_equal(run(bound, 0.0, y), fun(0.0, y))


# -- what is refused --------------------------------------------------------------------------------------------------


def partly_bound(t: float, y: Any) -> Any:
    if t < 1.0:
        rate = 1.0
    return -rate * y


def make_counter() -> Any:
    count = 0

    def fun(t: float, y: Any) -> Any:
        nonlocal count
        count += 1
        return -y

    return fun


def catching(t: float, y: Any) -> Any:
    try:
        return -y / math.floor(t)
    except ZeroDivisionError:
        return y


class Model:
    rate = 1.0


MODEL = Model()
REFUSED: dict[str, tuple[Any, str]] = {
    "an integer from t": (lambda t, y: -y / (1 + 2 ** int(t)), "'int'"),
    "floor division": (lambda t, y: y * (t // 0.3), "floor_divide"),
    "a counter": (make_counter(), "'count'"),
    "an exception handled": (catching, "try"),
    "a number as text": (lambda t, y: y * len(f"{t}"), "text"),
    "a complex number": (lambda t, y: 1j * y, "complex"),
    "another shape": (lambda t, y: np.array([1.0]), r"shape \(1,\)"),
    "a number": (lambda t, y: 1.0, r"shape \(\)"),
    "randomness": (lambda t, y: -y * np.random.rand(), "rand"),
    "a captured array": (lambda t, y: -TABLE * y, "'TABLE'"),
    "a captured list": (lambda t, y: -LIST[0] * y, "'LIST'"),
    "a captured dictionary": (lambda t, y: -STATE["rate"] * y, "'STATE'"),
    "a captured object": (lambda t, y: -MODEL.rate * y, "'MODEL'"),
    "elements that are not set": (unset, "before all of it is written"),
    "recursion": (endless, "too deeply"),
    "a mutable default": (with_default, "defaults"),
    "a global bound": (globally, "global"),
    "an unknown function": (lambda t, y: np.linalg.norm(y) * y, "linalg"),
    "a name that is not there": (lambda t, y: missing * y, "'missing' is not defined"),  # type: ignore[name-defined]  # noqa: F821
    "a partial": (functools.partial(lambda rate, t, y: -rate * y, 1.0), "not a plain function"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_might_differ_stays_in_python(case: str):
    """Each with its reason."""
    fun, reason = REFUSED[case]
    refusal = read(fun)
    assert isinstance(refusal, str) and re.search(reason, refusal), refusal


@pytest.mark.parametrize("args", [(np.array([1.0]),), ([1.0],), (np.float32(1.0),), (np.int64(1),), (object(),)])
def test_arguments_that_might_change_stay_in_python(args: tuple[Any, ...]):
    """Floats, integers and tuples of them are taken; integers are known then."""
    assert isinstance(read(lambda t, y, more: -y, args), str)
    assert isinstance(read(lambda t, y, a, b: -y * a ** b[1], (2.0, (1.0, 3))), BoundSource)


def test_a_name_bound_on_one_path_is_left_to_python():
    """On the other path Python raises an error."""
    bound = read(partly_bound)
    assert isinstance(bound, BoundSource)
    assert np.isnan(run(bound, 2.0, np.ones(2))).all() and run(bound, 0.5, np.ones(2))[0] == -1.0


# -- in a solve -------------------------------------------------------------------------------------------------------


def growing(t: float, y: Any) -> Any:
    return -y / (1 + 2 ** int(t))


def test_integers_do_not_overflow():
    """The equation of the report: the same number however often it is solved."""
    solve = functools.partial(hf.solve_fode, growing, (0.0, 80.0), [1.0], 0.7, step=0.1, method="pece")
    wanted = solve(compile=False).y
    found = solve(backend="numba")
    assert not found.decision.compiled and "int" in found.decision.notes[0]  # type: ignore[union-attr]
    np.testing.assert_allclose(found.y, wanted, rtol=1e-12)


@pytest.mark.parametrize(
    ("fun", "error"),
    [
        (lambda t, y: -y * math.sqrt(0.5 - t), ValueError),
        (lambda t, y: -y + 0.0 * math.exp(1e3 * t), OverflowError),
        (lambda t, y: -y * (1.0 / (0.0 if t > 0.5 else 1.0)), ZeroDivisionError),
        (lambda t, y: -y + 0.0 * 10.0 ** (400.0 * t), OverflowError),
        (lambda t, y: -y[:1] * y[1 if t > 0.5 else 0], IndexError),
        (lambda t, y: -y if t < 0.5 else np.zeros(3), ShapeError),
    ],
)
@pytest.mark.parametrize("method", ["pece", "implicit_trapezoid", "adaptive"])
@thinned(lambda method: method == "pece")
def test_errors_are_raised_as_in_python(fun: Any, error: type[Exception], method: str):
    """By functions that are compiled, and by those that are not because of them."""
    with pytest.raises(error):
        hf.solve_fode(
            fun, (0.0, 2.0), [1.0], 0.6, method=method, step=None if method == "adaptive" else 0.01, backend="numba"
        )


def driven(t: float, y: Any) -> Any:
    return RATE - y


@pytest.mark.parametrize("method", ["pece", "adaptive"])
def test_a_number_rebound_during_the_solve_is_noticed(method: str, monkeypatch: pytest.MonkeyPatch):
    """By an event, in the middle of a solve: as it is where nothing is compiled."""
    monkeypatch.setattr(fixed_solve, "_BLOCK_SECONDS", 1e9)  # blocks do not depend on the clock

    def rebind(t: float, y: Any) -> float:
        monkeypatch.setitem(globals(), "RATE", 1.0 if t < 1.0 else 3.0)
        return 1.0

    step = None if method == "adaptive" else 0.001
    solve = functools.partial(
        hf.solve_fode, driven, (0.0, 2.0), [0.0], 0.8, method=method, step=step, events=rebind, backend="numba"
    )
    found = solve(compile=True)
    monkeypatch.setitem(globals(), "RATE", 1.0)
    wanted = solve(compile=False)
    assert any("captured value changed" in note for note in found.decision.notes)  # type: ignore[union-attr]
    np.testing.assert_allclose(found.y[0, -1], wanted.y[0, -1], rtol=1e-6 if method == "adaptive" else 1e-12)
    assert found.y[0, -1] > 1.5


def test_numpy_s_wish_for_errors_is_kept():
    """Where a division by zero is to be an error, nothing is compiled unasked."""
    with np.errstate(divide="raise"):
        found = hf.solve_fode(lambda t, y: -y, (0.0, 1.0), [1.0], 0.6, step=0.01, backend="numba", method="pece")
        assert found.success and not found.decision.compiled  # type: ignore[union-attr]
        with pytest.raises(FloatingPointError):
            hf.solve_fode(lambda t, y: -y / (y * 0.0), (0.0, 1.0), [1.0], 0.6, step=0.01, backend="numba")


def failing_when_compiled(t: float, y: Any) -> Any:
    whole = int(t)  # not read, so Numba compiles it as it is, and raises where NumPy has infinity
    late = 1.0 if t < 0.5 else y[1]
    return np.array([-y[0] / (1.0 + 1.0 / late) + (whole - whole), 0.0])


def test_a_compiled_function_that_keeps_failing_is_given_up(monkeypatch: pytest.MonkeyPatch):
    """After three steps that Python had to do, Python does the rest at once."""
    runs: list[int] = []
    original = stepping.NumpyStepper.run
    monkeypatch.setattr(
        stepping.NumpyStepper,
        "run",
        lambda self, begin, first, stop: runs.append(1) or original(self, begin, first, stop),
    )
    with np.errstate(divide="ignore"):
        found = hf.solve_fode(
            failing_when_compiled, (0.0, 2.0), [1.0, 0.0], 0.6, method="pece", step=1e-3, compile=True
        )
    assert found.success and len(runs) < 60
    assert any("returned to Python" in note for note in found.decision.notes)  # type: ignore[union-attr]


def broadcast(t: float, y: Any) -> Any:
    return np.array([-1.0]) * int(t + 1.0) if t > 0.5 else np.array([-1.0, -1.0])


def test_a_result_of_another_shape_is_an_error_when_compiling_is_asked_for():
    """Not spread over the state."""
    with pytest.raises(ShapeError):
        hf.solve_fode(broadcast, (0.0, 1.0), [1.0, 1.0], 0.6, method="pece", step=0.01, compile=True)


@pytest.mark.parametrize("options", [{"backend": "numba"}, {"compile": True}])
@pytest.mark.parametrize(
    ("method", "step"), [("pece", 0.1), ("implicit_trapezoid", 0.1), ("auto", 0.1), ("auto", None), ("bdf2", None)]
)
def test_numba_asked_for_and_not_there(
    options: dict[str, Any], method: str, step: float | None, monkeypatch: pytest.MonkeyPatch
):
    """An error that names it, with every kind of step."""
    monkeypatch.setitem(sys.modules, "numba", None)
    with pytest.raises(hf.errors.MissingDependencyError, match="numba"):
        hf.solve_fode(lambda t, y: -y, (0.0, 1.0), [1.0], 0.6, method=method, step=step, **options)


def test_numba_asked_for_is_used_or_refused():
    """However large the state is."""
    from hpfracc.errors import InvalidInputError

    y0 = np.ones(80)
    assert hf.solve_fode(lambda t, y: -y, (0.0, 1.0), y0, 0.6, method="pece", step=0.1, backend="numba").success
    with pytest.raises(InvalidInputError, match="backend='numba'"):
        hf.solve_fode(lambda t, y: -y, (0.0, 1.0), y0, 0.6, method="implicit_trapezoid", step=0.1, backend="numba")


def test_sums_of_floats_are_refused():
    """Python 3.12 and later compensate them."""

    def fun(t: float, y: Any) -> Any:
        return np.array([sum([1e16, t, -1e16]), -y[1]])

    def of_states(t: float, y: Any) -> Any:
        return np.array([sum(y), -y[1]])

    assert "compensate" in str(read(fun)) and isinstance(read(of_states), BoundSource)
