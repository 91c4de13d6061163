"""Stiff problems with fixed steps: Newton's method, its Jacobians, and when stiffness is noticed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse

import hpfracc as hf
from hpfracc.errors import InvalidInputError, ShapeError

IMPLICIT = [
    "implicit_rectangle",
    "implicit_trapezoid",
    "bdf2",
    "newton_gregory",
    "multistep_trapezoid",
    "l1",
    "l2_1sigma",
]


def robertson(t: float, y: Any) -> Any:
    fast, slow = 3e7 * y[1] ** 2, 1e4 * y[1] * y[2]
    return np.array([-0.04 * y[0] + slow, 0.04 * y[0] - slow - fast, fast])


@pytest.mark.parametrize("method", [*IMPLICIT, "auto"])
@pytest.mark.parametrize("step", [0.05, 0.01])
def test_robertson_is_solved_by_every_implicit_method(method: str, step: float):
    """From (1, 0, 0), where the Jacobian shows nothing of what follows; the end is that of adaptive steps."""
    result = hf.solve_fode(robertson, (0.0, 1.0), [1.0, 0.0, 0.0], 0.9, method=method, step=step, backend="numpy")
    assert result.success, result.message
    assert result.y[:, -1] == pytest.approx([0.965893, 3.0654e-5, 0.0340763], rel=0.15)
    assert np.abs(result.y.sum(axis=0) - 1.0).max() < 1e-6  # mass


def test_robertson_compiled():
    """Steps that the compiled iteration cannot solve are left to the damped one."""
    options: dict[str, Any] = {"method": "implicit_trapezoid", "step": 0.02}
    one, other = (
        hf.solve_fode(robertson, (0.0, 1.0), [1.0, 0.0, 0.0], 0.9, compile=compile, **options)
        for compile in (False, True)
    )
    assert one.success and other.success and other.decision.compiled
    np.testing.assert_allclose(other.y, one.y, rtol=1e-7, atol=1e-12)


@pytest.mark.parametrize("compiled", [False, True])
def test_what_newton_leaves_does_not_add_up(compiled: bool):
    """An exact Jacobian at every step and one that is kept give the same solution to 1e-12 after many short steps."""
    if compiled:
        pytest.importorskip("numba")

    def fun(t: float, y: Any) -> Any:
        return np.array([1.0 - 4.0 * y[0] + y[0] ** 2 * y[1], 3.0 * y[0] - y[0] ** 2 * y[1]])

    steps = 40_000 if compiled else 4_000
    options: dict[str, Any] = {"method": "implicit_trapezoid", "step": 0.1 / steps, "estimate": False}
    loose, tight = (
        hf.solve_fode(fun, (0.0, 0.1), [1.2, 2.8], 0.8, rtol=rtol, atol=rtol, compile=compiled, **options)
        for rtol in (1e-6, 1e-12)
    )
    np.testing.assert_allclose(loose.y, tight.y, rtol=1e-12)
    assert loose.stats["newton_iterations"] < 1.5 * steps  # guesses are extrapolated


def test_auto_looks_ahead_of_the_first_step():
    """Stiffness that begins with the first step is seen before it is taken."""
    result = hf.solve_fode(robertson, (0.0, 1.0), [1.0, 0.0, 0.0], 0.9, step=0.05)
    assert result.success and result.decision.method == "implicit_trapezoid" and "stiff" in result.decision.reason


def oregonator(t: float, y: Any) -> Any:
    x, z, w = y
    return np.array([77.27 * (z + x * (1 - 8.375e-6 * x - z)), (w - (1 + x) * z) / 77.27, 0.161 * (x - w)])


@pytest.mark.parametrize(("method", "step"), [("implicit_trapezoid", 0.5), ("bdf2", 1.0), ("l1", 0.1)])
def test_a_reaction_that_ignites_or_dies_within_a_step_is_solved(method: str, step: float):
    """The Oregonator at steps over which x changes by orders of magnitude: Newton's path is not monotone there."""
    result = hf.solve_fode(oregonator, (0.0, 40.0), [1.0, 2.0, 3.0], 0.95, method=method, step=step)
    assert result.success and result.y[0].max() > 1e4


N = 200


def diffusion(t: float, y: Any) -> Any:
    padded = np.pad(y, 1)
    return (N + 1) ** 2 * (padded[2:] - 2.0 * y + padded[:-2])


def diffusion_jacobian(t: float, y: Any) -> Any:
    ones = np.full(N, (N + 1.0) ** 2)
    return scipy.sparse.diags_array([ones[1:], -2.0 * ones, ones[1:]], offsets=[-1, 0, 1])


START = np.sin(np.pi * np.arange(1, N + 1) / (N + 1))


@pytest.mark.parametrize("method", ["implicit_trapezoid", "bdf2", pytest.param("adaptive", marks=pytest.mark.slow)])
def test_jacobians_are_kept_and_may_be_sparse(method: str):
    """200 linear unknowns: few Jacobians, and few evaluations for each where the pattern is known."""
    options: dict[str, Any] = {"method": method, "step": None if method == "adaptive" else 0.01}
    span = (0.0, 1.0)
    if method == "adaptive":
        options["rtol"] = 1e-4  # it takes as many steps as that needs, whatever the pattern
    plain = hf.solve_fode(diffusion, span, START, 0.5, **options)
    banded = hf.solve_fode(diffusion, span, START, 0.5, jac_sparsity=(1, 1), **options)
    pattern = abs(diffusion_jacobian(0.0, START)) > 0
    sparse = hf.solve_fode(diffusion, span, START, 0.5, jac_sparsity=pattern, **options)
    given = hf.solve_fode(diffusion, span, START, 0.5, jac=diffusion_jacobian, **options)
    for result in (plain, banded, sparse, given):
        assert result.success
        np.testing.assert_allclose(result.y[:, -1], plain.y[:, -1], rtol=1e-4 if method == "adaptive" else 1e-6)
    if method != "adaptive":
        assert plain.njev <= 2 and plain.nfev < 1500 + 7 * N
        assert max(banded.nfev, sparse.nfev, given.nfev) < 500


def test_a_multiterm_equation_takes_sparse_jacobians():
    """The system that it becomes has the pattern, and the Jacobian, of its parts."""
    span, terms = (0.0, 0.5), [(0.3, 0.4), (1.0, 0.0)]
    options: dict[str, Any] = {"terms": terms, "method": "implicit_trapezoid", "step": 0.05}
    plain = hf.solve_fode(diffusion, span, START, 0.8, **options)
    for more in ({"jac": diffusion_jacobian}, {"jac_sparsity": (1, 1)}):
        found = hf.solve_fode(diffusion, span, START, 0.8, **options, **more)
        np.testing.assert_allclose(found.y, plain.y, rtol=1e-7, atol=1e-12)
        assert found.nfev < 200


def test_wrong_sparsity_is_refused_in_words():
    """Shapes, batches, both at once."""
    solve = lambda y0=START, **more: hf.solve_fode(diffusion, (0.0, 1.0), y0, 0.5, step=0.1, **more)  # noqa: E731
    with pytest.raises(ShapeError, match=r"\(200, 200\)"):
        solve(jac_sparsity=np.eye(3))
    with pytest.raises(InvalidInputError, match="give one of them"):
        solve(jac_sparsity=(1, 1), jac=diffusion_jacobian)
    with pytest.raises(ShapeError, match="batch"):
        hf.solve_fode(
            lambda t, y: -y, (0.0, 1.0), np.ones((2, N)), 0.5, step=0.1, method="bdf2", jac=diffusion_jacobian
        )
