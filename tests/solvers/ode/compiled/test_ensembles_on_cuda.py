"""Ensembles with a GPU thread for each trajectory: the numbers of the host, and refusals with reasons."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numba  # noqa: F401  (hpfracc.solvers.ode.compiled needs it)
import numpy as np
import pytest

import hpfracc as hf
from hpfracc._config import Settings
from hpfracc.errors import BackendUnavailableError, HpfraccError, InvalidInputError
from hpfracc.solvers.ode.compiled.on_cuda import device
from hpfracc.solvers.ode.compiled.reading import MemberFunction, read_member

Array = np.ndarray[Any, Any]

SIMULATED = Path(__file__).with_name("_in_simulator.py")
CASES = (
    "rectangle, direct",
    "rectangle, exponentials",
    "PECE, direct",
    "PECE, exponentials",
    "order above one",
    "between the steps",
)


# -- in the simulator -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def simulated() -> dict[str, Any]:
    """What a process with Numba's simulator found; it has to be asked for before Numba is imported."""
    pytest.importorskip("numba")
    surroundings = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1", "HPFRACC_WISDOM": "off", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(SIMULATED)], env=surroundings, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("name", CASES)
def test_the_numbers_are_those_of_the_host(simulated: dict[str, Any], name: str) -> None:
    """Both methods, both kinds of memory, several orders, orders above 1, paths in time, and interpolation."""
    found = simulated["cases"][name]
    assert found["success"] and found["same"] and found["dtype"] == "float64"
    assert found["history"] == ("exponentials" if "exponentials" in name or "between" in name else "direct")
    assert found["difference"] < 1e-12


def test_relaxation_is_a_mittag_leffler_function(simulated: dict[str, Any]) -> None:
    """Of order 1 + alpha = 1.5 at a fixed time, and to single precision where y0 has that."""
    found = simulated["relaxation"]
    coarse, fine = found["errors"]
    assert fine < 2e-3 and math.log2(coarse / fine) > 1.4
    assert found["dtype"] == "float32" and 0.0 < found["single"] < 1e-6


def test_chunks_change_nothing(simulated: dict[str, Any]) -> None:
    """Neither where memory is known to be small, nor where it runs out."""
    assert simulated["chunked"] == {"chunks": [1, 3, 3], "equal": True}


def test_errors_of_the_driver_keep_their_reason(simulated: dict[str, Any]) -> None:
    """A lack of memory ends with a single member; another error is not retried."""
    (short, why, tries), (broken, reason, once) = simulated["failing"]
    assert (short, tries) == ("OutOfMemoryError", 2)
    assert "the GPU is out of memory (RuntimeError: [2] CUDA_ERROR_OUT_OF_MEMORY); free memory there" in why
    assert (broken, once) == ("BackendUnavailableError", 1)
    assert "RuntimeError: [700] CUDA_ERROR_ILLEGAL_ADDRESS" in reason


def test_memory_is_kept_for_the_next_solve(simulated: dict[str, Any]) -> None:
    """Allocated again where a solve needs more, after a clean-up, and under another limit; the same numbers always."""
    found = simulated["kept"]
    assert found["equal"] and found["freed"] == [True, 0]
    assert found["counts"] == [[2, 1], [2, 1], [3, 2], [3, 2], [5, 3], [7, 4]]


def test_a_member_that_ends_leaves_the_others_whole(simulated: dict[str, Any]) -> None:
    """It is NaN from there on, and named."""
    found = simulated["infinite"]
    assert not found["success"] and found["ends"] and found["other"] < 1e-14
    assert "1 of 2 trajectories are not finite, the first of them member 1 at t = 0.5" in found["message"]


def test_a_wrong_right_hand_side_is_noticed(simulated: dict[str, Any]) -> None:
    """What the kernel computed at the start is compared with the given function."""
    assert "differs by 0.98 from the given function" in simulated["differs"]
    assert "differs by 3 from the given function" in simulated["by_number"]


def test_solves_that_move_by_themselves_have_the_numbers_of_the_host(simulated: dict[str, Any]) -> None:
    """At all steps, at some of them, and between them; with and without a guard."""
    assert len(simulated["moved"]) == 8
    for chosen, difference in simulated["moved"]:
        assert chosen and difference < 1e-12


