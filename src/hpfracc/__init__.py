"""Fractional calculus at the speed of the hardware.

Every heavy call is described as a workload; an engine picks the algorithm, the backend and the device that finish it
soonest on this machine, learns from what it measures, and can say why.

Examples
--------
>>> import numpy as np
>>> import hpfracc as hf
>>> hf.causal_convolution(np.array([1.0, 0.5]), np.array([1.0, 0.0, 2.0]))
array([1. , 0.5, 2. ])

Public names are loaded when they are first touched (PEP 562), so that ``import hpfracc`` stays quick and imports no
accelerator library.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hpfracc import errors
    from hpfracc._config import config, use_backend
    from hpfracc.engine.backends.registry import BackendType
    from hpfracc.engine.execution.api import (
        Operation,
        bitwise_xor,
        causal_convolution,
        elementwise,
        explain,
        fft,
        last_decision,
        matmul,
        operation,
        reduction,
    )
    from hpfracc.engine.selection.selector import IntelligentBackendSelector, select_optimal_backend
    from hpfracc.engine.workload import WorkloadCharacteristics
    from hpfracc.operators._base import FractionalOperator, OperatorResult
    from hpfracc.operators._caputo import Caputo, caputo
    from hpfracc.operators._grunwald_letnikov import GrunwaldLetnikov, grunwald_letnikov
    from hpfracc.operators._registry import create_fractional_derivative, create_fractional_integral
    from hpfracc.operators._riemann_liouville import RiemannLiouville, riemann_liouville
    from hpfracc.operators._riemann_liouville_integral import RiemannLiouvilleIntegral, riemann_liouville_integral
    from hpfracc.solvers.ode._fdeint import fdeint
    from hpfracc.solvers.ode._result import FODEResult
    from hpfracc.solvers.ode._solve import solve_fode

__version__ = "0.1.0"

__all__ = [
    "BackendType",
    "Caputo",
    "FODEResult",
    "FractionalOperator",
    "GrunwaldLetnikov",
    "IntelligentBackendSelector",
    "Operation",
    "OperatorResult",
    "RiemannLiouville",
    "RiemannLiouvilleIntegral",
    "WorkloadCharacteristics",
    "__version__",
    "bitwise_xor",
    "caputo",
    "causal_convolution",
    "config",
    "create_fractional_derivative",
    "create_fractional_integral",
    "elementwise",
    "errors",
    "explain",
    "fdeint",
    "fft",
    "grunwald_letnikov",
    "last_decision",
    "matmul",
    "operation",
    "reduction",
    "riemann_liouville",
    "riemann_liouville_integral",
    "select_optimal_backend",
    "solve_fode",
    "use_backend",
]

#: The module each public name is loaded from; a name that stands for a whole module has no entry.
_HOMES: dict[str, str] = {
    "BackendType": "hpfracc.engine.backends.registry",
    "Caputo": "hpfracc.operators._caputo",
    "FODEResult": "hpfracc.solvers.ode._result",
    "FractionalOperator": "hpfracc.operators._base",
    "GrunwaldLetnikov": "hpfracc.operators._grunwald_letnikov",
    "IntelligentBackendSelector": "hpfracc.engine.selection.selector",
    "Operation": "hpfracc.engine.execution.api",
    "OperatorResult": "hpfracc.operators._base",
    "RiemannLiouville": "hpfracc.operators._riemann_liouville",
    "RiemannLiouvilleIntegral": "hpfracc.operators._riemann_liouville_integral",
    "WorkloadCharacteristics": "hpfracc.engine.workload",
    "bitwise_xor": "hpfracc.engine.execution.api",
    "caputo": "hpfracc.operators._caputo",
    "causal_convolution": "hpfracc.engine.execution.api",
    "config": "hpfracc._config",
    "create_fractional_derivative": "hpfracc.operators._registry",
    "create_fractional_integral": "hpfracc.operators._registry",
    "elementwise": "hpfracc.engine.execution.api",
    "explain": "hpfracc.engine.execution.api",
    "fdeint": "hpfracc.solvers.ode._fdeint",
    "fft": "hpfracc.engine.execution.api",
    "grunwald_letnikov": "hpfracc.operators._grunwald_letnikov",
    "last_decision": "hpfracc.engine.execution.api",
    "matmul": "hpfracc.engine.execution.api",
    "operation": "hpfracc.engine.execution.api",
    "reduction": "hpfracc.engine.execution.api",
    "riemann_liouville": "hpfracc.operators._riemann_liouville",
    "riemann_liouville_integral": "hpfracc.operators._riemann_liouville_integral",
    "select_optimal_backend": "hpfracc.engine.selection.selector",
    "solve_fode": "hpfracc.solvers.ode._solve",
    "use_backend": "hpfracc._config",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
    elif name in __all__:
        value = importlib.import_module(f"{__name__}.{name}")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Kept, so that the next look-up does not come here.
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
