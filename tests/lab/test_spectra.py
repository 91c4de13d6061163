"""Relaxation times and the test of Kramers and Kronig: known distributions, coverage, refusals."""

from __future__ import annotations

import numpy as np
import pytest

import hpfracc as hf
from hpfracc import lab, models
from hpfracc.errors import InvalidInputError, ShapeError

W = np.geomspace(1e-2, 1e5, 60)
#: Two arcs: resistances, coefficients and orders of their constant-phase elements.
ARCS = ((100.0, 1e-4, 0.9), (50.0, 2e-2, 0.85))
TIMES = [(r * q) ** (1.0 / a) for r, q, a in ARCS]


def impedance() -> np.ndarray:
    """A resistor and two arcs."""
    cell = models.resistor(10.0)
    for r, q, a in ARCS:
        cell = cell + (models.resistor(r) | models.constant_phase(q, a))
    return np.asarray(cell.impedance(W))


def density(tau: np.ndarray) -> np.ndarray:
    """Their distribution, in closed form (Fuoss and Kirkwood)."""
    parts = [
        r / (2 * np.pi) * np.sin((1 - a) * np.pi) / (np.cosh(a * np.log(tau / time)) - np.cos((1 - a) * np.pi))
        for (r, _, a), time in zip(ARCS, TIMES, strict=True)
    ]
    return np.sum(parts, axis=0)


def noisy(values: np.ndarray, share: float, rng: int) -> np.ndarray:
    """With errors in proportion to the magnitude."""
    parts = np.random.default_rng(rng).normal(size=(2, values.size))
    return values + share * np.abs(values) * (parts[0] + 1j * parts[1])


def test_distribution_and_peaks() -> None:
    """Bands and intervals have the truth, and resistances and times are right to a few percent."""
    inside, hits, covered = (TIMES[0] / 100, TIMES[1] * 50), [], []
    for rng in range(4):
        found = lab.relaxation_times(W, noisy(impedance(), 0.005, rng), samples=60)
        assert len(found.peaks) == 2
        for peak, (r, _, _), time in zip(found.peaks, ARCS, TIMES, strict=True):
            assert np.isclose(peak.resistance, r, rtol=0.05)
            assert np.isclose(peak.tau, time, rtol=0.1)
            for estimate, truth in ((peak.resistance, r), (peak.tau, time)):
                low, high = estimate.interval(0.95)
                hits.append(low < truth < high)
        there = (found.tau > inside[0]) & (found.tau < inside[1])
        truth = density(found.tau[there])
        covered.append(np.mean((found.low[there] <= truth) & (truth <= found.high[there])))
        assert (found.density >= 0.0).all()
        assert np.isclose(found.infinite, 10.0, rtol=0.1)
    assert np.mean(hits) >= 0.75
    assert np.mean(covered) > 0.85
    assert "2 peaks" in repr(found)


@pytest.mark.parametrize("strength", ["gcv", "evidence", 1e-4])
def test_strengths(strength: str | float) -> None:
    """Each explains the data to their noise."""
    found = lab.relaxation_times(W, noisy(impedance(), 0.005, 1), strength=strength, samples=20)  # type: ignore[arg-type]
    assert 0.003 < found.noise < 0.02
    assert np.max(np.abs(found.fitted / found.data - 1.0)) < 0.04


def test_other_spectra() -> None:
    """A permittivity, and the modulus of a solid: strengths and times of Debye's and Maxwell's models."""
    one = lab.relaxation_times(
        W, models.cole_cole(3.0, 0.01, 0.9, 2.0).permittivity(W), kind="permittivity", samples=20
    )
    two = lab.relaxation_times(W, models.zener(1.0, 5.0, 0.1, 0.9).modulus(W), kind="modulus", samples=20)
    for found, strength, time, infinite in ((one, 3.0, 0.01, 2.0), (two, 5.0, 0.1, 1.0)):
        assert len(found.peaks) == 1
        assert np.isclose(found.peaks[0].resistance, strength, rtol=1e-3)
        assert np.isclose(found.peaks[0].tau, time, rtol=1e-3)
        assert np.isclose(found.infinite, infinite, rtol=0.05)


def test_diffusion_is_no_peak() -> None:
    """Of Randles' circuit the charge transfer is a peak; diffusion has no time within the data."""
    found = lab.relaxation_times(W, models.randles(sigma=1.0).impedance(W), samples=20)
    assert all(1.0 / W[-1] <= peak.tau <= 1.0 / W[0] for peak in found.peaks)
    assert any(np.isclose(peak.resistance, 100.0, rtol=0.1) for peak in found.peaks)


def test_kramers_kronig() -> None:
    """Samples that drift or respond nonlinearly fail, clean and noisy ones pass."""
    whole, change = impedance(), np.log10(W[-1] / W) / 7.0
    clean = [lab.kramers_kronig(W, noisy(whole, 0.005, rng)) for rng in range(10)]
    assert all(each.ok for each in clean)
    assert 0.003 < np.median([each.noise for each in clean]) < 0.007
    drifting = [lab.kramers_kronig(W, noisy(whole * (1.0 + 0.1 * change), 0.005, rng)) for rng in range(5)]
    assert not any(each.ok for each in drifting)
    assert "the sample changed" in drifting[0].message
    assert lab.kramers_kronig(W, whole).ok
    assert "violated" in repr(drifting[0])


def test_order_of_frequencies_does_not_matter() -> None:
    """Instruments sweep downwards."""
    data = noisy(impedance(), 0.005, 1)
    up, down = (hf.lab.relaxation_times(W[::k], data[::k], samples=20) for k in (1, -1))
    np.testing.assert_allclose(up.density, down.density, rtol=1e-6, atol=1e-9)


def test_refusals() -> None:
    """Each with the value and what to do."""
    z = impedance()
    for w, values, words in (
        (W[:5], z[:5], "5 frequencies"),
        (np.append(0.0, W[1:]), z, "frequency of 0"),
        (np.append(W[1], W[1:]), z, "twice"),
        (W, z.conj(), "-Im"),
        (W, z - 60.0, "real part of -"),
    ):
        for function in (lab.relaxation_times, lab.kramers_kronig):
            with pytest.raises(InvalidInputError, match=words):
                function(w, values)
    with pytest.raises(ShapeError, match="one finite value"):
        lab.relaxation_times(W, z[:-1])
    with pytest.raises(InvalidInputError, match="sigma"):
        lab.relaxation_times(W, z, sigma=0.0)
    with pytest.raises(InvalidInputError, match="'lcurve'"):
        lab.relaxation_times(W, z, strength="lcurve")  # type: ignore[arg-type]


def test_plot() -> None:
    """The distribution with a band."""
    pytest.importorskip("matplotlib")
    ax = lab.relaxation_times(W, impedance(), samples=20).plot()
    assert ax.get_xscale() == "log"
    assert len(ax.lines) == 3
