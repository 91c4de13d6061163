"""Methods for alpha = 1: orders, conservation, and agreement with a classical solver."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from scipy.integrate import solve_ivp

import hpfracc as hf
from hpfracc._xp import NUMPY
from hpfracc.errors import InvalidInputError
from hpfracc.pde import (
    ETDRK4,
    CrankNicolson,
    Diffusion,
    Dirichlet,
    FractionalDiffusion,
    ImexBDF2,
    OneSided,
    Strang,
    Yoshida4,
)
from hpfracc.solvers.pde.boundary import read_boundary
from hpfracc.solvers.pde.methods.etdrk4 import phi_functions
from hpfracc.solvers.pde.methods.splitting import turns_phases
from hpfracc.solvers.pde.problem import EvolutionProblem
from hpfracc.solvers.pde.space.base import SpaceSetting
from hpfracc.solvers.pde.space.components import discretise


def problem(x, terms, u0, boundary="periodic", t1=1.0, alpha=1.0, **more):
    axes = x if isinstance(x, tuple) else (x,)
    values = np.asarray(u0)
    setting = SpaceSetting(terms, axes, read_boundary(boundary, len(axes)), complex_state=np.iscomplexobj(values))
    space = discretise(setting)
    return EvolutionProblem(space, ((1.0, alpha),), 0.0, t1, space.restrict(values), **more)


def final(method, equation, steps, mesh=None):
    states = list(method.advance(equation, np.linspace(0.0, equation.t1, steps + 1) if mesh is None else mesh))
    return states[-1]


def period(n, length=2.0 * math.pi):
    return length / n * np.arange(n)


@pytest.mark.parametrize("z", [-1e-9, -1e-3, 0.3, -0.999, -1.001, 1j, -0.9j, -2.5 + 0.5j, -40.0, -1e4, 6.283j, 1e-14j])
def test_phi_functions_keep_their_digits(z):
    """Against mpmath with 90 digits."""
    import mpmath as mp

    with mp.workdps(90):
        w = mp.mpmathify(z)
        exact = [
            complex((mp.exp(w) - 1) / w),
            complex((mp.exp(w) - 1 - w) / w**2),
            complex((mp.exp(w) - 1 - w - w**2 / 2) / w**3),
        ]
    found = phi_functions(NUMPY, np.array([z], dtype=complex))
    for one, other in zip(found, exact, strict=True):
        assert abs(one[0] - other) <= 2e-15 * max(abs(other), 1e-3)


def allen_cahn(n=64, order=1.6, epsilon=0.05, t1=2.0):
    x = period(n)
    return problem(
        x,
        (FractionalDiffusion(order, coefficient=epsilon),),
        0.6 * np.sin(x) + 0.3 * np.cos(3.0 * x),
        t1=t1,
        reaction=lambda t, u: u - u**3,
    )


@pytest.mark.parametrize(
    ("method", "order", "steps"),
    [
        (ETDRK4(), 4, (20, 40)),
        (ImexBDF2(), 2, (80, 160)),
        (ImexBDF2(0.0), 2, (80, 160)),
        (CrankNicolson(), 2, (80, 160)),
        (CrankNicolson(2), 2, (80, 160)),
        (Strang(), 2, (40, 80)),
    ],
)
def test_order_with_a_reaction(method, order, steps):
    """Allen and Cahn's equation of order 1.6, against SciPy's solver of the same system."""
    equation = allen_cahn()
    space = equation.space
    exact = solve_ivp(
        lambda t, u: space.apply(u) + u - u**3, (0.0, 2.0), equation.u0, "DOP853", rtol=1e-11, atol=1e-12
    ).y[:, -1]
    errors = [np.abs(final(method, equation, count) - exact).max() for count in steps]
    assert math.log2(errors[0] / errors[1]) > order - 0.15
    assert errors[1] < 10.0 ** (-2.5 if order == 2 else -5)


@pytest.mark.parametrize("method", [ImexBDF2(), CrankNicolson()])
def test_order_on_unequal_steps(method):
    """Meshes that are graded smoothly keep order 2."""
    equation = allen_cahn()
    exact = final(ETDRK4(), equation, 400)
    errors = []
    for count in (80, 160):
        mesh = 2.0 * np.linspace(0.0, 1.0, count + 1) ** 1.5
        errors.append(np.abs(final(method, equation, count, mesh) - exact).max())
    assert math.log2(errors[0] / errors[1]) > 1.85


@pytest.mark.parametrize("method", [ETDRK4(), ImexBDF2(), CrankNicolson()])
def test_boundary_data_and_source_that_move(method):
    """u = sin(t) + x^2 + cos(x) e^-t on (0, 1), with the source that makes it so."""
    x = np.linspace(0.0, 1.0, 25)

    def exact(t, x):
        return math.sin(t) * (1.0 + x) + np.cos(x) * math.exp(-t)

    def source(t):
        return math.cos(t) * (1.0 + equation.space.points[0])

    equation = problem(x, (Diffusion(1.0),), exact(0.0, x), boundary=Dirichlet(lambda t, x: exact(t, x)), source=source)
    errors = [np.abs(equation.space.embed(final(method, equation, n), 1.0) - exact(1.0, x)).max() for n in (20, 40)]
    grid = np.abs(equation.space.embed(final(method, equation, 320), 1.0) - exact(1.0, x)).max()
    assert errors[1] < 3e-4 + 2.0 * grid
    assert grid < 2e-3


def test_rough_data_need_smoothing():
    """A step function: Crank and Nicolson's largest error at t1 with smoothing is far below that without."""
    x = np.linspace(0.0, 1.0, 401)
    equation = problem(x, (Diffusion(1.0),), (x > 0.5).astype(float), boundary="dirichlet", t1=0.1)
    k = np.arange(1, 200)
    heat = (2.0 / (k * math.pi) * (np.cos(k * math.pi / 2) - np.cos(k * math.pi))) * np.exp(-((k * math.pi) ** 2) * 0.1)
    exact = (heat[:, None] * np.sin(math.pi * k[:, None] * x[None, 1:-1])).sum(0)
    rough = np.abs(final(CrankNicolson(), equation, 20) - exact).max()
    smooth = np.abs(final(CrankNicolson(2), equation, 20) - exact).max()
    assert smooth < 3e-3 < 0.1 * rough
    assert np.abs(final(ImexBDF2(), equation, 40) - exact).max() < 5e-3


