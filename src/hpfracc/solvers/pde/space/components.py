"""The choice of a discretisation for each component of a system, and systems whose components have different ones."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import math
from typing import Any, final

import numpy as np

from hpfracc._arrays import to_host
from hpfracc.errors import InvalidInputError
from hpfracc.solvers.pde.boundary import Neumann, NoFlux
from hpfracc.solvers.pde.space.base import Semidiscretisation, SpaceSetting
from hpfracc.solvers.pde.space.krylov import RTOL
from hpfracc.solvers.pde.space.modes import BoxModes
from hpfracc.solvers.pde.space.variable import FiniteVolumes
from hpfracc.solvers.pde.terms import Advection, CrossDiffusion, Diffusion, FractionalDiffusion, Matrix, OneSided

#: For each domain in the order in which they are tried, faster and more accurate ones first. ``module:class`` below
#: this package.
_CANDIDATES = {
    "NoneType": (
        "modes:BoxModes",
        "jacobi:JacobiInterval",
        "variable:FiniteVolumes",
        "grunwald:ShiftedGrunwald",
        "grunwald:ReflectingGrunwald",
        "region:RegionSpace",
    ),
    "Disc": ("disc:JacobiDisc", "disc:PolarModes"),
    "Annulus": ("disc:PolarModes",),
    "Region": ("cut_cells:CutSpace", "region:RegionSpace"),
}

#: Points in several dimensions up to which finite volumes are diagonalised, at 0.5 s once, and not iterated.
_FEW = 1200

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
        self.scattered, self.nested = first.scattered, any(space.nested for space in spaces)
        self.coarsens = all(space.coarsens for space in spaces)
        self.best_order = min(space.best_order for space in spaces)
        self.forced = any(space.forced for space in spaces)
        self.forcing_varies = any(space.forcing_varies for space in spaces)
        self._shared, self.transforms = False, first.transforms
        self._diagonalise()

    @classmethod
    def refuses(cls, setting: SpaceSetting) -> str | None:
        """It is composed of other discretisations and never chosen by the terms."""
        return "it is composed of the discretisations of the components"

    def _diagonalise(self) -> None:
        """Take the eigenvalues of all components, where they have the same eigenfunctions."""
        self._shared = all(isinstance(space, BoxModes) for space in self.spaces)
        own = all(isinstance(space, FiniteVolumes) and space.symbol is not None for space in self.spaces)
        if own:
            self.transforms = (self._to_modes,), (self._from_modes,)
        if self._shared or own:
            self.symbol = self._stack([space.symbol for space in self.spaces])

    def _stack(self, parts: list[Any]) -> Any:
        xp = self.xp
        if len({xp.is_complex(part) for part in parts}) > 1:
            parts = [part if xp.is_complex(part) else xp.complex(part, xp.zeros_like(part)) for part in parts]
        return xp.stack(parts)

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

    def solve(self, shift: Any, rhs: Any, guess: Any = None, rtol: float = RTOL) -> Any:
        """Solves each component's system; the shift may be one for each component, with the axes of a state."""
        each = getattr(shift, "ndim", 0) > 0
        if each:
            shift = shift[(slice(None), *(slice(0, 1),) * len(self.shape))]
        if self._shared:
            return super().solve(shift, rhs)
        shifts = shift.reshape(-1) if each else [shift] * len(self.spaces)
        guesses = [None] * len(self.spaces) if guess is None else self._each(guess)
        parts = zip(self.spaces, shifts, self._each(rhs), guesses, strict=True)
        return self._joined([space.solve(own, part, start, rtol) for space, own, part, start in parts])

    def lacks_modes(self, accuracy: float) -> str | None:
        """What a component lacks; those of finite volumes have eigenvectors of their own."""
        if self.symbol is None and not self.mixes and all(isinstance(space, FiniteVolumes) for space in self.spaces):
            return next(filter(None, (space.lacks_modes(accuracy) for space in self.spaces)), None)
        return super().lacks_modes(accuracy)

    def with_modes(self) -> Semidiscretisation:
        """With the eigenvectors of each component."""
        return self if self.symbol is not None else type(self)([space.with_modes() for space in self.spaces])

    def _to_modes(self, u: Any) -> Any:
        return self._joined([space.forward(part) for space, part in zip(self.spaces, self._each(u), strict=True)])

    def _from_modes(self, c: Any) -> Any:
        return self._joined([space.backward(part) for space, part in zip(self.spaces, self._each(c), strict=True)])

    def forcing(self, t: float) -> Any:
        """The forcing of each component; zero where a component has none."""
        if not self.forced:
            return None
        parts = []
        for number, space in enumerate(self.spaces):
            part, zero = space.forcing(t), self.xp.zeros(space.shape, "float64")
            if part is not None and part.ndim > len(space.shape):
                part = part[number]
            parts.append(zero if part is None else part + zero)
        return self._joined(parts)

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
class SeparateSpaces(ComponentSpaces):
    """One discretisation per component, each with unknown points of its own, because conditions or nodes differ.

    A state has a row for each component: its unknowns in one vector, with zeros up to the length of the longest row.
    """

    scattered = True

    def __init__(self, spaces: list[Semidiscretisation]) -> None:
        super().__init__(spaces)
        self.scattered = True
        self.shape, self.points = (max(math.prod(space.shape) for space in spaces),), ()

    def _diagonalise(self) -> None:
        self.transforms = (self._to_rows,), (self._from_rows,)
        if all(space.symbol is not None for space in self.spaces) and len({type(space) for space in self.spaces}) == 1:
            # Beyond the end of a row an eigenvalue is repeated, of coefficients that are zero.
            rows = [space.symbol.reshape(-1) for space in self.spaces]
            count = max(row.shape[0] for row in rows)
            self.symbol = self._stack([row[np.minimum(np.arange(count), row.shape[0] - 1)] for row in rows])

    def _each(self, u: Any) -> list[Any]:
        return self._split(u, [space.shape for space in self.spaces])

    def _split(self, u: Any, shapes: Any) -> list[Any]:
        """The entries of each row, in their shapes."""
        lead = tuple(u.shape[:-2])
        return [u[..., i, : math.prod(shape)].reshape((*lead, *shape)) for i, shape in enumerate(shapes)]

    def _joined(self, parts: list[Any]) -> Any:
        return self._rows(parts, [space.shape for space in self.spaces], self.shape[0])

    def _rows(self, parts: list[Any], shapes: Any, count: int) -> Any:
        found = []
        for part, shape in zip(parts, shapes, strict=True):
            lead, size = tuple(part.shape[: part.ndim - len(shape)]), math.prod(shape)
            row = part.reshape((*lead, size))
            found.append(self.xp.concatenate([row, self.xp.zeros((*lead, count - size), row.dtype, like=row)], -1))
        return self.xp.stack(found, -2)

    def _on_grid(self, values: Any) -> list[Any]:
        """Values of each component on the whole grid."""
        return [self.xp.moveaxis(values, -1 - len(self.grid), 0)[number] for number in range(len(self.spaces))]

    def _to_rows(self, u: Any) -> Any:
        """The coefficients of each component in eigenfunctions of its own."""
        parts = [space.forward(part) for space, part in zip(self.spaces, self._each(u), strict=True)]
        return self._rows(parts, [space.symbol.shape for space in self.spaces], self.symbol.shape[-1])

    def _from_rows(self, c: Any) -> Any:
        """The values of each component."""
        parts = self._split(c, [tuple(space.symbol.shape) for space in self.spaces])
        return self._joined([space.backward(part) for space, part in zip(self.spaces, parts, strict=True)])

    def embed(self, u: Any, t: float) -> Any:
        """Each component with its own boundary."""
        parts = zip(self.spaces, self._each(u), strict=True)
        return self.xp.stack([space.embed(part, t) for space, part in parts], -1 - len(self.grid))

    def restrict(self, values: Any) -> Any:
        """Each component at its own points."""
        parts = zip(self.spaces, self._on_grid(values), strict=True)
        return self._joined([space.restrict(part) for space, part in parts])

    def integrate(self, values: Any) -> Any:
        """Each component by its own rule."""
        parts = zip(self.spaces, self._on_grid(values), strict=True)
        return self.xp.stack([space.integrate(part) for space, part in parts], -1)

    def weighted(self, u: Any, periodic: tuple[bool, ...]) -> Any:
        """Each component with its own weights."""
        parts = zip(self.spaces, self._each(u), strict=True)
        return self._joined([space.weighted(part, periodic) for space, part in parts])


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
        to, back = base.transforms
        self.transforms = (functools.partial(self._mix, 1), *to), (*back, functools.partial(self._mix, 2), self._state)

    def _mix(self, which: int, u: Any) -> Any:
        """The components times a matrix: that of the term, that to its eigenvectors, or that back."""
        parts, matrix = self._each(u), self._matrices[which]
        return self._joined([sum(k * part for k, part in zip(row, parts, strict=True)) for row in matrix])

    def _state(self, u: Any) -> Any:
        return u if self._complex or not self.xp.is_complex(u) else u.real

    def apply(self, u: Any) -> Any:
        """The matrix times the Laplacian of each component."""
        return self._state(self._mix(0, self.spaces[0].apply(u)))

    def solve(self, shift: Any, rhs: Any, guess: Any = None, rtol: float = RTOL) -> Any:
        """One system for each combination."""
        parts = zip(self.spaces, self._rates, self._each(self._mix(1, rhs)), strict=True)
        found = [space.solve(shift / rate, part / rate, None, rtol) for space, rate, part in parts]
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
    candidates: tuple[str, ...] = _CANDIDATES[type(setting.domain).__name__]
    few = setting.xp.library == "numpy" and math.prod(x.size for x in setting.grid) <= _FEW
    if few and setting.domain is None and setting.ndim > 1:  # the same finite volumes, diagonalised
        candidates = ("modes:BoxModes", "region:RegionSpace", *candidates)
    for candidate in ("matrix:MatrixSpace",) if Matrix in kinds else candidates:
        module, _, name = candidate.partition(":")
        kind: Any = getattr(importlib.import_module(f"{__package__}.{module}"), name)
        reason = kind.refuses(setting)
        if reason is None:
            return kind(setting)  # type: ignore[no-any-return]
        refusals.append(f"{kind.name}: {reason}")
    raise InvalidInputError("no discretisation takes these terms with this grid and boundary. " + "; ".join(refusals))


