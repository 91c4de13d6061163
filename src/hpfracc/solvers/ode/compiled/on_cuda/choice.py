"""Automatic moves of an ensemble to the GPU: if that is expected to be faster than the remaining steps on the host.

The first steps are taken on the host. Their time and the predicted time on the GPU give the time that moving saves, and
the engine's account (:data:`~hpfracc.engine.selection.rent_or_buy.compile_account`) decides whether that covers the
start of CUDA and the compilation. The GPU's solution is used only if all members agree with the host's at its newest
step. If anything fails, the host continues where it was.
"""

from __future__ import annotations

import logging
import time
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
from hpfracc.solvers.ode.fixed.scheme import Tableau
from hpfracc.solvers.ode.problem import Problem
from hpfracc.solvers.ode.result import FODEResult
from hpfracc.solvers.stepping.options import Options

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
    declined: dict[Any, str] = field(default_factory=dict)


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


class GPUOffer:
    """A solve that may move to the GPU.

    Parameters
    ----------
    table : Tableau
        The solution on the host so far.
    options : Options
        Of the solve.
    reason : str
        Why its method is used.
    guard : callable or None
        ``guard(t, y)`` raises an error if the method should not be used.
    """

    def __init__(self, table: Tableau, options: Options, reason: str, guard: Any) -> None:
        self.table, self.options, self.reason, self.guard = table, options, reason, guard
        self._open = True
        self.price = FunctionPrice(table.problem.fun, (_KERNELS, _FIRST_KERNEL), (_START, _FIRST_START))

    def pays(self, ahead: float) -> bool:
        """Whether to move now; ``ahead`` is the time that the rest of this solve would take on the host."""
        if not self._open or _known.refusal or (ahead < _WORTH_A_LOOK and not self.price.started):
            return False
        kept = self.table.grid.steps + 1 if self.options.t_eval is None else len(self.options.t_eval)
        back = 8 * kept * self.table.y.shape[0] / _BYTES_PER_SECOND
        predicted = _LAUNCH + _known.slowdown * predict_kernel(self.table) + back
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
            found, watched, states = self._run()
            self._compare(found, states[..., 0])
        except (_DeclinedError, OutOfMemoryError) as error:
            reason = str(error)
        except InvalidInputError as error:  # of this function, also in later solves
            reason = str(error)
            from hpfracc.engine.execution.batch.driver import keep_bounded

            keep_bounded(_known.declined, self.price.item, reason)
        except Exception as error:  # whatever it is, the host continues
            _known.refusal = reason = f"{type(error).__name__}: {error}"
        else:
            self._learn(float(found.stats["kernel_seconds"]))
            if self.guard is not None:
                for n, step in enumerate(watched[1:], start=1):
                    self.guard(self.table.grid.time(step), np.ascontiguousarray(states[..., n]))
            return self._explain(found, ahead, time.perf_counter() - started, notes)
        notes.append(f"the ensemble stays on the host: {reason}")
        _log.info("ensemble not moved to the GPU: %s", reason)
        return None

    def _run(self) -> tuple[FODEResult, list[int], Array]:
        """The solution; the newest step of the host and those that the guard checks, and the states there."""
        from hpfracc.solvers.ode.compiled.on_cuda.device import load_cuda
        from hpfracc.solvers.ode.compiled.reading import read_member

        problem, grid, newest, wanted = self.table.problem, self.table.grid, self.table.known - 1, self.options.t_eval
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

        stride = max(1, grid.steps // _GUARDED)
        watched = [newest, *(() if self.guard is None else range(newest + stride, grid.steps + 1, stride))]
        at, options = grid.times()[watched], self.options
        if wanted is not None:  # these steps too, unless they are among the wanted times
            apart = np.abs(np.subtract.outer(at, wanted)).min(axis=1, initial=np.inf) > 1e-9 * grid.step
            options = replace(options, t_eval=np.sort(np.concatenate([wanted, at[apart]])))
        found = solve_members(cuda, problem, options, self.table.rule, self.reason)
        if not found.success:
            raise _DeclinedError(found.message)
        states = found.y[..., np.abs(np.subtract.outer(at, found.t)).argmin(axis=1)]
        if wanted is not None:
            found.t, found.y = wanted, found.y[..., np.searchsorted(found.t, wanted)]
        return found, watched, states

    def _compare(self, found: FODEResult, there: Array) -> None:
        """Decline a solution that differs from the host's at its newest step."""
        table, shape = self.table, self.table.problem.shape
        here = table.y[:, : table.known]
        sizes = np.abs(here).max(axis=1).reshape(shape).max(axis=1)
        differences = np.abs(there - here[:, -1].reshape(shape)).max(axis=1)
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
            _known.slowdown = min(max(kernel / predict_kernel(self.table), _MIN_SLOWDOWN), _MAX_SLOWDOWN)
        else:
            self.price.buy(kernel)


def predict_kernel(table: Tableau) -> float:
    """Seconds of the kernel on an H200."""
    problem, steps = table.problem, table.grid.steps
    members, d = problem.shape
    orders = problem.orders.known
    short = steps <= _MANY_STEPS or orders is None or float(orders.max()) > 1.0
    numbers = d * (steps / 2 if short else _TERMS) * (2 if table.rule.corrections else 1)
    return steps * numbers * max(members * _FULL, _ALONE)


def has_gpu() -> bool:
    """Whether this machine has a GPU and the package that uses it; nothing is imported."""
    return is_installed("numba_cuda") and is_installed("numba") and bool(hardware.machine().gpus)
