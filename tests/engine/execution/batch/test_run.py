"""Batches: the results of a loop, in its order, whatever goes together; an error names its item."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
import pytest
import torch

import hpfracc as hf
from hpfracc import batch, memory
from hpfracc.engine.execution.batch.planning import Job
from hpfracc.errors import BatchItemError, InvalidInputError, OutOfMemoryError
from tests.helpers.own_operations import own_operation

random = np.random.default_rng(5)
W = random.standard_normal(40)
ROWS = [random.standard_normal(120) for _ in range(23)]
INTEGERS = [random.integers(0, 2**40, 64) for _ in range(9)]
MATRICES = [(random.standard_normal((4, 5)), random.standard_normal((5, 3))) for _ in range(11)]

#: Operation, items, parameters, whether BLAS or an FFT of several rows at once is involved.
OPERATIONS: dict[str, tuple[Any, list[Any], dict[str, Any], bool]] = {
    "convolution, shared weights": (hf.causal_convolution, [(W, row) for row in ROWS], {}, False),
    "convolution, own weights": (hf.causal_convolution, [(W * k, row) for k, row in enumerate(ROWS)], {}, False),
    "convolution of several rows": (hf.causal_convolution, [(W, row.reshape(4, 30)) for row in ROWS], {}, False),
    "fft": (hf.fft, ROWS, {"kind": "rfft"}, True),
    "fft along the first axis": (hf.fft, [row.reshape(8, 15) for row in ROWS], {"axis": 0}, True),
    "xor": (hf.bitwise_xor, [(x, INTEGERS[0]) for x in INTEGERS], {}, False),
    "sum of everything": (hf.reduction, ROWS, {}, False),
    "norm of rows": (hf.reduction, [row.reshape(8, 15) for row in ROWS], {"kind": "norm", "axis": 1}, True),
    "matrices": (hf.matmul, MATRICES, {}, True),
    "matrix and vector": (hf.matmul, [(a, b[:, 0]) for a, b in MATRICES], {}, True),
    "vector and matrix": (hf.matmul, [(a[0], b) for a, b in MATRICES], {}, True),
    "vectors": (hf.matmul, [(a[0], b[:, 0]) for a, b in MATRICES], {}, True),
    "mixed sizes": (hf.causal_convolution, [(W, row[: 50 + k % 3]) for k, row in enumerate(ROWS)], {}, True),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_batch_is_a_loop(name: str) -> None:
    """Each result is that of its own call, with its own shape, in the order of the items."""
    operation, items, params, _ = OPERATIONS[name]
    found = batch.run(operation, items, **params)
    for item, result in zip(items, found, strict=True):
        alone = operation(*(item if isinstance(item, tuple) else (item,)), **params)
        assert np.shape(result) == np.shape(alone)
        np.testing.assert_allclose(result, alone, rtol=1e-12, atol=1e-12)


def test_tensors_stay_tensors_and_groups_stay_apart() -> None:
    """Items of two libraries, two dtypes and two shapes in one batch, each with what it brought."""
    items = [ROWS[0], torch.from_numpy(ROWS[1]), ROWS[2].astype("float32"), torch.from_numpy(ROWS[3]), ROWS[4][:50]]
    found = batch.run(hf.fft, items, kind="rfft")
    assert [type(value) for value in found] == [np.ndarray, torch.Tensor, np.ndarray, torch.Tensor, np.ndarray]
    assert found[2].dtype == "complex64" and found[4].shape == (26,)
    np.testing.assert_allclose(found[3].numpy(), np.fft.rfft(ROWS[3]), atol=1e-12)


def test_a_budget_makes_chunks() -> None:
    """As many at a time as fit, in few sizes."""
    rows = [random.standard_normal(20_000) for _ in range(40)]
    with hf.use_backend("numpy"), memory.limit("cpu", "12MiB"):
        found = batch.run(hf.causal_convolution, [(W, row) for row in rows])
        decision = hf.last_decision()
        assert decision is not None
        assert decision.chunks > 2 and "chunks of at most" in decision.reason
    np.testing.assert_allclose(found[17], np.convolve(W, rows[17])[:20_000], atol=1e-10)
    small = batch.run(hf.causal_convolution, [(W, row) for row in rows], budget="4MiB")
    np.testing.assert_allclose(small[17], found[17], atol=1e-10)


class Room:
    """A batched function that has memory for ``rows`` rows."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.sizes: list[int] = []

    def __call__(self, x: Any) -> Any:
        self.sizes.append(len(x))
        if len(x) > self.rows:
            raise MemoryError
        return x.sum(axis=-1)


