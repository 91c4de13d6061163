"""The library of partial equations: solutions, references, and what each must conserve."""

from __future__ import annotations

import copy
import math
import pickle

import numpy as np
import pytest

from hpfracc.pde import problems


def test_options_replace_those_of_an_equation():
    """Any argument of ``solve_fpde``, also those that the equation has; an unknown one is an error."""
    equation = problems.subdiffusion(0.5, modes=(1.0,))
    result = equation.solve(alpha=0.9, t_span=(0.0, 0.5), u0=2.0 * equation.u0, save="last")
    right = 2.0 * problems.subdiffusion(0.9, modes=(1.0,)).exact(0.5)
    np.testing.assert_allclose(result.u[-1], right, atol=1e-12)
    assert equation.arguments["alpha"] == 0.5
    with pytest.raises(TypeError, match="tolerance"):
        equation.solve(tolerance=1e-3)


def test_the_plume_is_a_stable_density():
    """Against SciPy's Levy-stable density (beta = 1), in its parametrization S1, at a long time."""
    from scipy.stats import levy_stable

    order, t, d = 1.6, 50.0, 0.1
    scale = (t * d * abs(math.cos(0.5 * math.pi * order))) ** (1.0 / order)
    x = np.array([1.0])
    expected = levy_stable.pdf(x, order, 1.0, loc=0.0, scale=scale)
    np.testing.assert_allclose(problems.plume(t, x, order, 0.0, d, 1e-3), expected, rtol=2e-6)


def test_the_column_and_its_breakthrough_curve():
    """Order 2 in the grid against the plume on the line; the curve has a heavier early part than Gauss's."""
    errors = []
    for points in (201, 401):
        equation = problems.column(points=points, t_end=4.0)
        result = equation.solve(step=4.0 / 400)
        inside = equation.x < 12.0
        errors.append(np.abs(result.u[-1] - equation.exact(4.0))[inside].max())
    assert math.log2(errors[0] / errors[1]) > 1.7
    detector = 9.0
    curve = problems.breakthrough(equation.x, result.u, detector)
    exact = problems.plume(result.t, detector - 3.0, 1.6, 1.0, 0.1, 0.3)
    np.testing.assert_allclose(curve, exact, atol=2e-3)
    early = problems.plume(2.0, detector - 3.0, 1.6, 1.0, 0.1, 0.3)
    gauss = math.exp(-((6.0 - 2.0) ** 2) / (2.0 * (0.09 + 0.4))) / math.sqrt(2.0 * math.pi * (0.09 + 0.4))
    assert early > 100.0 * gauss


def test_the_coherent_state():
    """Comes back after a period, with its norm kept."""
    equation = problems.schroedinger(2.0, points=128, length=24.0)
    result = equation.solve(rtol=1e-6)
    assert np.abs(result.u[-1] - equation.exact(5.0)).max() < 10.0 * 1e-6 * np.abs(result.u[-1]).max()
    assert abs(np.linalg.norm(result.u[-1]) / np.linalg.norm(equation.u0) - 1.0) < 1e-12


def test_the_fractional_trap_keeps_norm_and_energy():
    """Order 1.5 with a cubic term: the norm to 1e-12, the energy to the error of the method."""
    equation = problems.schroedinger(1.5, cubic=1.0, points=128, length=24.0, t_end=1.0)
    result = equation.solve(step=0.005)
    x, h = equation.x, equation.x[1] - equation.x[0]
    k = np.abs(2.0 * math.pi * np.fft.fftfreq(128, h)) ** 1.5

    def energy(u):
        kinetic = 0.5 * np.sum(k * np.abs(np.fft.fft(u)) ** 2) / 128
        return h * (kinetic + np.sum(0.5 * x**2 * np.abs(u) ** 2 + 0.5 * np.abs(u) ** 4))

    norms = np.linalg.norm(result.u, axis=1)
    assert np.abs(norms / norms[0] - 1.0).max() < 1e-12
    assert energy(result.u[-1]) == pytest.approx(energy(equation.u0), rel=1e-7)
    assert equation.solution is None
    with pytest.raises(LookupError, match="no solution"):
        equation.exact(1.0)


