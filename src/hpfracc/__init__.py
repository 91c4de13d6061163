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

__version__ = "0.1.0"

__all__ = [
    "BackendType",
    "IntelligentBackendSelector",
    "Operation",
    "WorkloadCharacteristics",
    "__version__",
    "bitwise_xor",
    "causal_convolution",
    "config",
    "elementwise",
    "errors",
    "explain",
    "fft",
    "last_decision",
    "matmul",
    "operation",
    "reduction",
    "select_optimal_backend",
    "use_backend",
]

#: The module each public name is loaded from; a name that stands for a whole module has no entry.
_HOMES: dict[str, str] = {
    "BackendType": "hpfracc.engine.backends.registry",
    "IntelligentBackendSelector": "hpfracc.engine.selection.selector",
    "Operation": "hpfracc.engine.execution.api",
    "WorkloadCharacteristics": "hpfracc.engine.workload",
    "bitwise_xor": "hpfracc.engine.execution.api",
    "causal_convolution": "hpfracc.engine.execution.api",
    "config": "hpfracc._config",
    "elementwise": "hpfracc.engine.execution.api",
    "explain": "hpfracc.engine.execution.api",
    "fft": "hpfracc.engine.execution.api",
    "last_decision": "hpfracc.engine.execution.api",
    "matmul": "hpfracc.engine.execution.api",
    "operation": "hpfracc.engine.execution.api",
    "reduction": "hpfracc.engine.execution.api",
    "select_optimal_backend": "hpfracc.engine.selection.selector",
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
