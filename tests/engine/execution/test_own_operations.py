"""Users' own operations: selection, fallback and explanations for functions of theirs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import hpfracc as hf
from hpfracc.errors import BackendUnavailableError, InvalidInputError
from tests.helpers.own_operations import double, numbers, own_operation


def test_runs_and_returns_the_callers_type() -> None:
    """NumPy in, NumPy out; a tensor in, a tensor out, whatever kernel ran."""
    with own_operation(double) as op:
        op.kernel("torch")(double)
        x = numbers()
        for backend in ("numpy", "torch", "auto"):
            result = op(x, backend=backend)
            assert type(result) is np.ndarray
            np.testing.assert_array_equal(result, 2 * x)
            tensor = op(torch.from_numpy(x), backend=backend)
            assert isinstance(tensor, torch.Tensor)
            np.testing.assert_array_equal(tensor.numpy(), 2 * x)


def test_decorated_without_parentheses_keeps_its_name_and_docstring() -> None:
    """``@hf.operation`` alone takes the function's own name."""

    @hf.operation
    def triple_for_this_test(x: np.ndarray) -> np.ndarray:
        """Three times."""
        return 3 * x

    assert triple_for_this_test.name == "triple_for_this_test"
    assert triple_for_this_test.__doc__ == "Three times."
    assert hf.explain("triple_for_this_test", shape=(4,)).decision.backend == "numpy"


def test_parameters_reach_the_kernel() -> None:
    """Keywords are handed on, and a different one is a different call."""
    with own_operation(lambda x, power=2: x**power) as op:
        x = numbers(5)
        np.testing.assert_array_equal(op(x), x**2)
        np.testing.assert_array_equal(op(x, power=3), x**3)


def test_slower_backend_is_not_taken() -> None:
    """What the engine measures decides: a kernel that wastes more time than a busy machine does loses."""
    import time

    def slow(x: np.ndarray) -> np.ndarray:
        time.sleep(0.05)
        return x * 2

    with own_operation(slow) as op:
        op.kernel("torch")(double)
        for _ in range(60):
            op(numbers())
        decision = hf.last_decision()
        assert decision is not None and decision.backend == "torch", hf.explain(op, numbers())


def test_models_see_the_same_of_every_library() -> None:
    """Shape, size and dtype, for arrays of any library."""
    seen: list[tuple[tuple[int, ...], int, str]] = []

    def model(x: object) -> float:
        seen.append((x.shape, x.size, x.dtype))  # type: ignore[attr-defined]
        return x.size  # type: ignore[attr-defined]

    with own_operation(double, work=model, memory=model) as op:
        op.kernel("torch")(double)
        for array in (numbers(6).reshape(2, 3), torch.zeros(2, 3, dtype=torch.float64), [[0.0] * 3] * 2):
            op(array)
    assert set(seen) == {((2, 3), 6, "float64")}


def test_work_model_sees_shapes_and_is_checked() -> None:
    """A model that gives nonsense is an error that says so."""
    with own_operation(double, work=lambda x: float("nan")) as op, pytest.raises(InvalidInputError, match="work model"):
        op(numbers())


def test_a_backend_without_kernel_is_refused_when_asked_for() -> None:
    """The user's word is law: obeyed or refused, never replaced."""
    with own_operation(double) as op, pytest.raises(BackendUnavailableError, match="kernel not implemented"):
        op(numbers(), backend="torch")


def test_bad_registrations() -> None:
    """Names that are taken or no names, and kernels that cannot be called, are refused."""
    with pytest.raises(InvalidInputError, match="built in"):
        hf.operation(name="fft")(double)
    with pytest.raises(InvalidInputError, match="not a name"):
        hf.operation(name="two words")(double)
    with pytest.raises(InvalidInputError, match="not a name"):
        hf.operation(lambda x: x)
    with own_operation(double) as op, pytest.raises(hf.errors.ConfigurationError, match="tensorflow"):
        op.kernel("tensorflow")
    with own_operation(double) as op, pytest.raises(InvalidInputError, match="without an array"):
        op()


def test_a_workload_of_that_name_is_decided_by_its_arms() -> None:
    """The selector knows users' operations too."""
    with own_operation(double) as op:
        op.kernel("torch")(double)
        rows = hf.explain(hf.WorkloadCharacteristics(op.name, 100, (100,))).decision.candidates
        assert {"numpy:default@cpu", "torch:default@cpu"} <= {row.arm for row in rows}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"dtypes": ["flot64"]}, "did you mean 'float64'"),
        ({"dtypes": [np.float64]}, "use 'bool'"),
        ({"compiles": "always"}, "use 'never', 'signature', 'shape'"),
    ],
)
def test_what_no_kernel_has_is_refused(options: dict[str, Any], words: str) -> None:
    """A kernel for a dtype that does not exist would never run, and nothing would say so."""
    with own_operation(double) as op, pytest.raises(InvalidInputError, match=words):
        op.kernel("torch", **options)
