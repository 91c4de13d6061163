"""Every kernel gives the right answer: each primitive, backend, device and algorithm, in each dtype it declares."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tests.helpers.conformance import Solved, Subject, solved, subjects
from tests.helpers.tolerance import bound, disagreement

PAIRS = [(subject, dtype) for subject in subjects() for dtype in sorted(subject.spec.dtypes)]
EACH = pytest.mark.parametrize(("subject", "dtype"), PAIRS, ids=[f"{subject}-{dtype}" for subject, dtype in PAIRS])


def complaint(subject: Subject, solution: Solved, workers: int) -> str | None:
    case, call, answer = solution.case, solution.call, solution.answer
    before = [array.copy() for array in case.arrays]
    result = subject.run(call, case.arrays, case.params, workers)
    if type(result) is not np.ndarray:
        return f"a {type(result).__name__} came back"
    if any(a.tobytes() != b.tobytes() for a, b in zip(before, case.arrays, strict=True)):
        return "an operand was changed"
    if any(np.may_share_memory(result, array) for array in case.arrays):
        return "the result shares memory with an operand"
    return disagreement(result, answer, bound(call, case.arrays, case.params, answer))


def complaints(subject: Subject, solutions: Sequence[Solved]) -> dict[str, str]:
    return {
        f"{solution.case.name} (workers={workers})": words
        for solution in solutions
        for workers in ((1, 3) if subject.spec.threads else (1,))
        if (words := complaint(subject, solution, workers)) is not None
    }


def served(subject: Subject, dtype: str) -> list[Solved]:
    return [solution for solution in solved(subject.spec.primitive, dtype) if subject.serves(solution.call)]


def is_turn(subject: Subject, dtype: str, index: int) -> bool:
    """Whether a case is due: a kernel that compiles for each shape gets a case in one of its dtypes, not in all."""
    if subject.spec.compiles != "shape" or index == 0:
        return True
    dtypes = sorted(subject.spec.dtypes)
    return index % len(dtypes) == dtypes.index(dtype)


@EACH
def test_agrees_with_the_reference(subject: Subject, dtype: str) -> None:
    """Shape, dtype and values are the reference's, operands stay as they were, the result is the caller's own."""
    due = [solution for index, solution in enumerate(served(subject, dtype)) if is_turn(subject, dtype, index)]
    assert due, "it takes none of the cases"
    assert not complaints(subject, due)


@pytest.mark.slow
@EACH
def test_agrees_with_the_reference_in_every_case(subject: Subject, dtype: str) -> None:
    """The same without taking turns: each case in each dtype."""
    assert not complaints(subject, served(subject, dtype))


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("primitive", sorted({subject.spec.primitive for subject in subjects()}))
def test_cases_are_of_the_dtype_asked_for(primitive: str, dtype: str) -> None:
    """A case made for a dtype is worked in that dtype: otherwise a kernel's tests would test another kernel."""
    for solution in solved(primitive, dtype) if primitive != "bitwise_xor" else ():
        assert solution.call.dtype == dtype, solution.case.name
        assert solution.answer.shape == solution.call.shape, solution.case.name
        assert solution.answer.nbytes == solution.call.output_bytes, solution.case.name
