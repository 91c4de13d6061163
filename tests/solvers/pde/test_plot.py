"""Pictures of a solution, and agreement with a classical solver at order 1."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import solve_ivp

import hpfracc as hf
from hpfracc.errors import InvalidInputError
from hpfracc.pde import Diffusion

X = np.linspace(0.0, 2.0 * np.pi, 24, endpoint=False)


@pytest.fixture
def pyplot():
    """Matplotlib without a screen, with all figures closed afterwards."""
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    yield pyplot
    pyplot.close("all")


def test_one_dimension(pyplot):
    """A kymograph of u over x and t, and profiles at the times that are asked for."""
    found = hf.solve_fpde(None, (0.0, 1.0), np.sin(X), x=X, space=Diffusion(), boundary="periodic", alpha=0.5)
    ax = found.plot()
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("x", "t")
    assert np.allclose(ax.collections[0].get_array(), found.u)
    ax = found.plot("profiles", times=[0.0, 0.5, 1.0])
    assert len(ax.lines) == 3
    assert np.allclose(ax.lines[1].get_ydata(), found.u[50])
    with pytest.raises(InvalidInputError, match="outside the solution"):
        found.plot("profiles", times=[3.0])
    with pytest.raises(InvalidInputError, match="kind='film'"):
        found.plot("film")


def test_frames_and_an_animation(pyplot, tmp_path):
    """Two dimensions: four images on one scale, and a file that moves."""
    pytest.importorskip("PIL")
    u0 = np.outer(np.sin(X), np.cos(X))
    found = hf.solve_fpde(None, (0.0, 1.0), u0, x=(X, X), space=Diffusion(), boundary="periodic", step=0.1)
    axes = found.plot()
    assert len(axes) == 4
    assert np.allclose(axes[0].images[0].get_array(), u0.T)
    assert len({ax.images[0].get_clim() for ax in axes}) == 1
    path = found.plot("frames", path=tmp_path / "film.gif", seconds=0.4)
    from PIL import Image

    with Image.open(path) as film:
        assert film.n_frames > 3
    with pytest.raises(InvalidInputError, match="needs one dimension"):
        found.plot("kymograph")


def test_order_one_agrees_with_a_classical_solver():
    """Allen-Cahn at alpha = 1 against SciPy's solve_ivp in the same modes, within the tolerance and the estimate."""
    found = hf.solve_fpde(
        lambda t, u: u - u**3, (0.0, 2.0), 0.3 * np.cos(X), x=X, space=Diffusion(0.1), boundary="periodic"
    )
    waves = np.arange(X.size // 2 + 1)

    def slope(t, u):
        return np.fft.irfft(-0.1 * waves**2 * np.fft.rfft(u), X.size) + u - u**3

    classical = solve_ivp(slope, (0.0, 2.0), 0.3 * np.cos(X), rtol=1e-10, atol=1e-12).y[:, -1]
    assert np.max(np.abs(found.u[-1] - classical)) < 1e-6
    assert np.max(np.abs(found.u[-1] - classical)) < 10 * max(found.error_estimate.time, 1e-10)
