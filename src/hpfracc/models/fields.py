"""Models of transport: the partial differential equations of ``hpfracc.solvers.pde.problems``, as models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpfracc._reading import choice, function, numbers
from hpfracc.errors import ShapeError, SolveError
from hpfracc.models.base import Model, ModelFit, described, read_times
from hpfracc.solvers.pde.problems import ModelEquation, burgers, column, diffusion_wave, subdiffusion
from hpfracc.solvers.pde.result import FPDEResult

__all__ = ["FieldModel", "transport"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class FieldModel(Model):
    """A model that is a partial differential equation.

    Attributes
    ----------
    make : callable
        ``make(**values)``, a :class:`hpfracc.solvers.pde.problems.ModelEquation`.
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
        times = read_times(t)
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
            predict, read_times(t), given, free=free, sigma=sigma, absolute_sigma=absolute_sigma, solved=True
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
        Those of ``hpfracc.solvers.pde.problems``, with their exact solutions where known.

    Returns
    -------
    FieldModel
        :meth:`FieldModel.replace` changes its values.
    """
    make, values = _TRANSPORT[choice("name", name, _TRANSPORT)]
    return FieldModel(**described(name, *values), make=make)
