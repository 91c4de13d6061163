"""Fractional initial-value problems whose solutions are known, for tests, documentation and comparisons."""

from __future__ import annotations

from hpfracc.solvers.ode.problems._bagley_torvik import bagley_torvik
from hpfracc.solvers.ode.problems._base import Reference, TestEquation, stored_reference
from hpfracc.solvers.ode.problems._brusselator import brusselator
from hpfracc.solvers.ode.problems._diethelm import diethelm
from hpfracc.solvers.ode.problems._duffing import duffing
from hpfracc.solvers.ode.problems._lorenz import lorenz
from hpfracc.solvers.ode.problems._lotka_volterra import lotka_volterra
from hpfracc.solvers.ode.problems._pharmacokinetics import pharmacokinetics
from hpfracc.solvers.ode.problems._relaxation import relaxation
from hpfracc.solvers.ode.problems._viscoelastic import viscoelastic_oscillator

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
