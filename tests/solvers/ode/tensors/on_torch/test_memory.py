"""What a solve on tensors keeps in memory at a time, in units of its own solution."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from hpfracc.solvers.ode.tensors.rule import make_weights

torch = pytest.importorskip("torch")

from torch.multiprocessing.reductions import StorageWeakRef  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402

from hpfracc.solvers.ode.tensors.on_torch import blocks, history  # noqa: E402
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
    monkeypatch.setattr(history, "LONGEST_PRODUCT", longest)
    monkeypatch.setattr(history, "WORKSPACE", 1 << 15)
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


@pytest.mark.parametrize("complex_values", [False, True])
@pytest.mark.parametrize(("length", "reach"), [(1, 1), (8, 3), (8, 8), (16, 1), (13, 13)])
def test_sums_by_products_and_transforms_agree(
    length: int, reach: int, complex_values: bool, monkeypatch: pytest.MonkeyPatch
):
    """For segments of any length and any number of sums, at once, in pieces, and in segments of columns."""
    weights = make_weights(0.6, 40, 0.1, torch.ones(1, dtype=torch.float64))
    sums = history.SegmentSums([weights.predictor, weights.corrector])
    generator = np.random.default_rng(3)
    values = torch.tensor(generator.standard_normal((length, 5, 2)))
    if complex_values:
        values = values + 1j * torch.tensor(generator.standard_normal((length, 5, 2)))
    expected = np.zeros((2, reach, 5, 2), values.numpy().dtype)
    for kind, sequence in enumerate((weights.predictor.numpy(), weights.corrector.numpy())):
        for i in range(reach):
            for j in range(length):
                if length + i - j <= 40:
                    expected[kind, i] += sequence[length + i - j] * values[j].numpy()
    for longest in (2048, 0):
        monkeypatch.setattr(history, "LONGEST_PRODUCT", longest)
        monkeypatch.setattr(history, "WORKSPACE", 1)
        assert sums(values, reach).numpy() == pytest.approx(expected, rel=1e-11, abs=1e-13)
        pieces = [torch.ones((2, part, 5, 2), dtype=values.dtype) for part in (*[4] * (reach // 4), reach % 4) if part]
        sums.add_to(pieces, values)
        assert torch.cat(pieces, 1).numpy() == pytest.approx(1.0 + expected, rel=1e-11, abs=1e-13)
