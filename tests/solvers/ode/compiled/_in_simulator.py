"""Ensembles in Numba's CUDA simulator, which is chosen before Numba is imported; prints what was found as JSON."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

os.environ["NUMBA_ENABLE_CUDASIM"] = "1"

import numpy as np
import numpy.typing as npt
from scipy.special import erfcx

import hpfracc as hf
from hpfracc.errors import HpfraccError, InvalidInputError
from hpfracc.solvers.ode.compiled.on_cuda import device
from hpfracc.solvers.ode.methods.pece import PECE

EARLY = "numba" in sys.modules
Array = npt.NDArray[np.float64]
MEMBERS = 3


def brusselator(t: float, y: Array, rate: Array, shape: Array) -> Array:
    u, v = y[..., 0], y[..., 1]
    product = u * u * v
    found: Array = np.stack([shape[0] - (rate + shape[1]) * u + product, rate * u - product], -1)
    return found


def forced(t: float, y: Array, rates: Array) -> Array:
    """With paths, rounding and remainders."""
    if t > 0.4:
        return np.where(y > 0.2, -rates * y, np.cos(t) - y)
    return np.rint(4.0 * y) * 0.1 + np.abs(y) % 0.7 - np.floor(y) + np.sin(3.0 * t)


def many(t: float, y: Array) -> Array:
    """Another function for more members than it is read with."""
    return -y if len(y) > 2 else -2.0 * y


def explosive(t: float, y: Array, rate: Array) -> Array:
    return rate * y * y


RATE = np.linspace(1.5, 3.5, MEMBERS)
STARTS = np.stack([np.linspace(0.8, 1.4, MEMBERS), np.linspace(2.0, 3.0, MEMBERS)], -1)
BRUSSELATOR: dict[str, Any] = {"fun": brusselator, "args": (RATE, np.array([1.0, 1.0])), "y0": STARTS}
FORCED: dict[str, Any] = {"fun": forced, "args": (RATE[:, None] / 10,), "y0": STARTS}

#: Whether the memory is a sum of exponentials, and the question.
CASES: dict[str, tuple[bool, dict[str, Any]]] = {
    "rectangle, direct": (False, {**BRUSSELATOR, "alpha": 0.8, "method": "explicit_rectangle"}),
    "rectangle, exponentials": (True, {**BRUSSELATOR, "alpha": [0.6, 1.0], "method": "explicit_rectangle"}),
    "PECE, direct": (False, {**FORCED, "alpha": 0.7, "method": PECE(corrections=2)}),
    "PECE, exponentials": (True, {**FORCED, "alpha": [0.4, 0.9]}),
    "order above one": (False, {**FORCED, "alpha": 1.6, "dy0": [STARTS - 1.0]}),
    "between the steps": (True, {**BRUSSELATOR, "alpha": 0.8, "t_eval": [0.01, 0.25, 0.777, 1.0]}),
}


def solve(question: dict[str, Any], exponentials: bool = False, **options: Any) -> hf.FODEResult:
    given = {"step": 0.1, **question, **options}
    fun, y0, alpha = given.pop("fun"), given.pop("y0"), given.pop("alpha")
    from hpfracc.solvers.ode.compiled.on_cuda import kernels  # imports Numba

    kernels._STEPS_PER_TERM = 0 if exponentials else 1000
    return hf.solve_fode(fun, (0.0, 1.0), y0, alpha, **given)


def difference(question: dict[str, Any], exponentials: bool) -> dict[str, Any]:
    found = solve(question, exponentials, backend="numba-cuda")
    given = {"method": "pece", **question}
    expected = solve(given, backend="numpy")
    decision = found.decision
    assert decision is not None
    return {
        "difference": float(np.max(np.abs(found.y - expected.y))),
        "same": found.y.shape == expected.y.shape and bool(np.array_equal(found.t, expected.t)),
        "history": decision.history,
        "success": found.success,
        "dtype": str(found.y.dtype),
    }


def relaxation() -> dict[str, Any]:
    """Against ``E_{1/2}(-rate) = erfcx(rate)``, at the end alone: errors for two steps, and in single precision."""
    rates = np.array([0.5, 1.0, 1.5])
    exact = erfcx(rates)
    question = {"fun": lambda t, y, rate: -rate * y, "args": (rates[:, None],), "alpha": 0.5, "t_eval": [1.0]}
    one = np.ones((3, 1))
    errors = [
        float(np.abs(solve(question, True, y0=one, step=step, backend="numba-cuda").y[:, 0, 0] - exact).max())
        for step in (1 / 8, 1 / 16)
    ]
    single = solve(question, True, y0=one.astype(np.float32), step=1 / 16, backend="numba-cuda").y
    double = solve(question, True, y0=one, step=1 / 16, backend="numba-cuda").y
    return {"errors": errors, "single": float(np.abs(single - double).max()), "dtype": str(single.dtype)}


def chunked() -> dict[str, Any]:
    """A GPU with little memory, and one that has less than it said."""
    question = {**BRUSSELATOR, "alpha": 0.8}
    whole = solve(question, backend="numba-cuda")
    before = device.allowed_bytes
    device.allowed_bytes = lambda cuda, held: 500
    few = solve(question, backend="numba-cuda")
    cuda, asked = device.load_cuda(), []
    make = cuda.device_array

    def fail_once(*shape: Any) -> Any:
        asked.append(shape)
        if len(asked) == 1:
            raise RuntimeError("[2] CUDA_ERROR_OUT_OF_MEMORY")
        return make(*shape)

    cuda.device_array = fail_once
    device.allowed_bytes = lambda cuda, held: 1000
    again = solve(question, backend="numba-cuda")
    cuda.device_array, device.allowed_bytes = make, before
    return {
        "chunks": [each.stats["chunks"] for each in (whole, few, again)],
        "equal": bool(np.array_equal(whole.y, few.y)) and bool(np.array_equal(whole.y, again.y)),
    }


def failing() -> list[list[Any]]:
    """A GPU that never has memory, and one that fails for another reason: the error, and how often it was tried."""
    cuda, tries, found = device.load_cuda(), [0], []
    make = cuda.device_array

    def fail(reason: str) -> Any:
        def allocate(*shape: Any) -> Any:
            tries[0] += 1
            raise RuntimeError(reason)

        return allocate

    for reason in ("[2] CUDA_ERROR_OUT_OF_MEMORY", "[700] CUDA_ERROR_ILLEGAL_ADDRESS"):
        cuda.device_array, tries[0] = fail(reason), 0
        try:
            solve({**BRUSSELATOR, "alpha": 0.8}, backend="numba-cuda")
        except HpfraccError as error:
            found.append([type(error).__name__, str(error), tries[0]])
        finally:
            cuda.device_array = make
    return found


def kept() -> dict[str, Any]:
    """Memory of one solve in the next: how often it was allocated and its size asked for, and whether all agrees."""
    from hpfracc.solvers.ode.compiled.on_cuda import solve as on_cuda_solve
    from hpfracc.solvers.ode.compiled.on_cuda.device import release_workspaces

    cuda = device.load_cuda()
    context = cuda.current_context()  # the simulator makes one at each call, a driver has one
    make, here, asked = cuda.device_array, cuda.current_context, device.allowed_bytes
    allocated: list[Any] = []
    read: list[int] = []
    first, second = {**BRUSSELATOR, "alpha": 0.8}, {**FORCED, "alpha": 0.7, "step": 0.05}
    expected = [solve(each, backend="numba-cuda").y for each in (first, second, first)]
    cuda.current_context = lambda: context
    cuda.device_array = lambda *shape: allocated.append(shape) or make(*shape)
    device.allowed_bytes = lambda cuda, held: read.append(held) or asked(cuda, held)
    counts, equal = [], True
    try:
        # With more threads than members, too: those without one must leave the memory alone.
        for blocks, question, wanted in zip((1, 1, 1, 7), (first, first, second, first), (0, 0, 1, 2), strict=True):
            on_cuda_solve._MIN_BLOCKS = blocks
            equal &= bool(np.array_equal(solve(question, backend="numba-cuda").y, expected[wanted]))
            counts.append([len(allocated), len(read)])
        freed = [release_workspaces() > 0, release_workspaces()]
        solve(first, backend="numba-cuda")
        counts.append([len(allocated), len(read)])
        with hf.config(gpu_memory_limit=0.5):
            solve(first, backend="numba-cuda")
        counts.append([len(allocated), len(read)])
    finally:
        on_cuda_solve._MIN_BLOCKS = 1
        cuda.device_array, cuda.current_context, device.allowed_bytes = make, here, asked
        release_workspaces()
    return {"counts": counts, "equal": equal, "freed": freed}


def moved() -> list[list[float]]:
    """Solves that move there by themselves: whether they did, and how far they are from the host's."""
    from hpfracc.solvers.ode import compilation
    from hpfracc.solvers.ode.compiled.on_cuda import choice

    choice.has_gpu = lambda: True
    compilation.import_cost = lambda name: 0.0
    choice._FIRST_START = choice._FIRST_KERNEL = choice._LAUNCH = choice._FULL = choice._WORTH_A_LOOK = 0.0
    choice._ALONE, choice._BYTES_PER_SECOND = 1e-15, 1e15
    found = []
    for times in (None, [1.0], [0.4, 0.6, 1.0], [0.123, 1.0]):
        for method in ("auto", "explicit_rectangle"):
            question = {**BRUSSELATOR, "alpha": 0.8, "step": 0.02, "t_eval": times, "method": method}
            there, here = solve(question, True), solve(question, True, backend="numpy")
            assert there.decision is not None and there.t.shape == here.t.shape
            chosen = any("moved to the GPU" in note for note in there.decision.notes)
            found.append([float(chosen), float(np.abs(there.y - here.y).max())])
    return found


