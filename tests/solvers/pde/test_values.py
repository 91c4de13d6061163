"""Values of solutions that are known in closed form, or to 16 digits by mpmath."""

from __future__ import annotations

import math

import numpy as np
import pytest

import hpfracc as hf
from hpfracc.pde import Diffusion, Dirichlet, DistributedOrder, FractionalDiffusion, Neumann

X = np.linspace(0.0, np.pi, 17)


def solve(u0=None, t=1.0, **more):
    given = {"x": X, "space": Diffusion(1.0), "boundary": "dirichlet", **more}
    return hf.solve_fpde(None, (0.0, t), np.sin(X) if u0 is None else u0, **given)


@pytest.mark.parametrize(
    ("alpha", "value"),
    [(0.25, 0.4638527608017133), (0.5, 0.427583576155807), (0.75, 0.3931083028157541), (0.9, 0.3760660214246419)],
)
def test_subdiffusion_of_a_sine(alpha: float, value: float):
    """By its mode, exactly; by L2-1sigma and BDF4 to the tolerance."""
    found = solve(alpha=alpha)
    assert found.decision.method == "exact_modes"
    assert found.u[-1, 8] == pytest.approx(value, abs=1e-14)
    stepped = solve(alpha=alpha, method="l2_1sigma", rtol=1e-5)
    assert stepped.success
    assert stepped.u[-1, 8] == pytest.approx(value, abs=1e-5)


def test_order_one_is_the_heat_equation():
    """alpha = 1: exp(-t), by modes and by steps."""
    assert solve(alpha=1.0).u[-1, 8] == pytest.approx(math.exp(-1.0), abs=1e-14)
    assert solve(alpha=1.0, method="convolution_quadrature", rtol=1e-6).u[-1, 8] == pytest.approx(
        math.exp(-1.0), abs=1e-6
    )


