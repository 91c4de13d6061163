"""Fractional initial-value problems with known solutions, for tests, documentation and comparisons."""

from __future__ import annotations

from hpfracc.solvers.ode.problems.applications import pharmacokinetics, viscoelastic_oscillator
from hpfracc.solvers.ode.problems.base import Reference, TestEquation, stored_reference
from hpfracc.solvers.ode.problems.exact import bagley_torvik, diethelm, relaxation
from hpfracc.solvers.ode.problems.nonlinear import brusselator, duffing, lorenz, lotka_volterra

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
