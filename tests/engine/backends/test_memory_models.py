"""Memory models of all kernels: they grow with the call, and hold within a factor of 2 on a GPU.

The peaks in ``data/`` were measured on an H200 with PyTorch 2.11 and CuPy 14.2, in MiB (``benchmarks/memory.py --device
cuda``). CuPy's were measured with cuFFT's plans in its cache: without their work areas.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hpfracc.engine.backends import cuda, registry
from hpfracc.engine.backends.base import Arm
from hpfracc.engine.primitives import PRIMITIVES
from hpfracc.engine.primitives.base import ArraySpec
from hpfracc.engine.selection.call_memory import modelled_bytes

MIB = 2**20
#: Calls with rows to be filled in where a shape begins with 0.
CALLS: list[tuple[str, list[tuple[int, ...]], dict[str, Any]]] = [
    ("causal_convolution", [(100,), (0, 512)], {}),
    ("causal_convolution", [(100,), (0, 9000)], {"differences": True}),
    ("fft", [(0, 512)], {"kind": "rfft"}),
    ("fft", [(0, 499)], {"kind": "fft", "n": 600}),
    ("mittag_leffler", [(0, 512)], {"alpha": 0.7}),
    ("history_sum", [(64,), (0, 64), ()], {}),
    ("exponential_recurrence", [(9,), (9,), (), (0, 512), (9,)], {}),
    ("exponential_recurrence", [(9,), (9,), (512,), (0, 512), (9,)], {"final": True}),
    ("chirp_transform", [(0, 512), (3,)], {}),
    ("toeplitz_apply", [(100,), (0, 512)], {}),
    ("toeplitz_apply", [(7, 9), (0, 16, 32)], {"axes": (1, 2)}),
    ("spectral_multiply", [(512,), (0, 512)], {}),
    ("spectral_multiply", [(512,), (0, 512)], {"kinds": "dct2"}),
    ("stencil_relax", [(16, 32), (0, 16, 32)], {}),
    ("tridiagonal_solve", [(0, 512)] * 4, {}),
    ("tridiagonal_solve", [(512,), (512,), (512,), (0, 512)], {}),
]
#: Kernels that came after the measurement.
UNMEASURED = {
    ("torch:arithmetic", "random"),
    ("cupy:fused", "random"),
    ("torch:reduction", "tridiagonal_solve"),
    ("cupy:reduction", "tridiagonal_solve"),
    ("cupy:direct", "causal_convolution"),
    ("cupy:direct", "toeplitz_apply"),
    ("cupy:relax", "stencil_relax"),
}
ROWS = json.loads((Path(__file__).parent / "data" / "gpu_peaks.json").read_text())


@pytest.mark.parametrize(
    ("arm", "name", "shapes", "dtypes", "params", "mib"), ROWS, ids=[f"{row[0]} {row[1]}" for row in ROWS]
)
def test_prediction_is_within_a_factor_of_2(
    monkeypatch: pytest.MonkeyPatch,
    arm: str,
    name: str,
    shapes: list[list[int]],
    dtypes: list[str],
    params: dict[str, Any],
    mib: int,
) -> None:
    """Operands, result and workspace together; peaks are known to a MiB."""

    backend, _, algorithm = arm.partition(":")

    if backend == "cupy":
        monkeypatch.setattr(cuda, "work_bytes", lambda transform: 0)
    params = {key: tuple(value) if isinstance(value, list) else value for key, value in params.items()}
    given = [ArraySpec(tuple(shape), dtype) for shape, dtype in zip(shapes, dtypes, strict=True)]
    call = PRIMITIVES[name].describe(*given, **params)
    (spec,) = [spec for spec in registry.specs(name, backend) if spec.algorithm == algorithm]
    predicted = modelled_bytes(PRIMITIVES[name], call, Arm(backend, spec, "cuda:0"))
    assert 0.5 < predicted / (mib * MIB) < 2.0


def test_every_kernel_was_measured() -> None:
    """Each algorithm of the two backends, for each primitive."""
    offered = {
        (f"{backend}:{spec.algorithm}", name)
        for backend in ("torch", "cupy")
        for name in PRIMITIVES
        for spec in registry.specs(name, backend)
    }
    assert offered - UNMEASURED == {(row[0], row[1]) for row in ROWS}


@pytest.mark.parametrize("backend", ["numpy", "numba", "torch", "jax", "cupy"])
@pytest.mark.parametrize(("name", "shapes", "params"), CALLS)
def test_predictions_grow_with_rows_and_workers(
    name: str, shapes: list[tuple[int, ...]], params: dict[str, Any], backend: str
) -> None:
    """Ten times the rows take more, at most ten times as much; workers never take less."""
    for spec in registry.declaration(backend).specs.get(name, ()):
        for device in ("cpu", "cuda:0") if backend in ("torch", "jax") else ("cuda:0" if backend == "cupy" else "cpu",):
            found = []
            for rows in (10, 100):
                given = [ArraySpec((rows, *shape[1:]) if shape[:1] == (0,) else shape) for shape in shapes]
                call = PRIMITIVES[name].describe(*given, **params)
                if spec.refuses is not None and spec.refuses(call):
                    continue
                need = modelled_bytes(PRIMITIVES[name], call, Arm(backend, spec, device))
                assert isinstance(need, int) and need >= call.input_bytes + call.output_bytes
                assert modelled_bytes(PRIMITIVES[name], call, Arm(backend, spec, device, 4)) >= need
                found.append(need)
            if found:
                assert found[0] < found[1] <= 10 * found[0]