def test_a_batched_function_is_cut_when_memory_runs_out() -> None:
    """The number of items is halved until they fit."""
    room = Room(37)
    items = [row[:10] for row in ROWS] * 40
    found = batch.run(room, items, batched=True)
    np.testing.assert_allclose(found, [item.sum() for item in items])
    assert 18 < max(room.sizes[-12:]) <= 37
    assert sum(size > 37 for size in room.sizes) <= 9
    with pytest.raises(OutOfMemoryError, match="one item alone"):
        batch.run(Room(0), ROWS[:3], batched=True)


def test_a_batched_function_must_give_a_result_for_each() -> None:
    """A first axis of another length is refused, with the shape."""
    with pytest.raises(BatchItemError, match=r"shape \(120,\) for"):
        batch.run(lambda x: x.sum(axis=0), ROWS, batched=True)


def test_an_error_names_the_item() -> None:
    """In a loop, in threads, in a stacked chunk of a function and of an operation; what was raised is its cause."""

    def inverse(x: float) -> float:
        return 1 / x

    for options in ({}, {"workers": 3}):
        with pytest.raises(BatchItemError, match="item 5 of 8: ZeroDivisionError") as caught:
            batch.run(inverse, [1, 2, 3, 4, 5, 0, 7, 8], **options)
        assert caught.value.index == 5 and isinstance(caught.value.__cause__, ZeroDivisionError)

    def strict(x: np.ndarray) -> np.ndarray:
        if (x < 0).any():
            raise ValueError("negative")
        return x

    with pytest.raises(BatchItemError, match="item 3 of 6: ValueError: negative"):
        batch.run(strict, [np.array([v]) for v in (1.0, 2.0, 3.0, -4.0, 5.0, -6.0)], batched=True)
    with pytest.raises(BatchItemError, match="item 1 of 2: ShapeError"):
        batch.run(hf.matmul, [(np.ones((2, 3)), np.ones((3, 2))), (np.ones((2, 3)), np.ones((2, 3)))])


def test_masks_reach_a_batched_function() -> None:
    """Masked arrays are stacked with their masks, apart from arrays without one."""
    masked = np.ma.masked_equal(np.arange(4.0), 2.0)
    found = batch.run(lambda x: x.sum(axis=-1), [np.arange(4.0), masked, masked + 1.0], batched=True)
    assert found == [6.0, 4.0, 7.0]


def test_processes() -> None:
    """By joblib, for functions that hold the interpreter's lock; errors name their item there too."""
    assert batch.run(math.sqrt, [4, 9, 16, 25], workers=2, processes=True) == [2.0, 3.0, 4.0, 5.0]
    with pytest.raises(BatchItemError, match="item 2 of 4"):
        batch.run(math.sqrt, [4, 9, -1, 25], workers=2, processes=True)


def test_a_call_without_room_beside_others_is_made_again_alone() -> None:
    """Three at a time is too many: each gets its turn."""
    running = []

    def greedy(x: int) -> int:
        running.append(x)
        time.sleep(0.005)
        try:
            if len(running) > 1 and x % 3 == 1:
                raise MemoryError
            return -x
        finally:
            running.remove(x)

    assert batch.run(greedy, range(12), workers=3) == [-x for x in range(12)]


def test_progress_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """To a function, or by a bar; anything else is refused."""
    seen: list[tuple[int, int]] = []
    batch.run(lambda x: x, range(5), progress=lambda done, total: seen.append((done, total)))
    assert seen == [(k, 5) for k in range(1, 6)]
    batch.run(hf.fft, ROWS, progress=True)
    assert "23/23" in capsys.readouterr().err
    with pytest.raises(InvalidInputError, match="progress"):
        batch.run(hf.fft, ROWS, progress="yes")


@pytest.mark.parametrize(
    "options", [{"batch_size": 0}, {"batch_size": 2.5}, {"workers": 0}, {"workers": -2}, {"budget": "much"}]
)
def test_nonsense_is_refused(options: dict[str, Any]) -> None:
    """With the value and what to use."""
    with pytest.raises(InvalidInputError):
        batch.run(hf.fft, ROWS, **options)
    with pytest.raises(InvalidInputError, match="not callable"):
        batch.run(3, ROWS)  # type: ignore[arg-type]


def test_own_operations_are_stacked_if_they_say_so() -> None:
    """One call for all where rows are independent, else one for each."""
    shapes: list[tuple[int, ...]] = []

    def double(x: np.ndarray) -> np.ndarray:
        shapes.append(x.shape)
        return 2 * x

    for batchable in (True, False):
        shapes.clear()
        with own_operation(double, batchable=batchable) as op:
            found = batch.run(op, ROWS)
        np.testing.assert_array_equal(found[3], 2 * ROWS[3])
        assert len(shapes) == (1 if batchable else 23)


