"""Models of transport are the equations of ``solvers.pde.problems``, with fits."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from hpfracc import models
from hpfracc.errors import ShapeError
from hpfracc.solvers.pde.problems import subdiffusion


@pytest.mark.parametrize("name", ["subdiffusion", "diffusion_wave", "column", "burgers"])
def test_models_are_those_of_the_problems(name):
    model = models.transport(name)
    assert model.reference == model.equation.reference and model.equation.name
    usual = model.make()
    for key, value in model.values.items():
        assert usual.parameters[key] == value


def test_simulation_has_the_exact_solution():
    model = models.transport("subdiffusion").replace(alpha=0.7)
    found = model.simulate([0.3, 0.8], rtol=1e-6)
    np.testing.assert_allclose(found.u[-1], model.equation.exact(0.8), atol=2e-3)


def test_fit_of_the_order():
    """From the model's own field."""
    model = dataclasses.replace(models.transport("subdiffusion"), make=lambda alpha: subdiffusion(alpha, points=17))
    t = np.array([0.2, 0.6])
    data = model.replace(alpha=0.8).simulate(t, rtol=1e-6).u
    assert model.fit(t, data).model.values["alpha"] == pytest.approx(0.8, abs=1e-4)
    with pytest.raises(ShapeError, match="the field at each time"):
        model.fit(t, data[:, 1:])