def test_energy_never_grows():
    """Allen and Cahn's, with the stabilised scheme, from noise, at steps up to 5; the solution reaches the wells."""
    x = period(128)
    rng = np.random.default_rng(0)
    epsilon = 0.1
    for step in (0.05, 0.5, 5.0):
        equation = problem(
            x,
            (FractionalDiffusion(1.5, coefficient=epsilon**2),),
            0.9 * rng.uniform(-1.0, 1.0, 128),
            t1=40.0 * step,
            reaction=lambda t, u: u - u**3,
        )
        space = equation.space

        def energy(u, space=space):
            return -0.5 * np.sum(u * space.apply(u)) + 0.25 * np.sum((1.0 - u**2) ** 2)

        energies = [energy(equation.u0)]
        for u in ImexBDF2().advance(equation, np.linspace(0.0, 40.0 * step, 41)):
            energies.append(energy(u))
            assert np.abs(u).max() < 1.01
        assert np.diff(energies).max() <= 1e-12 * energies[0]
        assert energies[-1] < 0.5 * energies[0]


def schroedinger(n=128, potential=True, t1=1.0, order=1.5):
    x = period(n, 20.0) - 10.0
    trap = 0.5 * np.cos(2.0 * math.pi * x / 20.0)

    def reaction(t, u):
        return -1j * (trap * u + np.abs(u) ** 2 * u)

    return problem(
        x,
        (FractionalDiffusion(order, coefficient=1j),),
        (np.exp(-(x**2)) * np.exp(1j * x)).astype(complex),
        t1=t1,
        reaction=reaction if potential else None,
    )


@pytest.mark.parametrize(("method", "order", "steps"), [(Strang(), 2, (40, 80)), (Yoshida4(), 4, (20, 40))])
def test_splitting_is_unitary(method, order, steps):
    """The norm is kept to 1e-12, with the method's order in the phase."""
    equation = schroedinger()
    assert turns_phases(equation)
    exact = final(Yoshida4(), equation, 640)
    errors = []
    for count in steps:
        u = final(method, equation, count)
        assert abs(np.linalg.norm(u) / np.linalg.norm(equation.u0) - 1.0) < 1e-12
        errors.append(np.abs(u - exact).max())
    assert math.log2(errors[0] / errors[1]) > order - 0.15


