"""Batched work: one function on many items, arrays larger than memory, and batch sizes for training.

``run`` calls a function on many items, stacked where possible, in batches that fit into memory. ``causal_convolution``
and ``elementwise`` are the engine's operations for arrays that need not fit into memory, such as ``numpy.memmap``.
"""

from __future__ import annotations

import math

from hpfracc import _reading
from hpfracc._config import get_settings
from hpfracc.engine.execution.batch.out_of_core import convolve_blocks as causal_convolution
from hpfracc.engine.execution.batch.out_of_core import evaluate_blocks as elementwise
from hpfracc.engine.execution.batch.run import run

__all__ = ["calculate_optimal_batch_size", "causal_convolution", "elementwise", "run"]

#: Training holds the parameters, their gradient, and two moments of the usual optimisers.
_COPIES_OF_MODEL = 4
#: Beyond any batch.
_MOST_SAMPLES = 2.0**62


def calculate_optimal_batch_size(model_size_mb: float, gpu_memory_gb: float) -> int:
    """Batch size that fits into GPU memory in training, rounded down to a power of two; at least 1.

    The activations of one sample are assumed to take a hundredth of the size of the parameters, which is typical of
    dense networks. Measure with a real batch where it matters.

    Parameters
    ----------
    model_size_mb : float
        Size of the parameters in MiB.
    gpu_memory_gb : float
        Memory of the GPU in GiB. The fraction ``gpu_memory_limit`` of it is used.
    """
    model_size_mb = _reading.number("model_size_mb", model_size_mb, above=0)
    gpu_memory_gb = _reading.number("gpu_memory_gb", gpu_memory_gb, above=0)
    free = get_settings().gpu_memory_limit * gpu_memory_gb * 1024.0 - _COPIES_OF_MODEL * model_size_mb
    samples = free / (model_size_mb / 100.0)
    return 1 if samples < 1 else 2 ** int(math.log2(min(samples, _MOST_SAMPLES)))
