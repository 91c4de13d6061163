"""Interrupted calls; and a process that is interrupted repeatedly: a script with their number and a job's name.

Each round arms a timer that ends in a SIGINT somewhere within one call, and then makes the same call undisturbed: its
result is compared. A call that hangs is ended by the watchdog, with the stacks of all threads. Prints the counts as
JSON.
"""

from __future__ import annotations

import faulthandler
import json
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from hpfracc._interrupts import Guarded, _guarded
from hpfracc.engine import workers
from hpfracc.engine.execution import decision_log

#: Seconds after which a call that has not ended hangs.
HANGS = 240.0


def part_of(call: Callable[[], Any], words: str = "Interrupted") -> Any:
    """What a call that is interrupted had done; it is told in ``words``."""
    with pytest.raises(hf.errors.Interrupted) as caught:
        call()
    assert words in str(caught.value) and "hf.interrupted()" in str(caught.value)
    assert caught.value.solution is hf.interrupted()
    return caught.value.solution


def blocks() -> Callable[[], Any]:
    data = np.arange(4000.0)
    return lambda: workers.run_blocks(lambda part: float(np.exp(-data[part::7]).sum()), range(7), 4)


def batches() -> Callable[[], Any]:
    rows = np.random.default_rng(1).standard_normal((12, 300))
    weights = rows[0]
    from hpfracc import batch

    def call() -> Any:
        alone = batch.run(lambda row: float(row.sum()), rows, workers=3)
        return alone, np.array(batch.run(hf.causal_convolution, rows, common=(weights,)))

    return call


def convolutions() -> Callable[[], Any]:
    rng = np.random.default_rng(2)
    pairs = [(rng.standard_normal(n), rng.standard_normal(n)) for n in (16, 200, 3000, 40_000)]

    def call() -> Any:
        chosen = [hf.causal_convolution(*pair) for pair in pairs]
        chosen += [hf.causal_convolution(*pairs[1], backend=name) for name in ("numpy", "numba", "torch", "jax")]
        return np.concatenate(chosen)

    return call


def learning() -> Callable[[], Any]:
    from hpfracc.engine.execution.operation import get_operation

    rng = np.random.default_rng(3)
    pairs = [(rng.standard_normal(n), rng.standard_normal(n)) for n in (64, 500)]

    def call() -> Any:
        get_operation("causal_convolution").reset_plans()  # so that it is chosen, timed and learned again
        found = [hf.causal_convolution(*pair) for pair in pairs for _ in range(3)]
        hf.explain(hf.caputo, pairs[0][0], step=0.1, alpha=0.5)
        return np.concatenate(found)

    return call


def calibrations() -> Callable[[], Any]:
    from hpfracc.engine.execution.calibration import calibrate

    def call() -> Any:
        calibrate(["matmul"], backends=["numpy", "numba"], sizes=(6, 10))
        return hf.matmul(np.eye(3), np.eye(3))

    return call


def compiling() -> Callable[[], Any]:
    numbers = iter(range(10**9))
    x = np.linspace(0.0, 1.0, 500)

    def call() -> Any:
        # A new expression each time, so that Numba and JAX compile within the call.
        number = next(numbers)
        for backend in ("numba", "jax"):
            hf.elementwise(f"x*{number} + y", x=x, y=x, backend=backend)
        return hf.elementwise("x + y", x=x, y=x, backend="numba")

    return call


def operators() -> Callable[[], Any]:
    t = np.linspace(0.0, 1.0, 64)
    return lambda: np.concatenate(
        [hf.caputo(np.sin(t), t, 0.5), hf.riemann_liouville(np.sin(t), t, 0.3), hf.caputo(np.cos(t), t, 0.7)]
    )


def solves(ways: list[dict[str, Any]]) -> Callable[[], Any]:
    def fun(t: float, y: Any) -> Any:
        return np.array([-y[0] + 0.1 * y[1], np.cos(t) - y[1]])

    def call() -> Any:
        found = [hf.solve_fode(fun, (0.0, 2.0), [1.0, 0.0], 0.7, **each) for each in ways]
        return np.concatenate([each.y[:, -1] for each in found])

    return call