#: Operation, rows, what all calls share, parameters.
ARRAYS: dict[str, tuple[Any, Any, tuple[Any, ...], dict[str, Any]]] = {
    "convolution": (hf.causal_convolution, np.stack(ROWS), (W,), {}),
    "fft": (hf.fft, np.stack(ROWS), (), {"kind": "rfft"}),
    "xor": (hf.bitwise_xor, np.stack(INTEGERS), (INTEGERS[1],), {}),
    "matmul": (hf.matmul, np.stack([b for _, b in MATRICES]), (MATRICES[0][0],), {}),
    "reduction": (hf.reduction, np.stack(ROWS), (), {}),
}


class TestOneLaunchAChunk:
    """Many items are one call of one kernel, and their results views of one array."""

    @staticmethod
    def _counted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
        seen: list[tuple[int, ...]] = []
        run = Job.run

        def watched(self: Job, operands: tuple[Any, ...], key: Any = None) -> Any:
            seen.append(tuple(operands[-1].shape))
            return run(self, operands, key)

        monkeypatch.setattr(Job, "run", watched)
        return seen

    @pytest.mark.parametrize("library", ["numpy", "torch"])
    @pytest.mark.parametrize("name", ARRAYS)
    def test_list_and_array(self, name: str, library: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Given as a list or as one array, they are launched once, and come out as a loop gives them."""
        operation, array, common, params = ARRAYS[name]
        alone = [np.asarray(operation(*common, row, **params)) for row in array]
        if library == "torch":
            array, common = torch.from_numpy(array), tuple(map(torch.from_numpy, common))
        seen = self._counted(monkeypatch)
        for items in (array, list(array)):
            found = batch.run(operation, items, common=common, **params)
            assert len(seen) == 1 and seen.pop()[0] == len(array)
            for result, wanted in zip(found, alone, strict=True):
                np.testing.assert_allclose(np.asarray(result), wanted, rtol=1e-12, atol=1e-12)
            if found[0].ndim:
                owner = found[0].base if library == "numpy" else found[0]._base
                assert owner is not None
                assert all((row.base if library == "numpy" else row._base) is owner for row in found)

    def test_rows_of_an_array_are_not_copied(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The kernel sees the caller's own memory, chunk by chunk."""
        array, seen, run = np.stack(ROWS), [], Job.run

        def watched(self: Job, operands: tuple[Any, ...], key: Any = None) -> Any:
            seen.append(np.shares_memory(operands[-1], array))
            return run(self, operands, key)

        monkeypatch.setattr(Job, "run", watched)
        found = batch.run(hf.causal_convolution, array, common=(W,), batch_size=8)
        assert seen == [True] * len(seen) and len(seen) >= 3
        np.testing.assert_allclose(found[22], hf.causal_convolution(W, ROWS[22]), rtol=1e-12, atol=1e-12)

    def test_expressions_by_name(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Items give the variables of an expression by name, those that all share are given once."""
        items = [{"x": row, "y": row[::-1]} for row in ROWS]
        seen = self._counted(monkeypatch)
        found = batch.run(hf.elementwise, items, expression="x*y + a", a=np.array(2.0))
        assert len(seen) == 1
        for row, result in zip(ROWS, found, strict=True):
            np.testing.assert_allclose(result, row * row[::-1] + 2.0)

    @pytest.mark.parametrize(
        ("items", "options"),
        [([{"x": ROWS[0]}, {"y": ROWS[0]}], {"expression": "x"}), ([ROWS[0]], {"expression": "x"}), ([{"x": 1.0}], {})],
    )
    def test_expressions_without_names_are_refused(self, items: list[Any], options: dict[str, Any]) -> None:
        """Other names, no names, no expression."""
        with pytest.raises((BatchItemError, InvalidInputError)):
            batch.run(hf.elementwise, items, **options)

    def test_gradients_go_through_stacked_tensors(self) -> None:
        """Tensors that track a gradient are stacked outside of the pool, and each result may be written to."""
        rows = [torch.tensor(row[:30], requires_grad=True) for row in ROWS[:4]]
        found = batch.run(hf.causal_convolution, rows, common=(torch.from_numpy(W),))
        found[0].add_(1.0)
        sum(result.sum() for result in found).backward()
        for row in rows:
            np.testing.assert_allclose(row.grad, np.cumsum(W[:30])[::-1], rtol=1e-12)

    def test_staged_tensors_do_not_reach_the_result(self) -> None:
        """A result owns its memory: another batch through the same buffer does not change it."""
        first = [torch.full((64,), float(k), dtype=torch.float64) for k in range(8)]
        found = batch.run(hf.elementwise, [{"x": row} for row in first], expression="x", backend="torch")
        batch.run(hf.elementwise, [{"x": row - 99.0} for row in first], expression="x", backend="torch")
        for k, result in enumerate(found):
            assert (result == k).all()
