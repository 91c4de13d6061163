"""Models of PyTorch's and CuPy's kernels on a GPU against peaks that were measured on one.

These rows were seen: models were corrected at them, so that they tell that a model still says what it said, not how
good it is for other shapes. For that there are ``held_out`` and ``fresh`` in ``benchmarks/_memory_cases.py``. Peaks are
in MiB, of an H200 with PyTorch 2.11 and CuPy 14.2; those of complex Mittag-Leffler functions in PyTorch without the one
block of fractions that the kernel has not made since. PyTorch's tiles, which have been taken some at a time since, are
looked at in ``torch/test_gpu_memory.py``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hpfracc.engine.backends import cufft, registry
from hpfracc.engine.backends.base import Arm
from hpfracc.engine.primitives import PRIMITIVES
from hpfracc.engine.primitives.base import ArraySpec
from hpfracc.engine.selection.candidates import modelled_bytes

MIB = 2**20
ROWS = json.loads((Path(__file__).parent / "data" / "gpu_peaks.json").read_text())
#: What cuFFT said there, or what was among the blocks of a peak, in MiB, where the rule says something else.
ANSWERS = {
    ("R2C", (2000,), 4166): 63.6,
    ("R2C", (32_768,), 678): 0.0,
    ("C2R", (32_768,), 678): 0.0,
    ("C2C", (5000,), 2083): 0.0,
}


@pytest.mark.parametrize(
    ("arm", "name", "shapes", "dtypes", "params", "mib"), ROWS, ids=[f"{row[0]} {row[1]}" for row in ROWS]
)
def test_prediction_is_within_12_percent_of_the_peak(
    monkeypatch: pytest.MonkeyPatch,
    arm: str,
    name: str,
    shapes: list[list[int]],
    dtypes: list[str],
    params: dict[str, Any],
    mib: int,
) -> None:
    """Operands, result and workspace together; peaks are known to a MiB."""

    def answer(kind: str, lengths: tuple[int, ...], batch: int, layout: str = "rows") -> int | None:
        found = ANSWERS.get((kind, lengths, batch)) if layout == "rows" else None
        return None if found is None else int(found * MIB)

    monkeypatch.setattr(cufft, "work_area", answer)
    params = {key: tuple(value) if isinstance(value, list) else value for key, value in params.items()}
    given = [ArraySpec(tuple(shape), dtype) for shape, dtype in zip(shapes, dtypes, strict=True)]
    call = PRIMITIVES[name].describe(*given, **params)
    backend, _, algorithm = arm.partition(":")
    (spec,) = [spec for spec in registry.specs(name, backend) if spec.algorithm == algorithm]
    predicted = modelled_bytes(PRIMITIVES[name], call, Arm(backend, spec, "cuda:0"))
    assert predicted == pytest.approx(mib * MIB, rel=0.12, abs=0.6 * MIB)


def test_every_kernel_is_looked_at() -> None:
    """Each algorithm of the two backends, for each primitive."""
    offered = {
        (f"{backend}:{spec.algorithm}", name)
        for backend in ("torch", "cupy")
        for name in PRIMITIVES
        for spec in registry.specs(name, backend)
    }
    assert offered == {(row[0], row[1]) for row in ROWS}