def test_the_free_fractional_schroedinger_equation():
    """i u_t = (-Delta)^0.75 u from exp(-x^2): the value at 0 at t = 1, to the size of the box."""
    x = period(65_536, 6400.0) - 3200.0
    equation = problem(x, (FractionalDiffusion(1.5, coefficient=1j),), np.exp(-(x**2)).astype(complex))
    u = final(Strang(), equation, 1)
    assert abs(u[32_768] - (0.3510208328 - 0.4049056606j)) < 1e-8


def test_the_plane_wave_of_the_cubic_equation():
    """A exp(i (k x - omega t)), omega = |k|^alpha + |A|^2."""
    x, k, a = period(32), 3, 0.7
    equation = problem(
        x,
        (FractionalDiffusion(1.3, coefficient=1j),),
        a * np.exp(1j * k * x),
        reaction=lambda t, u: -1j * np.abs(u) ** 2 * u,
    )
    exact = a * np.exp(1j * (k * x - (k**1.3 + a**2)))
    np.testing.assert_allclose(final(Strang(), equation, 10), exact, atol=1e-12)
    np.testing.assert_allclose(final(ETDRK4(), equation, 100), exact, atol=1e-7)


def test_a_reaction_that_is_no_phase_takes_runge_kutta():
    """Damping, and a phase that depends on the argument."""
    equation = schroedinger()
    for reaction in (lambda t, u: -0.1 * u, lambda t, u: 1j * u.real * u, lambda t, u: 1j * np.conj(u)):
        equation.reaction = reaction
        assert not turns_phases(equation)