@pytest.mark.parametrize("viscosity", [0.1, 0.5])
def test_burgers(viscosity):
    """Against Cole and Hopf's solution; mass is kept."""
    equation = problems.burgers(viscosity=viscosity)
    np.testing.assert_allclose(equation.exact(0.0), np.sin(equation.x), atol=1e-12)
    result = equation.solve(rtol=1e-8)
    assert np.abs(result.u[-1] - equation.exact(1.5)).max() < 5e-7
    assert abs(result.u[-1].sum()) < 1e-12
    fractional = problems.burgers(1.5, viscosity, points=64)
    assert fractional.solution is None
    assert fractional.solve(step=0.05).success


def test_the_flux_has_no_aliasing():
    """Waves above two thirds contribute nothing, and the flux of lower ones is exact for those that are kept."""
    x = 2.0 * math.pi / 24 * np.arange(24)
    flux = problems.burgers_flux(2.0 * math.pi, 24)
    np.testing.assert_allclose(flux(0.0, np.cos(9.0 * x)), 0.0, atol=1e-13)
    np.testing.assert_allclose(flux(0.0, np.sin(2.0 * x)), -np.sin(4.0 * x), atol=1e-13)
    # The square of wave 7 is wave 14, which a grid of 24 points would take for 10.
    np.testing.assert_allclose(flux(0.0, np.cos(7.0 * x)), 0.0, atol=1e-13)


def test_the_layer_at_rest():
    """(2/pi) arctan x stays where it is, to 1e-8."""
    equation = problems.peierls_nabarro()
    result = equation.solve(step=0.05)
    assert np.abs(result.u[-1] - equation.exact(1.0)).max() < 1e-8


@pytest.mark.filterwarnings("ignore:the grid is too coarse")
@pytest.mark.parametrize("order", [1.5, 2.0])
def test_gray_scott_stays_in_its_bounds(order):
    """u within (0, 1], v positive, and the rest state is at rest."""
    equation = problems.gray_scott(order, points=32, t_end=100.0)
    result = equation.solve(step=1.0, save="last")
    u, v = result.u[-1]
    assert u.max() <= 1.0 + 1e-2
    assert u.min() > 0.0
    assert v.min() > -1e-2
    assert v.max() > 0.1
    still = equation.u0.copy()
    still[0], still[1] = 1.0, 0.0
    np.testing.assert_allclose(equation.solve(step=10.0, save="last", u0=still).u[-1], still, atol=1e-12)


@pytest.mark.filterwarnings("ignore:the grid is too coarse")
def test_fitzhugh_nagumo_stays_in_its_bounds():
    """The wave has the height of the excited state and travels."""
    equation = problems.fitzhugh_nagumo(points=48, t_end=60.0)
    result = equation.solve(step=0.5, save="last")
    u = result.u[-1, 0]
    assert -0.5 < u.min() < u.max() < 1.1
    assert u.max() > 0.5
    assert np.abs(u - equation.u0[0]).max() > 0.5


def test_they_travel():
    """Pickles and copies are recreated by their functions."""
    for equation in (problems.burgers(points=16), problems.gray_scott(points=8, seed=3), problems.column(points=21)):
        for twin in (pickle.loads(pickle.dumps(equation)), copy.deepcopy(equation)):
            assert twin.name == equation.name
            assert twin.parameters == equation.parameters
            np.testing.assert_array_equal(twin.u0, equation.u0)
            assert equation.reference


