"""What all models share."""

from __future__ import annotations

import numpy as np
import pytest

from hpfracc import models
from hpfracc.errors import InvalidInputError, UnsupportedDtypeError

MAKERS = [name for name in models.__all__ if name[0].islower() and name != "circuit"]


@pytest.mark.parametrize("name", MAKERS)
def test_every_model_is_described(name):
    """Equations, a reference, and a unit and a meaning for each parameter."""
    model = getattr(models, name)()
    assert model.name and model.equations and model.reference
    assert all(each.unit and each.meaning for each in model.parameters)
    assert model.replace().values == model.values
    assert model.reference in str(model) and "\\" not in str(model)  # equations in words


def test_a_model_of_ones_own():
    """A stretched exponential, from its functions."""
    model = models.ResponseModel(
        "stretched exponential",
        (r"e^{-(t/\tau)^\beta}",),
        "R. Kohlrausch, Ann. Phys. 167 (1854) 179-214",
        (
            models.Parameter("tau", 1.0, "second", "time"),
            models.Parameter("beta", 0.9, "dimensionless", "stretching", high=1.0),
        ),
        lambda s, tau, beta: 1.0 / s,
        {"decay": lambda t, tau, beta: np.exp(-((t / tau) ** beta))},
    )
    t = np.linspace(0.0, 5.0, 30)
    fit = model.fit(t, model.replace(tau=2.0, beta=0.5).simulate(t, "decay"))
    np.testing.assert_allclose(fit.estimates, [2.0, 0.5], rtol=1e-7)
    with (
        pytest.warns(UserWarning, match="beta ended at a bound"),
        pytest.warns(UserWarning, match="residuals are correlated"),
    ):
        at_end = model.fit(t, np.exp(-t - 0.05 * t**2))
    assert at_end.estimates[1] == pytest.approx(1.0) and np.isnan(at_end.standard_errors[1])


@pytest.mark.filterwarnings("ignore::hpfracc.AccuracyWarning")
def test_standard_errors_cover():
    """Errors over standard errors of 40 draws have about unit variance."""
    truth, t = models.springpot(2.0, 0.4), np.geomspace(0.1, 10.0, 25)
    exact = truth.relaxation(t)
    rng, scores = np.random.default_rng(11), []
    for _ in range(40):
        fit = truth.fit(t, exact * (1.0 + 0.02 * rng.normal(size=t.size)), sigma=exact)
        scores.append((fit.estimates - [2.0, 0.4]) / fit.standard_errors)
    assert 0.6 < np.std(scores) < 1.5 and abs(np.mean(scores)) < 0.4


def test_what_a_response_refuses():
    with pytest.raises(UnsupportedDtypeError, match="complex"):
        models.zener().fit([1.0, 2.0], [1.0, 1j], "relaxation")
    with pytest.raises(InvalidInputError, match="free"):
        models.zener().fit([1.0, 2.0], [1.0, 1.0], free=["beta"])
    with pytest.raises(InvalidInputError, match="at least one in free"):
        models.zener().fit([1.0, 2.0], [1.0, 1.0], free=[])
    with pytest.raises(UnsupportedDtypeError, match="finite"):
        models.zener()("text")


@pytest.mark.filterwarnings("ignore::hpfracc.AccuracyWarning")
@pytest.mark.parametrize("name", ["zener", "cole_cole", "randles", "one_compartment", "integrate_and_fire"])
def test_plots(name):
    """Each kind draws itself and a fit."""
    pyplot = pytest.importorskip("matplotlib.pyplot")
    model = getattr(models, name)()
    assert model.plot().lines
    if isinstance(model, models.ResponseModel):
        x = np.geomspace(0.1, 10.0, 20)
        assert len(model.fit(x, model.simulate(x)).plot().lines) >= 2
        for quantity in model.quantities:
            assert model.plot(x, quantity=quantity).lines
    pyplot.close("all")
