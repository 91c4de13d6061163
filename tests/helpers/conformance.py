"""Every kernel that can run here: found by folder, loaded by module path, on each device its library sees."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hpfracc.engine.backends
from hpfracc._config import BACKENDS
from hpfracc._optional import is_installed
from hpfracc.engine.backends import registry
from hpfracc.engine.backends.base import Adapter, Kernel, KernelSpec
from hpfracc.engine.primitives import PRIMITIVES
from hpfracc.engine.primitives.base import Call, Primitive
from tests.helpers.contracts import Case, cases, reference

FOLDER = Path(hpfracc.engine.backends.__file__).parent


@cache
def adapters() -> tuple[Adapter, ...]:
    """Those whose library is installed and finds a device."""
    found = []
    for name in sorted(BACKENDS):
        adapter = registry.adapter(name)
        if is_installed(adapter.name) and adapter.devices():
            found.append(adapter)
    return tuple(found)


def kernels_of(adapter: Adapter, primitive: str) -> dict[str, Kernel]:
    """The kernels of a backend for a primitive, by algorithm."""
    return registry.load_kernels(primitive, adapter.name)


@dataclass(frozen=True)
class Subject:
    """One kernel on one device."""

    adapter: Adapter
    spec: KernelSpec
    device: str

    def __str__(self) -> str:
        return f"{self.spec.primitive}-{self.adapter.name}:{self.spec.algorithm}@{self.device}"

    @property
    def primitive(self) -> Primitive:
        return PRIMITIVES[self.spec.primitive]

    @property
    def kernel(self) -> Kernel:
        return kernels_of(self.adapter, self.spec.primitive)[self.spec.algorithm]

    def serves(self, call: Call) -> bool:
        """Whether the backend says that it takes this call."""
        return call.dtype in self.spec.dtypes and (self.spec.refuses is None or self.spec.refuses(call) is None)

    def scope(self, call: Call) -> contextlib.AbstractContextManager[Any]:
        """The context in which the kernel must run."""
        return self.adapter.scope(call) or contextlib.nullcontext()

    def place(self, call: Call, arrays: Sequence[np.ndarray]) -> tuple[Any, ...]:
        """The operands as the engine hands them to a kernel."""
        placed = [self.adapter.from_host(array, self.device) for array in arrays]
        return tuple(self.adapter.cast(array, call.dtype) if self.primitive.casts else array for array in placed)

    def run(self, call: Call, arrays: Sequence[np.ndarray], params: Mapping[str, Any], workers: int = 1) -> np.ndarray:
        """The answer, on the host."""
        options = {"workers": workers} if self.spec.threads else {}
        with self.scope(call):
            return self.adapter.to_host(self.kernel.run(*self.place(call, arrays), **params, **options))

    def run_prepared(self, call: Call, arrays: Sequence[np.ndarray], params: Mapping[str, Any]) -> np.ndarray:
        """The same by way of a transform that could be kept."""
        index = self.primitive.prepared_operand
        assert index is not None
        assert self.kernel.prepare is not None
        assert self.kernel.apply is not None
        with self.scope(call):
            operands = list(self.place(call, arrays))
            prepared = self.kernel.prepare(operands.pop(index), call)
            return self.adapter.to_host(self.kernel.apply(prepared, *operands, **params))


@cache
def subjects() -> tuple[Subject, ...]:
    """Every kernel on every device."""
    return tuple(
        Subject(adapter, spec, device)
        for adapter in adapters()
        for specs in adapter.declaration.specs.values()
        for spec in specs
        for device in adapter.devices()
    )


def each(*primitives: str, differentiable: bool | None = None, prepared: bool | None = None) -> pytest.MarkDecorator:
    """Parametrise a test by ``subject``: the kernels of some primitives, or of all."""
    chosen = [
        subject
        for subject in subjects()
        if (not primitives or subject.spec.primitive in primitives)
        and (differentiable is None or subject.spec.differentiable == differentiable)
        and (prepared is None or (subject.kernel.prepare is not None) == prepared)
    ]
    return pytest.mark.parametrize("subject", chosen, ids=str)


@dataclass(frozen=True)
class Solved:
    """A case of a primitive with its call and the right answer."""

    primitive: Primitive
    case: Case
    call: Call

    @cached_property
    def answer(self) -> np.ndarray:
        """Worked out once for all backends; some references take a while."""
        return reference(self.primitive, *self.case.arrays, **self.case.params)


@cache
def solved(primitive: str, dtype: str) -> tuple[Solved, ...]:
    """The cases of a primitive in a dtype."""
    contract = PRIMITIVES[primitive]
    return tuple(
        Solved(contract, case, contract.describe(*case.arrays, **case.params)) for case in cases(contract, dtype)
    )
