"""Equations in PyTorch and JAX: the paths of NumPy to rounding, and pathwise derivatives against differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from hpfracc import noise
from hpfracc.errors import BackendUnavailableError, InvalidInputError, PinnedBackendError

#: d/dH E cos B_2 at H = 0.7.
SLOPE = -0.4888914594

EQUATIONS: dict[str, dict[str, Any]] = {
    "second order": {"noise": noise.FractionalBrownian(0.3)},
    "Milstein": {"interpretation": "ito"},
    "implicit": {"interpretation": "ito", "method": "implicit_euler"},
    "Doss-Sussmann": {"noise": noise.FractionalBrownian(0.2)},
    "Caputo Euler": {"alpha": 0.7, "interpretation": "ito"},
    "Caputo Milstein": {"alpha": 0.7, "interpretation": "ito", "method": "milstein"},
    "Caputo implicit": {"alpha": 0.7, "interpretation": "ito", "method": "implicit_euler"},
    "stable": {"noise": noise.StableLevy(1.5), "interpretation": "ito"},
    "pairs": {"noise": noise.FractionalBrownian(0.3), "antithetic": True, "correlation": [[1.0, 0.5], [0.5, 1.0]]},
}


def drift(t: Any, y: Any) -> Any:
    return -y


def diffusion(t: Any, y: Any) -> Any:
    return 0.5 * y


def solve(y0: Any, **options: Any) -> hf.FSDEResult:
    return hf.solve_fsde(drift, diffusion, (0, 1), y0, step=0.125, paths=4, rng=3, **options)


@pytest.mark.parametrize("options", EQUATIONS.values(), ids=EQUATIONS)
def test_torch_paths_are_those_of_numpy(options: dict[str, Any]) -> None:
    """Every method, every noise, with the noise that is handed out."""
    torch = pytest.importorskip("torch")
    plain = solve([1.0, 2.0], **options)
    found = solve(torch.tensor([1.0, 2.0], dtype=torch.float64), **options)
    assert isinstance(found.y, torch.Tensor) and found.method == plain.method
    np.testing.assert_allclose(found.y.numpy(), plain.y, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(found.noise.numpy(), plain.noise, atol=1e-14)
    np.testing.assert_allclose(found.mean().numpy(), plain.mean(), rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(found.standard_error.numpy(), plain.standard_error, rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(found.quantile([0.2, 0.5]).numpy(), plain.quantile([0.2, 0.5]), rtol=1e-12, atol=1e-13)


def test_single_precision_tensors() -> None:
    """float32 stays float32, and is the path in double precision to its digits."""
    torch = pytest.importorskip("torch")
    for options in (EQUATIONS["Caputo Euler"], EQUATIONS["Milstein"], EQUATIONS["implicit"]):
        found = solve(torch.tensor([1.0, 2.0]), **options)
        assert found.y.dtype == torch.float32
        np.testing.assert_allclose(found.y.numpy(), solve([1.0, 2.0], **options).y, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("method", ["euler", "milstein", "implicit_euler"])
def test_torch_derivatives_of_a_caputo_equation(method: str) -> None:
    """In the initial value, a parameter, and the order."""
    torch = pytest.importorskip("torch")

    def last(y0: Any, rate: Any, alpha: Any) -> Any:
        return hf.solve_fsde(
            lambda t, y, rate: -rate * y,
            lambda t, y, rate: 0.5 * torch.sin(y) * rate + 0.2,
            (0, 1),
            y0,
            alpha=alpha,
            args=(rate,),
            step=1 / 3,
            paths=2,
            rng=1,
            interpretation="ito",
            method=method,
            save="last",
        ).y

    given = [torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in ([1.0], 1.3, 0.75)]
    assert torch.autograd.gradcheck(last, given, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("method", ["second_order", "doss_sussmann"])
def test_torch_derivatives_with_fractional_noise(method: str) -> None:
    """In the initial value, H, a correlation, and a parameter that the functions capture."""
    torch = pytest.importorskip("torch")

    def last(y0: Any, index: Any, rho: Any, rate: Any) -> Any:
        one = torch.ones_like(rho)
        matrix = torch.stack([torch.stack([one, rho]), torch.stack([rho, one])])
        return hf.solve_fsde(
            lambda t, y: -rate * y,
            lambda t, y: 0.5 * torch.sin(y) * rate + 0.2,
            (0, 1),
            [y0, 2.0 * y0],
            noise=noise.FractionalBrownian(index),
            correlation=matrix,
            step=1 / 3,
            paths=2,
            rng=1,
            method=method,
            save="last",
        ).y

    given = [torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in (1.0, 0.4, 0.3, 1.3)]
    assert torch.autograd.gradcheck(last, given, atol=1e-5, rtol=1e-4)


def test_torch_derivative_in_h_has_the_right_mean() -> None:
    """d/dH E cos B_2, within 4 standard errors."""
    torch = pytest.importorskip("torch")
    index = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    count = 40_000
    process = noise.FractionalBrownian(index)
    options: dict[str, Any] = {"step": 0.5, "noise": process, "paths": count, "rng": 1, "save": "last"}
    ends = hf.solve_fsde(lambda t, y: 0 * y, 1.0, (0, 2), 0.0, **options).y[:, 0]
    torch.cos(ends).mean().backward()
    values = ends.detach().numpy()
    spread = np.std(np.sin(values) * values * np.log(2.0))
    assert abs(float(index.grad) - SLOPE) < 4 * spread / np.sqrt(count)


def test_derivative_in_the_order_at_one() -> None:
    """An order of exactly 1 that carries a derivative is the ordinary equation."""
    torch = pytest.importorskip("torch")
    alpha = torch.tensor(1.0, dtype=torch.float64, requires_grad=True)
    found = solve(torch.tensor([1.0], dtype=torch.float64), alpha=alpha, interpretation="ito")
    increments = np.diff(found.noise.numpy()[:, 0])
    exact = np.cumprod(1.0 - 0.125 + 0.5 * increments, axis=-1)
    np.testing.assert_allclose(found.y.detach().numpy()[:, 0, 1:], exact, rtol=1e-7)
    found.y.sum().backward()
    assert np.isfinite(float(alpha.grad))


def test_jax_paths_are_those_of_numpy() -> None:
    """In double precision, by the seed."""
    jax = pytest.importorskip("jax")
    with jax.enable_x64(True):
        found = solve(jax.numpy.array([1.0, 2.0]), **EQUATIONS["Caputo Euler"])
        assert isinstance(found.y, jax.Array)
        np.testing.assert_allclose(found.y, solve([1.0, 2.0], **EQUATIONS["Caputo Euler"]).y, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("options", EQUATIONS.values(), ids=EQUATIONS)
def test_all_jax_paths_are_those_of_numpy(options: dict[str, Any]) -> None:
    """Every method; the derivative of the diffusion is JAX's own there, to 10 digits elsewhere."""
    jax = pytest.importorskip("jax")
    with jax.enable_x64(True):
        found = solve(jax.numpy.array([1.0, 2.0]), **options)
        np.testing.assert_allclose(found.y, solve([1.0, 2.0], **options).y, rtol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["euler", "milstein", "implicit_euler"])
