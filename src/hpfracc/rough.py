"""Rough volatility: the rough Heston and rough Bergomi models, and Black's formula with its inverse.

>>> from hpfracc import rough
>>> model = rough.Heston(H=0.1, v0=0.04, theta=0.04, kappa=0.3, sigma=0.4, rho=-0.7, S0=100.0, r=0.03)
>>> print(f"{model.implied_volatility(90.0, 1.0).value:.4f}")
0.2067
"""

from __future__ import annotations

from hpfracc.solvers.sde.rough.bergomi import Bergomi
from hpfracc.solvers.sde.rough.black import black_price, implied_volatility
from hpfracc.solvers.sde.rough.calibration import Calibration
from hpfracc.solvers.sde.rough.heston import Heston
from hpfracc.solvers.sde.rough.model import RoughPaths, Valuation
from hpfracc.solvers.sde.rough.sampling import PathValuation

__all__ = [
    "Bergomi", "Calibration", "Heston", "PathValuation", "RoughPaths", "Valuation", "black_price",
    "implied_volatility",
]  # fmt: skip
