"""What ``method="auto"`` chooses, and when the right-hand side is compiled."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from hpfracc.errors import InvalidInputError, MissingDependencyError
from hpfracc.solvers.ode import BDF2, PECE, compilation
from hpfracc.special import mittag_leffler


def decay(t: float, y: Any) -> Any:
    return -y


def name_of(result: Any) -> str:
    return str(result.decision.method)


def test_a_mild_equation_is_stepped_explicitly():
    """With a step, PECE; the reason is in the decision."""
    result = hf.solve_fode(decay, (0.0, 1.0), [1.0], 0.6, step=0.01)
    assert name_of(result) == "pece" and "not stiff" in result.decision.reason


def test_a_stiff_equation_is_stepped_implicitly():
    """Where PECE would blow up the implicit trapezoid is taken, and comes out right."""
    result = hf.solve_fode(lambda t, y: -1e4 * (y - np.cos(t)), (0.0, 2.0), [0.0], 0.8, step=0.01)
    assert name_of(result) == "implicit_trapezoid" and "stiff" in result.decision.reason
    assert result.y[0, -1] == pytest.approx(np.cos(2.0), abs=1e-3)


def test_stiffness_that_comes_later_is_noticed():
    """The rate grows a thousandfold on the way: begun explicitly, solved implicitly, and bounded."""

    def fun(t: float, y: Any) -> Any:
        return -(1.0 + 5e3 * (t > 1.0)) * y

    result = hf.solve_fode(fun, (0.0, 2.0), [1.0], 0.8, step=1e-3)
    assert result.success and name_of(result) == "implicit_trapezoid"
    assert "at t = 1" in result.decision.reason
    assert np.abs(result.y).max() <= 1.0 + 1e-12


def test_stiffness_of_many_components():
    """A hundred components: the largest rate is found by iteration."""
    rates = np.linspace(1.0, 2e3, 100)
    result = hf.solve_fode(lambda t, y: -rates * y, (0.0, 0.1), np.ones(100), 0.8, step=0.01)
    assert name_of(result) == "implicit_trapezoid"
    mild = hf.solve_fode(lambda t, y: -1e-3 * rates * y, (0.0, 0.1), np.ones(100), 0.8, step=0.01)
    assert name_of(mild) == "pece"


def test_growth_is_not_stiffness():
    """A solution that runs to infinity is told as that, and not solved again."""
    with np.errstate(over="ignore", invalid="ignore"):
        result = hf.solve_fode(lambda t, y: y**2, (0.0, 2.0), [1.0], 0.9, step=0.01)
    assert not result.success and name_of(result) == "pece" and "not finite" in result.message


def test_riemann_liouville_from_infinity_finds_a_method():
    """BDF2 where its starting weights exist, the implicit rectangle elsewhere."""
    options: dict[str, Any] = {"step": 0.01, "derivative": "riemann_liouville"}
    assert name_of(hf.solve_fode(decay, (0.0, 1.0), [1.0], 0.7, **options)) == "bdf2"
    assert name_of(hf.solve_fode(decay, (0.0, 1.0), [1.0], 0.15, **options)) == "implicit_rectangle"


@pytest.mark.parametrize("method", ["pece", "implicit_trapezoid", "bdf2"])
def test_without_a_step_a_fixed_method_halves_it(method: str):
    """Until two solutions agree; the estimate is at least the true error, the tolerance holds."""
    result = hf.solve_fode(decay, (0.0, 1.0), [1.0], 0.9, method=method, rtol=1e-4, atol=1e-6)
    exact = mittag_leffler(-(result.t**0.9), 0.9)
    worst = float(np.max(np.abs(result.y[0] - exact)))
    assert result.success
    assert worst <= result.error_estimate
    assert np.all(np.abs(result.y[0] - exact) <= 1e-6 + 1e-4 * np.abs(exact))
    assert result.stats["halvings"] >= 1


def test_without_a_step_everything_else_still_works():
    """``t_eval``, events and dense output with a step that was found."""
    event = lambda t, y: y[0] - 0.5  # noqa: E731
    options: dict[str, Any] = {"method": "bdf2", "rtol": 1e-4, "t_eval": [0.0, 0.5, 1.0], "events": event}
    result = hf.solve_fode(decay, (0.0, 1.0), [1.0], 0.9, dense_output=True, **options)
    assert result.t_events is not None and result.sol is not None
    assert result.y.shape == (1, 3)
    assert result.sol(result.t_events[0][0])[0] == pytest.approx(0.5, abs=1e-9)


def test_a_method_may_be_given_as_an_object():
    """With parameters of its own, and for arrays it knows."""
    one = hf.solve_fode(decay, (0.0, 1.0), [1.0], 0.5, method=PECE(corrections=3), step=0.01)
    assert one.nfev == 1 + 4 * 100
    torch = pytest.importorskip("torch")
    start = torch.ones(1, dtype=torch.float64)
    other = hf.solve_fode(decay, (0.0, 1.0), start, 0.5, method=PECE(corrections=3), step=0.01)
    np.testing.assert_allclose(other.y.numpy(), one.y, rtol=1e-12)
    with pytest.raises(InvalidInputError, match="for torch use"):
        hf.solve_fode(decay, (0.0, 1.0), start, 0.5, method=BDF2(), step=0.01)


# When to compile.


def test_rent_buys_a_compilation(monkeypatch: pytest.MonkeyPatch):
    """Once the solves of a function have cost what its compilation would, the next one compiles it."""
    pytest.importorskip("numba")
    monkeypatch.setattr(compilation, "import_cost", lambda name: 0.0)
    for name, seconds in (("_FIRST", 100.0), ("_CACHED_KERNEL", 1e9), ("_COLD_KERNEL", 1e9)):
        monkeypatch.setattr(compilation, name, seconds)

    def fun(t: float, y: Any) -> Any:
        return -0.7 * y

    def solve() -> Any:
        return hf.solve_fode(fun, (0.0, 1.0), [1.0], 0.5, method="pece", step=0.01).decision

    price = compilation.compile_price(fun)
    assert price is not None
    assert not solve().compiled
    assert 0.0 < price.credited() < 10.0
    price.credit(101.0)
    assert solve().compiled
    # What was learned of the time it takes is the price of the next function.
    other = compilation.compile_price(decay)
    assert other is not None and other.seconds < 100.0


def test_a_long_solve_is_compiled_on_the_way(monkeypatch: pytest.MonkeyPatch):
    """When what is left would cost more than compiling, the rest runs compiled, and the answer is the same."""
    pytest.importorskip("numba")
    monkeypatch.setattr(compilation, "import_cost", lambda name: 0.0)
    for name in ("_FIRST", "_FUNCTION"):
        monkeypatch.setattr(compilation, name, 0.005)

    def fun(t: float, y: Any) -> Any:
        return -y + np.sin(t)

    auto = hf.solve_fode(fun, (0.0, 1.0), [1.0], 0.5, method="pece", step=1.0 / 3000)
    plain = hf.solve_fode(fun, (0.0, 1.0), [1.0], 0.5, method="pece", step=1.0 / 3000, compile=False)
    assert auto.decision is not None and auto.decision.compiled
    np.testing.assert_allclose(auto.y, plain.y, rtol=1e-11)
    assert auto.nfev == pytest.approx(plain.nfev, abs=5)


def test_what_cannot_be_compiled_runs_as_it_is(monkeypatch: pytest.MonkeyPatch):
    """The reason is noted; asked for, it is an error."""
    monkeypatch.setattr(compilation, "import_cost", lambda name: 0.0)
    for name in ("_FIRST", "_FUNCTION"):
        monkeypatch.setattr(compilation, name, 0.0)
    table = {"rate": 1.0}

    def fun(t: float, y: Any) -> Any:
        return -table["rate"] * np.asarray([float(str(value)) for value in y])

    result = hf.solve_fode(fun, (0.0, 1.0), [1.0], 0.5, method="pece", step=1e-3, backend="numba")
    assert result.success and result.decision is not None and not result.decision.compiled
    assert "stays in Python" in result.decision.notes[0]
    with pytest.raises(InvalidInputError, match="cannot be compiled"):
        hf.solve_fode(fun, (0.0, 1.0), [1.0], 0.5, method="pece", step=1e-3, compile=True)


RATE = 1.0


def with_global(t: float, y: Any) -> Any:
    return -RATE * y


def test_a_compiled_function_follows_what_it_depends_on(monkeypatch: pytest.MonkeyPatch):
    """A changed global, closure or argument is seen by the next solve, as it would be uncompiled."""
    options: dict[str, Any] = {"method": "explicit_rectangle", "step": 0.1, "compile": True}
    first = hf.solve_fode(with_global, (0.0, 1.0), [1.0], 1.0, **options)
    monkeypatch.setitem(globals(), "RATE", 2.0)
    second = hf.solve_fode(with_global, (0.0, 1.0), [1.0], 1.0, **options)
    assert first.y[0, -1] == pytest.approx(0.9**10) and second.y[0, -1] == pytest.approx(0.8**10)

    def with_argument(t: float, y: Any, k: float, powers: tuple[int, ...]) -> Any:
        return -k * y ** powers[0]

    found = [
        hf.solve_fode(with_argument, (0.0, 1.0), [1.0], 1.0, args=(k, (1,)), **options).y[0, -1] for k in (1.0, 2.0)
    ]
    assert found == pytest.approx([0.9**10, 0.8**10])


def test_a_list_may_be_returned():
    """As SciPy allows, compiled too."""
    options: dict[str, Any] = {"method": "pece", "step": 0.01}
    one, other = (
        hf.solve_fode(lambda t, y: [y[1], -y[0]], (0.0, 1.0), [1.0, 0.0], 0.9, compile=compile, **options)
        for compile in (False, True)
    )
    np.testing.assert_allclose(one.y, other.y, rtol=1e-12)


def test_without_numba_everything_runs(monkeypatch: pytest.MonkeyPatch):
    """It is an extra: without it NumPy steps, and asking for it names the extra."""
    for name in [name for name in sys.modules if name.startswith("hpfracc.solvers.ode.compiled.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "numba", None)
    result = hf.solve_fode(decay, (0.0, 1.0), [1.0], 0.5, step=1e-3)
    assert result.success
    with pytest.raises(MissingDependencyError, match="hpfracc\\[numba\\]"):
        hf.solve_fode(decay, (0.0, 1.0), [1.0], 0.5, step=1e-3, compile=True)


@pytest.mark.parametrize(
    ("method", "alpha"), [("bdf2", 0.2), ("multistep_trapezoid", 0.2), ("implicit_rectangle", 0.5)]
)
def test_the_estimate_covers_the_times_between_the_first_steps(method, alpha):
    """There interpolation may be less accurate than the steps: 22 and 178 times the estimate, with ``success``."""
    times = np.array([1e-8, 1e-6, 1e-4, 1e-2, 1.0, 5.0])
    for output in ({"t_eval": times}, {"dense_output": True}):
        found = hf.solve_fode(lambda t, y: -y, (0.0, 5.0), [1.0], alpha, method=method, **output)
        y = found.y if found.sol is None else found.sol(times)
        error = np.abs(y[0] - hf.mittag_leffler(-(times**alpha), alpha)).max()
        # The first-order method cannot reach the tolerance there.
        assert error < 3.0 * found.error_estimate if method != "implicit_rectangle" else not found.success
