"""The engine's own arms as contestants, so that a table can be measured on the machine at hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from hpfracc.engine import hardware
from hpfracc.engine.backends import registry
from hpfracc.engine.backends.base import Arm
from hpfracc.engine.execution.bind import BoundArm
from hpfracc.engine.execution.operation import get_operation
from hpfracc.engine.execution.plan import make_request
from hpfracc.engine.selection.decide import masked
from hpfracc.engine.selection.knowledge import knowledge_for

from .live import Contestant

OPERATIONS = ("causal_convolution", "matmul", "fft", "elementwise", "reduction", "bitwise_xor")
SIZES = tuple(4**power for power in range(2, 12))
#: Work beyond which an arm is not timed: a direct sum of 65,536 points takes seconds and cannot win.
MAX_WORK = 2e8


def contestants() -> Iterator[Contestant]:
    """Every arm of every operation, on NumPy's operands and, with a GPU, on PyTorch's there.

    ``n`` is the number of elements.
    """
    on_gpu = registry.unavailable("torch") is None and hardware.machine().gpus
    starts = ("host", "device") if on_gpu else ("host",)
    for name in OPERATIONS:
        for start in starts:
            for arm in registry.arms(name):
                yield Contestant(name, start, table_name(arm), preparer(name, arm, start))


def table_name(arm: Arm) -> str:
    """The arm's name as the stored tables write it: NumPy's first, so that baselines find it."""
    return arm.name.replace(":", "-").removesuffix("@cpu")


def preparer(name: str, arm: Arm, start: str = "host") -> Callable[[int], Callable[[], Any]]:
    """``prepare(n)`` of one arm."""

    def prepare(n: int) -> Callable[[], Any]:
        operation = get_operation(name)
        side = round(n**0.5)
        shape = (side, side) if name == "matmul" else (n,)
        specs, params = operation.primitive.example(shape, "int64" if name == "bitwise_xor" else "float64")
        rng = np.random.default_rng(n)
        arrays: list[Any] = [(100 * rng.standard_normal(spec.shape)).astype(spec.dtype) for spec in specs]
        if start == "device":
            arrays = [registry.adapter("torch").from_host(array, "cuda:0") for array in arrays]
        request = make_request(operation.primitive, arrays, params)
        refused = {known.name: why for known, why, _ in masked(request, knowledge_for(request.settings).breaker)}
        work = operation.primitive.work(request.call, arm.algorithm)
        if refused.get(arm.name, "gone") is not None or work > MAX_WORK:
            raise NotImplementedError(arm.name)
        bound = BoundArm(operation.primitive, request.call, arm, request.placement, arrays)
        if start == "host":
            return lambda: bound.run(*arrays, **params)

        def run() -> None:
            bound.run(*arrays, **params)
            registry.adapter("torch").synchronize("cuda:0")

        return run

    return prepare
