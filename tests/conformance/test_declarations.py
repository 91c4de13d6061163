"""What a backend declares is what it has."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hpfracc._config import BACKENDS
from hpfracc.engine.backends import registry
from hpfracc.engine.backends.base import Adapter
from hpfracc.engine.primitives import PRIMITIVES
from tests.helpers.conformance import FOLDER, Subject, adapters, each, kernels_of


@pytest.mark.parametrize("adapter", adapters(), ids=lambda adapter: adapter.name)
def test_every_kernel_is_declared_and_every_declaration_kept(adapter: Adapter) -> None:
    """The algorithms in ``specs`` are those of the file named after the primitive, its own or the generic one."""
    files = {path.stem for path in (FOLDER / adapter.name / "kernels").glob("[!_]*.py")}
    generic = {path.stem for path in (FOLDER / "generic").glob("[!_]*.py")}
    assert files <= set(adapter.declaration.specs) <= files | generic
    for primitive, specs in adapter.declaration.specs.items():
        assert [spec.algorithm for spec in specs] == list(kernels_of(adapter, primitive))
        assert {spec.primitive for spec in specs} == {primitive}


@pytest.mark.parametrize("name", BACKENDS)
def test_adapter_is_called_like_its_folder(name: str) -> None:
    """The folder, the adapter's name and the primitives it declares are known; whether it is installed or not."""
    adapter = registry.adapter(name)
    assert adapter.name == name
    assert set(adapter.declaration.specs) <= set(PRIMITIVES)


@pytest.mark.parametrize("adapter", adapters(), ids=lambda adapter: adapter.name)
def test_version_is_told(adapter: Adapter) -> None:
    """The version is the installed library's."""
    library = importlib.import_module(adapter.name)
    assert adapter.declaration.version().split("+")[0] == library.__version__.split("+")[0]


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128", "int8", "uint64", "bool"])
@pytest.mark.parametrize("adapter", adapters(), ids=lambda adapter: adapter.name)
def test_arrays_come_back_as_they_went(adapter: Adapter, dtype: str) -> None:
    """From the host to each device and back: values, dtype, layout of any kind, no axes and no elements."""
    base = np.arange(24).reshape(4, 6).astype(dtype)
    for device in adapter.devices():
        for array in (base, base[::2, ::-1], base.T, base[:0], base[1, 2, ...], np.broadcast_to(base[0], (3, 6))):
            back = adapter.to_host(adapter.from_host(array, device))
            assert back.dtype == array.dtype
            np.testing.assert_array_equal(back, array)


def takes_workers(function: Callable[..., Any]) -> bool:
    try:
        return "workers" in inspect.signature(function).parameters
    except ValueError:  # written in C, without a signature: a library's own function
        return False


@each()
def test_kernels_take_workers_exactly_where_they_say(subject: Subject) -> None:
    """``threads=True`` means the keyword ``workers``, in ``run`` and in ``apply``; nothing else has it."""
    functions = [function for function in (subject.kernel.run, subject.kernel.apply) if function is not None]
    assert [takes_workers(function) for function in functions] == [subject.spec.threads] * len(functions)


@each(prepared=True)
def test_prepare_comes_with_apply(subject: Subject) -> None:
    """A transform can only be kept where it can be used, and where the primitive names the operand."""
    assert subject.kernel.apply is not None
    assert subject.primitive.prepared_operand is not None
