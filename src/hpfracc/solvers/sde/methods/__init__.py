"""Methods for stochastic equations, one family per file."""

from __future__ import annotations

from hpfracc.solvers.sde.methods.caputo_additive import AdditiveCaputoEuler
from hpfracc.solvers.sde.methods.caputo_euler import CaputoEuler, CaputoMilstein
from hpfracc.solvers.sde.methods.doss_sussmann import DossSussmann
from hpfracc.solvers.sde.methods.euler import Euler, SecondOrder
from hpfracc.solvers.sde.methods.method import PathMethod
from hpfracc.solvers.sde.problem import Traits

__all__ = ["ALIASES", "CAPUTO_METHODS", "METHODS", "PathMethod", "methods_for"]


def _by_name(*methods: PathMethod) -> dict[str, PathMethod]:
    return {method.name: method for method in methods}


#: Methods for equations of order 1, for Caputo equations of lower order with white noise, and with other noise.
METHODS = _by_name(Euler(), SecondOrder(), DossSussmann(), Euler(implicit=True))
CAPUTO_METHODS = _by_name(CaputoEuler(), CaputoMilstein(), CaputoEuler(implicit=True))
_ADDITIVE_CAPUTO_METHODS = _by_name(AdditiveCaputoEuler(), AdditiveCaputoEuler(implicit=True))
#: Aliases, for equations of order 1.
ALIASES = {"milstein": "second_order"}


def methods_for(traits: Traits, *, ordinary: bool) -> dict[str, PathMethod]:
    """The methods for equations of order 1 (``ordinary``) or below, with this noise."""
    if ordinary:
        return METHODS
    return CAPUTO_METHODS if traits.hurst == 0.5 else _ADDITIVE_CAPUTO_METHODS
