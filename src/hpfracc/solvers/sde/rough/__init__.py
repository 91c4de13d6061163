"""Rough volatility models."""

from hpfracc.solvers.sde.rough.barriers import PathValuation
from hpfracc.solvers.sde.rough.bergomi import Bergomi
from hpfracc.solvers.sde.rough.black import black_price, implied_volatility
from hpfracc.solvers.sde.rough.calibration import Calibration
from hpfracc.solvers.sde.rough.heston import Heston
from hpfracc.solvers.sde.rough.paths import RoughPaths, Valuation

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
