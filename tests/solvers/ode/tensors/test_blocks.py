"""What a solve on tensors keeps in memory at a time, in units of its own solution."""

from __future__ import annotations

from typing import Any

import pytest

import hpfracc as hf

torch = pytest.importorskip("torch")

from torch.multiprocessing.reductions import StorageWeakRef  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402

from hpfracc.solvers.ode.tensors import blocks, sums  # noqa: E402
from tests.helpers.thinned import thinned  # noqa: E402


class Peak(TorchDispatchMode):  # type: ignore[misc]
    """The most bytes of tensors that were alive at once, after any operation."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0
        self._alive: dict[int, tuple[Any, int]] = {}

    def __torch_dispatch__(self, function: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = function(*args, **(kwargs or {}))
        for each in tree_leaves(found):
            if isinstance(each, torch.Tensor):
                storage = each.untyped_storage()
                self._alive[storage._cdata] = (StorageWeakRef(storage), storage.nbytes())
        self._alive = {key: kept for key, kept in self._alive.items() if not kept[0].expired()}
        self.bytes = max(self.bytes, sum(size for _, size in self._alive.values()))
        return found


@pytest.mark.parametrize(
    ("orders", "longest"), [("shared", 2048), ("shared", 16), ("of members", 2048)],
    ids=["products", "transforms", "an order for each member"],
)  # fmt: skip
@thinned(one_in=2)
def test_the_peak_is_a_few_solutions(orders: str, longest: int, monkeypatch: pytest.MonkeyPatch):
    """States, values, as many sums to come (two kinds for half the steps): not the twenty-two it once was."""
    monkeypatch.setattr(blocks, "BLOCK", 8)
    monkeypatch.setattr(sums, "LONGEST_PRODUCT", longest)
    monkeypatch.setattr(sums, "WORKSPACE", 1 << 15)
    members, steps = 256, 128  # one step beyond a power of two of blocks
    solution = (steps + 1) * members * 2 * 8
    alpha: Any = 0.7 if orders == "shared" else torch.linspace(0.5, 0.9, members, dtype=torch.float64)[:, None]
    y0 = torch.ones(members, 2, dtype=torch.float64)
    with torch.no_grad(), Peak() as peak:
        y = hf.solve_fode(lambda t, y: -y, (0.0, 1.0), y0, alpha, step=1.0 / steps).y
    assert y.shape == (members, 2, steps + 1)
    assert peak.bytes < (3.6 if orders == "shared" else 5.5) * solution
    one = float(alpha if orders == "shared" else alpha[7, 0])
    alone = hf.solve_fode(lambda t, y: -y, (0.0, 1.0), [1.0], one, step=1.0 / steps, method="pece")
    assert y[7, 0].numpy() == pytest.approx(alone.y[0], rel=1e-10)
