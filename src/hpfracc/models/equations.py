r"""Models that are equations: ordinary, :math:`D^\alpha y = f(t, y; p)` of Caputo from t = 0 on, and partial."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from hpfracc._reading import choice, function, increasing_times, listed, number, numbers
from hpfracc.errors import ShapeError, SolveError
from hpfracc.models.base import Model, ModelFit, described, new_axes
from hpfracc.models.problems.ordinary import TestEquation, brusselator, duffing, lorenz, lotka_volterra
from hpfracc.models.problems.partial import ModelEquation, burgers, column, diffusion_wave, subdiffusion
from hpfracc.solvers.ode.result import FODEResult
from hpfracc.solvers.ode.solve import solve_fode
from hpfracc.solvers.pde.result import FPDEResult

if TYPE_CHECKING:
    from hpfracc._results import Axes

__all__ = ["EquationModel", "FieldModel", "TimeCourse", "chaos", "transport"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True, eq=False)
class TimeCourse:
    """What a model does in time.

    Attributes
    ----------
    t : array, shape (N,)
        Times.
    y : array, shape (m, N)
        Its outputs.
    names : tuple of str
        Their names.
    solution : FODEResult or None
        The solution of the equation, with its error estimate, if one was solved.
    spikes : array
        Times of the spikes of a neuron; empty for other models.
    """

    t: Array
    y: Array
    names: tuple[str, ...]
    solution: FODEResult | None = None
    spikes: Array = field(default_factory=lambda: np.zeros(0))

    def __getitem__(self, name: str) -> Array:
        """The output of this name, shape (N,)."""
        return np.asarray(self.y[self.names.index(choice("name", name, self.names))])

    def plot(self, ax: Axes | None = None, **style: Any) -> Axes:
        """Draw the outputs over time, and spikes as ticks above; returns the axes. Needs Matplotlib."""
        ax = new_axes(ax)
        for name, row in zip(self.names, self.y, strict=True):
            ax.plot(self.t, row, label=name, **style)
        if self.spikes.size:
            ax.vlines(self.spikes, float(self.y.max()), float(self.y.max()) + 0.1 * float(np.ptp(self.y)), color="k")
        ax.set_xlabel("time")
        ax.legend()
        return ax


@dataclass(frozen=True, eq=False, repr=False)
class EquationModel(Model):
    r"""A model that is an equation.

    Attributes
    ----------
    fun : callable
        ``fun(t, y, *values)``, with the values of ``parameters`` in their order.
    states : tuple of str
        Names of the components of y.
    y0, orders : tuple
        Initial value and order of each: a number, or the name of a parameter.
    t_end : float
        Time until which it is usually simulated.
    outputs : tuple of str
        What is observed; by default the states.
    output : callable or None
        ``output(y, *values)`` of shape (m, N) for y of shape (d, N); by default y.
    """

    fun: Callable[..., Any]
    states: tuple[str, ...]
    y0: tuple[Any, ...]
    orders: tuple[Any, ...]
    t_end: float = 10.0
    outputs: tuple[str, ...] = ()
    output: Callable[..., Any] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        function("fun", self.fun, "(t, y, *values)")
        if self.output is not None:
            function("output", self.output, "(y, *values)")
        for name in ("states", "y0", "orders", "outputs"):
            object.__setattr__(self, name, tuple(listed(name, getattr(self, name), "one for each component")))
        if not len(self.y0) == len(self.states) == len(self.orders) > 0:
            raise ShapeError(
                f"{len(self.states)} states, {len(self.y0)} initial values, {len(self.orders)} orders; give as many of "
                "each"
            )
        for name in ("y0", "orders"):
            for each in getattr(self, name):
                choice(name, each, self.names) if isinstance(each, str) else number(name, each)
        number("t_end", self.t_end, above=0.0)
        object.__setattr__(self, "outputs", self.outputs or self.states)

    def simulate(self, t: Any = None, *, rtol: float = 1e-8, atol: float = 1e-10, method: str = "auto") -> TimeCourse:
        """Solve the equation.

        Parameters
        ----------
        t : array_like, optional
            Increasing times from 0 on; by default 401 up to ``t_end``.
        rtol, atol, method
            As in :func:`hpfracc.solve_fode`.

        Returns
        -------
        TimeCourse
        """
        times = increasing_times(np.linspace(0.0, self.t_end, 401) if t is None else t)
        values = self.values
        start, orders = ([values.get(each, each) for each in given] for given in (self.y0, self.orders))
        given: dict[str, Any] = {"t_eval": times, "args": tuple(values.values()), "method": method}
        order = orders[0] if len(set(orders)) == 1 else orders
        found = solve_fode(self.fun, (0.0, float(times[-1])), start, order, rtol=rtol, atol=atol, **given)
        if not found.success:
            raise SolveError(f"{self.name} could not be solved: {found.message}")
        y = found.y if self.output is None else np.asarray(self.output(found.y, *values.values()))
        return TimeCourse(times, y, self.outputs, found)

    def fit(
        self,
        t: Any,
        data: Any,
        *,
        observe: Sequence[str] | None = None,
        free: Sequence[str] | None = None,
        sigma: Any = None,
        absolute_sigma: bool = False,
        rtol: float = 1e-8,
    ) -> ModelFit:
        """Fit the parameters, orders among them, by least squares.

        Parameters
        ----------
        t : array_like, shape (N,)
            Increasing times from 0 on.
        data : array_like, shape (m, N) or (N,)
            The outputs; nan where one is missing.
        observe : sequence of str, optional
            Which outputs the rows are; by default all.
        free : sequence of str, optional
            The parameters to fit; by default all but initial values. The others keep their values.
        sigma, absolute_sigma
            As in :meth:`ResponseModel.fit`.
        rtol : float
            Tolerance of the solves.

        Returns
        -------
        ModelFit
            For other equations, several experiments and outliers use :func:`hpfracc.fit_fode`.
        """
        times = increasing_times(t)
        given = np.atleast_2d(numbers("data", data, finite=False))
        wanted = self.outputs if observe is None else listed("observe", observe, f"some of {', '.join(self.outputs)}")
        for each in wanted:
            choice("observe", each, self.outputs)
        if given.shape != (len(wanted), times.size):
            raise ShapeError(
                f"data has shape {given.shape}; give {(len(wanted), times.size)}: {', '.join(wanted)} at the times, or "
                "name the rows with observe"
            )

        def predict(*values: float) -> Array:
            found = self.replace(**dict(zip(self.names, values, strict=True))).simulate(times, rtol=rtol)
            return np.stack([found[each] for each in wanted])

        return self.least_squares(
            predict, times, given, free=free, sigma=sigma, absolute_sigma=absolute_sigma, solved=True
        )


#: Makers, and the names of the states.
_CHAOS: dict[str, tuple[Callable[..., TestEquation], tuple[str, ...]]] = {
    "lorenz": (lorenz, ("x", "y", "z")),
    "duffing": (duffing, ("x", "v")),
    "brusselator": (brusselator, ("x", "y")),
    "lotka_volterra": (lotka_volterra, ("prey", "predators")),
}


def chaos(name: str = "lorenz") -> EquationModel:
    """A well-known nonlinear oscillator; chaotic, or periodic, depending on its values.

    Parameters
    ----------
    name : {"lorenz", "duffing", "brusselator", "lotka_volterra"}
        Those of ``hpfracc.solvers.ode.problems``, whose stored solutions check the solvers.

    Returns
    -------
    EquationModel
        In dimensionless quantities; :meth:`EquationModel.replace` changes its values.
    """
    make, states = _CHAOS[choice("name", name, _CHAOS)]
    usual = make()
    keys = tuple(usual.parameters)
    # The right-hand side does not depend on the order.
    made = functools.lru_cache(64)(lambda *values: make(**dict(zip(keys, values, strict=True))).fun)

    def fun(t: float, y: Array, alpha: float, *values: float) -> Array:
        return made(*values)(t, y)

    return EquationModel(
        **described(name, usual.alpha, *usual.parameters.values()),
        fun=fun,
        states=states,
        y0=tuple(usual.y0.tolist()),
        orders=("alpha",) * len(states),
        t_end=usual.t_span[1],
    )


@dataclass(frozen=True, eq=False, repr=False)
class FieldModel(Model):
    """A model that is a partial differential equation.

    Attributes
    ----------
    make : callable
        ``make(**values)``, a :class:`hpfracc.pde.ModelEquation`.
    """

    make: Callable[..., ModelEquation]

    def __post_init__(self) -> None:
        super().__post_init__()
        function("make", self.make, "(**values)")

    @property
    def equation(self) -> ModelEquation:
        """The equation with the values of the model: grid, terms, boundary conditions, exact solution if known."""
        return self.make(**self.values)

    def simulate(self, t: Any = None, *, rtol: float = 1e-4) -> FPDEResult:
        """Solve it; at the times ``t``, or at those of the solver until its usual end."""
        equation = self.equation
        if t is None:
            return equation.solve(rtol=rtol)
        times = increasing_times(t)
        return equation.solve(t_span=(0.0, float(times[-1])), t_eval=times, rtol=rtol)

    def fit(
        self,
        t: Any,
        data: Any,
        *,
        free: Sequence[str] | None = None,
        sigma: Any = None,
        absolute_sigma: bool = False,
        rtol: float = 1e-6,
    ) -> ModelFit:
        """Fit the parameters to a field measured on the grid, by least squares.

        Parameters
        ----------
        t : array_like, shape (N,)
            Increasing times.
        data : array_like, shape (N, points)
            The field there, on the grid of ``equation``.
        free, sigma, absolute_sigma
            As in :meth:`ResponseModel.fit`.
        rtol : float
            Tolerance of the solves.

        Returns
        -------
        ModelFit
        """
        given = numbers("data", data)
        shape = (np.size(t), *np.shape(self.equation.u0))
        if given.shape != shape:
            raise ShapeError(f"data has shape {given.shape}; give {shape}, the field at each time on the model's grid")

        def predict(*values: float) -> Array:
            found = self.replace(**dict(zip(self.names, values, strict=True))).simulate(t, rtol=rtol)
            if not found.success:
                raise SolveError(f"{self.name} could not be solved for {values}: {found.message}")
            return np.asarray(found.u)

        return self.least_squares(
            predict, increasing_times(t), given, free=free, sigma=sigma, absolute_sigma=absolute_sigma, solved=True
        )

    def draw(self, ax: Any, x: Array, y: Array, quantity: str, **style: Any) -> Any:
        """Draw the field over space, a line for each time."""
        for row in y:
            ax.plot(self.equation.x, row, **style)
        ax.set_xlabel("x")
        return ax


#: Makers, and their usual values.
_TRANSPORT: dict[str, tuple[Callable[..., ModelEquation], tuple[float, ...]]] = {
    "subdiffusion": (subdiffusion, (0.5,)),
    "diffusion_wave": (diffusion_wave, (1.5, 0.5)),
    "column": (column, (1.6, 1.0, 0.1)),
    "burgers": (burgers, (2.0, 0.1)),
}


def transport(name: str = "subdiffusion") -> FieldModel:
    """A model of transport in one dimension.

    Parameters
    ----------
    name : {"subdiffusion", "diffusion_wave", "column", "burgers"}
        Those of ``hpfracc.pde.problems``, with their exact solutions where known.

    Returns
    -------
    FieldModel
        :meth:`FieldModel.replace` changes its values.
    """
    make, values = _TRANSPORT[choice("name", name, _TRANSPORT)]
    return FieldModel(**described(name, *values), make=make)
