"""Chunks of a batch and pieces of a large call are spans while the profiler is on."""

from __future__ import annotations

import numpy as np

import hpfracc as hf
from hpfracc import batch
from hpfracc.profiling import get_profiler


def test_chunks_of_a_batch_are_spans_that_say_how_many_items_they_hold() -> None:
    """Every item is in one of them."""
    rng = np.random.default_rng(0)
    items = [(rng.standard_normal(32), rng.standard_normal(32)) for _ in range(10)]
    profiler = get_profiler(enabled=True)
    profiler.reset()
    try:
        batch.run(hf.causal_convolution, items, batch_size=4)
        spans = [entry for entry in profiler.get_entries() if entry.kind == "batch"]
    finally:
        profiler.disable()
        profiler.reset()
    chunks = [entry for entry in spans if "items" in entry.metadata]  # the others are pieces within them
    assert sum(entry.metadata["items"] for entry in chunks) == 10
    assert max(entry.metadata["items"] for entry in chunks) <= 4
