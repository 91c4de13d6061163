"""When an ensemble moves to the GPU by itself, and when it stays on the host. The GPU is a stand-in that runs here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from hpfracc import FODEResult
from hpfracc.engine.selection.rent_or_buy import compile_account
from hpfracc.errors import BackendUnavailableError, OutOfMemoryError
from hpfracc.solvers.ode import compilation
from hpfracc.solvers.ode.compiled.on_cuda import choice, device
from hpfracc.solvers.ode.result import SolveDecision

Array = np.ndarray[Any, Any]

MEMBERS = 12
RATES = np.linspace(0.5, 1.5, MEMBERS)[:, None]
STARTS = np.stack([np.linspace(0.5, 1.0, MEMBERS), np.linspace(1.0, 2.0, MEMBERS)], -1)


def relax(t: float, y: Array, rates: Array) -> Array:
    return -rates * y + 0.1 * np.sin(t)


def many(t: float, y: Array, rates: Array) -> Array:
    """Another function for many members than for few, which reading it does not show."""
    return -rates * y if len(y) > 10 else -2.0 * rates * y


def coupled(t: float, y: Array, rates: Array) -> Array:
    return y.mean(axis=0) - rates * y


def explosive(t: float, y: Array, rates: Array) -> Array:
    return 0.8 * rates * y * y


def stiffening(t: float, y: Array, rates: Array) -> Array:
    """Decays at a rate that grows a hundredfold on the way."""
    return -rates * (1.0 + 400.0 * max(0.0, t - 0.5)) * y


class StandIn:
    """What the GPU would return, from the host; counts its solves."""

    def __init__(self) -> None:
        self.solves = 0
        self.error: Exception | None = None
        self.of_one: bool = False

    def __call__(self, cuda: Any, problem: Any, options: Any, rule: Any, reason: str) -> FODEResult:
        self.solves += 1
        if self.error is not None:
            raise self.error
        given: dict[str, Any] = {"step": options.step, "method": rule, "backend": "numpy", "estimate": False}
        given["t_eval"] = options.t_eval
        if self.of_one:  # as the kernel does: a member alone
            parts = [
                hf.solve_fode(
                    problem.fun, (problem.t0, problem.t1), problem.y0[[i]], problem.orders.known,
                    args=(problem.args[0][[i]],), **given,
                )
                for i in range(len(problem.y0))
            ]  # fmt: skip
            t, y, success = parts[0].t, np.concatenate([each.y for each in parts]), True
        else:
            whole = hf.solve_fode(
                problem.fun, (problem.t0, problem.t1), problem.y0, problem.orders.known, args=problem.args, **given
            )
            t, y, success = whole.t, whole.y, whole.success
            if not success:
                y = np.concatenate([y, np.full((*y.shape[:2], 1 + round(1.0 / options.step) - y.shape[2]), np.nan)], -1)
        stats = {"kernel_seconds": 1e-4, "memory_terms": 32, "steps": len(t) - 1, "chunks": 1, "seconds": 1e-4}
        decision = SolveDecision(rule.name, reason, "exponentials", True, ("a thread for each trajectory",))
        return FODEResult(t, y, success, "reached" if success else "not finite", 1, stats=stats, decision=decision)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    """A machine with a GPU on which everything takes no time, and a host whose steps seem slow."""
    pytest.importorskip("numba")
    from hpfracc.solvers.ode.compiled.on_cuda import solve

    stand_in = StandIn()
    monkeypatch.setattr(solve, "solve_members", stand_in)
    monkeypatch.setattr(device, "load_cuda", lambda: None)
    monkeypatch.setattr(choice, "has_gpu", lambda: True)
    monkeypatch.setattr(choice, "_known", choice._Known())
    monkeypatch.setattr(compilation, "import_cost", lambda name: 0.0)
    for name, value in {
        "_FIRST_START": 0.0,
        "_FIRST_KERNEL": 0.0,
        "_LAUNCH": 0.0,
        "_FULL": 0.0,
        "_ALONE": 1e-15,
    }.items():
        monkeypatch.setattr(choice, name, value)
    monkeypatch.setattr(choice, "_WORTH_A_LOOK", 0.0)
    monkeypatch.setattr(choice, "_BYTES_PER_SECOND", 1e15)
    for name in ("_FIRST", "_FUNCTION", "_CACHED_KERNEL", "_COLD_KERNEL"):
        monkeypatch.setattr(compilation, name, 1e9)
    compile_account.clear()
    yield stand_in
    compile_account.clear()


def solve(fun: Any = relax, **given: Any) -> FODEResult:
    options: dict[str, Any] = {"step": 1 / 64, "method": "pece", "args": (RATES,), **given}
    return hf.solve_fode(fun, (0.0, 1.0), options.pop("y0", STARTS), options.pop("alpha", 0.8), **options)


def notes(found: FODEResult) -> str:
    assert found.decision is not None
    return "; ".join(found.decision.notes)


# -- moves ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["pece", "explicit_rectangle", "auto"])
def test_an_ensemble_moves(gpu: StandIn, method: str) -> None:
    """Once, after its first steps; the decision says so, and how to prevent it."""
    found = solve(method=method)
    assert gpu.solves == 1 and found.success
    assert "moved to the GPU after" in notes(found) and "backend='numpy' keeps" in notes(found)
    assert "1e-13 in the weights" in notes(found)
    expected = solve(method=method, backend="numpy")
    assert gpu.solves == 1
    np.testing.assert_array_equal(found.y, expected.y)
    assert found.decision is not None and expected.decision is not None
    assert found.decision.method == expected.decision.method and found.decision.reason == expected.decision.reason
    assert found.nfev > 1  # with the first steps


def test_an_ensemble_moves_with_its_own_times(gpu: StandIn) -> None:
    """At steps and between them; the steps that are compared are not returned."""
    times = np.array([0.0, 0.25, 0.3, 0.75, 1.0])
    found, expected = solve(t_eval=times, method="auto"), solve(t_eval=times, method="auto", backend="numpy")
    assert gpu.solves == 1 and "moved to the GPU" in notes(found)
    np.testing.assert_array_equal(found.t, times)
    np.testing.assert_allclose(found.y, expected.y, rtol=1e-12)


def test_the_explanation_says_it(gpu: StandIn) -> None:
    """Where the settings leave the choice open."""
    ask = lambda **more: hf.explain(hf.solve_fode, relax, (0.0, 1.0), STARTS, 0.8, step=0.1, args=(RATES,), **more)  # noqa: E731
    assert "moves to the GPU if it ends sooner" in ask().compiling
    assert "moves to the GPU" not in ask(backend="numpy").compiling
    assert gpu.solves == 0


def test_a_price_has_to_be_earned(gpu: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    """One solve that saves less than compiling costs stays; when solves have cost as much, the next one moves."""
    monkeypatch.setattr(choice, "_FIRST_KERNEL", 50.0)
    assert "GPU" not in notes(solve()) and gpu.solves == 0
    item = (choice._KERNELS, relax.__code__)
    assert 0.0 < compile_account.saved(item) < 50.0
    compile_account.credit(item, 50.0)
    assert "moved to the GPU" in notes(solve()) and gpu.solves == 1
    assert compile_account.is_bought(item)


def test_a_slow_gpu_is_left_alone(gpu: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a solve there took corrects the predictions."""
    monkeypatch.setattr(choice, "_ALONE", 1e-9)
    assert "moved" in notes(solve())
    before = choice._known.slowdown
    assert "moved" in notes(solve())
    assert choice._known.slowdown != before
    choice._known.slowdown = 1e9
    assert "GPU" not in notes(solve()) and gpu.solves == 2


