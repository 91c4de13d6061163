"""A new method is one class with its weights: it then solves for arrays of every library, with gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
import pytest

import hpfracc as hf
from hpfracc._xp import Namespace
from hpfracc.errors import InvalidInputError
from hpfracc.solvers.ode import method as registry
from hpfracc.solvers.ode.fixed.scheme import delayed, rectangle_weights
from hpfracc.solvers.ode.fixed.solve import StepMethod
from hpfracc.special import mittag_leffler


@pytest.fixture(autouse=True)
def blended(monkeypatch: pytest.MonkeyPatch) -> type[StepMethod]:
    """What a file of ``methods/`` would hold, registered for one test."""
    monkeypatch.setattr(registry, "_known", dict(registry._known))

    @registry.register_method
    @final
    @dataclass(frozen=True, slots=True)
    class Blended(StepMethod):
        """The mean of the explicit and the implicit product rectangle."""

        share: float = 0.5

        name: ClassVar[str] = "blended_rectangle"
        order: ClassVar[str] = "1"
        implicit: ClassVar[bool] = True

        def weights(self, xp: Namespace, alpha: Any, n: int) -> tuple[tuple[Any, ...], Any]:
            """A share of the value at the end of each step, and the rest of that at its start."""
            whole = rectangle_weights(alpha, n, xp)
            # The value at t0 is never at the end of a step.
            return (self.share * whole + (1.0 - self.share) * delayed(xp, whole),), -self.share * whole

    return Blended


def final_value(y0: Any, step: float, alpha: Any = 0.6, method: Any = "blended_rectangle") -> Any:
    return hf.solve_fode(lambda t, y: -y, (0.0, 1.0), y0, alpha, method=method, step=step).y[..., 0, -1]


def test_it_converges_and_is_found_by_its_name():
    """To the Mittag-Leffler function, at least with order 1; ``explain`` knows it too."""
    exact = float(mittag_leffler(-1.0, 0.6))
    errors = [abs(float(final_value([1.0], 2.0**-k)) - exact) for k in (6, 7, 8)]
    assert errors[0] > 1.8 * errors[1] > 3.2 * errors[2] > 0.0 and errors[2] < 3e-3
    told = hf.explain(hf.solve_fode, lambda t, y: -y, (0.0, 1.0), [1.0], 0.6, step=0.1, method="blended_rectangle")
    assert (told.method, told.order, told.steps) == ("blended_rectangle", "1", 10)


def test_it_has_parameters_and_refusals(blended: type[StepMethod]):
    """With the whole share it is the implicit rectangle; what it does not take is refused from data."""
    whole = final_value([1.0, 2.0], 0.05, method=blended(share=1.0))  # type: ignore[call-arg]
    assert whole == pytest.approx(final_value([1.0, 2.0], 0.05, method="implicit_rectangle"), rel=1e-12)
    with pytest.raises(InvalidInputError, match="'blended_rectangle' takes constant orders"):
        final_value([1.0], 0.1, lambda t: 0.5)


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_it_solves_for_other_libraries_with_a_gradient(library: str):
    """The solution of NumPy, and the derivative in the order by differences of it."""
    pytest.importorskip(library)
    step, width = 1.0 / 32.0, 1e-5
    expected = (final_value([1.0], step, 0.6 + width) - final_value([1.0], step, 0.6 - width)) / (2.0 * width)
    if library == "torch":
        import torch

        order = torch.tensor(0.6, dtype=torch.float64, requires_grad=True)
        found = final_value(torch.ones(1, dtype=torch.float64), step, order)
        found.backward()
        value, slope = found.item(), order.grad.item()
    else:
        import jax

        with jax.enable_x64(True):
            one = jax.numpy.ones(1)
            value, slope = jax.value_and_grad(lambda order: final_value(one, step, order))(0.6)
    assert float(value) == pytest.approx(float(final_value([1.0], step)), rel=1e-10)
    assert float(slope) == pytest.approx(float(np.asarray(expected)), rel=1e-5)
