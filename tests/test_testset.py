"""The test set: its files are complete, its answers are those of mpmath, and hpfracc finds them."""

from __future__ import annotations

import numpy as np
import pytest

from hpfracc.solvers.ode import problems as known
from testset.__main__ import run
from testset.adapters import hpfracc as adapter
from testset.collocation import solve, stated
from testset.data import all_problems, faults
from testset.expressions import evaluate, read
from testset.make_references import recomputed

mpmath = pytest.importorskip("mpmath")

PROBLEMS = {f"{each.family}/{each.name}": each for each in all_problems()}
#: What ``make test`` tries; the others are slow.
QUICK = {
    "control/podlubny-plant", "delay/linear", "functions/mittag-leffler-half", "linear/relaxation-0.5",
    "materials/zener-relaxation", "multi-term/basset", "nonlinear/diethelm-0.5", "operators/caputo-exponential",
    "partial/subdiffusion-0.5", "several-orders/chain", "singular/xue-bai-1", "stochastic/fbm-0.3",
}  # fmt: skip
TOO_LONG = {"rough-volatility/heston-classical", "stiff/relaxation-10000", "stiff/two-scales", "stiff/relaxation-100"}


def names(wanted=lambda name: True):
    return [
        pytest.param(name, marks=() if name in QUICK else pytest.mark.slow, id=name)
        for name in PROBLEMS
        if wanted(name)
    ]


def test_every_file_is_complete():
    assert len(PROBLEMS) >= 120
    assert {name: found for name, each in PROBLEMS.items() if (found := list(faults(each)))} == {}
    for each in all_problems():
        assert "hpfracc" not in each.path.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", names(lambda name: "exact" in PROBLEMS[name].reference and name not in TOO_LONG))
def test_closed_forms_are_those_of_mpmath(name: str):
    problem = PROBLEMS[name]
    with mpmath.workdps(50):
        assert problem.error(recomputed(problem)) <= 10.0 ** (1 - problem.reference["digits"])


@pytest.mark.parametrize("name", names())
def test_hpfracc_finds_the_answer(name: str):
    row = run(PROBLEMS[name], adapter.solve, 1e-6)
    assert row["verdict"] in ("right", "not expressible"), row


@pytest.mark.slow
def test_collocation_is_right_where_a_closed_form_is_known():
    problem = PROBLEMS["nonlinear/square"]
    assert problem.error(solve(stated(problem), problem.at[:, 0], 0.5, 9)) < 1e-8


def test_a_wrong_answer_is_off():
    problem = PROBLEMS["linear/relaxation-0.5"]
    answer = adapter.solve(problem, 1e-6)
    wrong = run(problem, lambda *_: type(answer)(answer.values + 1e-4), 1e-6)
    assert wrong["verdict"] == "off"
    assert wrong["error"] == pytest.approx(1e-4 / problem.values.max(), rel=1e-2)


@pytest.mark.parametrize("text", ["__import__('os')", "t.real", "(lambda: 1)()", "[x for x in y]", "_t + 1"])
def test_a_formula_is_no_program(text: str):
    with pytest.raises(ValueError, match="not allowed"):
        read(text)
    assert evaluate("2*a", {"a": 3}) == 6


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("oscillating/brusselator-0.8", known.brusselator(0.8)),
        ("nonlinear/lotka-volterra-0.8", known.lotka_volterra(0.8)),
        ("chaos/lorenz-0.995", known.lorenz(0.995)),
        ("chaos/duffing-0.9", known.duffing(0.9)),
        ("nonlinear/diethelm-0.5", known.diethelm(0.5)),
        ("linear/relaxation-0.5", known.relaxation(0.5)),
    ],
)
def test_models_with_the_same_name_are_the_same(name: str, model):
    """The package does not need the test set; where both state an equation, they agree."""
    problem = PROBLEMS[name]
    equation = stated(problem)
    for t in (0.3, 0.9):
        y = np.linspace(0.5, 1.5, model.y0.size)
        assert equation.fun(t, y) == pytest.approx(np.ravel(model.fun(t, y)), rel=1e-12)
    assert equation.y0 == pytest.approx(model.y0)
    if model.reference is not None:
        assert problem.values == pytest.approx(model.reference.y, rel=1e-12)