# -- stays ------------------------------------------------------------------------------------------------------------


#: Arguments of a solve, and settings, that keep it on the host.
STAY: dict[str, tuple[dict[str, Any], Callable[[], AbstractContextManager[Any]]]] = {
    "backend": ({"backend": "numpy"}, nullcontext),
    "compile": ({"compile": False}, nullcontext),
    "implicit": ({"method": "implicit_trapezoid"}, nullcontext),
    "events": ({"events": lambda t, y, rates: 1.0}, nullcontext),
    "dense output": ({"dense_output": True}, nullcontext),
    "estimate": ({"estimate": True}, nullcontext),
    "few steps": ({"max_steps": 20}, nullcontext),
    "orders of members": ({"alpha": np.linspace(0.5, 0.9, MEMBERS)[:, None]}, nullcontext),
    "deterministic": ({}, lambda: hf.config(deterministic=True)),
    "energy": ({}, lambda: hf.config(objective="energy")),
    "pin": ({}, lambda: hf.config(pin={"solve_fode": "numpy"})),
    "never": ({}, lambda: hf.config(never={"solve_fode": "numba"})),
    "use_backend": ({}, lambda: hf.use_backend("numpy")),
}


@pytest.mark.parametrize("name", STAY)
def test_settings_are_obeyed(gpu: StandIn, name: str) -> None:
    """Nothing is tried, and nothing is said."""
    given, settings = STAY[name]
    with settings():
        found = solve(**given)
    assert gpu.solves == 0 and "GPU" not in notes(found)


