"""Ordinary differential equations of fractional order.

The methods are classes, so that their parameters can be set: ``from hpfracc.solvers.ode import PECE``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hpfracc.solvers.ode._fdeint import fdeint
    from hpfracc.solvers.ode.method import Method, all_methods
    from hpfracc.solvers.ode.methods.adaptive import Adaptive, AdaptiveLocal
    from hpfracc.solvers.ode.methods.bdf2 import BDF2
    from hpfracc.solvers.ode.methods.explicit_rectangle import ExplicitRectangle
    from hpfracc.solvers.ode.methods.explicit_rectangle import ExplicitRectangle as TensorExplicitRectangle
    from hpfracc.solvers.ode.methods.implicit_rectangle import ImplicitRectangle
    from hpfracc.solvers.ode.methods.implicit_rectangle import ImplicitRectangle as TensorImplicitRectangle
    from hpfracc.solvers.ode.methods.implicit_trapezoid import ImplicitTrapezoid
    from hpfracc.solvers.ode.methods.implicit_trapezoid import ImplicitTrapezoid as TensorImplicitTrapezoid
    from hpfracc.solvers.ode.methods.l1 import L1
    from hpfracc.solvers.ode.methods.l2_sigma import L2Sigma
    from hpfracc.solvers.ode.methods.mittag_leffler import MittagLeffler
    from hpfracc.solvers.ode.methods.multistep_trapezoid import MultistepTrapezoid
    from hpfracc.solvers.ode.methods.newton_gregory import NewtonGregory
    from hpfracc.solvers.ode.methods.pece import PECE
    from hpfracc.solvers.ode.methods.pece import PECE as TensorPECE  # noqa: N811 - a name is all it is
    from hpfracc.solvers.ode.methods.variable_order import VariableOrder
    from hpfracc.solvers.ode.options import Options
    from hpfracc.solvers.ode.problem import Problem
    from hpfracc.solvers.ode.result import FODEResult
    from hpfracc.solvers.ode.solve import solve_fode

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

#: The module that defines each name, loaded on first use, and the name there if it differs. In version 0.1 methods for
#: tensors were separate classes.
_HOMES = {
    "BDF2": "methods.bdf2",
    "PECE": "methods.pece",
    "Adaptive": "methods.adaptive",
    "AdaptiveLocal": "methods.adaptive",
    "ExplicitRectangle": "methods.explicit_rectangle",
    "FODEResult": "result",
    "ImplicitRectangle": "methods.implicit_rectangle",
    "ImplicitTrapezoid": "methods.implicit_trapezoid",
    "L1": "methods.l1",
    "L2Sigma": "methods.l2_sigma",
    "Method": "method",
    "MittagLeffler": "methods.mittag_leffler",
    "MultistepTrapezoid": "methods.multistep_trapezoid",
    "NewtonGregory": "methods.newton_gregory",
    "Options": "options",
    "Problem": "problem",
    "TensorExplicitRectangle": "methods.explicit_rectangle:ExplicitRectangle",
    "TensorImplicitRectangle": "methods.implicit_rectangle:ImplicitRectangle",
    "TensorImplicitTrapezoid": "methods.implicit_trapezoid:ImplicitTrapezoid",
    "TensorPECE": "methods.pece:PECE",
    "VariableOrder": "methods.variable_order",
    "all_methods": "method",
    "fdeint": "_fdeint",
    "solve_fode": "solve",
}


# Hidden from type checkers, which would otherwise accept any attribute.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        home, _, other = _HOMES[name].partition(":")
        value = getattr(importlib.import_module(f"{__name__}.{home}"), other or name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