#: Steps in Python, and compiled ones.
PLAIN: list[dict[str, Any]] = [
    {"method": name, "step": 0.02, "compile": False, "backend": "numpy"}
    for name in ("pece", "implicit_trapezoid", "l1")
]
COMPILED: list[dict[str, Any]] = [{"compile": True}, {"compile": True, "method": "pece", "step": 0.01}]


def fields() -> Callable[[], Any]:
    x = np.linspace(0.0, 1.0, 9)
    given: dict[str, Any] = {"x": x, "space": hf.pde.Diffusion(1.0), "boundary": "dirichlet", "alpha": 0.6}
    return lambda: hf.solve_fpde(lambda t, u: -u, (0.0, 1.0), np.sin(np.pi * x), method="l1", step=0.02, **given).u[-1]


def check_part(part: Any) -> None:
    """A solution that was cut off has as many states as times; results of a batch are there whole, or not at all."""
    if isinstance(part, list):
        assert len(part) == 12 and all(item is None or np.isfinite(item).all() for item in part)
    elif part is not None:
        assert not part.success and part.stats["interrupted"] and part.message.startswith("Interrupted at t = ")
        states = part.u if hasattr(part, "u") else np.moveaxis(part.y, -1, 0)
        assert len(states) == len(part.t) > 0 and np.isfinite(states).all() and np.all(np.diff(part.t) > 0.0)


JOBS = {
    "solves": lambda: solves(PLAIN),
    "compiled solves": lambda: solves(COMPILED),
    "fields": fields,
    "blocks": blocks,
    "batches": batches,
    "convolutions": convolutions,
    "learning": learning,
    "calibrations": calibrations,
    "compiling": compiling,
    "operators": operators,
}


def interrupt_often(name: str, wanted: int, seed: int = 0) -> dict[str, Any]:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # it may have been ignored when this process began
    armed = False

    def strike(number: int, frame: Any) -> None:
        if armed:  # another thread may have been given the signal, and told of it late
            signal.raise_signal(signal.SIGINT)

    signal.signal(signal.SIGALRM, strike)
    call = JOBS[name]()
    for _ in range(3):
        expected = call()
    begin = time.perf_counter()
    call()
    usual = max(50e-6, time.perf_counter() - begin)
    chance = random.Random(seed)
    raised = late = 0
    while raised < wanted:
        faulthandler.dump_traceback_later(HANGS, exit=True)
        try:
            armed = True
            signal.setitimer(signal.ITIMER_REAL, max(1e-6, 1.1 * usual * chance.random()))
            call()
            armed = False
            late += 1
        except KeyboardInterrupt as stop:
            armed = False
            raised += 1
            check_part(getattr(stop, "solution", None))
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        begin = time.perf_counter()
        found = call()
        usual += 0.02 * (time.perf_counter() - begin - usual)
        if name in ("blocks", "batches"):
            assert repr(found) == repr(expected), "a result differs after an interrupt"
        else:
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
        if raised % 50 == 0:
            check_locks()
    faulthandler.cancel_dump_traceback_later()
    check_locks()
    leave = time.monotonic() + 300.0
    while time.monotonic() < leave and any(each.name == "hpfracc-aside" for each in threading.enumerate()):
        time.sleep(0.05)
    left = [each.name for each in threading.enumerate() if each.name.startswith(("hpfracc-aside", "hpfracc-batch"))]
    assert not left, f"threads that have not ended: {left}"
    assert type(decision_log.current()) is not decision_log.Mode or decision_log.current().is_over, (
        "a block was left open"
    )
    return {"job": name, "interrupts": raised, "calls without": late, "pool": workers._started}


def check_locks() -> None:
    """Every lock of ours can be taken, from another thread."""
    held: list[str] = []

    def take() -> None:
        owners: list[Guarded] = list(_guarded)
        for owner in owners:
            if owner._lock.acquire(timeout=60.0):
                owner._lock.release()
            else:
                held.append(type(owner).__name__)

    thread = threading.Thread(target=take)
    thread.start()
    thread.join()
    assert not held, f"locks left held: {held}"


if __name__ == "__main__":
    print(json.dumps(interrupt_often(sys.argv[2], int(sys.argv[1]), seed=int(sys.argv[3]) if sys.argv[3:] else 0)))
