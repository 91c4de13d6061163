"""Engine calls that do not fit are done in pieces: the same result, the caller's own kind of array, and a reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numba  # noqa: F401  # imported, so that the engine need not weigh importing it
import numpy as np
import pytest
import torch

import hpfracc as hf
from hpfracc import memory
from hpfracc.engine.backends import registry
from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.execution.batch import planning
from hpfracc.engine.execution.operation import get_operation
from hpfracc.engine.selection.decision import Decision
from hpfracc.errors import OutOfMemoryError
from tests.helpers.own_operations import own_operation
from tests.helpers.thinned import thinned

random = np.random.default_rng(3)
X = random.standard_normal((60, 4000))
W = random.standard_normal(4000)
ONLY_NUMPY = {name: ["torch", "jax", "numba", "cupy"] for name in ("causal_convolution", "fft", "matmul", "reduction")}

MAZE = (1 + np.abs(X[:40, :50]), np.full((40, 40, 50), np.inf))
MAZE[1][np.arange(40), np.arange(40), 7] = 0.0

CALLS: dict[str, tuple[Callable[..., Any], str]] = {
    "rows of a convolution": (lambda **o: hf.causal_convolution(W, X, **o), "4MiB"),
    "one long convolution": (lambda **o: hf.causal_convolution(X.ravel(), X.ravel(), **o), "8MiB"),
    "few weights": (lambda **o: hf.causal_convolution(W[:50], X.ravel(), **o), "1500KiB"),
    "with a key": (lambda **o: hf.causal_convolution(W, X, weights_key="w", **o), "4MiB"),
    "transforms": (lambda **o: hf.fft(X, **o), "4MiB"),
    "along the first axis": (lambda **o: hf.fft(X, axis=0, **o), "4MiB"),
    "product of matrices": (lambda **o: hf.matmul(X[:, :600].T, X[:, :600], **o), "1500KiB"),
    "formula": (lambda **o: hf.elementwise("x*y + sin(x)", x=X, y=X[0], **o), "1200KiB"),
    "maps of a maze": (lambda **o: hf.stencil_relax(*MAZE, **o), "1000KiB"),
    "norms": (lambda **o: hf.reduction(X, kind="norm", axis=0, **o), "1200KiB"),
}


def decision() -> Decision:
    last = hf.last_decision()
    assert isinstance(last, Decision)
    return last


@pytest.mark.parametrize("name", CALLS)
def test_in_pieces_it_is_the_same(name: str) -> None:
    """To rounding; and the decision says in how many pieces, and why."""
    run, size = CALLS[name]
    with hf.use_backend("numpy"):
        whole = run()
        assert decision().chunks == 1
        with memory.limit("cpu", size):
            found = run()
    assert decision().chunks > 1 and "pieces" in decision().reason and "needs" in decision().reason
    assert "chunks" in decision().to_dict()
    np.testing.assert_allclose(found, whole, rtol=1e-9, atol=1e-11 * np.abs(whole).max())
    assert type(found) is np.ndarray and found.dtype == whole.dtype


@pytest.mark.parametrize("library", ["torch", "jax"])
@pytest.mark.parametrize("long", [False, True])
@thinned(lambda library, long: library == "torch" or not long)
def test_what_comes_back_is_what_went_in(library: str, long: bool) -> None:
    """Tensors and JAX arrays are cut and put together as such."""
    w, x = (X[:5].ravel(), X[:8].ravel()) if long else (W[:500], X)
    with jax.enable_x64(True):
        made = (
            (torch.from_numpy(w), torch.from_numpy(x))
            if library == "torch"
            else (jax.numpy.array(w), jax.numpy.array(x))
        )
        with hf.use_backend(library), memory.limit("cpu", "1200KiB" if long else "3MiB"):
            found = hf.causal_convolution(*made)
        assert type(found) is type(made[1])
        assert decision().chunks > 1 and decision().backend == library
        np.testing.assert_allclose(np.asarray(found), hf.causal_convolution(w, x), atol=1e-9)


@pytest.mark.parametrize(
    ("rows", "points", "size", "chunks"),
    [
        pytest.param(12, 20_000, "2MiB", (2, 12), id="the result fills the limit"),
        pytest.param(4, 100_000, "3MiB", (8, 200), id="a row is too long for a transform"),
        pytest.param(30, 20_000, "2MiB", (4, 30), id="the result is far above the limit"),
    ],
)
@pytest.mark.parametrize("keyed", [False, True])
def test_pieces_are_transforms_wherever_those_fit(
    rows: int, points: int, size: str, chunks: tuple[int, int], keyed: bool
) -> None:
    """Pieces are chosen by predicted time over arms, sizes, and rows cut in time; never a sum of n^2 terms."""
    x, w = np.ones((rows, points)), random.standard_normal(points)
    with memory.limit("cpu", size), hf.config(never=ONLY_NUMPY, wisdom="off"):
        found = hf.causal_convolution(w, x, weights_key="w" if keyed else None)
    assert decision().algorithm == "fft" and chunks[0] <= decision().chunks <= chunks[1]
    np.testing.assert_allclose(found, np.broadcast_to(np.cumsum(w), x.shape), atol=1e-9)


def kernels_that_run_out(monkeypatch: pytest.MonkeyPatch, points: int) -> list[tuple[str, int]]:
    """Let NumPy's transforms of more than ``points`` points raise MemoryError; returns the list of calls."""
    calls: list[tuple[str, int]] = []

    def watched(algorithm: str, run: Callable[..., Any]) -> Callable[..., Any]:
        def call(weights: Any, signal: Any, **params: Any) -> Any:
            calls.append((algorithm, signal.shape[-1]))
            if algorithm != "direct" and signal.shape[-1] + weights.shape[-1] > points:
                raise MemoryError(f"no room for {signal.shape[-1]} points")
            return run(weights, signal, **params)

        return call

    for algorithm in ("direct", "fft", "blocked"):
        known = registry.kernel("causal_convolution", "numpy", algorithm)
        key = ("causal_convolution", "numpy", algorithm)
        monkeypatch.setitem(registry._registry.kernels, key, Kernel(watched(algorithm, known.run)))
    return calls


