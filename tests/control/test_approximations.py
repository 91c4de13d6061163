"""Rational approximations: their errors over the band, and agreement with the discrete series."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import signal

from hpfracc import control
from hpfracc.errors import InvalidInputError

s = control.s


def test_oustaloup_improves_with_its_band():
    middle = [control.oustaloup(s**0.5, (10.0**-k, 10.0**k), 3 * k).error[100] for k in (1, 2, 3)]
    assert middle[0] > 5.0 * middle[1] > 25.0 * middle[2]
    inside = slice(50, 150)
    assert control.oustaloup(s**0.5, (1e-2, 1e2), 5).error[inside].max() < 0.05
    # Poles and zeros are real and stable.
    found = control.oustaloup(1 / s**0.4, (1e-2, 1e2), 4)
    assert np.all(np.roots(found.denominator).real < 0.0)
    assert found.max_error > found.error[inside].max()


def test_matsuda_and_continued_fractions_meet_their_points():
    low = control.matsuda(s**0.5, (0.1, 10.0), 4)
    assert low.max_error < 0.03
    assert np.isclose(low(1.0), 1.0)  # it interpolates gains on the positive axis
    assert control.cfe(s**0.5, 1.0, 4).max_error < 0.005
    assert control.cfe(s**0.5, 1.0, 6).max_error < control.cfe(s**0.5, 1.0, 4).max_error


def test_whole_systems_and_scipy():
    plant = (s**0.5 + 2) / (s**1.5 + 0.3 * s**0.5 + 1)
    found = control.oustaloup(plant, (1e-3, 1e3), 5)
    t = np.linspace(0.0, 10.0, 51)
    _, y = signal.step(found.to_scipy(), T=t)
    assert np.abs(y - control.step_response(plant, t).y)[1:].max() < 0.02
    assert np.isclose(found.to_transfer_function()(1j), found(1j))


@pytest.mark.parametrize("rule", ["tustin", "al_alaoui", "euler"])
def test_discrete_filters(rule: str):
    found = control.discretize(s**0.5, 0.01, 9, rule, band=(20.0, 100.0))
    assert found.max_error < {"tustin": 0.05, "al_alaoui": 0.2, "euler": 0.25}[rule]
    # Integer orders are exact substitutions.
    one = control.discretize(1 / (s + 1), 0.1, rule=rule, band=(0.1, 1.0))
    assert one.max_error < (0.001 if rule == "tustin" else 0.04)
    assert found.to_scipy().dt == 0.01


def test_pade_of_a_delay():
    w = np.linspace(0.0, 3.0, 20)[1:]
    assert np.abs(control.pade(0.5, 4)(1j * w) - np.exp(-0.5j * w)).max() < 2e-6


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: control.oustaloup(s**0.5 * control.delay(1.0), (1.0, 2.0)),
        lambda: control.oustaloup(s**0.5, (0.0, 2.0)),
        lambda: control.oustaloup(s**0.5, (2.0, 1.0)),
        lambda: control.oustaloup(s**0.5, (1e-6, 1e6), 30),
        lambda: control.matsuda(1j * s**0.5, (1.0, 2.0)),
        lambda: control.discretize(s**0.5, 0.01, rule="tustn"),
        lambda: control.discretize(s**0.5, 0.01).to_transfer_function(),
    ],
)
def test_bad_input(wrong):
    with pytest.raises(InvalidInputError):
        wrong()
