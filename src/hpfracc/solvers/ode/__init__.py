"""Ordinary differential equations of fractional order.

``from hpfracc.solvers.ode import PECE`` and so on: the methods as classes, for parameters of their own.
"""

from __future__ import annotations

import importlib
from typing import Any

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


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
