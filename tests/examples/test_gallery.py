"""Every script of ``examples/gallery`` draws a picture, and the numbers it exposes are right."""

from __future__ import annotations

import math
import re
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hpfracc.cli.demo.scripts import Script, find_scripts

pytest.importorskip("matplotlib")

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "gallery"
SCRIPTS = {script.name: script for script in find_scripts()}
Names = dict[str, Any]


def below(bound: float) -> Callable[[Names], None]:
    """The script's own ``error``, a difference from the truth, is below a bound."""

    def check(names: Names) -> None:
        assert 0.0 <= float(names["error"]) < bound

    return check


def brusselator(names: Names) -> None:
    """It oscillates above the critical order 2/3 only; at order 1 with the amplitude of SciPy's solution."""
    from scipy.integrate import solve_ivp

    assert names["critical"] == pytest.approx(2.0 / 3.0, abs=1e-12)
    times = names["t"]
    found = solve_ivp(names["brusselator"], (0.0, times[-1]), [1.2, 2.8], t_eval=times, rtol=1e-9, atol=1e-9).y[0]
    assert names["amplitude"][1.0] == pytest.approx(np.ptp(found[times > 25.0]) / 2, rel=1e-3)
    assert names["amplitude"][0.8] > 0.5
    assert names["amplitude"][0.6] < 0.01


def patterns(field: str, orders: tuple[float, float]) -> Callable[[Names], None]:
    """Concentrations stay in their physical range, and a pattern fills the region."""

    def check(names: Names) -> None:
        for order in orders:
            values = np.asarray(names[field][order])
            assert np.isfinite(values).all()
            assert values.min() > -0.4
            assert values.max() < 1.05
            assert values[-1 if values.ndim == 3 else ...].std() > 0.1

    return check


def rough_smile(names: Names) -> None:
    """Volatilities have six digits, and the rough smile of a week is the steeper one."""
    assert names["error"] < 1e-6
    assert names["slopes"][0.1] < 3 * names["slopes"][0.5] < 0


def levy_flight(names: Names) -> None:
    """Probabilities add up to 1, and the flight goes farther than the walk."""
    assert names["error"] < 1e-12
    assert names["reached"][1.3] > 2 * names["reached"][2.0]


def stiff_kinetics(names: Names) -> None:
    """The sum is conserved; b starts as its first power of time and ends in balance with the others."""
    assert names["error"] < 1e-12
    assert np.max(names["solution"].error_estimate) < 1e-4
    t, (a, b, c) = names["t"], names["solution"].y
    assert b[0] == pytest.approx(0.04 * t[0] ** 0.7 / math.gamma(1.7), rel=1e-3)
    assert 3e7 * b[-1] ** 2 + 1e4 * b[-1] * c[-1] == pytest.approx(0.04 * a[-1], rel=1e-3)


def creep_fit(names: Names) -> None:
    """The truth is within the intervals; a fit of order 1 leaves residuals of many times the noise."""
    assert names["error"] < 1.0
    assert 0.6 < names["fit"].spread < 1.5
    assert names["plain"].spread > 4.0


def double_well(names: Names) -> None:
    """The equilibrium is Boltzmann's; with memory the last part of the way to it is a power near -alpha."""
    assert names["error"] < 1e-3
    behind, t = names["missing"], names["times"]
    assert behind[1.0][-1] < 1e-5
    slope = math.log(behind[0.7][-1] / behind[0.7][-5]) / math.log(t[-1] / t[-5])
    assert slope == pytest.approx(-0.7, abs=0.12)


