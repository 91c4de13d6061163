"""The program of equal steps: scans within scans, which hardly grow with the number of steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from hpfracc.solvers.ode.tensors import blocks
from tests.helpers.thinned import thinned

jax = pytest.importorskip("jax")
jnp = jax.numpy


@pytest.mark.parametrize(("steps", "orders"), [(23, 0.7), (37, (0.5, 0.8)), (64, 0.7)])
@thinned(lambda steps: steps == 37)
def test_groups_of_groups_sum_the_whole_past(steps: int, orders: Any, monkeypatch: pytest.MonkeyPatch):
    """With groups of 2, 4 and 8 steps and what is left of them, in blocks of 16; states and gradients."""
    for name, value in {"BLOCK": 11, "_GROUP": 2, "_GROUPS": 2, "_LONGEST_BLOCK": 16}.items():
        monkeypatch.setattr(blocks, name, value)
    alpha = orders if isinstance(orders, float) else np.array(orders)[:, None]
    y0 = np.array([[1.0, 0.5], [0.3, -1.0]])
    matrix = np.array([[-0.5, 0.8], [-1.1, -0.2]])

    def solve(y0: Any, matrix: Any, xp: Any) -> Any:
        def fun(t: float, y: Any, matrix: Any) -> Any:
            return xp.tanh(y @ matrix) + t

        return hf.solve_fode(fun, (0.0, 2.0), y0, alpha, method="pece", step=2.0 / steps, args=(matrix,)).y

    with jax.enable_x64(True):
        given = jnp.asarray(y0), jnp.asarray(matrix)
        found = np.asarray(solve(*given, jnp))
        slope = np.asarray(jax.grad(lambda matrix: (solve(given[0], matrix, jnp)[..., -1] ** 2).sum())(given[1]))
    assert found == pytest.approx(solve(y0, matrix, np), rel=1e-12, abs=1e-13)
    for place in ((0, 1), (1, 1)):
        ahead, behind = matrix.copy(), matrix.copy()
        ahead[place] += 1e-5
        behind[place] -= 1e-5
        sides = [float((solve(y0, each, np)[..., -1] ** 2).sum()) for each in (ahead, behind)]
        assert slope[place] == pytest.approx((sides[0] - sides[1]) / 2e-5, rel=1e-7)


def test_a_program_hardly_grows_with_the_number_of_steps():
    """The right-hand side is traced for four blocks, of 256 steps or of 4,096; once there were sixteen."""
    calls = []

    def program(steps: int) -> str:
        def fun(t: Any, y: Any) -> Any:
            calls.append(t)
            return -y

        def last(y0: Any) -> Any:
            return hf.solve_fode(fun, (0.0, 1.0), y0, 0.7, method="pece", step=1.0 / steps).y[..., -1]

        return str(jax.make_jaxpr(last)(jnp.ones(2)))

    short, count = program(256), len(calls)
    long = program(4096)
    assert len(calls) - count <= count + 2
    assert long.count("\n") < 2.5 * short.count("\n")
    assert "16777216" not in long and max(map(len, long.splitlines())) < 10_000  # no tables as constants
