"""What belongs to the user stays as it was: thread counts, library settings, other tasks' choices."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch

import hpfracc as hf
from hpfracc._config import current_backend

SOURCE = str(Path(hf.__file__).parents[1])


def test_thread_counts_are_left_alone() -> None:
    """Every backend runs, and PyTorch's thread counts are what they were."""
    before = torch.get_num_threads(), torch.get_num_interop_threads(), torch.get_default_dtype()
    x = np.random.default_rng(0).standard_normal((4, 3000))
    for backend in ("numpy", "numba", "torch", "jax"):
        hf.causal_convolution(x[0], x, backend=backend)
        hf.elementwise("x + 1", x=x, backend=backend)
    assert (torch.get_num_threads(), torch.get_num_interop_threads(), torch.get_default_dtype()) == before


def test_asyncio_tasks_have_choices_and_decisions_of_their_own() -> None:
    """A task's ``use_backend`` and last decision are not another's."""

    async def work(backend: str) -> tuple[str | None, str]:
        with hf.use_backend(backend):
            for _ in range(3):
                hf.matmul(np.eye(3), np.eye(3))
                await asyncio.sleep(0)
            decision = hf.last_decision()
            assert decision is not None
            return current_backend(), decision.backend

    async def main() -> list[tuple[str | None, str]]:
        return await asyncio.gather(work("numpy"), work("torch"), work("jax"))

    assert asyncio.run(main()) == [(name, name) for name in ("numpy", "torch", "jax")]
    assert current_backend() is None


def test_jax_does_not_take_most_of_the_gpu_when_we_start_it() -> None:
    """Unless the user decided about that; and JAX_PLATFORMS is respected."""
    code = (
        "import os, numpy as np, hpfracc as hf\n"
        "hf.fft(np.ones(8), backend='jax')\n"
        "print(os.environ['XLA_PYTHON_CLIENT_PREALLOCATE'], hf.last_decision().device)\n"
    )
    for given, expected in (({}, "false cpu"), ({"XLA_PYTHON_CLIENT_PREALLOCATE": "true"}, "true cpu")):
        inherited = {name: value for name, value in os.environ.items() if name != "XLA_PYTHON_CLIENT_PREALLOCATE"}
        environment = {**inherited, "PYTHONPATH": SOURCE, "HPFRACC_WISDOM": "off", "JAX_PLATFORMS": "cpu", **given}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == expected


def test_aliases_of_an_operation_can_be_pinned() -> None:
    """``pin`` and ``never`` take the operation types that users know as well as the primitive's own name."""
    with hf.config(pin={"conv": "torch"}):
        hf.causal_convolution(np.ones(4), np.ones(4))
        decision = hf.last_decision()
        assert decision is not None and decision.backend == "torch"
    with hf.config(never={"element_wise": ["numpy", "numba"]}):
        assert hf.explain("elementwise", shape=(100,)).decision.backend not in ("numpy", "numba")
