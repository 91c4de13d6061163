"""Automatic moves of an ensemble to the GPU: if that is expected to be faster than the remaining steps on the host.

The first steps are taken on the host. Their time and the predicted time on the GPU give the time that moving saves, and
the engine's account (:data:`~hpfracc.engine.selection.rent_or_buy.compile_account`) decides whether that covers the
start of CUDA and the compilation. The GPU's solution is used only if all members agree with the host's at its newest
step. If anything fails, the host continues where it was.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from hpfracc._config import get_settings
from hpfracc._optional import is_installed
from hpfracc.engine import hardware
from hpfracc.engine.selection.rent_or_buy import compile_account
from hpfracc.errors import InvalidInputError, OutOfMemoryError
from hpfracc.solvers.ode import compiled
from hpfracc.solvers.ode.compilation import FunctionPrice, numpy_raises, read_backend
from hpfracc.solvers.ode.compiled.on_cuda import refuse
from hpfracc.solvers.ode.fixed.scheme import Scheme, Tableau
from hpfracc.solvers.ode.options import Options
from hpfracc.solvers.ode.problem import Problem
from hpfracc.solvers.ode.result import FODEResult

__all__ = ["GPUOffer", "MovedError", "has_gpu", "make_offer", "may_move"]

Array = np.ndarray[Any, Any]

_log = logging.getLogger("hpfracc")

#: Account entries: the start of CUDA in this process, and the kernel of a right-hand side. Below, their prices in
#: seconds before the first measurement (H200, numba-cuda 0.30: 1.3 s for both together).
_START, _KERNELS = "numba cuda start", "ode ensemble kernel on cuda"
_FIRST_START, _FIRST_KERNEL = 2.0, 1.0
#: Seconds per number of a member's memory and step, on an H200: with a full GPU (benchmarks/ensemble_kernel.py), and a
#: bound for a single thread, which waits for each number.
_FULL, _ALONE = 3e-12, 1e-7
#: Bytes per second from the GPU to new host memory; seconds of a launch with its small transfers.
_BYTES_PER_SECOND, _LAUNCH = 4e9, 2e-3
#: Assumed slowdown of a GPU relative to an H200, until a solve has been measured.
_UNKNOWN_SLOWDOWN = 10.0
_MIN_SLOWDOWN, _MAX_SLOWDOWN = 0.5, 1e3
#: Approximate number of exponentials in the memory, and the number of steps from which they are used.
_TERMS, _MANY_STEPS = 36, 64
#: Minimum expected seconds before GPUs are queried, unless CUDA has already been started.
_WORTH_A_LOOK = 0.5
#: Maximum predicted seconds of a kernel; longer ones run on request only, because kernels cannot be interrupted.
_LONGEST_KERNEL = 10.0
#: Maximum difference of both solutions at the host's newest step, relative to a member's largest value so far.
_AGREES = 1e-9
#: Maximum number of right-hand sides that are remembered to stay on the host.
_MAX_DECLINED = 256
#: Number of points at which a guard checks a solution.
_GUARDED = 32


class MovedError(Exception):
    """Ends the steps on the host, because the GPU has computed ``result``."""

    def __init__(self, result: FODEResult) -> None:
        super().__init__("solved on the GPU")
        self.result = result


class _DeclinedError(Exception):
    """The GPU's solution is not used; the message says why."""


@dataclass(slots=True)
class _Known:
    """What is known of this process's GPU.

    Attributes
    ----------
    slowdown : float
        Measured time divided by the predicted time.
    refusal : str
        Why it is no longer used; empty if it is used.
    declined : dict
        Right-hand sides that stay on the host, and why.
    """

    slowdown: float = _UNKNOWN_SLOWDOWN
    refusal: str = ""
    declined: dict[tuple[str, Any] | None, str] = field(default_factory=dict)


_known = _Known()


def may_move(problem: Problem, options: Options, method: str) -> bool:
    """Whether this problem can be solved on a GPU, and the settings allow an automatic choice."""
    settings = get_settings()
    return (
        options.compile == "auto"
        and not settings.deterministic
        and settings.objective == "time"
        and refuse(problem, options, method) is None
        and read_backend(options) == "auto"
    )


def make_offer(
    table: Tableau,
    options: Options,
    scheme: Scheme,
    decision: tuple[str, str],
    guard: Callable[[float, Array], None] | None,
) -> GPUOffer | None:
    """The offer to solve this problem on a GPU; None if that is impossible or not allowed."""
    if table.grid.steps > options.max_steps or not may_move(table.problem, options, decision[0]):
        return None
    return GPUOffer(table, options, scheme, decision, guard)


