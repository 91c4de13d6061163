"""Rough volatility models."""

from hpfracc.solvers.sde.rough.black import black_price, implied_volatility
from hpfracc.solvers.sde.rough.heston import Heston
from hpfracc.solvers.sde.rough.smile import Estimate

__all__ = ["Estimate", "Heston", "black_price", "implied_volatility"]
