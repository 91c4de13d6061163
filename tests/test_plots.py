"""One convention for ``ax=``: every ``plot`` draws into the axes that it is given, and returns them."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from hpfracc import control
from hpfracc.errors import InvalidInputError

pyplot = pytest.importorskip("matplotlib.pyplot")

T = np.linspace(0.0, 2.0, 9)
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


def swept() -> hf.SweepResult:
    return hf.sweep(lambda a, b: a * b, hf.grid(a=[1.0, 2.0], b=[1.0, 2.0]))


#: By class: what has a ``plot``, its arguments, and the number of axes it draws into.
CASES: dict[str, tuple[Callable[[], Any], dict[str, Any], int]] = {
    "FODEResult": (lambda: hf.solve_fode(relax, (0.0, 1.0), [1.0], 0.5, step=0.25), {}, 1),
    "FPDEResult": (evolved, {"kind": "profiles"}, 1),
    "FSDEResult": (lambda: hf.solve_fsde(relax, 0.1, (0.0, 1.0), [1.0], step=0.25, paths=3, rng=0), {}, 1),
    "FODEFit": (fitted, {}, 2),
    "Response": (lambda: control.step_response(PLANT, T), {}, 1),
    "FrequencyResponse": (lambda: control.bode(PLANT, [0.1, 1.0, 10.0]), {}, 2),
    "SweepResult": (swept, {}, 1),
}


def plotted_classes() -> set[str]:
    """Names of the classes of the library that define ``plot``."""
    found = set()
    for module in pkgutil.walk_packages(hf.__path__, "hpfracc."):
        if module.name.startswith(("hpfracc.solvers", "hpfracc.control", "hpfracc.models", "hpfracc.distributed")):
            for kind in vars(importlib.import_module(module.name)).values():
                if isinstance(kind, type) and kind.__module__.startswith("hpfracc") and "plot" in vars(kind):
                    found.add(kind)
    for kind in found:
        parameter = inspect.signature(kind.plot).parameters["ax"]
        assert parameter.default is None, kind
        assert "axes" not in inspect.signature(kind.plot).parameters, kind
    return {kind.__name__ for kind in found}


def test_every_plot_takes_ax():
    """By its signature; those that are slow to make are drawn in their own tests."""
    assert plotted_classes() >= set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_a_plot_draws_into_its_axes(name):
    """Into those axes and no others; two are asked for where there are two panels."""
    make, options, count = CASES[name]
    result = make()
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


def test_pictures_that_cannot_use_the_axes_say_so():
    _, ax = pyplot.subplots()
    with pytest.raises(InvalidInputError, match="ax= is for one picture"):
        evolved().plot("frames", ax=ax)
    with pytest.raises(InvalidInputError, match="three dimensions and ax has two"):
        swept().plot(kind="surface", ax=ax)
    pyplot.close("all")