LIBRARY = {
    "subdiffusion, l1": (lambda: problems.subdiffusion(0.4), {"method": "l1"}),
    "subdiffusion, l2_1sigma": (lambda: problems.subdiffusion(0.6), {"method": "l2_1sigma"}),
    "diffusion_wave": (lambda: problems.diffusion_wave(1.6), {"method": "convolution_quadrature"}),
    "distributed_order": (problems.distributed_order, {}),
    "column": (lambda: problems.column(points=101, t_end=2.0), {}),
    "gray_scott": (lambda: problems.gray_scott(order=1.5, points=32, t_end=100.0), {}),
    "fitzhugh_nagumo": (lambda: problems.fitzhugh_nagumo(points=32, t_end=100.0), {}),
    "allen_cahn": (lambda: problems.allen_cahn(points=64, alpha=0.6, t_end=5.0), {}),
    "peierls_nabarro": (lambda: problems.peierls_nabarro(points=30), {}),
    "schroedinger": (lambda: problems.schroedinger(points=64, cubic=1.0, t_end=2.0), {}),
    "burgers": (lambda: problems.burgers(points=64), {}),
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::hpfracc.errors.AccuracyWarning")
@pytest.mark.parametrize("name", LIBRARY)
def test_the_tolerance_holds_over_the_library(name: str):
    """The true error in time, against eight times as many steps on the same grid, is within 10 times the tolerance."""
    make, options = LIBRARY[name]
    equation, rtol, atol = make(), 1e-3, 1e-6
    found = equation.solve(rtol=rtol, atol=atol, **options)
    adaptive, (t0, t1) = found.decision.method == "adaptive", equation.t_span
    steps = 256 if adaptive else found.stats["steps"]
    fine = equation.solve(step=(t1 - t0) / (8 * steps), save=8, estimate=False, rtol=1e-10, **options)
    times = fine.t[steps // 32 :: steps // 32]
    if adaptive:
        found = equation.solve(rtol=rtol, atol=atol, t_eval=times, **options)
    # Where the start is solved apart, there are times between these.
    place = np.abs(found.t[:, None] - times).argmin(axis=0)
    assert found.success and np.allclose(found.t[place], times)
    exact = fine.u[steps // 32 :: steps // 32]
    axes = tuple(range(1, exact.ndim))
    errors = np.abs(found.u[place] - exact).max(axis=axes)
    assert np.all(errors < 10.0 * (atol + rtol * np.abs(exact).max(axis=axes)))
    assert found.error_estimate.time < 30.0 * errors.max() + 1e-12


@pytest.mark.parametrize(("alpha", "amplitude"), [(0.25, 0.4638527608017133), (0.9, 0.3760660214246419)])
def test_subdiffusion(alpha, amplitude):
    """sin x decays like a Mittag-Leffler function, to rounding."""
    equation = problems.subdiffusion(alpha, modes=(1.0,))
    result = equation.solve()
    assert result.u[-1].max() == pytest.approx(amplitude, abs=1e-12)
    np.testing.assert_allclose(result.u[-1], equation.exact(1.0), atol=1e-12)


def test_diffusion_wave():
    """Values at t = 1 and 5 of the equation at rest, and the solution with a velocity."""
    rest = problems.diffusion_wave(1.5, velocity=0.0)
    assert rest.exact(1.0).max() == pytest.approx(0.3966293653180881, abs=1e-12)
    assert rest.exact(5.0).min() == pytest.approx(-0.06444730895036708, abs=1e-12)
    moved = problems.diffusion_wave(1.5)
    np.testing.assert_allclose(moved.solve().u[-1], moved.exact(5.0), atol=1e-11)


def test_distributed_order():
    """Two values from elsewhere, and a solve."""
    equation = problems.distributed_order()
    assert equation.exact(0.5).max() == pytest.approx(0.5068947532282409, abs=1e-11)
    assert equation.exact(2.0).max() == pytest.approx(0.3355771223969525, abs=1e-11)
    result = equation.solve(rtol=1e-5)
    assert np.abs(result.u[-1] - equation.exact(2.0)).max() < 1e-5