def test_after_a_real_shortage_pieces_of_the_same_algorithm_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """A transform that runs out of memory is not replaced by a sum that takes a thousand times as long."""
    calls = kernels_that_run_out(monkeypatch, 100_000)
    x = np.ones(200_000)
    with hf.config(never=ONLY_NUMPY, wisdom="off"):
        found = hf.causal_convolution(x, x)
    assert all(algorithm != "direct" or points < 2000 for algorithm, points in calls)
    assert decision().chunks > 1 and decision().fallbacks[0].kind == "out of memory"
    np.testing.assert_allclose(found, np.arange(1.0, 200_001.0), rtol=1e-9)


def test_a_slow_way_is_logged_and_a_very_slow_one_refused(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where only the sum itself fits, the log has the figures; above a minute they are those of an error."""
    w, x = np.ones(24_000), np.ones(24_000)
    with memory.limit("cpu", "1320KiB"), hf.config(wisdom="off"):
        # Before anything is timed: what is predicted then does not depend on how busy the machine is.
        with monkeypatch.context() as soon:
            soon.setattr(planning, "REFUSED_SECONDS", 1e-3)
            with pytest.raises(OutOfMemoryError, match=r"take .* m?s; .*fft@cpu.* would take .* needs .*MiB"):
                hf.toeplitz_apply(w, x)
            with pytest.raises(OutOfMemoryError, match=r"use smaller arrays .*hpfracc\.config\(allow_slow=True\)"):
                hf.toeplitz_apply(w, x)
        with caplog.at_level("INFO", logger="hpfracc.engine"):
            found = hf.toeplitz_apply(w, x)
        np.testing.assert_allclose(found, 24_000.0)
        assert "toeplitz_apply (24000,): only a slower arm fits into memory" in caplog.text and "MiB" in caplog.text

        monkeypatch.setattr(planning, "REFUSED_SECONDS", 1e-3)
        with hf.config(allow_slow=True):
            np.testing.assert_allclose(hf.toeplitz_apply(w, x), 24_000.0)


def test_memory_that_is_short_imports_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces run on the libraries that are there: importing another takes memory, and may end the process."""
    monkeypatch.setattr(registry, "is_loaded", lambda name: name == "numpy")
    with memory.limit("cpu", "300MiB"), hf.config(wisdom="off"):
        hf.causal_convolution(W, np.ones((6000, 4000)))
    assert decision().chunks > 1 and decision().backend == "numpy"
    refused = {row.arm: row.refused for row in decision().candidates}
    assert refused["torch:fft@cpu"] == "memory is short, and importing torch takes some"


def test_what_cannot_be_cut_is_refused_with_need_and_have() -> None:
    """One long transform has no pieces: the error names what it needs and what there is."""
    with (
        memory.limit("cpu", "1MiB"),
        pytest.raises(OutOfMemoryError, match=r"needs [\d.]+ MiB; 90% of 1 MiB are free on cpu"),
    ):
        hf.fft(X.ravel(), kind="rfft")
    with memory.limit("cpu", "1MiB"), pytest.raises(OutOfMemoryError, match="asks for 'torch'"):
        hf.fft(X.ravel(), backend="torch")


def test_gradients_are_not_cut() -> None:
    """A result that carries a gradient must come out whole, so the call is refused."""
    x = torch.from_numpy(X).requires_grad_()
    with memory.limit("cpu", "2MiB"), pytest.raises(OutOfMemoryError):
        hf.causal_convolution(torch.from_numpy(W), x)


class RunsOut:
    """A kernel that raises an error for more than ``rows`` rows."""

    def __init__(self, rows: int, error: Callable[[], BaseException]) -> None:
        self.rows, self.error = rows, error
        self.calls: list[int] = []

    def __call__(self, x: Any) -> Any:
        self.calls.append(len(x))
        if len(x) > self.rows:
            raise self.error()
        return x * 2


@pytest.mark.parametrize("forced", [None, "numpy", "torch"])
def test_an_error_on_the_way_halves_the_pieces(forced: str | None) -> None:
    """Out of memory in spite of the prediction: the caller never sees it, with a backend of his own choice or not."""
    with own_operation(RunsOut(37, MemoryError), batchable=True) as op:
        op.kernel("torch")(RunsOut(37, lambda: torch.OutOfMemoryError("CUDA out of memory")))
        x = np.ones((1000, 5))
        np.testing.assert_array_equal(op(x, backend=forced), 2 * x)
        assert decision().chunks > 1
        assert decision().fallbacks and decision().fallbacks[0].kind == "out of memory"


def test_a_limit_that_ends_before_the_call_runs():
    """Chunks are no longer needed, and the arm that only fitted under the limit is not used for the whole call."""
    operation = get_operation("causal_convolution")
    rng = np.random.default_rng(0)
    weights, signal = rng.standard_normal(20_000), rng.standard_normal((4, 20_000))
    with hf.use_backend("numpy"):
        operation(weights, signal)
        with hf.memory.limit("cpu", "2MiB"):
            plan = operation.plan_for((weights, signal), None, None, {})
        assert plan.in_chunks is not None
        operation.run(plan, (weights, signal), None, {}, checked=True)
    assert hf.last_decision().algorithm != "direct"
