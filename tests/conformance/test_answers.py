"""Every kernel gives the right answer: each primitive, backend, device and algorithm, in each dtype it declares."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
import pytest

from tests.helpers.conformance import Solved, Subject, each, solved, subjects
from tests.helpers.thinned import thinned
from tests.helpers.tolerance import bound, disagreement

PAIRS = [(subject, dtype) for subject in subjects() for dtype in sorted(subject.spec.dtypes)]
#: The formula of all cases about shapes and layouts.
COMMON = "x*y + sin(x)"
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


#: Kernels that are compiled, for each dtype or each shape, run the first of these that they take, but for one primitive
#: whose kernels are compiled soonest: the last. What is compiled for the others is the same source.
IN_TURN = ("float64", "int64", "float32", "complex64")
IN_SINGLE = "toeplitz_apply"
#: In float64 all cases are tried, in other dtypes one in three: of these each begins with another.
BEGIN = {"float32": 0, "complex64": 1, "complex128": 2}


def some(cases: Sequence[Solved], dtype: str) -> Sequence[Solved]:
    """The cases that an ordinary run tries in a dtype."""
    if dtype == "float64" or any(case.primitive.name == "bitwise_xor" for case in cases):
        return cases
    return cases[BEGIN.get(dtype, 0) :: 3] or cases[:1]


def ordinary_dtypes(subject: Subject) -> list[str]:
    """The dtypes in which an ordinary run tries a kernel: all of them where nothing is compiled."""
    if subject.spec.compiles == "never":
        return sorted(subject.spec.dtypes)
    taken = [dtype for dtype in IN_TURN if dtype in subject.spec.dtypes] or sorted(subject.spec.dtypes)
    return taken[-1:] if subject.spec.primitive == IN_SINGLE else taken[:1]


def served(subject: Subject, dtype: str) -> list[Solved]:
    return [solution for solution in solved(subject.spec.primitive, dtype) if subject.serves(solution.call)]


def takes_turns(subject: Subject, solution: Solved) -> bool:
    """Whether a case is compiled separately: each shape for some kernels, each formula for others."""
    formula = solution.case.params.get("expression")
    return subject.spec.compiles == "shape" or (subject.spec.compiles == "signature" and formula not in (None, COMMON))


@cache
def turns(subject: Subject) -> dict[str, str]:
    """For each case that takes turns, the one dtype in which it is due. Of cases that differ in shape, one in nine is.

    The rest are slow tests, as each case is in every dtype.
    Non-contiguous arrays are left out for kernels that compile for each shape: their library copies them
    (``test_declarations.py`` checks that).
    """
    having: dict[str, list[str]] = {}
    for dtype in ordinary_dtypes(subject):
        for solution in served(subject, dtype):
            scattered = not all(array.flags.c_contiguous for array in solution.case.arrays)
            if takes_turns(subject, solution) and not scattered:
                having.setdefault(solution.case.name, []).append(dtype)
    taken = list(having.items())[:: 9 if subject.spec.compiles == "shape" else 1]
    return {name: dtypes[index % len(dtypes)] for index, (name, dtypes) in enumerate(taken)}


def due(subject: Subject, dtype: str) -> list[Solved]:
    cases = served(subject, dtype)
    if subject.spec.compiles == "never":
        return list(some(cases, dtype))
    chosen = [one for one in cases if not takes_turns(subject, one) or turns(subject).get(one.case.name) == dtype]
    return chosen or cases[:1]


@EACH
@thinned(lambda subject, dtype: dtype in ordinary_dtypes(subject))
def test_agrees_with_the_reference(subject: Subject, dtype: str) -> None:
    """Shape, dtype and values are the reference's, operands stay as they were, the result is the caller's own."""
    cases = due(subject, dtype)
    assert cases, "it takes none of the cases"
    assert not complaints(subject, cases)


@pytest.mark.slow
@EACH
def test_agrees_with_the_reference_in_every_case(subject: Subject, dtype: str) -> None:
    """The same without taking turns: each case in each dtype."""
    assert not complaints(subject, served(subject, dtype))


@each()
@thinned(one_in=2)
def test_calls_at_once_do_not_disturb_each_other(subject: Subject) -> None:
    """Kernels keep nothing between calls: four threads get the answers that one gets."""
    dtype = "int64" if subject.spec.primitive == "bitwise_xor" else "float64"
    solution = next(case for case in served(subject, dtype) if case.answer.size)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: complaint(subject, solution, 1), range(12)))
    assert found == [None] * 12