CHECKS: dict[str, Callable[[Names], None]] = {
    "relaxation": below(1e-6),
    "bagley_torvik": below(1e-5),
    "brusselator": brusselator,
    "lorenz": below(0.01),
    "stiff_kinetics": stiff_kinetics,
    "delay": below(1e-6),
    "creep_fit": creep_fit,
    "subdiffusion": below(2e-3),
    "breakthrough": below(2e-3),
    "double_well": double_well,
    "plume_fit": below(3.0),
    "gray_scott": patterns("fields", (2.0, 1.6)),
    "spiral_waves": patterns("voltage", (2.0, 1.8)),
    "wave_packet": below(1e-12),
    "membrane": below(0.01),
    "fbm": below(1.5),
    "levy_flight": levy_flight,
    "first_passage": below(4.0),
    "rough_smile": rough_smile,
    "half_derivative": below(1e-5),
    "definitions": below(1e-4),
    "chirp": below(0.011),
    "noisy_derivative": below(0.15),
    "fopid": below(1e-10),
    "battery_spectrum": below(0.03),
    "rheology": below(1e-9),
    "spiking_neuron": below(1e-9),
    "learned_order": below(0.01),
    "neural_equation": below(0.2),
    "maze": below(1e-9),
    "sweep": below(0.01),
    "where_time_goes": below(0.5),
}
#: These take two seconds and more.
SLOW = {
    "bagley_torvik", "subdiffusion", "gray_scott", "spiral_waves", "learned_order", "neural_equation", "sweep",
    "breakthrough", "creep_fit", "double_well", "membrane", "plume_fit", "rough_smile",
}  # fmt: skip


def run(script: Script, monkeypatch: pytest.MonkeyPatch) -> Names:
    """The names of a script after it has run, without a window and without the gallery's style."""
    from matplotlib import pyplot

    monkeypatch.setattr(pyplot, "show", lambda: None)
    pyplot.switch_backend("agg")
    pyplot.close("all")  # figures of other tests
    try:
        names = runpy.run_path(str(script.path))
        assert len(pyplot.get_fignums()) == 1
        pyplot.gcf().canvas.draw()
    finally:
        pyplot.close("all")
    return names


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in SCRIPTS]
)
def test_the_script_is_right(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """It draws one figure, prints, warns about nothing, and its numbers are right."""
    if "import torch" in SCRIPTS[name].source:
        pytest.importorskip("torch")
    names = run(SCRIPTS[name], monkeypatch)
    assert capsys.readouterr().out.strip()
    CHECKS[name](names)


def test_every_script_is_listed_and_checked():
    """The contents, the folder and the checks have the same names; there are at least 20."""
    assert list(SCRIPTS) == list(CHECKS)
    assert set(SCRIPTS) == {path.stem for path in FOLDER.glob("*.py")}
    assert len(SCRIPTS) >= 20


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS.keys())
def test_the_script_is_readable(script: Script):
    """20 to 60 lines; a title, a formula with a left-hand side, words, and a citation with a year; no assertion."""
    assert 20 <= len(script.source.splitlines()) <= 60
    assert len(script.title) < 80
    assert script.formulas
    assert all(re.search(r"=|\\sim|\\min", formula) for formula in script.formulas)
    assert 1 <= len(script.words) <= 2
    assert re.search(r"\(\d{4}\)", script.citation)
    assert "assert" not in script.source


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS.keys())
def test_its_formulas_can_be_drawn(script: Script):
    """By Matplotlib, for the report of ``hpfracc demo``."""
    from hpfracc.cli.demo import _formulas

    assert _formulas(script.formulas).count("<img ") >= len(script.formulas)


@pytest.mark.slow
def test_patterns_do_not_depend_on_the_step():
    """Half the step moves the patterns by less than can be seen."""
    from hpfracc.pde import problems

    for equation, step in (
        (problems.gray_scott(1.6, points=72, t_end=400.0), 4.0),
        (problems.fitzhugh_nagumo(1.8, points=48, diffusion=6e-4, t_end=200.0), 2.0),
    ):
        coarse, fine = (
            np.asarray(equation.solve(step=each, save="last", estimate=False).u[-1]) for each in (step, step / 2)
        )
        assert np.abs(coarse - fine).max() < 0.03
