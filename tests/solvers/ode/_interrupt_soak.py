"""Run by test_interrupts.py in a process of its own: solves under real SIGINTs, and what became of each of them.

``python _interrupt_soak.py WAY COUNT``: prints JSON with the number of interrupts that were sent, the ways in which the
solves ended, and what ended in none of the ways it may.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
import time
import traceback
from collections import Counter
from typing import Any

import numpy as np

import hpfracc as hf


def in_python(t: float, y: Any) -> Any:
    held = {"rate": 1.0}  # a dictionary: it is not compiled unasked
    return np.array([-held["rate"] * y[0] + 0.1 * y[1], np.cos(t) - y[1]])


def compiled(t: float, y: Any) -> Any:
    return np.array([-y[0] + 0.1 * y[1], np.cos(t) - y[1]])


def half(t: float, y: Any) -> float:
    return float(y[0]) - 0.5


STEP: dict[str, Any] = {"step": 1e-3, "method": "pece"}
WAYS: dict[str, tuple[Any, dict[str, Any]]] = {
    "adaptive, Python": (in_python, {"compile": False}),
    "adaptive, steps compiled": (in_python, {"compile": False, "backend": "numba"}),
    "adaptive, compiled": (compiled, {"compile": True, "events": half}),
    "fixed, Python": (in_python, {**STEP, "compile": False, "backend": "numpy"}),
    "fixed, steps compiled": (in_python, {**STEP, "compile": False, "backend": "numba", "events": half}),
    "fixed, compiled": (compiled, {"method": "pece", "step": 1e-5, "compile": True}),
    "implicit, steps compiled": (
        in_python,
        {**STEP, "method": "implicit_trapezoid", "backend": "numba", "compile": False},
    ),
    "implicit, compiled": (compiled, {"method": "implicit_trapezoid", "step": 1e-5, "compile": True}),
}


def judge(result: Any) -> str:
    """How a solve that returned ended; AssertionError where its parts do not fit."""
    assert result.t.shape == (result.y.shape[-1],) and np.isfinite(result.y).all()
    assert result.success or "Interrupted at t = " in result.message, result.message
    if result.success:
        return "finished"
    assert result.stats["interrupted"] and result.t[0] == 0.0 and np.all(np.diff(result.t) > 0.0)
    return "partial result"


def main() -> None:
    fun, options = WAYS[sys.argv[1]]
    count = int(sys.argv[2])
    signal.signal(signal.SIGINT, signal.default_int_handler)  # it may be ignored where tests are started
    rng = random.Random(sys.argv[1])

    def solve() -> Any:
        return hf.solve_fode(fun, (0.0, 10.0), [1.0, 0.0], 0.7, rtol=1e-5, **options)

    solve()  # compiles
    begin = time.perf_counter()
    solve()
    usual = time.perf_counter() - begin
    ends: Counter[str] = Counter()
    bad: list[str] = []
    asked, answered = threading.Event(), threading.Event()
    over = False

    def send() -> None:
        while True:
            asked.wait()
            asked.clear()
            if over:
                return
            time.sleep(rng.uniform(0.0, min(usual, 0.1)))
            os.kill(os.getpid(), signal.SIGINT)
            answered.set()

    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    sent = 0
    while sent < count:
        answered.clear()
        asked.set()
        ended = "nothing"
        try:
            try:
                ended = judge(solve())
            except KeyboardInterrupt:
                ended = "KeyboardInterrupt"
            except BaseException:
                bad.append(traceback.format_exc()[-1500:])
            # One that comes after the solve is not its business.
            while not answered.wait(1.0):
                pass
            for _ in range(100):
                pass
        except KeyboardInterrupt:
            ended = ended if ended != "finished" else "finished before"
        while not answered.is_set():
            time.sleep(1e-3)
        sent += 1
        ends[ended] += 1
    over = True
    asked.set()
    print(json.dumps({"sent": sent, "ends": ends, "bad": bad[:3], "bad count": len(bad)}))


if __name__ == "__main__":
    main()
