"""Steps of stochastic equations, one method a file."""

from __future__ import annotations

from hpfracc.solvers.sde.methods.caputo_euler import CaputoEuler
from hpfracc.solvers.sde.methods.caputo_milstein import CaputoMilstein
from hpfracc.solvers.sde.methods.doss_sussmann import DossSussmann
from hpfracc.solvers.sde.methods.euler import Euler
from hpfracc.solvers.sde.methods.implicit_euler import CaputoImplicitEuler, ImplicitEuler
from hpfracc.solvers.sde.methods.method import PathMethod
from hpfracc.solvers.sde.methods.second_order import SecondOrder

__all__ = ["ALIASES", "CAPUTO_METHODS", "METHODS", "PathMethod"]

#: For equations of order 1, and for Caputo's of an order below.
METHODS: dict[str, PathMethod] = {
    method.name: method for method in (Euler(), SecondOrder(), DossSussmann(), ImplicitEuler())
}
CAPUTO_METHODS: dict[str, PathMethod] = {
    method.name: method for method in (CaputoEuler(), CaputoMilstein(), CaputoImplicitEuler())
}
#: Other names, for equations of order 1.
ALIASES = {"milstein": "second_order"}
