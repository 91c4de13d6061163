r"""Models that are equations of fractional order: :math:`D^\alpha y = f(t, y; p)`, Caputo, from t = 0."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpfracc._reading import choice, function, listed, number, numbers
from hpfracc.errors import ShapeError, SolveError
from hpfracc.models.base import Model, ModelFit, described, new_axes, read_times
from hpfracc.solvers.ode.problems import TestEquation, brusselator, duffing, lorenz, lotka_volterra
from hpfracc.solvers.ode.result import FODEResult
from hpfracc.solvers.ode.solve import solve_fode

__all__ = ["EquationModel", "Simulation", "chaos"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Simulation:
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
    spikes : array or None
        Times of the spikes of a neuron.
    """

    t: Array
    y: Array
    names: tuple[str, ...]
    solution: FODEResult | None = None
    spikes: Array | None = None

    def __getitem__(self, name: str) -> Array:
        """The output of this name, shape (N,)."""
        return np.asarray(self.y[self.names.index(choice("name", name, self.names))])

    def plot(self, ax: Any = None, **style: Any) -> Any:
        """Draw the outputs over time, and spikes as ticks above; returns the axes. Needs Matplotlib."""
        ax = new_axes(ax)
        for name, row in zip(self.names, self.y, strict=True):
            ax.plot(self.t, row, label=name, **style)
        if self.spikes is not None and self.spikes.size:
            ax.vlines(self.spikes, float(self.y.max()), float(self.y.max()) + 0.1 * float(np.ptp(self.y)), color="k")
        ax.set_xlabel("time")
        ax.legend()
        return ax


@dataclass(frozen=True, eq=False)
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

    def simulate(self, t: Any = None, *, rtol: float = 1e-8, atol: float = 1e-10, method: str = "auto") -> Simulation:
        """Solve the equation.

        Parameters
        ----------
        t : array_like, optional
            Increasing times from 0 on; by default 401 up to ``t_end``.
        rtol, atol, method
            As in :func:`hpfracc.solve_fode`.

        Returns
        -------
        Simulation
        """
        times = read_times(np.linspace(0.0, self.t_end, 401) if t is None else t)
        values = self.values
        start, orders = ([values.get(each, each) for each in given] for given in (self.y0, self.orders))
        found = solve_fode(
            self.fun,
            (0.0, float(times[-1])),
            start,
            orders[0] if len(set(orders)) == 1 else orders,
            t_eval=times,
            args=tuple(values.values()),
            rtol=rtol,
            atol=atol,
            method=method,
        )
        if not found.success:
            raise SolveError(f"{self.name} could not be solved: {found.message}")
        y = found.y if self.output is None else np.asarray(self.output(found.y, *values.values()))
        return Simulation(times, y, self.outputs, found)

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
        times = read_times(t)
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
