"""Fractional initial-value problems with known solutions, for tests, documentation and comparisons."""

from __future__ import annotations

from hpfracc.solvers.ode.problems.base import Reference, TestEquation, stored_reference
from hpfracc.solvers.ode.problems.equations import (
    bagley_torvik,
    brusselator,
    diethelm,
    duffing,
    lorenz,
    lotka_volterra,
    pharmacokinetics,
    relaxation,
    viscoelastic_oscillator,
)  # fmt: skip

__all__ = [
    "Reference",
    "TestEquation",
    "bagley_torvik",
    "brusselator",
    "diethelm",
    "duffing",
    "lorenz",
    "lotka_volterra",
    "pharmacokinetics",
    "relaxation",
    "stored_reference",
    "viscoelastic_oscillator",
]