def infinite() -> dict[str, Any]:
    """One member that ends before the others."""
    question = {"fun": explosive, "args": (np.array([[0.1], [9.0]]),), "y0": np.ones((2, 1)), "alpha": 0.9}
    found = solve(question, backend="numba-cuda")
    alone = solve({**question, "args": (np.array([[0.1]]),), "y0": np.ones((1, 1))}, method="pece", backend="numpy")
    return {
        "success": found.success,
        "message": found.message,
        "other": float(np.abs(found.y[0] - alone.y[0]).max()),
        "ends": bool(np.isnan(found.y[1, 0, -1])) and bool(np.isfinite(found.y[1, 0, 1])),
    }


def by_number() -> str:
    """A function that looks at the number of members."""
    try:
        solve({"fun": many, "y0": STARTS, "alpha": 0.8}, backend="numba-cuda")
    except InvalidInputError as error:
        return str(error)
    return ""


def differs() -> str:
    """A kernel whose right-hand side is another one than that given."""
    from hpfracc.solvers.ode.compiled.on_cuda import solve as on_cuda_solve

    read = on_cuda_solve.read_member
    on_cuda_solve.read_member = lambda fun, args, shape: read(forced, (RATE[:, None],), shape)
    try:
        solve({**BRUSSELATOR, "alpha": 0.8}, backend="numba-cuda")
    except InvalidInputError as error:
        return str(error)
    finally:
        on_cuda_solve.read_member = read
    return ""


if __name__ == "__main__":
    from hpfracc.solvers.ode.compiled.on_cuda import kernels
    from hpfracc.solvers.ode.compiled.on_cuda import solve as of_ensembles

    # Every thread of the simulator is one of Python.
    kernels.THREADS = of_ensembles.THREADS = 1
    of_ensembles._MIN_BLOCKS = 1
    print(
        json.dumps(
            {
                "early": EARLY,
                "cases": {name: difference(question, kind) for name, (kind, question) in CASES.items()},
                "relaxation": relaxation(),
                "failing": failing(),
                "chunked": chunked(),
                "kept": kept(),
                "infinite": infinite(),
                "differs": differs(),
                "by_number": by_number(),
                "moved": moved(),
            }
        )
    )