def test_jax_derivatives_of_a_caputo_equation(method: str) -> None:
    """Under jit, against differences of the same paths by NumPy."""
    jax = pytest.importorskip("jax")
    options: dict[str, Any] = {"step": 0.25, "paths": 3, "rng": 1, "interpretation": "ito", "save": "last"}

    def total(xp: Any, y0: Any, rate: Any, alpha: Any) -> Any:
        return hf.solve_fsde(
            lambda t, y, rate: -rate * y,
            lambda t, y, rate: 0.5 * xp.sin(y) * rate + 0.2,
            (0, 1),
            y0,
            alpha=alpha,
            args=(rate,),
            method=method,
            **options,
        ).y.sum()

    given = np.array([1.0, 1.3, 0.75])
    with jax.enable_x64(True):
        slopes = jax.jit(jax.grad(lambda *x: total(jax.numpy, *x), argnums=(0, 1, 2)))(*map(float, given))
    for unit, slope in zip(np.eye(3), slopes, strict=True):
        difference = (total(np, *(given + 1e-5 * unit)) - total(np, *(given - 1e-5 * unit))) / 2e-5
        assert float(slope) == pytest.approx(difference, rel=1e-5)


def test_jax_derivative_in_h_with_a_traced_key() -> None:
    """d/dH E cos B_2 under jit, within 4 standard errors, in single precision; nan where a traced H is too rough."""
    jax = pytest.importorskip("jax")
    count = 20_000

    def cosine(index: Any, key: Any) -> Any:
        process = noise.FractionalBrownian(index)
        options: dict[str, Any] = {"step": 1.0, "noise": process, "paths": count, "key": key, "save": "last"}
        return jax.numpy.cos(hf.solve_fsde(lambda t, y: 0 * y, 1.0, (0, 2), 0.0, **options).y).mean()

    slope = float(jax.jit(jax.grad(cosine))(0.7, jax.random.key(1)))
    ends = hf.fbm(2, 0.7, T=2.0, size=count, rng=1)[:, -1]
    assert abs(slope - SLOPE) < 4 * np.std(np.sin(ends) * ends * np.log(2.0)) / np.sqrt(count)


@pytest.mark.slow
def test_a_traced_index_that_is_too_rough_gives_nan() -> None:
    """The second-order method below H = 1/4."""
    jax = pytest.importorskip("jax")

    @jax.jit
    def last(index: Any) -> Any:
        process = noise.FractionalBrownian(index)
        options: dict[str, Any] = {"step": 0.5, "noise": process, "paths": 2, "rng": 1, "save": "last"}
        return hf.solve_fsde(lambda t, y: 0 * y, lambda t, y: y, (0, 1), 1.0, **options).y

    assert np.all(np.isnan(last(0.2)))
    assert np.all(np.isfinite(last(0.3)))


