"""Rough volatility: the rough Heston and rough Bergomi models, and Black's formula with its inverse.

>>> from hpfracc import rough
>>> model = rough.Heston(H=0.1, v0=0.04, theta=0.04, kappa=0.3, sigma=0.4, rho=-0.7, S0=100.0, r=0.03)
>>> print(f"{model.implied_volatility(90.0, 1.0).value:.4f}")
0.2067
"""

from __future__ import annotations

from hpfracc.solvers.sde.rough import (
    Bergomi,
    Calibration,
    Heston,
    PathValuation,
    RoughPaths,
    Valuation,
    black_price,
    implied_volatility,
)

__all__ = [
    "Bergomi",
    "Calibration",
    "Heston",
    "PathValuation",
    "RoughPaths",
    "Valuation",
    "black_price",
    "implied_volatility",
]
