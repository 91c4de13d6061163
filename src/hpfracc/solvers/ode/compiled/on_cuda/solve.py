"""One ensemble with a thread for each trajectory, from the problem to the result."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Hashable
from typing import Any, NoReturn

import numpy as np
from scipy.special import rgamma

from hpfracc.engine.execution.batch.driver import ChunkSizer, ChunkTooLargeError, keep_bounded, run_chunks
from hpfracc.engine.memory.buffers import host_buffers
from hpfracc.errors import InvalidInputError, OutOfMemoryError
from hpfracc.solvers.ode.compiled.on_cuda import device
from hpfracc.solvers.ode.compiled.on_cuda.device import MemoryLayout, Workspace, borrow_workspace
from hpfracc.solvers.ode.compiled.on_cuda.kernels import THREADS, build_kernel, make_tables
from hpfracc.solvers.ode.compiled.reading import MemberFunction, read_member, some_members
from hpfracc.solvers.ode.fixed.dense import FixedSolution
from hpfracc.solvers.ode.fixed.grid import UniformGrid, check_room, make_grid
from hpfracc.solvers.ode.fixed.scheme import Tableau
from hpfracc.solvers.ode.problem import Problem
from hpfracc.solvers.ode.result import FODEResult, SolveDecision
from hpfracc.solvers.stepping.options import Options
from hpfracc.solvers.stepping.walk import REACHED

Array = np.ndarray[Any, Any]

#: Maximum number of threads: about as many as the largest GPUs run at once (132 multiprocessors of 2048 threads on an
#: H200). More would take memory for their past and wait.
_MAX_SLOTS = 1 << 18
#: Minimum number of blocks of a launch, because Numba warns of fewer. Threads without a member end immediately.
_MIN_BLOCKS = 128
#: Number of first values of the right-hand side that are returned, for interpolation near t0.
_HEAD = 4
#: Number of members whose first value is compared with that of the user's function; all have the same source.
_COMPARED = 64
#: Maximum difference of the kernel from the user's function, relative to the largest value.
_AGREES = {"float64": 1e-9, "float32": 1e-4}
#: Maximum bytes on the host for the steps of a chunk that is interpolated there.
_BETWEEN_BYTES = 256 << 20
#: More bytes than any GPU has.
_PLENTY = 1 << 62

#: Functions and shapes that were found to agree.
_compared: dict[Hashable, None] = {}


def solve_members(cuda: Any, problem: Problem, options: Options, rule: Any, reason: str) -> FODEResult:
    """Solve a problem that :func:`~hpfracc.solvers.ode.compiled.on_cuda.check` accepted, with ``numba.cuda``.

    ``reason`` is why the method is used.
    """
    started = time.perf_counter()
    assert options.step is not None
    members, d = problem.shape
    grid = make_grid(problem.t0, problem.t1, options.step)
    found = read_member(problem.fun, problem.args, (members, d))
    if isinstance(found, str):
        raise InvalidInputError(
            f"backend='numba-cuda': the right-hand side cannot be read as that of one member: {found}. Write it for y "
            "of shape (members, d) in NumPy's elementwise functions, with parameters as floats or arrays in args; or "
            "leave the backend out"
        )
    chosen = SolveDecision(rule.name, reason, "direct", True)
    stats: dict[str, Any] = {"steps": 0, "step": grid.step, "interrupted": False, "terminated": False}
    if grid.steps > options.max_steps:
        message = f"{grid.steps} steps exceed max_steps={options.max_steps}: raise it, or take a larger step."
        start = np.array([problem.t0]), np.array(problem.y0)[..., None]
        return FODEResult(*start, False, message, 1, stats=stats, decision=chosen)
    work = _EnsembleSolve(cuda, problem, options, found, grid, rule)
    check_room(problem, len(work.times), 1, arrays=1)
    device.run_on_device(work.run)
    work.compare()
    success, message = _judge(work.bad, grid)
    terms = work.tables.terms
    notes = (f"a thread for each trajectory on {device.device_name(cuda)} in {options.precision}",)
    stats |= {
        "steps": grid.steps,
        "seconds": time.perf_counter() - started,
        "kernel_seconds": work.kernel_seconds,
        "chunks": work.chunks,
        "memory_terms": terms,
    }
    chosen = dataclasses.replace(chosen, history="exponentials" if terms else "direct", notes=notes)
    nfev, y = 1 + grid.steps * (1 + work.corrections), work.y.transpose(2, 1, 0)
    return FODEResult(work.times, y, success, message, nfev, stats=stats, decision=chosen)


def _read_times(t_eval: Array | None, grid: UniformGrid) -> tuple[Array, Array, bool]:
    """The times of the result; the row in which the kernel stores each step, or -1; and whether some are between steps.

    Then all steps are stored, and interpolated on the host.
    """
    steps = grid.times()
    places = np.arange(len(steps), dtype=np.int32)
    if t_eval is None:
        return steps, places, False
    nearest = np.clip(np.rint((t_eval - grid.t0) / grid.step).astype(np.int64), 0, grid.steps)
    slack = 4.0 * np.spacing(max(abs(grid.t0), abs(grid.t1)))
    if not len(t_eval) or np.any(np.abs(steps[nearest] - t_eval) > slack) or np.any(np.diff(nearest) <= 0):
        return t_eval, places, True
    places[:] = -1
    places[nearest] = np.arange(len(nearest))
    return t_eval, places, False


def _judge(bad: Array, grid: UniformGrid) -> tuple[bool, str]:
    """Whether all trajectories are finite, and the message."""
    failed = np.flatnonzero(bad >= 0)
    if not failed.size:
        return True, f"{REACHED} No error estimate was made; compare with a smaller step."
    earliest = int(failed[np.argmin(bad[failed])])
    return False, (
        f"{failed.size:,} of {bad.size:,} trajectories are not finite, the first of them member {earliest} at "
        f"t = {grid.time(int(bad[earliest])):g}: they or their right-hand sides overflowed, left their domain, or "
        "raise an error in Python there. They are NaN from then on; the others are complete. A smaller step helps if "
        "the cause is numerical."
    )


def _raise_cause(begin: int, end: int, short: ChunkTooLargeError) -> NoReturn:
    """Raise the driver's own error."""
    assert short.__cause__ is not None
    raise short.__cause__