def test_numba_is_imported_only_when_asked_for(simulated: dict[str, Any]) -> None:
    """Not by the modules that refuse a question."""
    assert simulated["early"] is False


# -- the function of a member -----------------------------------------------------------------------------------------


def relax(t: float, y: Array, rate: Any) -> Array:
    return -rate * y


def mean_field(t: float, y: Array) -> Array:
    return y.mean(axis=0) - y


def shared_by_number(t: float, y: Array) -> Array:
    return y / len(y)


def led_by_one(t: float, y: Array) -> Array:
    return -y if y[0, 0] > 1.0 else y


@pytest.mark.parametrize(
    ("rate", "shape", "source", "sizes"),
    [
        (np.ones((5, 1)), (5, 2), "v1 = -own[0, i]\nv2 = v1 * y[0]\nv3 = v1 * y[1]", (0, 1)),
        (np.ones((5, 2)), (5, 2), "v1 = -own[0, i]\nv2 = -own[1, i]\nv3 = v1 * y[0]\nv4 = v2 * y[1]", (0, 2)),
        (np.ones(2), (5, 2), "v1 = -shared[0]\nv2 = -shared[1]\nv3 = v1 * y[0]\nv4 = v2 * y[1]", (2, 0)),
        (2.0, (5, 1), "v1 = -p[0]\nv2 = v1 * y[0]", (0, 0)),
    ],
)
def test_arguments_belong_to_members_or_are_shared(
    rate: Any, shape: tuple[int, int], source: str, sizes: tuple[int, int]
) -> None:
    """By their first axis."""
    found = read_member(relax, (rate,), shape)
    assert isinstance(found, MemberFunction)
    assert found.source.startswith(source)
    assert (found.shared.size, found.own_count) == sizes


@pytest.mark.parametrize(
    ("fun", "args", "shape", "reason"),
    [
        (mean_field, (), (5, 2), "depends on the state or parameters of others"),
        (shared_by_number, (), (5, 2), "depends on the number of members"),
        (led_by_one, (), (5, 2), "decides for all; use np.where"),
        (relax, (np.ones(3),), (3, 3), "whose first axis is as long as the ensemble (3) belong to its members"),
        (relax, (np.ones(2),), (2, 2), "depends on the state or parameters of others"),
        (relax, (np.arange(5)[:, None],), (5, 2), "args[0] is an array of dtype int64; convert it to float64"),
        (relax, ([1.0],), (5, 2), "of the type list"),
        (relax, (np.ones((5, 5000)),), (5, 5000), "more than 4096 numbers"),
    ],
)
def test_members_that_are_not_alone_are_refused(fun: Any, args: Any, shape: tuple[int, int], reason: str) -> None:
    """Also where the length of an array does not tell whose it is."""
    found = read_member(fun, args, shape)
    assert isinstance(found, str) and reason in found


# -- refusals ---------------------------------------------------------------------------------------------------------


ONES = np.ones((3, 2))


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"method": "implicit_trapezoid"}, "not 'implicit_trapezoid'"),
        ({"y0": [1.0, 2.0]}, "y0 of shape (members, d), and y0 has shape (2,); reshape it"),
        ({"y0": ONES + 0j}, "takes real states"),
        ({"terms": [(1.0, 0.3)]}, "takes one derivative"),
        ({"alpha": lambda t: 0.5}, "takes constant orders"),
        ({"alpha": [[0.5], [0.6], [0.7]]}, "the same orders for all members"),
        ({"derivative": "riemann_liouville"}, "takes Caputo's derivative"),
        ({"step": None}, "give step="),
        ({"events": lambda t, y: 1.0}, "takes no events"),
        ({"dense_output": True}, "give t_eval"),
        ({"progress": True}, "reports no progress"),
        ({"compile": False}, "compile=False forbids it"),
        ({"estimate": True}, "makes no error estimate"),
    ],
)
def test_what_threads_cannot_do_is_refused(given: dict[str, Any], reason: str) -> None:
    """Before a GPU is looked for."""
    question: dict[str, Any] = {"y0": ONES, "alpha": 0.5, "step": 0.1, "backend": "numba-cuda", **given}
    with pytest.raises(InvalidInputError) as refused:
        hf.solve_fode(lambda t, y: -y, (0.0, 1.0), question.pop("y0"), question.pop("alpha"), **question)
    assert reason in str(refused.value)


