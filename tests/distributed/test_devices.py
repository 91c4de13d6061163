"""Several devices in one process, simulated by what there is, and tensors of several processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from hpfracc.distributed.devices import _divided
from hpfracc.engine.memory.budget import get_budget
from hpfracc.errors import InvalidInputError, ShapeError

torch = pytest.importorskip("torch")


def decay(y0: Any, rate: Any) -> Any:
    """Ends of an ensemble of relaxations."""
    return hf.solve_fode(lambda t, y: -rate * y, (0.0, 1.0), y0, 0.5, step=0.25).y[..., -1]


def test_rows_are_divided_and_joined():
    """The values and gradients of one call, whatever the number of devices; tuples and dicts are joined by name."""
    y0 = torch.linspace(1.0, 2.0, 5, dtype=torch.float64)[:, None]
    rate = torch.linspace(0.5, 1.5, 5, dtype=torch.float64)[:, None].requires_grad_()
    expected = decay(y0, rate)
    (slope,) = torch.autograd.grad(expected.sum(), rate)
    found = hf.distributed.per_device(decay, y0, rate, devices=["cpu", "cpu", "cpu"])
    assert torch.allclose(found, expected, rtol=1e-13)
    assert torch.allclose(torch.autograd.grad(found.sum(), rate)[0], slope, rtol=1e-12)
    rows: list[int] = []

    def both(x: Any) -> Any:
        rows.append(len(x))
        return {"double": 2 * x, "pair": (x, [x + 1])}

    found = hf.distributed.per_device(both, y0, devices=["cpu", "cpu"])
    assert sorted(rows) == [2, 3] and torch.equal(found["double"], 2 * y0) and torch.equal(found["pair"][1][0], y0 + 1)
    with torch.no_grad():
        assert not hf.distributed.per_device(lambda x: x * rate[: len(x)], y0, devices=["cpu"] * 2).requires_grad
    assert torch.equal(hf.distributed.per_device(lambda x: x + 1, y0), y0 + 1)  # what this machine has


def test_devices_with_more_free_memory_get_more_rows(monkeypatch: pytest.MonkeyPatch):
    """In proportion; none for a device that is full; evenly where nothing can be read."""
    free: dict[str, int | None] = {"cuda:0": 60 << 30, "cuda:1": 20 << 30}
    monkeypatch.setattr(get_budget(), "free", lambda name, owner=None: free.get(name))
    assert _divided(100, ["cuda:0", "cuda:1"]) == [(0, 75), (75, 100)]
    free["cuda:1"] = 1
    assert _divided(100, ["cuda:0", "cuda:1"]) == [(0, 100), (100, 100)]
    free["cuda:1"] = None
    assert _divided(100, ["cuda:0", "cuda:1"]) == [(0, 50), (50, 100)]


def test_bad_rows_and_devices_are_refused():
    """Arrays without a device, of different lengths, results without rows; errors of the function come through."""
    rows = torch.ones(4, 2)
    with pytest.raises(InvalidInputError, match="arrays of numpy; give arrays of PyTorch"):
        hf.distributed.per_device(abs, np.ones(3))
    with pytest.raises(ShapeError, match=r"shapes \(4, 2\), \(3,\)"):
        hf.distributed.per_device(max, rows, torch.ones(3))
    with pytest.raises(ShapeError, match="a part of 2 rows returned Tensor of shape"):
        hf.distributed.per_device(torch.sum, rows, devices=["cpu", "cpu"])
    with pytest.raises(InvalidInputError, match="devices is empty"):
        hf.distributed.per_device(abs, rows, devices=[])
    with pytest.raises(ZeroDivisionError):
        hf.distributed.per_device(lambda x: 1 / 0, rows, devices=["cpu", "cpu"])


def test_a_dtensor_goes_through_its_local_part(tmp_path: Path):
    """Values, placements and gradients; a divided time axis is refused. A world of one process."""
    from torch import distributed as world
    from torch.distributed.tensor import DTensor, Shard, init_device_mesh

    world.init_process_group("gloo", store=world.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1)
    try:
        mesh = init_device_mesh("cpu", (1,))
        local = torch.randn(3, 50, dtype=torch.float64, requires_grad=True)
        rows = DTensor.from_local(local, mesh, [Shard(0)])
        found = hf.caputo(rows, step=0.1, alpha=0.5)
        assert isinstance(found, DTensor) and tuple(found.placements) == (Shard(0),) and found.shape == rows.shape
        assert torch.allclose(found.to_local(), hf.caputo(local, step=0.1, alpha=0.5))
        found.to_local().sum().backward()
        assert local.grad is not None and bool(torch.isfinite(local.grad).all())
        with pytest.raises(InvalidInputError, match="redistribute"):
            hf.caputo(DTensor.from_local(local, mesh, [Shard(1)]), step=0.1, alpha=0.5)
    finally:
        world.destroy_process_group()
