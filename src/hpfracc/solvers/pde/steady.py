"""Steady states: the equation in space alone."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from hpfracc import _reading
from hpfracc._results import LabelledArrays, Result
from hpfracc.errors import AccuracyWarning, InvalidInputError, SolveError
from hpfracc.solvers.pde.grid_error import estimate_grid_error
from hpfracc.solvers.pde.method import EvolutionMethod
from hpfracc.solvers.pde.nonlinear import ReactionSolver, own_slopes
from hpfracc.solvers.pde.problem import EvolutionProblem
from hpfracc.solvers.pde.reading import read_evolution
from hpfracc.solvers.stepping.system import StepFailedError

if TYPE_CHECKING:
    from hpfracc._results import Axes

Array = np.ndarray[Any, Any]

#: Shift of a singular operator, in units of its norm, and the largest number of iterations with it.
_SHIFT, _ITERATIONS = 1e-8, 20
#: Relative size below which a sum over the grid counts as zero, and the largest residual, in units of ``|A| |u|``.
_ZERO, _RESIDUAL = 1e-9, 1e-8
#: An eigenvalue that counts as zero, in units of their median.
_NO_RATE = 1e-12
#: The time up to which initial data would have been forgotten.
_LONG = 1e9


@dataclass(frozen=True, eq=False, repr=False)
class SteadyState(Result):
    """The solution of :func:`steady_state`.

    Attributes
    ----------
    x : array or tuple of arrays
        The grid.
    u : array
        The solution on the whole grid.
    residual : float
        The largest absolute value of ``A u + f + R(u)`` at the unknown points.
    error_estimate : float
        An estimate of the largest error due to the grid; nan if there is none, and ``notes`` says why.
    mass : float or array
        The integral of u over the box, of each component.
    stats : dict
        Counters of the solve.
    notes : tuple of str
        Remarks.
    """

    x: Any
    u: Array
    residual: float
    error_estimate: float
    mass: Any
    stats: dict[str, Any]
    notes: tuple[str, ...] = ()

    def _labelled(self) -> LabelledArrays:
        grid = self.x if isinstance(self.x, tuple) else (self.x,)
        names = ("x", "y", "z")[: len(grid)]
        dims = (*(("component",) if np.ndim(self.u) > len(grid) else ()), *names)
        return LabelledArrays({"u": (dims, self.u)}, dict(zip(names, grid, strict=True)), "x")

    def _facts(self) -> dict[str, Any]:
        facts = {"shape": str(np.shape(self.u)), "residual": self.residual, "error_estimate": self.error_estimate}
        return {**facts, "notes": "; ".join(self.notes)}

    def plot(self, *, component: int = 0, ax: Axes | None = None, **style: Any) -> Axes:
        """Draw u over x in one dimension, as a picture in two, and the middle slice of it in three; returns the axes.

        Needs Matplotlib (extra ``plot``).
        """
        from hpfracc.solvers.pde.plot import plot_evolution

        kind, u = "profiles" if isinstance(self.x, np.ndarray) else "frames", np.asarray(self.u)[None]
        options: dict[str, Any] = {"times": None, "ax": ax, "path": None, "seconds": 0.0}
        drawn = plot_evolution(np.zeros(1), self.x, u, kind, component, style={"label": "u", **style}, **options)
        axes: Axes = drawn if kind == "profiles" else drawn[0]
        axes.set_title("")
        return axes

    def __repr__(self) -> str:
        shape, error = np.shape(self.u), self.error_estimate
        return f"SteadyState(u of shape {shape}, residual={self.residual:.2g}, error_estimate={error:.2g})"


def steady_state(
    reaction: Callable[..., Any] | None = None,
    u0: Any = 0.0,
    *,
    x: Any = None,
    space: Any,
    boundary: Any = None,
    source: Any = None,
    mass: float | None = None,
    args: Any = (),
    jac: Callable[..., Any] | None = None,
    rtol: float = 1e-8,
    atol: float = 1e-10,
    estimate: bool | str = "auto",
) -> SteadyState:
    r"""Solve :math:`\mathcal{A} u + f(x) + R(u, x) = 0`, the steady states of :func:`solve_fpde`.

    Parameters
    ----------
    reaction : callable or None
        ``reaction(t, u, *args)`` or ``reaction(t, u, x, *args)`` as in ``solve_fpde``; it must not depend on t.
    u0 : array_like, callable or float
        The guess from which Newton's method starts, on the whole grid. Of several solutions it decides which is found.
        Of shape (components, ...) for a system.
    x, space, boundary, source, args, jac
        As in ``solve_fpde``, for NumPy arrays; functions of t must not depend on it.
    mass : float, optional
        The integral of u, where the solution is unique only up to its mass: without a reaction and with closed or
        periodic ends.
    rtol, atol : float
        To which Newton's method solves the equations of the grid.
    estimate : bool or "auto"
        Whether the error due to the grid is estimated, from every second and every fourth point.

    Returns
    -------
    SteadyState
        ``.x .u .residual .error_estimate .mass .stats .notes``.

    Raises
    ------
    SolveError
        If Newton's method finds no solution from ``u0``.

    See Also
    --------
    solve_fpde, SteadyState

    Notes
    -----
    Linear equations are one solve. With closed ends the operator is singular: its kernel is found by inverse iteration.
    Newton's method solves its linear equations by GMRES, with the operator in space as preconditioner.

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> from hpfracc.pde import Diffusion
    >>> x = np.linspace(0.0, 1.0, 33)
    >>> found = hf.steady_state(x=x, space=Diffusion(1.0), boundary="dirichlet", source=2.0)
    >>> bool(np.allclose(found.u, x * (1.0 - x), atol=1e-3))
    True
    """
    constant = isinstance(u0, int | float | complex) or getattr(u0, "shape", None) == ()
    guess = (lambda *places: u0) if constant else u0
    given = {"x": x, "space": space, "boundary": boundary, "source": source, "args": args, "jac": jac}
    with warnings.catch_warnings():  # the guess need not have the boundary values
        warnings.simplefilter("ignore", AccuracyWarning)
        problem = read_evolution(reaction, (0.0, 1.0), guess, alpha=1.0, du0=None, terms=(), backend="auto", **given)
    if problem.xp.library != "numpy":
        raise InvalidInputError(f"steady_state takes NumPy arrays, and not those of {problem.xp.library}")
    problem.rtol = _reading.number("rtol", rtol, above=0.0)
    problem.atol = _reading.number("atol", atol, least=0.0)
    if mass is not None and (problem.reaction is not None or problem.components is not None):
        raise InvalidInputError("mass= is for one equation without a reaction; leave it out")
    at, later = (_data(problem, t, problem.u0) for t in (problem.t0, problem.t1))
    if problem.largest(at - later) > _ZERO * problem.largest(at):
        raise InvalidInputError("source, boundary data or reaction depend on t: there is no steady state")
    method = _Steady(mass if mass is None else _reading.number("mass", mass))
    u = next(method.advance(problem, np.zeros(0)))
    residual = problem.largest(problem.space.apply(u) + _data(problem, problem.t0, u))
    norm = _norm(problem)
    if not residual <= _RESIDUAL * (norm * problem.largest(u) + problem.largest(at)):
        raise SolveError(f"no steady state: a residual of {residual:.3g} remains; give another u0, or check the data")
    settled = dataclasses.replace(problem, u0=u)
    error, why = estimate_grid_error(settled, method, _LONG, u, 1, estimate)
    notes = [*problem.notes, f"no estimate of the error in space: {why}"] if why else problem.notes
    frame, grid = problem.space.embed(u, problem.t0), problem.space.grid
    total = problem.space.integrate(frame)
    return SteadyState(
        grid[0] if len(grid) == 1 else grid, frame, residual, error, total, dict(problem.stats), tuple(notes)
    )


@dataclass(frozen=True, slots=True)
class _Steady(EvolutionMethod):
    """The steady state in place of steps, so that grids are compared as for equations in time."""

    mass: float | None = None

    name: ClassVar[str] = "steady_state"
    order: ClassVar[str] = "there is no time"
    exact: ClassVar[bool] = True

    def refuses(self, problem: EvolutionProblem) -> str | None:
        """Nothing."""
        return None

    def advance(self, problem: EvolutionProblem, mesh: Array) -> Iterator[Any]:
        """Yield the solution at the unknown points."""
        space, known, singular = problem.space, _data(problem, problem.t0, None), _is_singular(problem)
        if problem.reaction is not None:
            yield _newton(problem, known, singular=singular)
        elif not singular:
            if self.mass is not None:
                raise InvalidInputError(f"mass={self.mass:g}: the boundary conditions determine the solution; leave it")
            yield space.solve(0.0, known)
        else:
            yield _with_mass(problem, known, self.mass)


def _data(problem: EvolutionProblem, t: float, u: Any) -> Any:
    """All but the operator; without the reaction if there is no u."""
    known = problem.known(t)
    total = np.zeros(problem.state_shape, problem.u0.dtype) + (0.0 if known is None else known)
    return total if problem.reaction is None or u is None else total + problem.reaction(t, u)


def _trial(problem: EvolutionProblem) -> Any:
    """A rough state, on which the operator shows its norm."""
    return np.random.default_rng(0).normal(size=problem.state_shape)


def _norm(problem: EvolutionProblem) -> float:
    v = _trial(problem)
    return problem.largest(problem.space.apply(v)) / problem.largest(v)


def _integral(problem: EvolutionProblem, u: Any) -> Any:
    """The integral of a state that is zero where values are given."""
    space = problem.space
    return space.integrate(space.embed(u, problem.t0) - space.embed(0.0 * u, problem.t0))


def _is_singular(problem: EvolutionProblem) -> bool:
    """Whether the operator has an eigenvalue of 0; if they are not known, conserves mass or is zero for constants."""
    space = problem.space
    if space.symbol is not None:
        sizes = np.abs(space.symbol)
        return bool(sizes.min() <= _NO_RATE * np.median(sizes))
    image = space.apply(_trial(problem))
    lost = np.abs(_integral(problem, image)).max()
    flat = problem.largest(space.apply(np.ones(problem.state_shape)))
    return bool(lost <= _ZERO * np.max(_integral(problem, np.abs(image)))) or flat <= _ZERO * problem.largest(image)


def _with_mass(problem: EvolutionProblem, known: Any, mass: float | None) -> Any:
    """A solution of the singular equation, by inverse iteration, plus as much of the kernel as the mass needs."""
    if mass is None:
        raise InvalidInputError("the solution is unique only up to its mass; give mass=, the integral of u")
    net, size = float(_integral(problem, known)), float(_integral(problem, np.abs(known)))
    if abs(net) > _ZERO * size:
        raise InvalidInputError(
            f"source and boundary data add {net:g} to the mass in each unit of time: no steady state"
        )
    shift = _SHIFT * _norm(problem)

    def iterated(given: Any, corrected: Callable[[Any], Any]) -> Any:
        """Inverse iteration, whose part in the kernel is set anew each time, because it is known to the mass alone."""
        u = corrected(np.ones(problem.state_shape))
        for _ in range(_ITERATIONS):
            before, u = u, corrected(problem.space.solve(shift, shift * u + given, u))
            problem.stats["solves"] += 1
            if problem.largest(u - before) <= 1e-12 * problem.largest(u):
                break
        return u

    kernel = iterated(0.0, lambda u: u / _integral(problem, u))
    if not known.any():
        return mass * kernel
    return mass * kernel + iterated(known, lambda u: u - _integral(problem, u) * kernel)


def _newton(problem: EvolutionProblem, known: Any, *, singular: bool) -> Any:
    """Newton's method; a singular operator and the reaction are shifted by the same multiple of u."""
    reaction, u, shift, stepped = problem.reaction, problem.u0, 0.0, problem
    assert reaction is not None
    if singular:
        scale = problem.largest(_data(problem, problem.t0, u)) / _norm(problem)
        shift = max(map(problem.largest, own_slopes(problem, problem.t0, u, scale))) or 1.0
        # Its Jacobian by differences.
        stepped = dataclasses.replace(problem, reaction=lambda t, v: reaction(t, v) + shift * v, jacobian=None)
    try:
        return ReactionSolver(stepped).solve(problem.t0, shift, known, u)
    except StepFailedError as error:
        raise SolveError("Newton's method finds no steady state from u0; give a guess that is closer") from error
