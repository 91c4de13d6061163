"""The choice of a discretisation for each component of a system, and systems whose components have different ones."""

from __future__ import annotations

import dataclasses
import importlib
from typing import Any, final

import numpy as np

from hpfracc.errors import InvalidInputError
from hpfracc.solvers.pde.boundary import Neumann, NoFlux
from hpfracc.solvers.pde.space.base import Semidiscretisation, SpaceSetting
from hpfracc.solvers.pde.space.modes import BoxModes
from hpfracc.solvers.pde.terms import Advection, CrossDiffusion, Diffusion, FractionalDiffusion, Matrix, OneSided

#: For each domain in the order in which they are tried, faster and more accurate ones first. ``module:class`` below
#: this package.
_CANDIDATES = {
    "NoneType": (
        "modes:BoxModes",
        "jacobi:JacobiInterval",
        "variable:FiniteVolumes",
        "grunwald:ShiftedGrunwald",
        "reflecting:ReflectingGrunwald",
        "region:RegionSpace",
    ),
    "Disc": ("disc:JacobiDisc", "disc:PolarModes"),
    "Annulus": ("disc:PolarModes",),
    "Region": ("region:RegionSpace",),
}

_WHICH_LAPLACIAN = (
    "FractionalDiffusion on a bounded set needs kind=, because the operators differ: kind='spectral' is the power of "
    "the Laplacian with your boundary condition, kind='integral' the singular integral over the whole space with data "
    "outside, kind='riesz' the sum of one-dimensional integral operators over the axes (for f = 1 on (-1, 1) and order "
    "1 the solution in the middle is 0.742 with the first and 1 with the others)"
)


class ComponentSpaces(Semidiscretisation):
    """One discretisation per component of the state, all with the same unknown points.

    Parameters
    ----------
    spaces : list of Semidiscretisation
        One for each component.
    """

    name = "components"

    def __init__(self, spaces: list[Semidiscretisation]) -> None:
        first = spaces[0]
        self.spaces = spaces
        self.xp, self.shape, self.points, self.grid = first.xp, first.shape, first.points, first.grid
        self.accuracy = " and ".join(dict.fromkeys(space.accuracy for space in spaces))
        self.notes = tuple(dict.fromkeys(note for space in spaces for note in space.notes))
        self.scattered = first.scattered
        self.coarsens = all(space.coarsens for space in spaces)
        self.best_order = min(space.best_order for space in spaces)
        self.forced = any(space.forced for space in spaces)
        self.forcing_varies = any(space.forcing_varies for space in spaces)
        self._shared = all(isinstance(space, BoxModes) for space in spaces)
        if self._shared:
            self.symbol = self._stack([space.symbol for space in spaces])

    @classmethod
    def refuses(cls, setting: SpaceSetting) -> str | None:
        """It is composed of other discretisations and never chosen by the terms."""
        return "it is composed of the discretisations of the components"

    def _stack(self, parts: list[Any]) -> Any:
        xp = self.xp
        if len({xp.is_complex(part) for part in parts}) > 1:
            parts = [part if xp.is_complex(part) else xp.complex(part, xp.zeros_like(part)) for part in parts]
        return xp.stack(parts)

    def forward(self, u: Any) -> Any:
        """Transforms all components together: they have the same eigenfunctions."""
        return self.spaces[0].forward(u)

    def backward(self, c: Any) -> Any:
        """Transforms all components together."""
        return self.spaces[0].backward(c)

    def _each(self, u: Any) -> list[Any]:
        axis = -1 - len(self.shape)
        return [self.xp.moveaxis(u, axis, 0)[number] for number in range(len(self.spaces))]

    def _joined(self, parts: list[Any]) -> Any:
        return self.xp.stack(parts, -1 - len(self.shape))

    def apply(self, u: Any) -> Any:
        """Applies each component's operator."""
        if self._shared:
            return super().apply(u)
        return self._joined([space.apply(part) for space, part in zip(self.spaces, self._each(u), strict=True)])

    def solve(self, shift: Any, rhs: Any, guess: Any = None) -> Any:
        """Solves each component's system; the shift may be one for each component, with the axes of a state."""
        shifts = [shift] * len(self.spaces)
        if getattr(shift, "ndim", 0):
            shift = shift[(slice(None), *(slice(0, 1),) * len(self.shape))]
            shifts = shift.reshape(-1)
        if self._shared:
            return super().solve(shift, rhs)
        guesses = [None] * len(self.spaces) if guess is None else self._each(guess)
        parts = zip(self.spaces, shifts, self._each(rhs), guesses, strict=True)
        return self._joined([space.solve(own, part, start) for space, own, part, start in parts])

    def forcing(self, t: float) -> Any:
        """The forcing of each component; zero where a component has none."""
        if not self.forced:
            return None
        zero = self.xp.zeros(self.shape, "float64")
        parts = []
        for number, space in enumerate(self.spaces):
            part = space.forcing(t)
            if part is not None and part.ndim > len(self.shape):
                part = part[number]
            parts.append(zero if part is None else part + zero)
        return self.xp.stack(parts)

    def embed(self, u: Any, t: float) -> Any:
        """All components share their boundary."""
        return self.spaces[0].embed(u, t)

    def restrict(self, values: Any) -> Any:
        """All components share their points."""
        return self.spaces[0].restrict(values)

    def integrate(self, values: Any) -> Any:
        """All components share the quadrature rule."""
        return self.spaces[0].integrate(values)

    def weighted(self, u: Any, periodic: tuple[bool, ...]) -> Any:
        """All components share the weights."""
        return self.spaces[0].weighted(u, periodic)

    def space_error(self, u: Any) -> float:
        """The largest error of all components; nan if one has no estimate."""
        return float(np.max([space.space_error(part) for space, part in zip(self.spaces, self._each(u), strict=True)]))

    def step_bytes(self) -> int:
        """The sum over all components."""
        return sum(space.step_bytes() for space in self.spaces)


