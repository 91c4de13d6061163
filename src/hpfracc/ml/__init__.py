"""Machine learning with fractional calculus: layers, optimisers, neural equations, and their older import paths.

PyTorch layers are available here under their own names, JAX layers in :mod:`hpfracc.ml.jax`. Importing this package
imports no array library: a name is loaded when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hpfracc.ml.config import LayerConfig
    from hpfracc.ml.torch.convolution import FractionalConv1d, FractionalConv2d
    from hpfracc.ml.torch.fourier import FractionalFourier
    from hpfracc.ml.torch.fractional_layer import FractionalDerivative, FractionalLayer
    from hpfracc.ml.torch.graph import GraphDiffusion, LaplacianPower
    from hpfracc.ml.torch.losses import FractionalLoss
    from hpfracc.ml.torch.order import LearnableOrder, parameter_groups
    from hpfracc.ml.torch.recurrent import FractionalFilter, FractionalLSTM, FractionalRNN
    from hpfracc.ml.torch.residuals import FractionalResidual, LaplacianResidual, graded_points, whole_derivative

__all__ = [
    "FractionalConv1d",
    "FractionalConv2d",
    "FractionalDerivative",
    "FractionalFilter",
    "FractionalFourier",
    "FractionalLSTM",
    "FractionalLayer",
    "FractionalLoss",
    "FractionalRNN",
    "FractionalResidual",
    "GraphDiffusion",
    "LaplacianPower",
    "LaplacianResidual",
    "LayerConfig",
    "LearnableOrder",
    "graded_points",
    "parameter_groups",
    "whole_derivative",
]

#: The module that defines each name.
_HOMES = {
    "FractionalConv1d": "hpfracc.ml.torch.convolution",
    "FractionalConv2d": "hpfracc.ml.torch.convolution",
    "FractionalDerivative": "hpfracc.ml.torch.fractional_layer",
    "GraphDiffusion": "hpfracc.ml.torch.graph",
    "FractionalFilter": "hpfracc.ml.torch.recurrent",
    "FractionalFourier": "hpfracc.ml.torch.fourier",
    "FractionalLSTM": "hpfracc.ml.torch.recurrent",
    "FractionalLayer": "hpfracc.ml.torch.fractional_layer",
    "FractionalLoss": "hpfracc.ml.torch.losses",
    "FractionalRNN": "hpfracc.ml.torch.recurrent",
    "FractionalResidual": "hpfracc.ml.torch.residuals",
    "LaplacianPower": "hpfracc.ml.torch.graph",
    "LaplacianResidual": "hpfracc.ml.torch.residuals",
    "LayerConfig": "hpfracc.ml.config",
    "LearnableOrder": "hpfracc.ml.torch.order",
    "graded_points": "hpfracc.ml.torch.residuals",
    "parameter_groups": "hpfracc.ml.torch.order",
    "whole_derivative": "hpfracc.ml.torch.residuals",
}

# Hidden from type checkers, which would otherwise accept any attribute.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(_HOMES[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
