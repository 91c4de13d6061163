"""The choice of a discretisation for a sum of terms on a grid with boundary conditions."""

from __future__ import annotations

import importlib

from hpfracc.errors import InvalidInputError
from hpfracc.solvers.pde.space.base import Semidiscretisation, SpaceSetting
from hpfracc.solvers.pde.terms import FractionalDiffusion

__all__ = ["CANDIDATES", "discretise"]

#: In the order in which they are tried, faster and more accurate ones first. ``module:class`` below this package.
CANDIDATES = (
    "modes:BoxModes",
    "jacobi:JacobiInterval",
    "variable:FiniteVolumes",
    "grunwald:ShiftedGrunwald",
    "reflecting:ReflectingGrunwald",
)

_WHICH_LAPLACIAN = (
    "FractionalDiffusion on a bounded set needs kind=, because the operators differ: kind='spectral' is the power of "
    "the Laplacian with your boundary condition, kind='integral' the singular integral over the whole space with data "
    "outside, kind='riesz' the sum of one-dimensional integral operators over the axes (for f = 1 on (-1, 1) and order "
    "1 the solution in the middle is 0.742 with the first and 1 with the others)"
)


def discretise(setting: SpaceSetting) -> Semidiscretisation:
    """The first candidate that supports ``setting``; the error contains the refusal of each."""
    if not setting.periodic:
        for term in setting.terms:
            if isinstance(term, FractionalDiffusion) and term.kind is None:
                raise InvalidInputError(_WHICH_LAPLACIAN)
    refusals = []
    for candidate in CANDIDATES if setting.disc is None else ("disc:JacobiDisc",):
        module, _, name = candidate.partition(":")
        kind: type[Semidiscretisation] = getattr(importlib.import_module(f"{__package__}.{module}"), name)
        reason = kind.refuses(setting)
        if reason is None:
            return kind.make(setting)
        refusals.append(f"{kind.name}: {reason}")
    raise InvalidInputError("no discretisation takes these terms with this grid and boundary. " + "; ".join(refusals))
