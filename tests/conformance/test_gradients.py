"""Derivatives through every kernel that declares itself differentiable, first and second, against differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.helpers.conformance import Solved, Subject, each, solved
from tests.helpers.thinned import thinned

DTYPES = ("float64", "complex128")


def smooth_cases(subject: Subject, dtype: str) -> list[Solved]:
    cases = [solution for solution in solved(subject.spec.primitive, dtype) if solution.case.differentiable]
    return [solution for solution in cases if subject.serves(solution.call)]


def check_torch(subject: Subject, solution: Solved, second: bool) -> None:
    import torch

    operands = [array.clone().requires_grad_(True) for array in subject.place(solution.call, solution.case.arrays)]

    def function(*arrays: Any) -> Any:
        return subject.kernel.run(*arrays, **solution.case.params)

    assert torch.autograd.gradcheck(function, operands, fast_mode=True)
    if second:
        assert torch.autograd.gradgradcheck(function, operands, fast_mode=True)


def check_jax(subject: Subject, solution: Solved, second: bool) -> None:
    from jax.test_util import check_grads

    with subject.scope(solution.call):
        operands = subject.place(solution.call, solution.case.arrays)

        def function(*arrays: Any) -> Any:
            return subject.kernel.run(*arrays, **solution.case.params)

        both = second or subject.spec.primitive == "causal_convolution"
        check_grads(function, operands, order=1, modes=("fwd", "rev") if both else ("rev",))
        if second:
            check_grads(function, operands, order=2, modes=("rev",))


CHECKS = {"torch": check_torch, "jax": check_jax}


def is_first(subject: Subject) -> bool:
    """Whether the kernel is the first that its backend has for the primitive."""
    return subject.spec is subject.adapter.declaration.specs[subject.spec.primitive][0]


@pytest.mark.parametrize("dtype", DTYPES)
@each(differentiable=True)
@thinned(lambda subject, dtype: dtype == "float64" or (subject.spec.compiles == "never" and is_first(subject)))
def test_derivatives_are_right(subject: Subject, dtype: str) -> None:
    """In every operand; the first real case to second order. Kernels that compile for each shape get the first case.

    For those second derivatives are slow tests, and so is the forward mode, but for the convolution.
    """
    cases = smooth_cases(subject, dtype)
    if not cases:
        integers = subject.spec.primitive == "random"  # its operands are whole numbers
        assert dtype not in subject.spec.dtypes or subject.spec.algorithm == "blocked" or integers
        return
    for index, solution in enumerate(cases if subject.spec.compiles != "shape" else cases[:1]):
        second = index == 0 and dtype == "float64" and subject.spec.compiles != "shape"
        CHECKS[subject.adapter.name](subject, solution, second=second)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
@each(differentiable=True)
def test_second_derivatives_are_right_in_every_case(subject: Subject, dtype: str) -> None:
    """To second order in every smooth case of the contract."""
    for solution in smooth_cases(subject, dtype):
        CHECKS[subject.adapter.name](subject, solution, second=True)


@each(differentiable=True)
def test_bad_samples_leave_other_gradients_alone(subject: Subject) -> None:
    """The derivative of the outputs before a bad sample is what it is without it."""
    if subject.spec.primitive != "causal_convolution" or subject.spec.algorithm == "blocked":
        return
    weights, signal = np.linspace(1, 2, 12), np.linspace(-1, 1, 12)
    call = subject.primitive.describe(weights, signal)
    clean = before_gradient(subject, call, weights, signal)
    signal[8] = np.nan
    tainted = before_gradient(subject, call, weights, signal)
    np.testing.assert_allclose(tainted[:8], clean[:8], rtol=1e-12)


def before_gradient(subject: Subject, call: Any, weights: np.ndarray, signal: np.ndarray) -> np.ndarray:
    """The gradient in the signal of the sum of the first eight outputs."""
    with subject.scope(call):
        w, x = subject.place(call, (weights, signal))
        if subject.adapter.name == "torch":
            x = x.clone().requires_grad_(True)
            subject.kernel.run(w, x)[:8].sum().backward()
            return subject.adapter.to_host(x.grad)
        import jax

        return np.asarray(jax.grad(lambda samples: subject.kernel.run(w, samples)[:8].sum())(x))