def test_fundamental_solution_on_the_line():
    """alpha = 1/2 at t = 1 from a delta on a wide period: the values at 0, 1, 2, and the variance."""
    length, n = 60.0, 8192
    x = (np.arange(n) - n // 2) * (length / n)
    u0 = np.zeros(n)
    u0[n // 2] = n / length
    found = solve(u0, x=x, boundary="periodic", alpha=0.5, t_eval=[1.0]).u[-1]
    # E(-k^2) falls like k^-2, so the tail of the series is of order 1 / n; away from 0 it cancels.
    for place, value in ((1.0, 0.1916677082853418), (2.0, 0.0806255417272929)):
        assert np.interp(place, x, found) == pytest.approx(value, abs=2e-5)
    assert found[n // 2] == pytest.approx(0.4080244695491315, abs=2e-3)
    assert np.sum(found * x**2) * (length / n) == pytest.approx(2.0 / math.gamma(1.5), rel=1e-4)


@pytest.mark.filterwarnings("ignore::hpfracc.errors.AccuracyWarning")
def test_half_line_with_a_boundary_value():
    """u(0, t) = 1 from nothing, alpha = 1/2: the value at x = 1, t = 1, with order 2 in space."""
    errors = []
    for n in (101, 201):
        x = np.linspace(0.0, 20.0, n)
        found = solve(np.zeros(n), x=x, boundary=(Dirichlet(1.0), Dirichlet(0.0)), alpha=0.5, t_eval=[1.0])
        errors.append(abs(found.u[-1, (n - 1) // 20] - 0.4214253280337984))
    assert errors[1] < 2e-4
    assert math.log2(errors[0] / errors[1]) > 1.85


def test_free_ends():
    """cos(pi x), alpha = 1/2, t = 0.1."""
    x = np.linspace(0.0, 1.0, 17)
    found = solve(np.cos(np.pi * x), 0.1, x=x, boundary="neumann", alpha=0.5)
    assert found.u[-1, 0] == pytest.approx(0.1726448109138979, abs=1e-14)


@pytest.mark.parametrize(
    ("alpha", "values"),
    [
        (1.5, (0.3966293653180881, -0.06444730895036708)),
        (1.75, (0.4590043755715272, 0.05091501412958818)),
    ],
)
def test_diffusion_waves(alpha: float, values: tuple[float, float]):
    """From rest, at t = 1 and 5, by modes and by BDF2."""
    found = solve(alpha=alpha, du0=0, t=5.0, t_eval=[1.0, 5.0])
    assert found.u[:, 8] == pytest.approx(values, abs=1e-13)
    stepped = solve(alpha=alpha, du0=0, t=5.0, t_eval=[1.0, 5.0], method="convolution_quadrature", rtol=1e-4)
    assert stepped.success
    assert stepped.u[:, 8] == pytest.approx(values, abs=1e-4)


def test_several_derivatives():
    """D^.8 u + D^.3 u = u_xx by BDF4 and by L1."""
    found = solve(alpha=0.8, terms=[(1.0, 0.3)])
    assert found.decision.method == "convolution_quadrature"
    assert found.u[-1, 8] == pytest.approx(0.6017155264864621, abs=1e-8)
    other = solve(alpha=0.8, terms=[(1.0, 0.3)], method="l1", step=1.0 / 400)
    assert other.u[-1, 8] == pytest.approx(0.6017155264864621, abs=3e-4)


@pytest.mark.parametrize(("t", "value"), [(0.5, 0.5068947532282409), (2.0, 0.3355771223969525)])
def test_distributed_order(t: float, value: float):
    """The integral of D^b u over b in [0, 1]."""
    assert solve(t=t, alpha=DistributedOrder(), step=t / 128).u[-1, 8] == pytest.approx(value, abs=1e-8)


def test_manufactured_distributed_order():
    """Weight Gamma(3 - b), u = t^2 sin x: the left side is 2 (t^2 - t) / ln t sin x."""

    def source(t, x):
        left = 2.0 * (t * t - t) / math.log(t) if 0.0 < t != 1.0 else 2.0 * t
        return (left + t * t) * np.sin(x)

    found = solve(
        0.0 * X, 0.5, alpha=DistributedOrder(lambda b: math.gamma(3.0 - b)), source=source, method="l1", step=0.5 / 256
    )
    assert np.max(np.abs(found.u - found.t[:, None] ** 2 * np.sin(X))) < 2e-4


def test_two_dimensions():
    """sin x sin y, alpha = 0.6."""
    found = solve(np.sin(X)[:, None] * np.sin(X), x=(X, X), alpha=0.6)
    assert found.u[-1, 8, 8] == pytest.approx(0.235571031111825, abs=1e-14)


def test_riesz_from_a_delta():
    """Order 1.5 in space on the line, t = 1, at 0, 1, 5; the images of a period of 400 add 1e-5."""
    length, n = 400.0, 16384
    x = (np.arange(n) - n // 2) * (length / n)
    u0 = np.zeros(n)
    u0[n // 2] = n / length
    found = solve(u0, x=x, space=FractionalDiffusion(1.5, "riesz"), boundary="periodic", t_eval=[1.0]).u[-1]
    from scipy.interpolate import CubicSpline

    for place, value in ((0.0, 0.2873527514521644), (1.0, 0.2020381596078401), (5.0, 0.0071117360476548)):
        assert CubicSpline(x, found)(place) == pytest.approx(value, abs=1e-6)


def test_a_line_that_is_cut_loses_mass():
    """Order 1.5 from a delta, t = 1: beyond -100 and 100 are 2 Gamma(1.5) sin(3 pi / 4) / pi 100^-1.5 = 4e-4 of it."""
    length, n = 3200.0, 8192
    x = (np.arange(n) - n // 2) * (length / n)
    u0 = np.zeros(n)
    u0[n // 2] = n / length
    found = solve(u0, x=x, space=FractionalDiffusion(1.5, "riesz"), boundary="periodic", t_eval=[1.0])
    lost = found.u[-1][np.abs(x) > 100.0].sum() * length / n
    assert lost == pytest.approx(2e-3 * math.gamma(1.5) * math.sin(0.75 * math.pi) / math.pi, rel=0.02)
    assert found.mass[-1] == pytest.approx(1.0, abs=1e-12)


def test_manufactured_solution_with_a_source():
    """u = (t^3 + t^alpha) sin x, largest error over all steps of order 2."""
    alpha, errors = 0.4, []

    def source(t, x):
        left = 6.0 / math.gamma(4.0 - alpha) * t ** (3.0 - alpha) + math.gamma(1.0 + alpha)
        return (left + t**3 + t**alpha) * np.sin(x)

    for steps in (128, 256):
        found = solve(0.0 * X, alpha=alpha, source=source, step=1.0 / steps)
        assert found.decision.method == "l2_1sigma"
        errors.append(np.max(np.abs(found.u - (found.t**3 + found.t**alpha)[:, None] * np.sin(X))))
    assert math.log2(errors[0] / errors[1]) > 1.85


@pytest.mark.parametrize("alpha", [0.5, 1.0, 1.6])
def test_a_boundary_that_moves(alpha: float):
    """u = (1 + t)^2 cosh x by its boundary data and source: order 2 in space, time resolved."""
    errors = []
    for n in (9, 17):
        x = np.linspace(0.0, 1.0, n)

        def left(t):
            if alpha == 1.0:
                return 2.0 * (1.0 + t)
            if alpha > 1.0:
                return 2.0 * t ** (2.0 - alpha) / math.gamma(3.0 - alpha)
            return 2.0 * t ** (2.0 - alpha) / math.gamma(3.0 - alpha) + 2.0 * t ** (1.0 - alpha) / math.gamma(2 - alpha)

        found = hf.solve_fpde(
            None,
            (0.0, 1.0),
            np.cosh(x),
            x=x,
            space=Diffusion(1.0),
            boundary=(Dirichlet(lambda t: (1.0 + t) ** 2), Neumann(lambda t: (1.0 + t) ** 2 * math.sinh(1.0))),
            alpha=alpha,
            du0=2.0 * np.cosh(x) if alpha > 1.0 else None,
            source=lambda t, x: (left(t) - (1.0 + t) ** 2) * np.cosh(x),
            step=1.0 / 400,
            method="l2_1sigma" if alpha < 1.0 else "convolution_quadrature",
        )
        errors.append(np.max(np.abs(found.u[-1] - 4.0 * np.cosh(x))))
    assert math.log2(errors[0] / errors[1]) > 1.85
    assert 0.2 < found.error_estimate.space / errors[-1] < 5.0


def test_mass_is_conserved():
    """Free and periodic ends, every method, to rounding."""
    x = np.linspace(0.0, 1.0, 33)
    u0 = np.exp(-40.0 * (x - 0.3) ** 2)
    for method in ("exact_modes", "l1", "l2_1sigma", "convolution_quadrature"):
        for boundary in ("neumann", "periodic"):
            found = hf.solve_fpde(
                None, (0.0, 1.0), u0, x=x, space=Diffusion(0.1), boundary=boundary, alpha=0.6, method=method, step=0.02
            )
            assert np.ptp(found.mass) < 1e-12
    y = np.linspace(0.0, 1.0, 8)
    found = hf.solve_fpde(
        None,
        (0.0, 1.0),
        np.add.outer(u0, y),
        x=(x, y),
        space=Diffusion(0.1),
        boundary=[Neumann(1.0), Neumann(-0.5)],
        alpha=0.6,
        t_eval=[0.5, 1.0],
    )
    # The flux through the ends is 0.1 (2 * 1 - 2 * 0.5), and its fractional integral is what comes in.
    start = float(np.trapezoid(np.trapezoid(np.add.outer(u0, y), y), x))
    gain = 0.1 * np.array([0.5, 1.0]) ** 0.6 / math.gamma(1.6)
    assert found.mass == pytest.approx(start + gain, abs=1e-12)
