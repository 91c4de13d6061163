"""Operations registered for one test, and kernels that fail in the way that is asked for."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from hpfracc.engine.backends import registry
from hpfracc.engine.execution.custom import OwnOperation, operation
from hpfracc.engine.execution.operation import unregister

_numbers = itertools.count()


@contextmanager
def own_operation(function: Callable[..., Any], **options: Any) -> Iterator[OwnOperation]:
    """An operation that is forgotten at the end of the block."""
    name = f"test_operation_{next(_numbers)}"
    made = operation(name=name, **options)(function)
    try:
        yield made
    finally:
        registry.remove_operation(name)
        unregister(name)


class Failing:
    """A kernel that raises ``error`` for its first ``times`` calls, and counts them all."""

    def __init__(self, error: Callable[[], BaseException], times: float = float("inf")) -> None:
        self.error = error
        self.times = times
        self.calls = 0

    def __call__(self, x: Any, **params: Any) -> Any:
        self.calls += 1
        if self.calls <= self.times:
            raise self.error()
        return x * 2


def double(x: Any) -> Any:
    """Twice the operand, in whatever library it is."""
    return x * 2


def numbers(n: int = 64) -> np.ndarray:
    """Some numbers."""
    return np.linspace(-1.0, 1.0, n)