@dataclass(eq=False)
class GPUOffer:
    """A solve that may move to the GPU.

    Attributes
    ----------
    table : Tableau
        The solution on the host so far.
    options, scheme
        Of the solve.
    decision : pair of str
        The method and why it is used.
    guard : callable or None
        ``guard(t, y)`` raises an error if the method should not be used.
    """

    table: Tableau
    options: Options
    scheme: Scheme
    decision: tuple[str, str]
    guard: Callable[[float, Array], None] | None

    def __post_init__(self) -> None:
        self._open = True
        self.price = FunctionPrice(self.table.problem.fun, (_KERNELS, _FIRST_KERNEL), (_START, _FIRST_START))
        self._kernel = _predict_kernel(self.table, corrected=self.scheme.kind == "corrected")

    def predict(self) -> float:
        """Seconds on the GPU, without compilation."""
        members, d = self.table.problem.shape
        times = self.options.t_eval
        kept = self.table.grid.steps + 1 if times is None else len(times)
        kept += 0 if self.guard is None else _GUARDED
        return _LAUNCH + _known.slowdown * self._kernel + kept * members * d * 8 / _BYTES_PER_SECOND

    def pays(self, ahead: float) -> bool:
        """Whether to move now; ``ahead`` is the time that the rest of this solve would take on the host."""
        if not self._open or _known.refusal or (ahead < _WORTH_A_LOOK and not self.price.started):
            return False
        predicted = self.predict()
        if predicted > _LONGEST_KERNEL or ahead <= predicted or not self.price.pays(ahead - predicted):
            return False
        # Checked last: querying the hardware takes as long as many steps.
        return has_gpu()

    def solve(self, ahead: float, notes: list[str]) -> FODEResult | None:
        """The GPU's solution; None, with a note, if the host has to continue.

        Errors of the guard are raised as on the host.
        """
        self._open = False
        started = time.perf_counter()
        try:
            found, states = self._run()
            self._compare(found, states[0])
        except (_DeclinedError, OutOfMemoryError) as error:
            reason = str(error)
        except InvalidInputError as error:  # of this function, also in later solves
            reason = str(error)
            if self.price.item is not None:
                _known.declined[self.price.item] = reason
                while len(_known.declined) > _MAX_DECLINED:
                    del _known.declined[next(iter(_known.declined))]
        except Exception as error:  # whatever it is, the host continues
            _known.refusal = reason = f"{type(error).__name__}: {error}"
        else:
            self._learn(float(found.stats["kernel_seconds"]))
            if self.guard is not None:
                for step, state in zip(self._watched()[1:], states[1:], strict=True):
                    self.guard(self.table.grid.time(step), np.ascontiguousarray(state.T))
            return self._explain(found, ahead, time.perf_counter() - started, notes)
        notes.append(f"the ensemble stays on the host: {reason}")
        _log.info("ensemble not moved to the GPU: %s", reason)
        return None

    def _watched(self) -> list[int]:
        """The newest step of the host, and those that the guard will check."""
        newest, steps = self.table.known - 1, self.table.grid.steps
        stride = max(1, steps // _GUARDED)
        return [newest, *(() if self.guard is None else range(newest + stride, steps + 1, stride))]

    def _run(self) -> tuple[FODEResult, Array]:
        """The solution, and the states at the watched steps."""
        from hpfracc.solvers.ode.compiled.on_cuda.device import load_cuda
        from hpfracc.solvers.ode.compiled.reading import read_member

        problem = self.table.problem
        if numpy_raises():
            raise _DeclinedError("np.errstate requests errors, which a kernel does not raise")
        if self.price.item in _known.declined:
            raise _DeclinedError(_known.declined[self.price.item])
        members, d = problem.shape
        reason = read_member(problem.fun, problem.args, (members, d))
        if isinstance(reason, str):
            raise InvalidInputError(f"the right-hand side cannot be read as that of one member: {reason}")
        cuda = load_cuda()
        compiled.load("on_cuda.solve")
        from hpfracc.solvers.ode.compiled.on_cuda.solve import solve_members

        return solve_members(cuda, problem, self.options, self.scheme, self.decision, self._watched())

    def _compare(self, found: FODEResult, there: Array) -> None:
        """Decline a solution that failed, or that differs from the host's at its newest step."""
        if not found.success:
            raise _DeclinedError(found.message)
        table, shape = self.table, self.table.problem.shape
        here = table.y[:, : table.known]
        sizes = np.abs(here).max(axis=1).reshape(shape).max(axis=1)
        differences = np.abs(there.T - here[:, -1].reshape(shape)).max(axis=1)
        if not np.all(differences <= _AGREES * sizes):
            member = int(np.argmax(differences - _AGREES * sizes))
            raise InvalidInputError(
                f"after {table.known - 1} steps member {member} of the GPU's solution differs by "
                f"{differences[member]:.3g} from the host's"
            )

    def _explain(self, found: FODEResult, ahead: float, seconds: float, notes: list[str]) -> FODEResult:
        assert found.decision is not None
        exact = " and 1e-13 in the weights of the past" if found.stats["memory_terms"] else ""
        note = (
            f"moved to the GPU after {self.table.known - 1} steps: the remaining steps would have taken {ahead:.2g} s "
            f"on the host, and all steps took {seconds:.2g} s on the GPU; the results are the host's up to "
            f"rounding{exact}; backend='numpy' keeps a solve on the host"
        )
        found.decision = replace(found.decision, notes=(*notes, *found.decision.notes, note))
        _log.info("ensemble %s", note)
        return found

    def _learn(self, kernel: float) -> None:
        """Record the cost of compilation, and the speed of this GPU. The first launch of a kernel compiles it."""
        if compile_account.is_bought(self.price.item):
            _known.slowdown = min(max(kernel / self._kernel, _MIN_SLOWDOWN), _MAX_SLOWDOWN)
        else:
            self.price.buy(kernel)


def _predict_kernel(table: Tableau, *, corrected: bool) -> float:
    """Seconds of the kernel on an H200."""
    problem, steps = table.problem, table.grid.steps
    members, d = problem.shape
    orders = problem.orders.known
    short = steps <= _MANY_STEPS or orders is None or float(orders.max()) > 1.0
    numbers = d * (steps / 2 if short else _TERMS) * (2 if corrected else 1)
    return steps * numbers * max(members * _FULL, _ALONE)


def has_gpu() -> bool:
    """Whether this machine has a GPU and the package that uses it; nothing is imported."""
    return is_installed("numba_cuda") and is_installed("numba") and bool(hardware.machine().gpus)
