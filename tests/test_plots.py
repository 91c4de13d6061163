"""One convention for ``ax=``: every ``plot`` draws into the axes that it is given, and returns them."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from hpfracc import control
from hpfracc.errors import InvalidInputError

pyplot = pytest.importorskip("matplotlib.pyplot")

T = np.linspace(0.0, 2.0, 9)
FREQUENCIES = np.geomspace(0.1, 10.0, 20)
X = np.linspace(0.0, 2 * np.pi, 8, endpoint=False)
PLANT = 1 / (control.s**0.5 + 1)


def relax(t: Any, y: Any, k: float = 1.0) -> Any:
    return -k * y


def evolved() -> hf.FPDEResult:
    return hf.solve_fpde(
        None, (0.0, 1.0), np.sin(X), x=X, space=hf.pde.Diffusion(1.0), boundary="periodic", t_eval=[0.0, 1.0]
    )


def fitted() -> hf.FODEFit:
    return hf.fit_fode(relax, T, np.exp(-T), parameters={"k": 0.8}, alpha=0.9, y0=[1.0])


def fitted_evolution() -> hf.FPDEFit:
    def heat(k: float) -> dict[str, Any]:
        return {"u0": np.sin(X), "x": X, "space": hf.pde.Diffusion(k), "boundary": "periodic"}

    data = np.exp(-0.5 * T)[:, None] * np.sin(X) + 0.01 * np.random.default_rng(0).standard_normal((T.size, X.size))
    return hf.fit_fpde(heat, T, data, parameters={"k": 0.8})


def swept() -> hf.SweepResult:
    return hf.sweep(lambda a, b: a * b, hf.grid(a=[1.0, 2.0], b=[1.0, 2.0]))


#: By class: what has a ``plot``, its arguments, and the number of axes it draws into.
CASES: dict[str, tuple[Callable[[], Any], dict[str, Any], int]] = {
    "FODEResult": (lambda: hf.solve_fode(relax, (0.0, 1.0), [1.0], 0.5, step=0.25), {}, 1),
    "OperatorResult": (lambda: hf.caputo(T**2, T, 0.5, full_output=True), {}, 1),
    "SteadyState": (lambda: hf.steady_state(x=T, space=hf.pde.Diffusion(1.0), boundary="dirichlet", source=2.0), {}, 1),
    "FPDEResult": (evolved, {"kind": "profiles"}, 1),
    "FSDEResult": (lambda: hf.solve_fsde(relax, 0.1, (0.0, 1.0), [1.0], step=0.25, paths=3, rng=0), {}, 1),
    "FODEFit": (fitted, {}, 2),
    "FPDEFit": (fitted_evolution, {}, 2),
    "Response": (lambda: control.step_response(PLANT, T), {}, 1),
    "FrequencyResponse": (lambda: control.bode(PLANT, [0.1, 1.0, 10.0]), {}, 2),
    "SweepResult": (swept, {}, 1),
    "Model": (hf.models.one_compartment, {}, 1),
    "TimeCourse": (lambda: hf.models.one_compartment().simulate(), {}, 1),
    "ResponseModel": (hf.models.zener, {}, 1),
    "ModelFit": (lambda: hf.models.zener().fit(FREQUENCIES, hf.models.zener().simulate(FREQUENCIES)), {}, 1),
    "RelaxationSpectrum": (
        lambda: hf.lab.relaxation_times(FREQUENCIES, 1.0 + 2.0 / (1.0 + 1j * FREQUENCIES), samples=20),
        {},
        1,
    ),
    "MeanSquaredDisplacement": (lambda: hf.transport.msd(hf.fbm(20, 0.3, size=9, rng=7), np.arange(21.0)), {}, 1),
    "FirstPassage": (lambda: hf.transport.first_passage(hf.noise.Brownian(), (-1, 1), paths=50, rng=2), {}, 1),
    "VolatilityModel": (
        lambda: hf.rough.Heston(H=0.5, v0=0.04, theta=0.04, kappa=0.3, sigma=0.4, rho=-0.7),
        {"T": [1.0], "K": [0.9, 1.0, 1.1]},
        1,
    ),
}


def test_every_plot_takes_ax():
    """By the source of every class; and the cases above leave none out, where ``Fit`` has that of two."""
    found = {}
    for path in Path(hf.__file__).parent.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for kind in ast.walk(ast.parse(text)) if "def plot(" in text else ():
            for each in kind.body if isinstance(kind, ast.ClassDef) else ():
                if isinstance(each, ast.FunctionDef) and each.name == "plot":
                    found[kind.name] = {argument.arg for argument in (*each.args.args, *each.args.kwonlyargs)}
    assert set(found) == set(CASES) - {"FODEFit", "FPDEFit"} | {"Fit"}
    assert all("ax" in names and "axes" not in names for names in found.values())


@pytest.mark.parametrize("name", CASES)
def test_a_plot_draws_into_its_axes(name):
    """Into those axes and no others; two are asked for where there are two panels."""
    make, options, count = CASES[name]
    result = make()
    pyplot.close("all")  # figures of other tests
    figure, axes = pyplot.subplots(count, squeeze=False)
    given = axes[0, 0] if count == 1 else axes[:, 0]
    returned = result.plot(ax=given, **options)
    assert list(np.ravel(returned)) == list(np.ravel(given))
    assert all(each.has_data() for each in np.ravel(given))
    assert pyplot.get_fignums() == [figure.number]
    if count > 1:
        with pytest.raises(InvalidInputError, match="ax has 1 elements; give two"):
            result.plot(ax=axes[0, 0])
    pyplot.close("all")


def test_the_picture_of_an_operator_has_its_values_and_errors():
    """A line through the values with the error as a band; the parts of complex values."""
    found = hf.caputo(T**2, T, 0.5, full_output=True)
    ax = found.plot(color="red")
    np.testing.assert_array_equal(ax.lines[0].get_xydata(), np.stack([T, found.value], axis=1))
    heights = ax.collections[0].get_paths()[0].vertices[:, 1]
    known = np.isfinite(found.error_estimate)
    assert np.nanmax(heights) == pytest.approx(np.max((found.value + found.error_estimate)[known]))
    ax = hf.caputo(1j * T**2, T, 0.5, full_output=True).plot()
    assert [line.get_label() for line in ax.lines] == ["Re", "Im"] and ax.lines[0].get_ydata().max() == 0.0
    pyplot.close("all")


def test_a_steady_state_in_two_dimensions_is_a_picture():
    found = hf.steady_state(x=(T, T), space=hf.pde.Diffusion(1.0), boundary="dirichlet", source=2.0)
    np.testing.assert_array_equal(found.plot().images[0].get_array(), found.u.T)
    pyplot.close("all")


def test_pictures_that_cannot_use_the_axes_say_so():
    _, ax = pyplot.subplots()
    with pytest.raises(InvalidInputError, match="ax= is for one picture"):
        evolved().plot("frames", ax=ax)
    with pytest.raises(InvalidInputError, match="three dimensions and ax has two"):
        swept().plot(kind="surface", ax=ax)
    pyplot.close("all")