@final
class CrossSpace(ComponentSpaces):
    """Diffusion with a matrix for the components: one operator, on the combinations that are its eigenvectors."""

    name = "cross_diffusion"
    mixes = True

    def __init__(self, setting: SpaceSetting) -> None:
        (term,) = setting.terms
        assert isinstance(term, CrossDiffusion)
        matrix = np.array(term.coefficient)
        if setting.components != len(matrix):
            have = "one equation" if setting.components is None else f"{setting.components} components"
            raise InvalidInputError(f"CrossDiffusion of {len(matrix)} components, and u0 has {have}")
        rates, vectors = np.linalg.eig(matrix)
        if not np.any(rates.imag):  # of complex type also for real eigenvalues, from NumPy 2.5 on
            rates, vectors = rates.real, vectors.real
        self._complex = setting.complex_state
        mixed = bool(np.iscomplexobj(rates)) or setting.complex_state
        base = discretise(dataclasses.replace(setting, terms=(Diffusion(1.0),), complex_state=mixed))
        super().__init__([base] * len(matrix))
        self._rates = rates.tolist()
        self._matrices = [one.tolist() for one in (matrix, np.linalg.inv(vectors), vectors)]
        self.symbol = None if base.symbol is None else self.xp.stack([rate * base.symbol for rate in self._rates])

    def _mix(self, which: int, u: Any) -> Any:
        """The components times a matrix: that of the term, that to its eigenvectors, or that back."""
        parts, matrix = self._each(u), self._matrices[which]
        return self._joined([sum(k * part for k, part in zip(row, parts, strict=True)) for row in matrix])

    def _state(self, u: Any) -> Any:
        return u if self._complex or not self.xp.is_complex(u) else u.real

    def forward(self, u: Any) -> Any:
        """The coefficients of the combinations."""
        return super().forward(self._mix(1, u))

    def backward(self, c: Any) -> Any:
        """The values of the components."""
        return self._state(self._mix(2, super().backward(c)))

    def apply(self, u: Any) -> Any:
        """The matrix times the Laplacian of each component."""
        return self._state(self._mix(0, self.spaces[0].apply(u)))

    def solve(self, shift: Any, rhs: Any, guess: Any = None) -> Any:
        """One system for each combination."""
        parts = zip(self.spaces, self._rates, self._each(self._mix(1, rhs)), strict=True)
        found = [space.solve(shift / rate, part / rate) for space, rate, part in parts]
        return self._state(self._mix(2, self._joined(found)))

    def forcing(self, t: float) -> Any:
        """The matrix times the contributions of the boundary data."""
        return self._state(self._mix(0, super().forcing(t))) if self.forced else None


def discretise(setting: SpaceSetting) -> Semidiscretisation:
    """The first candidate that supports ``setting``; the error contains the refusal of each."""
    if not setting.periodic:
        for term in setting.terms:
            if isinstance(term, FractionalDiffusion) and term.kind is None:
                raise InvalidInputError(_WHICH_LAPLACIAN)
    kinds = {type(term) for term in setting.terms}
    if Advection not in kinds or OneSided in kinds:
        # There, zero slope and no flux are the same condition.
        closed = [tuple(Neumann() if isinstance(one, NoFlux) else one for one in pair) for pair in setting.boundary]
        setting = dataclasses.replace(setting, boundary=tuple((low, high) for low, high in closed))
    refusals = []
    candidates = _CANDIDATES[type(setting.domain).__name__]
    for candidate in ("matrix:MatrixSpace",) if Matrix in kinds else candidates:
        module, _, name = candidate.partition(":")
        kind: type[Semidiscretisation] = getattr(importlib.import_module(f"{__package__}.{module}"), name)
        reason = kind.refuses(setting)
        if reason is None:
            return kind.make(setting)
        refusals.append(f"{kind.name}: {reason}")
    raise InvalidInputError("no discretisation takes these terms with this grid and boundary. " + "; ".join(refusals))


def discretise_components(settings: list[SpaceSetting]) -> Semidiscretisation:
    """One discretisation for all components, or one for each."""
    if any(isinstance(term, CrossDiffusion) for setting in settings for term in setting.terms):
        if len(settings) > 1 or len(settings[0].terms) > 1:
            raise InvalidInputError("CrossDiffusion stands alone, for all components; add other terms to the reaction")
        return CrossSpace(settings[0])
    if len(settings) == 1:
        return discretise(settings[0])
    return ComponentSpaces([discretise(setting) for setting in settings])