def test_the_riesz_kernel_on_the_line():
    """From a delta, order 1.5, t = 1: the stable density at 0, 1, 5, for a box of 4,000."""
    n, length = 16_384, 4000.0
    x = period(n, length) - 0.5 * length
    delta = np.zeros(n)
    delta[n // 2] = n / length
    equation = problem(x, (FractionalDiffusion(1.5),), delta)
    u = final(ETDRK4(), equation, 1)
    h = length / n
    c = np.fft.rfft(u)
    at = [float(np.fft.irfft(c * np.exp(2j * math.pi * np.arange(n // 2 + 1) / length * d))[n // 2]) for d in (0, 1, 5)]
    assert h < 0.25
    np.testing.assert_allclose(at, [0.2873527514521644, 0.2020381596078401, 0.0071117360476548], atol=1e-8)


def test_the_published_errors_of_a_one_sided_equation():
    """Crank and Nicolson's method on weighted differences, beside SciPy's solver of the same system."""
    x = np.linspace(0.0, 1.0, 21)
    inside = x[1:-1]
    equation = problem(
        x,
        (OneSided(1.8, "left", lambda x: math.gamma(2.2) * x**2.8 / 6.0),),
        x**3,
        boundary=(Dirichlet(0.0), Dirichlet(lambda t: math.exp(-t))),
        source=lambda t: -(1.0 + inside) * math.exp(-t) * inside**3,
    )
    matrix = equation.space.matrix
    classical = solve_ivp(
        lambda t, u: matrix @ u + equation.known(t), (0.0, 1.0), equation.u0, "Radau", rtol=1e-8, atol=1e-10, jac=matrix
    ).y[:, -1]
    for method in (CrankNicolson(), ImexBDF2()):
        np.testing.assert_allclose(final(method, equation, 200), classical, atol=1e-5)
    assert np.abs(classical - math.exp(-1.0) * inside**3).max() < 2e-5


def test_refusals():
    """Other orders, operators that are not diagonal, diffusion backwards in time."""
    subdiffusion = allen_cahn()
    subdiffusion.orders = ((1.0, 0.5),)
    for method in (ETDRK4(), ImexBDF2(), CrankNicolson(), Strang()):
        assert "alpha = 1" in str(method.refuses(subdiffusion))
    subdiffusion.orders = ((1.0, 1.0), (2.0, 0.5))
    assert "one derivative" in str(ETDRK4().refuses(subdiffusion))
    uneven = problem(np.linspace(0.0, 1.0, 9), (Diffusion(lambda x: 1.0 + x),), np.zeros(9), boundary="dirichlet")
    assert "diagonal" in str(ETDRK4().refuses(uneven))
    assert "diagonal" in str(Strang().refuses(uneven))
    assert ImexBDF2().refuses(uneven) is None
    assert "backwards in time" in str(Yoshida4().refuses(allen_cahn()))
    assert Yoshida4().refuses(schroedinger()) is None
    with pytest.raises(InvalidInputError, match="smoothing"):
        CrankNicolson(-1)
    with pytest.raises(InvalidInputError, match="stabilisation"):
        ImexBDF2("much")


def test_a_step_of_etdrk4_is_eight_transforms():
    """In PyTorch: one call for all axes, of real values, and no copies; four evaluations of the reaction."""
    torch = pytest.importorskip("torch")
    from torch.utils._python_dispatch import TorchDispatchMode

    class Counter(TorchDispatchMode):
        def __init__(self):
            super().__init__()
            self.calls = {}

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            found = function(*args, **(kwargs or {}))
            if isinstance(found, torch.Tensor) and any(isinstance(one, torch.Tensor) and one.ndim > 1 for one in args):
                name = function.overloadpacket.__name__
                self.calls[name] = self.calls.get(name, 0) + 1
            return found

    x = 2.0 * np.pi / 8 * np.arange(8)
    u0 = torch.rand((2, 8, 8), dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    space = [FractionalDiffusion(1.5, coefficient=0.1), FractionalDiffusion(1.5, coefficient=0.2)]
    given = {"x": (x, x), "space": space, "boundary": "periodic", "method": "etdrk4", "save": "last", "step": 0.1}
    found = []
    for steps in (2, 3):
        with Counter() as counter, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            hf.solve_fpde(lambda t, u: torch.sin(u), (0.0, 0.1 * steps), u0, **given)
        found.append(counter.calls)
    calls = {name: found[1][name] - found[0].get(name, 0) for name in found[1]}
    assert calls["_fft_r2c"] == calls["_fft_c2r"] == calls["sin"] == 4 and not calls.get("_fft_c2c")
    assert not any(calls.get(name) for name in ("clone", "_to_copy", "copy_"))


def test_a_reaction_that_cannot_be_traced_is_noted(monkeypatch: pytest.MonkeyPatch):
    """JAX would compile the steps: they run one operation at a time, and the note names the error."""
    jax = pytest.importorskip("jax")
    monkeypatch.setattr("hpfracc.solvers.pde.methods.etdrk4._JAX_STEPS", 1)
    x = period(16)

    def reaction(t, u):
        return -u if float(u.sum()) < 1e9 else u

    found = hf.solve_fpde(
        reaction, (0.0, 0.1), jax.numpy.sin(x), x=x, space=Diffusion(1.0), boundary="periodic", alpha=1.0,
        method="etdrk4", step=0.01,
    )  # fmt: skip
    np.testing.assert_allclose(np.asarray(found.u[-1]), np.sin(x) * math.exp(-0.2), atol=1e-5)
    assert any("cannot be traced by JAX (ConcretizationTypeError)" in note for note in found.decision.notes)


def test_a_slope_beyond_floating_point_ends_the_solve_in_words():
    """Its square overflows."""
    x = np.linspace(0.0, 1.0, 9)
    given = {"x": x, "space": Diffusion(1.0), "boundary": "dirichlet", "method": "imex_bdf2", "step": 0.1}
    found = hf.solve_fpde(lambda t, u: 1e160 * u, (0.0, 1.0), np.sin(np.pi * x), **given)
    assert not found.success and "slope of the reaction is 1e+160" in found.message


def test_weights_of_etdrk4_agree_with_a_contour_integral():
    """The combination of phi functions that is the first weight, by Kassam and Trefethen's mean over a circle."""
    z = np.array([-1e-4, -0.1, -0.9, -1.1, -5.0, 0.7j])
    circle = z[:, None] + np.exp(2j * math.pi * (np.arange(64) + 0.5) / 64)
    exact = np.mean((-4.0 - circle + np.exp(circle) * (4.0 - 3.0 * circle + circle**2)) / circle**3, axis=1)
    one, two, three = phi_functions(NUMPY, z)
    np.testing.assert_allclose(one - 3.0 * two + 4.0 * three, exact, rtol=1e-12)