class _EnsembleSolve:
    """A solve, which runs chunk by chunk."""

    def __init__(
        self,
        cuda: Any,
        problem: Problem,
        options: Options,
        function: MemberFunction,
        grid: UniformGrid,
        rule: Any,
    ) -> None:
        self.cuda, self.problem, self.function, self.grid = cuda, problem, function, grid
        self.precision = precision = options.precision
        self.times, self.places, self.between = _read_times(options.t_eval, grid)
        members, d = problem.shape
        #: The order of each component.
        self.orders = np.broadcast_to(np.asarray(problem.orders.known), problem.shape)[0]
        self.corrections = rule.corrections
        self.tables = tables = make_tables(self.orders, grid, rule, problem.orders.ceiling, precision)
        self.kernel = build_kernel(cuda, function.source, d, self.corrections, tables.terms > 0, precision)
        #: Initial data, (C, M, d).
        self.initial = np.stack([problem.y0, *problem.dy0]) if problem.dy0 else problem.y0[None]
        #: What all members share, in the order of the kernel's arguments. Empty arrays cannot be sent.
        self.shared = (
            tables.times,
            tables.powers,
            np.array([*function.numbers, 0.0]),
            np.append(function.shared, 0.0),
            tables.weights,
            tables.first,
            tables.decays if tables.terms else np.zeros((1, 1)),
            tables.gains if tables.terms else np.zeros((1, 1, 1)),
        )
        self.stored = int(self.places.max()) + 1
        self.heads = min(_HEAD, grid.steps + 1) if self.between else 1
        self.first = np.empty((0, d))
        self.bad = np.empty(members, np.int32)
        self.y = np.empty((0, d, members), precision)
        self.chunks = 0
        self.kernel_seconds = 0.0

    def run(self) -> None:
        """Run all chunks; after running out of memory, with smaller ones."""
        members = self.bad.size
        with borrow_workspace(self.cuda, self.precision) as workspace:
            budget = _PLENTY
            # The driver is not queried if everything fits into the workspace.
            if not workspace.fits(*self._layouts(*self._sizes(members, _PLENTY))):
                budget = device.allowed_bytes(self.cuda, workspace.nbytes)

            def source(begin: int, end: int) -> Array:
                try:
                    return self._run_chunk(workspace, begin, end, self._sizes(end - begin, budget)[1])
                except Exception as error:
                    if device.is_out_of_memory(error):
                        raise ChunkTooLargeError(str(error)) from error
                    raise

            sizer = ChunkSizer(self._sizes(members, budget)[0], members)
            run_chunks(members, sizer, source, self._store, stuck=_raise_cause)

    def _sizes(self, left: int, budget: int) -> tuple[int, int]:
        """Number of members of the next chunk, and of threads."""
        item = np.dtype(self.precision).itemsize
        d = self.problem.shape[1]
        a_slot = item * d * self.tables.depth
        rows = self.initial.shape[0] + self.stored + self.heads
        a_member = item * (rows * d + self.function.own_count) + self.bad.itemsize
        slots = THREADS * min(math.ceil(left / THREADS), _MAX_SLOTS // THREADS, budget // 2 // (a_slot * THREADS))
        count = min(left, (budget - slots * a_slot) // a_member)
        if slots < _MIN_BLOCKS * THREADS:
            count = min(count, slots)  # threads beyond these slots have no memory, and so no member
        if self.between:
            count = min(count, max(THREADS, _BETWEEN_BYTES // (item * d * self.stored)))
        if slots < 1 or count < 1:
            raise OutOfMemoryError(
                f"solve_fode: {THREADS} trajectories of {len(self.tables.times):,} points need "
                f"{2 * THREADS * a_slot + a_member:,} bytes on the GPU, and {budget:,} may be used; free memory "
                "there, or take a larger step"
            )
        return count, min(slots, THREADS * math.ceil(count / THREADS))

    def _layouts(self, count: int, slots: int) -> tuple[MemoryLayout, MemoryLayout]:
        """Floats (inputs, outputs, the memory of the threads) and integers for a chunk of ``count`` members."""
        d = self.problem.shape[1]
        own = (self.function.own_count, count) if self.function.own else (1, 1)
        inputs = [*(array.shape for array in self.shared), (self.initial.shape[0], count, d), own]
        outputs = [(self.stored, d, count), (self.heads, d, count if self.between else min(count, _COMPARED))]
        floats = MemoryLayout(inputs, outputs, [(d, self.tables.depth, slots)])
        return floats, MemoryLayout([self.places.shape, (count,)])

    def _run_chunk(self, workspace: Workspace, begin: int, end: int, slots: int) -> Array:
        """The states of the members ``begin .. end-1`` at the returned times, (times, d, members)."""
        floats, integers = self._layouts(end - begin, slots)
        ((inputs, given), (outputs, (kept, head)), (_, (memory,))), ((_, (places, bad)),) = workspace.cut(
            floats, integers
        )
        with host_buffers.borrow(floats.ends[0], self.precision, clear=False) as staged:
            self._write(MemoryLayout([each.shape for each in given]).cut(staged)[0][1], begin, end)
            inputs.copy_to_device(staged)
        places.copy_to_device(self.places)
        times, powers, numbers, constants, *history, initial, own = given
        launch = self.kernel[max(_MIN_BLOCKS, slots // THREADS), THREADS]
        begun = time.perf_counter()
        launch(end - begin, times, powers, initial, numbers, constants, own, *history, memory, places, kept, head, bad)
        self.bad[begin:end] = bad.copy_to_host()  # waits for the kernel
        self.kernel_seconds += time.perf_counter() - begun
        _, (states, values) = MemoryLayout([kept.shape, head.shape]).cut(outputs.copy_to_host())[0]
        if begin == 0:
            self.first = values[0].T
        return self._interpolate(states, values, begin, end) if self.between else np.asarray(states)

    def _store(self, begin: int, end: int, states: Array) -> None:
        """Store the states of a chunk."""
        self.chunks += 1
        if end - begin == self.bad.size:
            self.y = states
            return
        if not len(self.y):
            self.y = np.empty((*states.shape[:2], self.bad.size), self.precision)
        self.y[:, :, begin:end] = states

    def _write(self, places: list[Array], begin: int, end: int) -> None:
        """Write the inputs of the kernel, in its precision."""
        *shared, initial, own = places
        for place, array in zip(shared, self.shared, strict=True):
            place[...] = array
        initial[...] = self.initial[:, begin:end]
        row = 0
        for array in self.function.own:
            part = array[begin:end].reshape(end - begin, -1).T
            own[row : row + len(part)] = part
            row += len(part)

    def _interpolate(self, states: Array, values: Array, begin: int, end: int) -> Array:
        """Interpolate between the steps, as after a solve on the host."""
        problem = self.problem
        part = dataclasses.replace(
            problem,
            y0=problem.y0[begin:end],
            dy0=tuple(each[begin:end] for each in problem.dy0),
            orders=dataclasses.replace(problem.orders, known=self.orders),
        )
        y, f = (np.ascontiguousarray(each.transpose(2, 1, 0)).reshape(-1, len(each)) for each in (states, values))
        table = Tableau(part, self.grid, np.zeros((0, 1, 1)), None, y, f, np.zeros((0, 1, 1)), known=len(states))
        found = FixedSolution(table, len(states))(self.times)
        return np.asarray(found.transpose(2, 1, 0))

    def compare(self) -> None:
        """Raise an error if the kernel's right-hand side at the start differs from that of the user's function."""
        problem, found = self.problem, self.first[:_COMPARED]
        key, count = (self.function.source, problem.shape), len(found)
        # The whole ensemble once: a function may depend on the number of members.
        seen = count if key in _compared else problem.shape[0]
        args = some_members(problem.args, problem.shape[0], seen)
        part = dataclasses.replace(problem, y0=problem.y0[:seen], args=args)
        expected = part.evaluate(problem.t0, np.array(part.y0))[:count]
        finite = np.isfinite(expected)
        worst = float(np.max(np.abs(found[finite] - expected[finite]), initial=0.0))
        size = float(np.max(np.abs(expected[finite]), initial=0.0))
        # The change of a state over the interval that the difference causes: where terms cancel, only rounding is left.
        moved = worst * float(np.max((problem.t1 - problem.t0) ** self.orders * rgamma(self.orders + 1.0)))
        bound = _AGREES[self.precision]
        if not (worst <= bound * size or moved <= bound * float(np.max(np.abs(problem.y0)))):
            raise InvalidInputError(
                f"backend='numba-cuda': the compiled right-hand side differs by {worst:.3g} from the given function at "
                f"t={problem.t0:g}; leave the backend out"
            )
        keep_bounded(_compared, key, None)
