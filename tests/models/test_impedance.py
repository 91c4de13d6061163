"""Elements, circuits, and their fits."""

from __future__ import annotations

import numpy as np
import pytest

from hpfracc import models
from hpfracc.errors import AccuracyWarning, InvalidInputError, ShapeError

W = np.geomspace(1e-2, 1e5, 71)


def test_elements_have_their_phases():
    """0, -90, +90, -90 alpha and -45 degrees."""
    for element, degrees in (
        (models.resistor(3.0), 0.0),
        (models.capacitor(3.0), -90.0),
        (models.inductor(3.0), 90.0),
        (models.constant_phase(3.0, 0.7), -63.0),
        (models.warburg(3.0), -45.0),
    ):
        np.testing.assert_allclose(np.degrees(np.angle(element.impedance(W))), degrees, atol=1e-9)
    np.testing.assert_allclose(models.warburg(3.0).impedance(W), 3.0 * (1.0 - 1j) / np.sqrt(W), rtol=1e-12)


def test_limits_of_finite_diffusion():
    """Warburg's at high frequencies; a resistor, or R/3 and a capacitor, at low ones."""
    through, closed = models.finite_warburg(3.0, 2.0), models.finite_warburg(3.0, 2.0, "reflective")
    high = 3.0 / np.sqrt(1j * 1e6 * 2.0)
    np.testing.assert_allclose([through.impedance(1e6), closed.impedance(1e6)], high, rtol=1e-12)
    np.testing.assert_allclose(through.impedance([0.0, 1e-9]), 3.0, rtol=1e-8)
    np.testing.assert_allclose(closed.impedance(1e-4), 1.0 + 3.0 / (1j * 1e-4 * 2.0), rtol=1e-6)


def test_circuits_are_composed():
    """Series, parallel, numbered names, and values that follow them."""
    cell = models.resistor(10.0) + (models.resistor(100.0) | models.capacitor(1e-5))
    assert cell.name == "R + (R | C)" and cell.names == ("R1", "R2", "C")
    np.testing.assert_allclose(cell.impedance(W), 10.0 + 100.0 / (1.0 + 1j * W * 1e-3), rtol=1e-12)
    np.testing.assert_allclose(cell.replace(R2=50.0).impedance(0.0), 60.0)
    assert cell.impedance(0.0) == pytest.approx(110.0)  # a capacitor blocks
    twice = cell | cell
    assert twice.names == ("R1", "R2", "C1", "R3", "R4", "C2")
    np.testing.assert_allclose(twice.impedance(W), 0.5 * cell.impedance(W))
    with pytest.raises(TypeError):
        cell + 1.0


def test_randles_by_hand():
    z = models.randles(10.0, 100.0, 1e-5, 0.9, 20.0)
    branch = 100.0 + 20.0 * (1.0 - 1j) / np.sqrt(W)
    np.testing.assert_allclose(z.impedance(W), 10.0 + 1.0 / (1.0 / branch + 1e-5 * (1j * W) ** 0.9), rtol=1e-12)
    np.testing.assert_allclose(z(1j * W), z.impedance(W))


def test_fit_of_a_noisy_spectrum_covers_the_truth():
    """From a start far away."""
    truth, rng = models.randles(10.0, 100.0, 1e-5, 0.85, 20.0), np.random.default_rng(2)
    noise = 0.01 * (rng.normal(size=W.size) + 1j * rng.normal(size=W.size))
    fit = models.randles(1.0, 10.0, 1e-4, 0.7, 5.0).fit(W, truth.impedance(W) * (1.0 + noise))
    expected = np.array(list(truth.values.values()))
    assert (np.abs(fit.estimates - expected) < 3.5 * fit.standard_errors).all()
    assert fit.spread == pytest.approx(0.01, rel=0.2) and fit.degrees_of_freedom == 2 * W.size - 5
    low, high = fit.confidence_intervals()["alpha"]
    assert low < 0.85 < high
    with pytest.warns(AccuracyWarning, match="residuals are correlated"):
        fixed = truth.replace(R1=11.0).fit(W, truth.impedance(W), free=["R2", "Q"])
    assert fixed.names == ("Q", "R2") and fixed.model.values["R1"] == 11.0


def test_what_the_data_do_not_determine_is_said():
    """Two resistors in series."""
    with pytest.warns(UserWarning, match="do not determine R1 and R2"):
        fit = (models.resistor(1.0) + models.resistor(2.0)).fit(W, np.full(W.size, 5.0 + 0j))
    assert np.isinf(fit.standard_errors).all()


def test_bad_data_are_refused():
    circuit = models.resistor() | models.capacitor()
    with pytest.raises(ShapeError, match="one value for each"):
        circuit.fit(W, np.ones(3, complex))
    with pytest.raises(InvalidInputError, match="2 data for 5 parameters"):
        models.randles().fit(W[:1], [1.0 + 1j])
    with pytest.raises(InvalidInputError, match="sigma"):
        circuit.fit(W, np.zeros(W.size, complex))
    with pytest.raises(InvalidInputError, match="reflective"):
        models.finite_warburg(end="reflecting")


def test_distributed_elements():
    """Lines and reactions in their limits."""
    np.testing.assert_allclose(models.gerischer(2.0, 3.0).impedance([0.0, 1e8]), [2.0, 2.0 / np.sqrt(3e8j)], rtol=1e-7)
    line = models.transmission_line(3.0, 2.0).impedance(W)
    np.testing.assert_allclose(line, models.finite_warburg(3.0, 6.0, "reflective").impedance(W), rtol=1e-12)
    np.testing.assert_allclose(models.bisquert(3.0, 1e13, 2.0).impedance(W), line, rtol=1e-9)
    assert np.isclose(models.bisquert(2.0, 8.0).impedance(0.0), 4.0 / np.tanh(0.5))


def test_circuits_as_text():
    """Nested, with values and names of the elements."""
    words = "R0-p(R1-W1,CPE1)-p(C2,R2)-L1"
    cell = models.circuit(words, R0=10.0, CPE1_alpha=0.8, C2=1e-3)
    same = models.resistor(10.0) + ((models.resistor(100.0) + models.warburg(10.0)) | models.constant_phase(1e-5, 0.8))
    same = same + (models.capacitor(1e-3) | models.resistor(100.0)) + models.inductor(1e-6)
    np.testing.assert_allclose(cell.impedance(W), same.impedance(W), rtol=1e-12)
    assert cell.names == ("R0", "R1", "W1", "CPE1_Q", "CPE1_alpha", "C2", "R2", "L1")
    assert cell.name == words
    data = models.circuit("R0-p(R1,CPE1)", R0=7.0, R1=300.0).impedance(W)
    fit = models.circuit("R0-p(R1,CPE1)").fit(W, data)
    assert np.isclose(fit.model.values["R1"], 300.0, rtol=1e-6)
    for wrong, what in (
        ("R0-p(R1,CPE1", "the end"),
        ("R0-X1", "X1 is no element"),
        ("R0-R0", "twice"),
        ("R0)", "follows"),
        ("", "not text"),
    ):
        with pytest.raises(InvalidInputError, match=what):
            models.circuit(wrong)
