"""Equations on a GPU: the paths of the host to rounding, derivatives, and chunks that fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from hpfracc import noise

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]

EQUATIONS: dict[str, dict[str, Any]] = {
    "second order": {"noise": noise.FractionalBrownian(0.3)},
    "implicit": {"interpretation": "ito", "method": "implicit_euler"},
    "Doss-Sussmann": {"noise": noise.FractionalBrownian(0.2)},
    "Caputo Euler": {"alpha": 0.7, "interpretation": "ito"},
    "Caputo Milstein": {"alpha": 0.7, "interpretation": "ito", "method": "milstein"},
    "Caputo implicit": {"alpha": 0.7, "interpretation": "ito", "method": "implicit_euler"},
    "stable": {"noise": noise.StableLevy(1.5), "interpretation": "ito"},
    "tempered": {"noise": noise.TemperedStable(1.5, 1.0), "interpretation": "ito"},
    "pairs": {"noise": noise.FractionalBrownian(0.3), "antithetic": True, "correlation": [[1.0, 0.5], [0.5, 1.0]]},
}


def solve(y0: Any, **options: Any) -> hf.FSDEResult:
    return hf.solve_fsde(lambda t, y: -y, lambda t, y: 0.5 * y, (0, 1), y0, step=0.125, paths=4, rng=3, **options)


@pytest.mark.parametrize("options", EQUATIONS.values(), ids=EQUATIONS)
def test_torch_paths_are_those_of_the_host(options: dict[str, Any]) -> None:
    """Every method and noise; results stay on the device."""
    found = solve(torch.tensor([1.0, 2.0], dtype=torch.float64, device="cuda"), **options)
    assert found.y.device.type == "cuda" and found.noise.device.type == "cuda"
    np.testing.assert_allclose(found.y.cpu().numpy(), solve([1.0, 2.0], **options).y, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("process", [noise.FractionalBrownian(0.7), noise.StableLevy(1.5)], ids=["fBm", "stable"])
def test_caputo_equations_with_additive_noise(process: noise.Noise) -> None:
    """In both libraries, the paths of the host; growth is counted on the device."""
    jax = pytest.importorskip("jax")

    def forced(y0: Any, rate: float = 1.0) -> hf.FSDEResult:
        given: dict[str, Any] = {"step": 0.125, "paths": 4, "rng": 3, "alpha": 0.6, "noise": process}
        return hf.solve_fsde(lambda t, y: -rate * y, 1.0, (0, 1), y0, **given)

    plain = forced([1.0, 2.0]).y
    start = torch.tensor([1.0, 2.0], dtype=torch.float64, device="cuda")
    np.testing.assert_allclose(forced(start).y.cpu().numpy(), plain, rtol=1e-10, atol=1e-12)
    with jax.enable_x64(True):
        np.testing.assert_allclose(forced(jax.numpy.array([1.0, 2.0])).y, plain, rtol=1e-9, atol=1e-12)
    with pytest.warns(hf.errors.AccuracyWarning):
        assert forced(start, 2000.0).stats["diverged"] == 4


def test_torch_derivatives_on_the_device() -> None:
    """In the initial value and, from the host, in the order and in H."""
    start = torch.tensor([1.0], dtype=torch.float64, device="cuda", requires_grad=True)
    for name, value in (("alpha", 0.75), ("H", 0.4)):
        given = torch.tensor(value, dtype=torch.float64, requires_grad=True)

        def total(x: Any, y0: Any, name: str = name) -> Any:
            options: dict[str, Any] = {"alpha": x, "interpretation": "ito"}
            return solve(y0, **(options if name == "alpha" else {"noise": noise.FractionalBrownian(x)})).y.sum()

        slope, _ = torch.autograd.grad(total(given, start), [given, start])
        difference = float(total(value + 1e-5, [1.0]) - total(value - 1e-5, [1.0])) / 2e-5
        assert float(slope) == pytest.approx(difference, rel=1e-5)


def test_a_generator_of_the_device_makes_paths_there() -> None:
    """A million paths in chunks, with their moments alone."""
    generator = torch.Generator("cuda").manual_seed(1)
    found = hf.solve_fsde(
        lambda t, y: -y, 1.0, (0, 1), 0.0, step=0.05, paths=10**6, rng=generator, save="last", keep="moments"
    )
    assert found.mean().device.type == "cuda"
    assert abs(float(found.mean())) < 4 * float(found.standard_error)


@pytest.mark.parametrize("options", EQUATIONS.values(), ids=EQUATIONS)
def test_jax_paths_are_those_of_the_host(options: dict[str, Any]) -> None:
    """Every method and noise."""
    jax = pytest.importorskip("jax")
    with jax.enable_x64(True):
        found = solve(jax.numpy.array([1.0, 2.0]), **options)
        np.testing.assert_allclose(found.y, solve([1.0, 2.0], **options).y, rtol=1e-9, atol=1e-12)