def ask() -> None:
    hf.solve_fode(lambda t, y: -y, (0.0, 1.0), ONES, 0.5, step=0.1, backend="numba-cuda")


@pytest.fixture
def _unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if no ensemble had been solved before."""
    pytest.importorskip("numba")
    monkeypatch.setattr(device, "_kept", [])


@pytest.mark.usefixtures("_unknown")
def test_a_target_that_does_not_start_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """As beside a version of NumPy that it does not know."""

    def fail(name: str) -> Any:
        raise AttributeError("module 'numpy' has no attribute 'row_stack'")

    monkeypatch.setattr(device, "importlib", SimpleNamespace(import_module=fail))
    with pytest.raises(BackendUnavailableError, match=r"does not start .NumPy .*row_stack.*\[numba-cuda\]"):
        ask()


@pytest.mark.usefixtures("_unknown")
def test_a_machine_without_a_gpu_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the reason of the driver."""
    target = SimpleNamespace(is_available=lambda: False, cuda_error=lambda: "no driver library\nat all")
    monkeypatch.setattr(device, "importlib", SimpleNamespace(import_module=lambda name: target))
    with pytest.raises(BackendUnavailableError, match=r"finds no GPU \(no driver library\)"):
        ask()


@pytest.mark.usefixtures("_unknown")
def test_numba_may_be_forbidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the environment, and by a setting."""
    with (
        hf.config(never={"solve_fode": ["numba"]}),
        pytest.raises(BackendUnavailableError, match=r"asks for 'numba-cuda'.*config\(never=...\) rules it out"),
    ):
        ask()
    monkeypatch.setattr(device, "get_settings", lambda: Settings(disabled=frozenset({"numba"})))
    with pytest.raises(BackendUnavailableError, match=r"asks for 'numba-cuda'.*HPFRACC_DISABLE_NUMBA"):
        ask()


def test_a_solve_can_be_explained() -> None:
    """Without a GPU."""
    found = hf.explain(hf.solve_fode, relax, (0.0, 1.0), ONES, 0.5, step=0.1, args=(1.0,), backend="numba-cuda")
    assert "a GPU thread for each member" in str(found)


# -- on a GPU ---------------------------------------------------------------------------------------------------------


def brusselator(t: float, y: Array, rate: Array) -> Array:
    u, v = y[..., 0], y[..., 1]
    product = u * u * v
    found: Array = np.stack([1.0 - (rate + 1.0) * u + product, rate * u - product], -1)
    return found


@pytest.mark.gpu
@pytest.mark.parametrize("method", ["explicit_rectangle", "pece"])
def test_a_large_ensemble_on_a_gpu(method: str) -> None:
    """In one chunk and in several, against the host for some of its members, in both precisions."""
    try:
        cuda = device.load_cuda()
    except HpfraccError as error:
        pytest.skip(str(error))
    from hpfracc.engine.memory.budget import get_budget

    members = 100_000
    rates, starts = np.linspace(1.5, 3.5, members), np.tile([1.2, 2.8], (members, 1))
    options: dict[str, Any] = {"step": 0.05, "method": method, "t_eval": [0.5, 9.99, 10.0]}
    solve = lambda y0, args, **more: hf.solve_fode(brusselator, (0.0, 10.0), y0, 0.8, args=args, **options, **more)  # noqa: E731
    whole = solve(starts, (rates,), backend="numba-cuda")
    assert whole.success, whole.message
    some = np.linspace(0, members - 1, 16).astype(int)
    host = solve(starts[some], (rates[some],), backend="numpy")
    np.testing.assert_allclose(whole.y[some], host.y, rtol=1e-10)
    number = cuda.current_context().device.id
    before = get_budget().cap(f"cuda:{number}", 64 << 20)
    try:
        parts = solve(starts, (rates,), backend="numba-cuda")
    finally:
        get_budget().cap(f"cuda:{number}", before)
    assert parts.stats["chunks"] > 1
    np.testing.assert_array_equal(parts.y, whole.y)
    single = solve(starts.astype(np.float32), (rates,), backend="numba-cuda")
    assert single.y.dtype == np.float32
    np.testing.assert_allclose(single.y[some], host.y, rtol=1e-2)
