"""Fractional initial-value problems whose solutions are known, for tests, documentation and comparisons."""

from __future__ import annotations

from hpfracc.solvers.ode.problems._base import Reference, TestEquation, stored_reference
from hpfracc.solvers.ode.problems.bagley_torvik import bagley_torvik
from hpfracc.solvers.ode.problems.brusselator import brusselator
from hpfracc.solvers.ode.problems.diethelm import diethelm
from hpfracc.solvers.ode.problems.duffing import duffing
from hpfracc.solvers.ode.problems.lorenz import lorenz
from hpfracc.solvers.ode.problems.lotka_volterra import lotka_volterra
from hpfracc.solvers.ode.problems.pharmacokinetics import pharmacokinetics
from hpfracc.solvers.ode.problems.relaxation import relaxation
from hpfracc.solvers.ode.problems.viscoelastic import viscoelastic_oscillator

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
