"""``torchrun`` with two processes on the CPU: the same training as one process with the whole batch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

ROOT = Path(__file__).resolve().parents[2]

SCRIPT = """
import os, sys
import torch
from torch.nn.parallel import DistributedDataParallel
from hpfracc import ml
from hpfracc.ml.torch.neural_fsde import NeuralFSDE


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            ml.FractionalConv1d(2, 3, 3, ml.LearnableOrder([0.3, 0.6])), torch.nn.Flatten(), torch.nn.Linear(18, 1)
        )
        order = ml.LearnableOrder(0.7, bounds=(0.5, 1.0))
        self.paths = NeuralFSDE(lambda t, y: -y, lambda t, y: 0.3 * y, alpha=order, step=0.25)

    def forward(self, x, seed, first_path):
        return self.paths(self.layers(x), [0.0, 0.5, 1.0], rng=seed, first_path=first_path)


torch.manual_seed(0)
model = Model().double()
batch = torch.randn(8, 2, 8, dtype=torch.float64)
rank, world = 0, 1
parallel = model
if "RANK" in os.environ:
    torch.distributed.init_process_group("gloo")
    rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
    parallel = DistributedDataParallel(model)
share = len(batch) // world
own = batch[rank * share : (rank + 1) * share]
optimiser = torch.optim.AdamW(ml.parameter_groups(model, order_lr=0.05, weight_decay=1e-2), lr=1e-2)
for step in range(4):
    optimiser.zero_grad()
    parallel(own, step, rank * share).square().mean().backward()
    optimiser.step()
torch.save(model.state_dict(), os.path.join(sys.argv[1], f"{world}-{rank}.pt"))
if world > 1:
    torch.distributed.destroy_process_group()
"""


@pytest.mark.slow
def test_two_processes_train_as_one(tmp_path: Path):
    """Orders of a layer and of a stochastic equation, whose paths are numbered over both processes, to 1e-12."""
    script = tmp_path / "train.py"
    script.write_text(SCRIPT, encoding="utf-8")
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    for launcher in ((), torchrun):
        done = subprocess.run(
            [sys.executable, *launcher, str(script), str(tmp_path)],
            env=env,
            capture_output=True,
            text=True,
            timeout=500,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    alone = torch.load(tmp_path / "1-0.pt", weights_only=True)
    assert "paths.order.rho" in alone and "layers.0.derivative.order.rho" in alone
    for rank in (0, 1):
        found = torch.load(tmp_path / f"2-{rank}.pt", weights_only=True)
        for name, value in alone.items():
            torch.testing.assert_close(found[name], value, rtol=1e-11, atol=1e-12, msg=name)
