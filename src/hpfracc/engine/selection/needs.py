"""The bytes a call would take on an arm: the kernel's model, corrected by measured peaks."""

from __future__ import annotations

from hpfracc.engine.backends import cufft, registry
from hpfracc.engine.backends.base import Arm
from hpfracc.engine.memory.forecast import Kind, forecasts
from hpfracc.engine.memory.host import thread_bytes
from hpfracc.engine.primitives.base import Call, Primitive
from hpfracc.engine.workers import started_workers

__all__ = ["forecast_kind", "fresh_bytes", "modelled_bytes", "predicted_bytes", "starting_bytes"]


def modelled_bytes(primitive: Primitive, call: Call, arm: Arm) -> int:
    """Operands, result and what the kernel takes besides, as its model says; on a GPU with cuFFT's work area."""
    spec, algorithm = arm.spec, arm.algorithm
    model = spec.memory if arm.on_host or spec.gpu_memory is None else spec.gpu_memory
    workspace, elements = primitive.workspace(call, algorithm), primitive.block_elements(call, algorithm)
    size = call.input_bytes + call.output_bytes + model.bytes(workspace, elements, arm.workers)
    transform = None if arm.on_host else primitive.transform(call, algorithm)
    return size if transform is None else size + cufft.work_bytes(transform)


def forecast_kind(call: Call, arm: Arm) -> Kind:
    """What calls have in common whose predictions err alike."""
    variant = call.facts.get("kind", "")
    kind = f"{call.dtype} {variant}" if variant else call.dtype
    return call.operation, f"{arm.backend}:{arm.algorithm}", "cpu" if arm.on_host else "cuda", kind


def predicted_bytes(primitive: Primitive, call: Call, arm: Arm) -> int:
    """Bytes in all, corrected by what earlier calls of this kind took."""
    need = modelled_bytes(primitive, call, arm)
    factor = forecasts.correction(forecast_kind(call, arm), call.bucket)
    return need if factor == 1.0 else int(need * factor)


def starting_bytes(arm: Arm, wished: bool) -> int:
    """What an arm takes of the host before its first call: a library that is not imported yet, threads to be started.

    A library that was asked for is imported whatever it takes. Stacks of threads count only under a ``ulimit`` of the
    process, of which they take their whole length.
    """
    library = 0 if wished or registry.is_loaded(arm.backend) else registry.adapter(arm.backend).import_bytes
    missing = arm.workers - 1 - started_workers()
    return library + (missing * thread_bytes() if missing > 0 else 0)


def fresh_bytes(need: int, call: Call, stays: bool) -> int:
    """What of ``need`` is not there yet: operands that stay where they are take nothing more."""
    return max(call.output_bytes, need - call.input_bytes) if stays else need
