"""CuPy's adapter, as far as it goes without a GPU."""

from __future__ import annotations

import sys
import types

import pytest

from hpfracc.engine.backends.cupy import adapter as module
from hpfracc.engine.backends.cupy.adapter import ADAPTER
from hpfracc.errors import MissingDependencyError


def install(monkeypatch: pytest.MonkeyPatch, versions: dict[str, str]) -> None:
    monkeypatch.setattr("hpfracc.engine.backends.base.package_version", versions.get)


@pytest.mark.parametrize("package", ["cupy", "cupy-cuda12x", "cupy-cuda13x"])
def test_version_of_whichever_package(monkeypatch: pytest.MonkeyPatch, package: str):
    """CuPy is packaged under a name for each CUDA; the version is found under any of them."""
    install(monkeypatch, {package: "14.2.0"})
    assert ADAPTER.declaration.version() == "14.2.0"


def test_version_of_nothing_names_the_extra(monkeypatch: pytest.MonkeyPatch):
    """Where it is not installed, the error says how to get it."""
    install(monkeypatch, {})
    with pytest.raises(MissingDependencyError, match=r"pip install 'hpfracc\[cuda\]'"):
        ADAPTER.declaration.version()


class FakeOutOfMemoryError(MemoryError):
    pass


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (FakeOutOfMemoryError("Out of memory allocating 8,589,934,592 bytes"), True),
        (MemoryError(), True),
        (RuntimeError("CUFFT_ALLOC_FAILED"), True),
        (RuntimeError("CUBLAS_STATUS_ALLOC_FAILED"), True),
        (RuntimeError("cudaErrorMemoryAllocation: out of memory"), True),
        (RuntimeError("cudaErrorIllegalAddress: an illegal memory access was encountered"), False),
        (ValueError("CUFFT_ALLOC_FAILED"), False),
    ],
)
@pytest.mark.parametrize("imported", [False, True])
def test_out_of_memory_is_told_apart(monkeypatch: pytest.MonkeyPatch, error: Exception, expected: bool, imported: bool):
    """Every way in which CuPy and the libraries under it say that memory ran out, and nothing else."""
    if imported:
        memory = types.SimpleNamespace(OutOfMemoryError=FakeOutOfMemoryError)
        monkeypatch.setitem(sys.modules, "cupy", types.SimpleNamespace(cuda=types.SimpleNamespace(memory=memory)))
    else:
        monkeypatch.delitem(sys.modules, "cupy", raising=False)
    assert ADAPTER.is_out_of_memory(error) is expected


def test_no_driver_means_no_devices(monkeypatch: pytest.MonkeyPatch):
    """CuPy without a GPU is a backend without devices, not an error."""

    class CUDARuntimeError(RuntimeError):
        pass

    def count() -> int:
        raise CUDARuntimeError("cudaErrorNoDevice: no CUDA-capable device is detected")

    runtime = types.SimpleNamespace(getDeviceCount=count, CUDARuntimeError=CUDARuntimeError)
    monkeypatch.setitem(sys.modules, "cupy", types.SimpleNamespace(cuda=types.SimpleNamespace(runtime=runtime)))
    assert module.CupyAdapter().devices() == ()