def test_numba_may_be_forbidden(gpu: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the environment."""
    from hpfracc import _config

    monkeypatch.setenv("HPFRACC_DISABLE_NUMBA", "1")
    _config.refresh_environment()
    assert "GPU" not in notes(solve()) and gpu.solves == 0


def test_a_machine_without_a_gpu_keeps_its_solves(gpu: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever they take."""
    monkeypatch.setattr(choice, "has_gpu", lambda: False)
    assert "GPU" not in notes(solve()) and gpu.solves == 0


@pytest.mark.parametrize(
    ("error", "reason", "forever"),
    [
        (BackendUnavailableError("numba.cuda finds no GPU"), "finds no GPU", True),
        (OutOfMemoryError("the memory of the GPU ran out"), "ran out", False),
        (RuntimeError("driver"), "RuntimeError: driver", True),
    ],
)
def test_the_host_continues_after_a_failure(gpu: StandIn, error: Exception, reason: str, forever: bool) -> None:
    """With the same numbers as without a GPU, and a note; a GPU that cannot be used is not tried again."""
    expected = solve(backend="numpy")
    gpu.error = error
    found = solve()
    np.testing.assert_array_equal(found.y, expected.y)
    assert reason in notes(found) and "stays on the host" in notes(found) and gpu.solves == 1
    solve()
    assert gpu.solves == (1 if forever else 2)


def test_members_that_are_not_alone_stay(gpu: StandIn) -> None:
    """With the reason."""
    found = solve(coupled)
    assert gpu.solves == 0 and found.success
    assert "depends on the state or parameters of others" in notes(found)


def test_another_solution_is_noticed(gpu: StandIn) -> None:
    """All members are compared after the steps of the host, so a function of the number of members is found."""
    gpu.of_one = True
    found = solve(many)
    np.testing.assert_array_equal(found.y, solve(many, backend="numpy").y)
    assert gpu.solves == 1 and "of the GPU's solution differs by" in notes(found)
    assert "differs by" in notes(solve(many)) and gpu.solves == 1  # remembered


@pytest.mark.filterwarnings("ignore:overflow encountered", "ignore:invalid value")
def test_a_solution_that_ends_is_the_hosts(gpu: StandIn) -> None:
    """Up to the last finite step, as always."""
    found, expected = solve(explosive), solve(explosive, backend="numpy")
    assert gpu.solves == 1 and not found.success
    np.testing.assert_array_equal(found.t, expected.t)
    assert found.message == expected.message


def test_numpy_errors_are_the_hosts(gpu: StandIn) -> None:
    """A kernel raises none."""
    with np.errstate(invalid="raise"):
        found = solve()
    assert gpu.solves == 0 and "np.errstate" in notes(found)


def test_a_stiff_equation_is_found_on_the_gpu_too(gpu: StandIn) -> None:
    """``method="auto"`` looks at the solution of the GPU as often as at the host's."""
    found, expected = solve(stiffening, method="auto"), solve(stiffening, method="auto", backend="numpy")
    assert gpu.solves == 1
    assert found.decision is not None and expected.decision is not None
    assert found.decision.method == expected.decision.method == "implicit_trapezoid"
    np.testing.assert_allclose(found.y, expected.y, rtol=1e-12)