def discretise_components(settings: list[SpaceSetting]) -> Semidiscretisation:
    """One discretisation for all components, or one for each."""
    first = settings[0]
    if any(isinstance(term, CrossDiffusion) for setting in settings for term in setting.terms):
        if len(settings) > 1 or len(first.terms) > 1:
            raise InvalidInputError(
                "CrossDiffusion stands alone, for all components with the same conditions; add other terms to the "
                "reaction"
            )
        return CrossSpace(first)
    if len(settings) == 1:
        return discretise(first)
    spaces = [discretise(setting) for setting in settings]
    if any(not np.array_equal(x, y) for space in spaces for x, y in zip(space.grid, spaces[0].grid, strict=True)):
        raise InvalidInputError(
            "the integral Laplacians of a disc need one order for all components: radii depend on it"
        )
    if first.components is not None and all(_same_points(space, spaces[0]) for space in spaces):
        return ComponentSpaces(spaces)
    if first.components is not None:  # data of the boundary are those of one component
        spaces = [discretise(dataclasses.replace(setting, components=None)) for setting in settings]
    return SeparateSpaces(spaces)


def _same_points(one: Semidiscretisation, other: Semidiscretisation) -> bool:
    pairs = zip(one.points, other.points, strict=True)
    return one.shape == other.shape and all(np.array_equal(to_host(x), to_host(y)) for x, y in pairs)
