"""Ordinary differential equations of fractional order.

``from hpfracc.solvers.ode import PECE`` and so on: the methods as classes, for parameters of their own.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hpfracc.solvers.ode._fdeint import fdeint
    from hpfracc.solvers.ode._method import Method, all_methods
    from hpfracc.solvers.ode._options import Options
    from hpfracc.solvers.ode._problem import Problem
    from hpfracc.solvers.ode._result import FODEResult
    from hpfracc.solvers.ode._solve import solve_fode
    from hpfracc.solvers.ode.methods._adaptive import Adaptive, AdaptiveLocal
    from hpfracc.solvers.ode.methods._bdf2 import BDF2
    from hpfracc.solvers.ode.methods._explicit_rectangle import ExplicitRectangle
    from hpfracc.solvers.ode.methods._implicit_rectangle import ImplicitRectangle
    from hpfracc.solvers.ode.methods._implicit_trapezoid import ImplicitTrapezoid
    from hpfracc.solvers.ode.methods._l1 import L1
    from hpfracc.solvers.ode.methods._l2_sigma import L2Sigma
    from hpfracc.solvers.ode.methods._mittag_leffler import MittagLeffler
    from hpfracc.solvers.ode.methods._multistep_trapezoid import MultistepTrapezoid
    from hpfracc.solvers.ode.methods._newton_gregory import NewtonGregory
    from hpfracc.solvers.ode.methods._pece import PECE
    from hpfracc.solvers.ode.methods._tensor_explicit_rectangle import TensorExplicitRectangle
    from hpfracc.solvers.ode.methods._tensor_implicit_rectangle import TensorImplicitRectangle
    from hpfracc.solvers.ode.methods._tensor_implicit_trapezoid import TensorImplicitTrapezoid
    from hpfracc.solvers.ode.methods._tensor_pece import TensorPECE
    from hpfracc.solvers.ode.methods._variable_order import VariableOrder

__all__ = [
    "BDF2",
    "L1",
    "PECE",
    "Adaptive",
    "AdaptiveLocal",
    "ExplicitRectangle",
    "FODEResult",
    "ImplicitRectangle",
    "ImplicitTrapezoid",
    "L2Sigma",
    "Method",
    "MittagLeffler",
    "MultistepTrapezoid",
    "NewtonGregory",
    "Options",
    "Problem",
    "TensorExplicitRectangle",
    "TensorImplicitRectangle",
    "TensorImplicitTrapezoid",
    "TensorPECE",
    "VariableOrder",
    "all_methods",
    "fdeint",
    "solve_fode",
]

#: The module each name is loaded from, when it is first touched.
_HOMES = {
    "BDF2": "methods._bdf2",
    "PECE": "methods._pece",
    "Adaptive": "methods._adaptive",
    "AdaptiveLocal": "methods._adaptive",
    "ExplicitRectangle": "methods._explicit_rectangle",
    "FODEResult": "_result",
    "ImplicitRectangle": "methods._implicit_rectangle",
    "ImplicitTrapezoid": "methods._implicit_trapezoid",
    "L1": "methods._l1",
    "L2Sigma": "methods._l2_sigma",
    "Method": "_method",
    "MittagLeffler": "methods._mittag_leffler",
    "MultistepTrapezoid": "methods._multistep_trapezoid",
    "NewtonGregory": "methods._newton_gregory",
    "Options": "_options",
    "Problem": "_problem",
    "TensorExplicitRectangle": "methods._tensor_explicit_rectangle",
    "TensorImplicitRectangle": "methods._tensor_implicit_rectangle",
    "TensorImplicitTrapezoid": "methods._tensor_implicit_trapezoid",
    "TensorPECE": "methods._tensor_pece",
    "VariableOrder": "methods._variable_order",
    "all_methods": "_method",
    "fdeint": "_fdeint",
    "solve_fode": "_solve",
}


# Hidden from type checkers, for which any name would otherwise be an attribute.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
