"""Methods for stochastic equations, one per file."""

from __future__ import annotations

from hpfracc.solvers.sde.methods.caputo_additive import AdditiveCaputoEuler, AdditiveCaputoImplicitEuler
from hpfracc.solvers.sde.methods.caputo_euler import CaputoEuler
from hpfracc.solvers.sde.methods.caputo_milstein import CaputoMilstein
from hpfracc.solvers.sde.methods.doss_sussmann import DossSussmann
from hpfracc.solvers.sde.methods.euler import Euler
from hpfracc.solvers.sde.methods.implicit_euler import CaputoImplicitEuler, ImplicitEuler
from hpfracc.solvers.sde.methods.method import PathMethod
from hpfracc.solvers.sde.methods.second_order import SecondOrder
from hpfracc.solvers.sde.problem import Traits

__all__ = ["ALIASES", "CAPUTO_METHODS", "METHODS", "PathMethod", "methods_for"]

#: Methods for equations of order 1, for Caputo equations of lower order with white noise, and with other noise.
METHODS: dict[str, PathMethod] = {
    method.name: method for method in (Euler(), SecondOrder(), DossSussmann(), ImplicitEuler())
}
CAPUTO_METHODS: dict[str, PathMethod] = {
    method.name: method for method in (CaputoEuler(), CaputoMilstein(), CaputoImplicitEuler())
}
_ADDITIVE_CAPUTO_METHODS: dict[str, PathMethod] = {
    method.name: method for method in (AdditiveCaputoEuler(), AdditiveCaputoImplicitEuler())
}
#: Aliases, for equations of order 1.
ALIASES = {"milstein": "second_order"}


def methods_for(traits: Traits, *, ordinary: bool) -> dict[str, PathMethod]:
    """The methods for equations of order 1 (``ordinary``) or below, with this noise."""
    if ordinary:
        return METHODS
    return CAPUTO_METHODS if traits.hurst == 0.5 else _ADDITIVE_CAPUTO_METHODS