@pytest.mark.slow
def test_chunks_of_jax() -> None:
    """A last chunk that is shorter than the others changes nothing, nor do arguments that are no arrays."""
    jax = pytest.importorskip("jax")
    seen: list[int] = []

    def slope(t: Any, y: Any, function: Any) -> Any:
        return -function(y)

    options: dict[str, Any] = {"step": 0.5, "paths": 50, "rng": 3, "save": "last", "args": (jax.numpy.tanh,)}
    whole = hf.solve_fsde(slope, 1.0, (0, 1), 1.0, backend="jax", **options)
    parts = hf.solve_fsde(
        slope, 1.0, (0, 1), 1.0, backend="jax", progress=lambda done, *_: seen.append(done), **options
    )
    assert len(seen) > 10 and seen[-1] == 50
    np.testing.assert_allclose(parts.y, whole.y, rtol=1e-6)


@pytest.mark.parametrize("library", ["torch", pytest.param("jax", marks=pytest.mark.slow)])
@pytest.mark.filterwarnings("ignore::hpfracc.errors.AccuracyWarning")
def test_divergence_is_told_of_tensors(library: str) -> None:
    """The drift of the first of two paths is stiff."""
    module = pytest.importorskip(library)
    start, first = [[1.0, 1.0], [1.0, -1.0]], [1.0, 0.0]
    if library == "torch":
        y0, first = module.tensor(start, requires_grad=True), module.tensor(first)
    else:
        y0, first = module.numpy.asarray(start), module.numpy.asarray(first)

    def fast(t: Any, y: Any) -> Any:
        return -2000.0 * y * (y[:, 1:] > 0) * first

    found = hf.solve_fsde(fast, [0.0, 0.0], (0, 0.1), y0, step=0.02, paths=2, rng=1)
    assert not found.success and found.stats["diverged"] == 1
    assert "1 of 2 paths diverged" in found.message


def test_who_owns_the_arrays() -> None:
    """Arrays stay in their library; another backend is refused, and so are two libraries."""
    torch = pytest.importorskip("torch")
    one = torch.ones(1, dtype=torch.float64)
    options: dict[str, Any] = {"interpretation": "ito"}
    assert isinstance(solve(1.0, backend="torch", **options).y, torch.Tensor)
    assert isinstance(solve(1.0, **options).y, np.ndarray)
    generator = torch.Generator().manual_seed(1)
    found = hf.solve_fsde(drift, 1.0, (0, 1), 1.0, step=0.5, rng=generator)
    assert isinstance(found.y, torch.Tensor)
    with hf.use_backend("torch"):
        assert isinstance(solve(one, **options).y, torch.Tensor)
    with pytest.raises(PinnedBackendError, match="was requested"):
        solve(one, backend="numpy", **options)
    with hf.use_backend("numpy"), pytest.raises(PinnedBackendError, match="was requested"):
        solve(one, **options)
    with pytest.raises(BackendUnavailableError, match="'torch'"):
        solve(1.0, backend="numba", **options)
    with pytest.raises(InvalidInputError, match="give y0 as an array"):
        hf.solve_fsde(lambda t, y: torch.as_tensor(y), 1.0, (0, 1), 1.0, step=0.5)
    with pytest.raises(InvalidInputError, match="use torch"):
        hf.solve_fsde(lambda t, y: y.numpy(), 1.0, (0, 1), one, step=0.5)
    with pytest.raises(InvalidInputError, match="is no tuple"):
        hf.solve_fsde(drift, 1.0, (0, 1), 1.0, step=0.5, args=one)


def test_settings_for_the_solver_are_obeyed() -> None:
    """A pin is as good as the argument, which is stronger; ``never`` rules a library out."""
    torch = pytest.importorskip("torch")
    one = torch.ones(1, dtype=torch.float64)
    options: dict[str, Any] = {"interpretation": "ito"}
    with hf.config(pin={"solve_fsde": "torch"}):
        assert isinstance(solve(1.0, **options).y, torch.Tensor)
        assert isinstance(solve(1.0, backend="numpy", **options).y, np.ndarray)
        with hf.use_backend("numpy"):  # for all operations: stronger than the pin, and host arrays stay as they are
            assert isinstance(solve(1.0, **options).y, np.ndarray)
    with hf.config(pin={"solve_fsde": "numpy"}), pytest.raises(PinnedBackendError, match=r"requested by config\(pin="):
        solve(one, **options)
    with hf.config(pin={"solve_fsde": "numba"}), pytest.raises(BackendUnavailableError, match="asks for 'numba'"):
        solve(1.0, **options)
    with hf.config(never={"solve_fsde": ["torch"]}):
        assert isinstance(solve(1.0, **options).y, np.ndarray)
        for given, more in ((one, {}), (1.0, {"backend": "torch"})):
            with pytest.raises(BackendUnavailableError, match=r"never=...\) rules it out for solve_fsde"):
                solve(given, **more, **options)
