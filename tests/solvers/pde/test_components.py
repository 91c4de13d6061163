"""Systems whose components have names, and conditions, data and orders of their own."""

from __future__ import annotations

import numpy as np
import pytest

import hpfracc as hf
from hpfracc import pde
from hpfracc.errors import InvalidInputError, ShapeError

X = np.linspace(0.0, 1.0, 17)
SINE, COSINE = np.sin(np.pi * X), np.cos(0.5 * np.pi * X)
MIXED = {"u": 0.0, "v": {"left": pde.Neumann(0.0), "right": 1.0}}


def alone(boundary, u0, space, **options):
    return hf.solve_fpde(None, (0.0, 0.5), u0, x=X, space=space, boundary=boundary, **options)


@pytest.mark.parametrize(
    ("alpha", "method"),
    [(0.6, "exact_modes"), (0.6, "l1"), (0.6, "l2_1sigma"), (1.0, "imex_bdf2"), (1.5, "convolution_quadrature")],
)
@pytest.mark.parametrize("varies", [False, True])
def test_decoupled_components_are_those_of_single_solves(alpha: float, method: str, varies: bool):
    """To rounding, with conditions of different kinds, diagonalised or not, and data by name."""
    if varies and method == "exact_modes":
        method = "l1"
    spaces = {"u": pde.Diffusion(lambda x: 1.0 + x) if varies else pde.Diffusion(1.0), "v": pde.Diffusion(0.5)}
    starts = {"u": SINE, "v": lambda x: np.cos(0.5 * np.pi * x) + 1.0}
    sources = {"u": lambda t, x: np.cos(t) * x, "v": 2.0} if method != "exact_modes" else {"u": X, "v": 2.0}
    more = {"alpha": alpha, "method": method, "step": 0.05}
    speeds = {"u": 0.0, "v": SINE} if alpha > 1.0 else None
    given = {"x": X, "space": spaces, "boundary": MIXED, "source": sources, **more}
    both = hf.solve_fpde(None, (0.0, 0.5), starts, **given, **({"du0": speeds} if speeds else {}))
    assert both.components == ("u", "v")
    assert both.u.shape == (len(both.t), 2, 17)
    for number, name in enumerate(both.components):
        speed = {"du0": speeds[name]} if speeds else {}
        one = alone(MIXED[name], starts[name], spaces[name], source=sources[name], **more, **speed)
        np.testing.assert_allclose(both.u[:, number], one.u, rtol=0.0, atol=1e-13)
        np.testing.assert_allclose(both.mass[:, number], one.mass, rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(both.t, one.t)


def coupled(points: int, **options):
    """The largest error of a coupled system with a known solution, and the result."""
    x = np.linspace(0.0, 1.0, points)

    def u(t, x):
        return np.exp(-t) * np.sin(np.pi * x) + x

    def v(t, x):
        return (1.0 + t) * np.cos(x)

    def source(t, x):
        wave = np.exp(-t) * np.sin(np.pi * x)
        slope = np.pi * np.exp(-t) * np.cos(np.pi * x) + 1.0
        product = u(t, x) * v(t, x)
        first = -wave - slope + (1.0 + x) * np.pi**2 * wave - product
        return np.stack([first, np.cos(x) + 0.5 * v(t, x) + product])

    found = hf.solve_fpde(
        lambda t, w: np.stack([w[0] * w[1], -w[0] * w[1]]),
        (0.0, 0.5),
        {"u": lambda x: u(0.0, x), "v": lambda x: v(0.0, x)},
        x=x,
        space=[pde.Diffusion(lambda x: 1.0 + x), pde.Diffusion(0.5)],
        source=source,
        boundary={"u": (0.0, 1.0), "v": ("neumann", pde.Neumann(lambda t: -(1.0 + t) * np.sin(1.0)))},
        **options,
    )
    t = found.t[-1]
    return max(np.abs(found.u[-1, 0] - u(t, x)).max(), np.abs(found.u[-1, 1] - v(t, x)).max()), found


def test_a_coupled_system_has_order_two():
    """Dirichlet conditions of one component and slopes of the other, against a manufactured solution."""
    errors = {}
    for points in (9, 17, 33):
        errors[points], found = coupled(points, rtol=1e-6)
        assert errors[points] <= 1.5 * (found.error_estimate.space + found.error_estimate.time)
    orders = np.log2([errors[9] / errors[17], errors[17] / errors[33]])
    assert np.all(np.abs(orders - 2.0) < 0.15), orders


def test_the_jacobian_of_components_that_live_on_different_points():
    """Newton's method with ``jac`` finds the solution that it finds by differences."""

    def reaction(t, w):
        return 300.0 * np.stack([w[1] - w[0] ** 3, w[0] - w[1]])

    def jac(t, w):
        return 300.0 * np.stack(
            [np.stack([-3.0 * w[0] ** 2, 1.0 + 0.0 * w[0]]), np.stack([1.0 + 0.0 * w[0], -1.0 + 0.0 * w[0]])]
        )

    given = {"x": X, "space": pde.Diffusion(1.0), "boundary": {"u": 0.0, "v": "neumann"}, "method": "l1", "step": 0.05}
    start = {"u": SINE, "v": 1.0}
    plain = hf.solve_fpde(reaction, (0.0, 0.2), start, **given)
    found = hf.solve_fpde(reaction, (0.0, 0.2), start, jac=jac, **given)
    assert found.stats["jacs"] > 1
    np.testing.assert_allclose(found.u, plain.u, rtol=1e-5, atol=1e-7)


def test_orders_of_their_own_on_a_region_and_in_two_dimensions():
    """An order for each component by name, on a box and on the region that is the whole box."""
    axis = np.linspace(0.0, 1.0, 9)
    start = {"u": np.outer(SINE[::2], SINE[::2]), "v": lambda x, y: np.cos(np.pi * x) + 0.0 * y}
    given = {"space": pde.Diffusion(1.0), "boundary": {"u": 0.0, "v": "neumann"}, "alpha": {"u": 0.5, "v": 0.9}}
    region = pde.Region((axis, axis), lambda x, y: x + y > -1.0)
    one = hf.solve_fpde(None, (0.0, 0.1), start, x=region, step=0.001, method="l1", **given)
    for number, name in enumerate(("u", "v")):
        single = {"boundary": given["boundary"][name], "alpha": given["alpha"][name], "space": given["space"]}
        alone = hf.solve_fpde(None, (0.0, 0.1), start[name], x=region, t_eval=[0.1], rtol=1e-4, **single)
        np.testing.assert_allclose(one.u[-1, number], alone.u[-1], atol=2e-2 * np.abs(alone.u[-1]).max())
        spectral = hf.solve_fpde(None, (0.0, 0.1), start[name], x=(axis, axis), t_eval=[0.1], **single)
        np.testing.assert_allclose(one.u[-1, number], spectral.u[-1], atol=5e-2 * np.abs(spectral.u[-1]).max())


def test_integral_laplacians_of_different_orders_have_nodes_of_their_own():
    """Each component is that of a single solve on the same grid."""
    x = pde.jacobi_grid(16, 0.6)
    spaces = {"u": pde.FractionalDiffusion(0.6, "integral"), "v": pde.FractionalDiffusion(1.4, "integral")}
    start = (1.0 - x**2) ** 2
    given = {"x": x, "boundary": pde.Exterior(0.0), "alpha": 0.7, "source": 1.0}
    both = hf.solve_fpde(None, (0.0, 1.0), np.stack([start, start]), space=list(spaces.values()), **given)
    for number, space in enumerate(spaces.values()):
        one = hf.solve_fpde(None, (0.0, 1.0), start, space=space, **given)
        np.testing.assert_allclose(both.u[-1, number], one.u[-1], rtol=1e-6, atol=1e-9)
    disc = {"x": pde.Disc(1.0, 6, 8), "boundary": pde.Exterior(0.0), "step": 0.1, "space": list(spaces.values())}
    with pytest.raises(InvalidInputError, match="need one order for all components"):
        hf.solve_fpde(None, (0.0, 1.0), np.zeros((2, 7, 8)), **disc)


@pytest.mark.parametrize("library", ["torch", "jax.numpy"])
def test_tensors_and_their_gradients(library: str):
    """The values of NumPy, and derivatives by a coefficient as by differences."""
    module = pytest.importorskip(library)

    def solved(library, k):
        return hf.solve_fpde(
            lambda t, w: library.stack([w[0] * w[1], -w[0] * w[1]]),
            (0.0, 0.2),
            {"u": library.asarray(SINE), "v": library.asarray(1.0 + 0.0 * X)},
            x=X,
            space={"u": pde.Diffusion(k), "v": pde.Diffusion(0.5)},
            boundary={"u": 0.0, "v": "neumann"},
            method="imex_bdf2",
            step=0.05,
        ).u[-1]

    plain = [solved(np, k) for k in (0.7 - 1e-5, 0.7, 0.7 + 1e-5)]
    slope = (plain[2] - plain[0]).sum() / 2e-5
    if library == "torch":
        k = module.tensor(0.7, dtype=module.float64, requires_grad=True)
        found = solved(module, k)
        found.sum().backward()
        np.testing.assert_allclose(found.detach().numpy(), plain[1], atol=1e-12)
        np.testing.assert_allclose(float(k.grad), slope, rtol=1e-6)
    else:
        jax = pytest.importorskip("jax")
        with jax.enable_x64(True) if hasattr(jax, "enable_x64") else jax.experimental.enable_x64():
            np.testing.assert_allclose(solved(module, 0.7), plain[1], atol=1e-12)
            np.testing.assert_allclose(jax.grad(lambda k: solved(module, k).sum())(0.7), slope, rtol=1e-6)


def test_steady_states_events_and_interpolation():
    """What else is asked of a solution."""
    given = {"x": X, "space": pde.Diffusion(1.0), "boundary": MIXED}
    steady = hf.steady_state(None, {"u": 0.0, "v": 0.0}, source={"u": X, "v": lambda t, x: 2.0 + 0.0 * x}, **given)
    np.testing.assert_allclose(steady.u[1], 2.0 - X**2, atol=1e-12)
    found = hf.solve_fpde(
        None,
        (0.0, 0.5),
        {"u": SINE, "v": COSINE + 1.0},
        alpha=0.7,
        dense_output=True,
        events=lambda t, w: w[0, 8] - 0.5,
        **given,
    )
    (at,) = found.t_events[0]
    np.testing.assert_allclose(found.sol(at, [0.5])[0], 0.5, rtol=1e-6)
    np.testing.assert_allclose(found.sol(0.2, [1.0])[1], 1.0, rtol=1e-12)
    assert found.energy[-1] < found.energy[0]


def test_delays_with_histories_of_time_and_space():
    """``history(t, x)`` is recognised by its signature, also by names of components."""
    given = {"x": X, "space": pde.Diffusion(1.0), "boundary": "neumann", "alpha": 0.6, "step": 0.05, "method": "l1"}
    start = np.stack([COSINE, SINE])

    def delayed(t, w, then):
        return -then[0]

    one = hf.solve_fpde(delayed, (0.0, 0.5), start, delays=[0.2], history=lambda t: start * (1.0 - t), **given)
    histories = [
        lambda t, x: np.stack([np.cos(0.5 * np.pi * x), np.sin(np.pi * x)]) * (1.0 - t),
        {"u": lambda t, x: np.cos(0.5 * np.pi * x) * (1.0 - t), "v": lambda t: SINE * (1.0 - t)},
    ]
    for history in histories:
        names = {"u": COSINE, "v": SINE} if isinstance(history, dict) else start
        two = hf.solve_fpde(delayed, (0.0, 0.5), names, delays=[0.2], history=history, **given)
        np.testing.assert_allclose(two.u, one.u, rtol=1e-12, atol=1e-14)
    with pytest.raises(InvalidInputError, match=r"history has to be history\(t\) or history\(t, x\)"):
        hf.solve_fpde(delayed, (0.0, 0.5), start, delays=[0.2], history=lambda t, x, y: start, **given)


NAMED = {"u": SINE, "v": SINE}


@pytest.mark.parametrize(
    ("u0", "more", "error", "message"),
    [
        (NAMED, {"boundary": {"u": 0.0, "w": 0.0}}, InvalidInputError, "boundary is given for 'w', which is no"),
        (NAMED, {"boundary": {"u": 0.0}}, InvalidInputError, "for 'u', and not for 'v'; give an entry for each of"),
        (NAMED, {"boundary": {"u": 0.0, "v": "periodic"}}, InvalidInputError, "one of 'u' and 'v' is periodic"),
        (np.stack([SINE, SINE]), {"boundary": {"u": 0.0, "v": 0.0}}, InvalidInputError, "need u0 by name too"),
        (np.stack([SINE, SINE]), {"space": {"u": pde.Diffusion(1.0)}}, InvalidInputError, "u0 have no names"),
        (NAMED, {"source": {"w": 1.0}}, InvalidInputError, "source is given for 'w'"),
        (NAMED, {"space": {"u": pde.Diffusion(1.0)}}, InvalidInputError, "space is given for 'u', and not for 'v'"),
        (NAMED, {"alpha": {"u": 0.5, "w": 0.5}}, InvalidInputError, "alpha is given for 'w'"),
        ({"left": SINE, "right": SINE}, {}, InvalidInputError, "'left' is no name of a component"),
        ({}, {}, InvalidInputError, "empty dict"),
        ({"u": SINE, "v": SINE[1:]}, {}, ShapeError, r"u0\['v'\] has shape \(16,\)"),
        (NAMED, {"space": pde.CrossDiffusion(np.eye(2)), "boundary": MIXED}, InvalidInputError, "the same conditions"),
    ],
)
def test_names_that_do_not_fit(u0, more, error, message):
    """The name, and those that there are."""
    with pytest.raises(error, match=message):
        hf.solve_fpde(None, (0.0, 1.0), u0, **{"x": X, "space": pde.Diffusion(1.0), "boundary": 0.0, **more})


def test_results_know_the_names():
    """For plots and tables."""
    found = hf.solve_fpde(None, (0.0, 1.0), NAMED, x=X, space=pde.Diffusion(1.0), boundary=0.0)
    assert found.components == ("u", "v")
    with pytest.raises(InvalidInputError, match="component"):
        found.plot(component="w")
